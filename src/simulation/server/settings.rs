//! What a server is told about itself: pure.

/// The software whose words a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// Redis 6.2.
    Redis62,
    /// Redis 7.0.
    #[default]
    Redis70,
    /// Redis 8.0.
    Redis80,
    /// Valkey 9.1.
    Valkey91,
}

impl Version {
    pub(super) fn is_valkey(self) -> bool {
        self == Self::Valkey91
    }

    /// What it says to a client that asks for Redis's version.
    pub(super) fn of_redis(self) -> &'static str {
        match self {
            Self::Redis62 => "6.2.14",
            Self::Redis70 => "7.0.15",
            Self::Redis80 => "8.0.2",
            Self::Valkey91 => "7.2.4",
        }
    }

    pub(super) fn own(self) -> &'static str {
        if self.is_valkey() { "9.1.2" } else { self.of_redis() }
    }

    pub(super) fn name(self) -> &'static str {
        if self.is_valkey() { "valkey" } else { "redis" }
    }
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The software whose words the server speaks.
    pub version: Version,
    /// What its run ids and random choices come from.
    pub seed: u64,
    /// Where it says that it is.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// The password of the default user.
    pub password: Option<String>,
    /// Whether the server is a node of a cluster.
    pub cluster: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: Version::default(),
            seed: 0,
            host: "127.0.0.1".into(),
            port: 6379,
            password: None,
            cluster: false,
        }
    }
}
