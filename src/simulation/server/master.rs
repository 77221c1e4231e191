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
    /// How many Sentinels have to miss it.
    pub quorum: usize,
    /// Whether this Sentinel misses it.
    pub is_down: bool,
    /// Host and port of each replica.
    pub replicas: Vec<(String, u16)>,
    /// Host and port of each other Sentinel that watches it.
    pub sentinels: Vec<(String, u16)>,
}
