//! What a Sentinel knows of a primary: pure. Sentinels speak of masters and slaves.

/// A primary that a Sentinel watches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Master {
    /// What clients ask for.
    pub name: String,
    /// Where it is.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// Grows with each failover.
    pub epoch: u64,
    /// Host and port of the one that takes its place, while the Sentinel that leads the failover has replicas follow
    /// that.
    pub promoted: Option<(String, u16)>,
}
