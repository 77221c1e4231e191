//! The role of a server in replication: pure.

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Role {
    #[default]
    Primary,
    Replica {
        host: String,
        port: u16,
        is_linked: bool,
    },
}

/// A replica, as its primary knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) host: String,
    pub(super) port: u16,
    /// Up to where it has everything.
    pub(super) acknowledged: u64,
}
