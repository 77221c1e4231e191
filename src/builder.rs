//! The options of a client.

use std::fmt;
use std::time::Duration;

use redis::IntoConnectionInfo;

use crate::client::LockClient;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::Error;

/// Options for a [`LockClient`], from [`LockClient::builder`].
///
/// What is out of bounds, or does not fit together, is refused by [`connect`](Self::connect)
/// before any I/O.
#[must_use = "options have no effect until `connect` is called"]
#[derive(Default)]
pub struct LockClientBuilder {
    url: Option<String>,
    client: Option<redis::Client>,
    sentinel: Option<(String, Vec<String>)>,
    cluster: Option<Vec<String>>,
    replicas: Option<(u32, Duration)>,
    config: Config,
}

impl LockClientBuilder {
    /// Where Redis is: `redis://[user[:password]@]host[:port][/database]`, or `unix:` and a path.
    /// Either this or [`client`](Self::client) is needed.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// A ready-made client of the `redis` crate, whose address, credentials and TCP settings are
    /// used. The lock client speaks RESP3 and sets `TCP_NODELAY`, `SO_LINGER` and
    /// `TCP_USER_TIMEOUT` to what it needs, whatever it says.
    pub fn client(mut self, client: redis::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The name of a master that Sentinels watch, and where they are. (In the making.)
    pub fn sentinel(
        mut self,
        master_name: impl Into<String>,
        urls: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.sentinel = Some((master_name.into(), urls.into_iter().map(Into::into).collect()));
        self
    }

    /// Where some nodes of a cluster are. (In the making.)
    pub fn cluster(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.cluster = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Has an acquire count only once so many replicas have it. (In the making.)
    pub fn replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.replicas = Some((count, timeout));
        self
    }

    /// The lease of a lock that was acquired without one, renewed every third of it. After a
    /// holder's crash, others wait for up to this long. Shorter frees sooner; longer rides out
    /// longer outages and pauses of the holder. 30 s unless set; from 30 ms to a day.
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.config.watchdog_timeout = timeout;
        self
    }

    /// How long a single command may take, connecting included, before a call says
    /// [`Unavailable`](crate::ErrorKind::Unavailable). Longer for a Redis that is far away or
    /// often busy, shorter where a quick no is worth more. 3 s unless set; from 10 ms to an hour.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.config.command_timeout = timeout;
        self
    }

    /// How long a [`lock`](crate::Lock::lock) that is already waiting rides out an outage of Redis
    /// before it says [`Unavailable`](crate::ErrorKind::Unavailable). Longer than a restart or a
    /// failover takes. 30 s unless set; any.
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.config.outage_limit = limit;
        self
    }

    /// Put before every lock's name to make its key, so that several applications can share a
    /// database. None unless set; any.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.name_prefix = prefix.into();
        self
    }

    /// How often in a row a lock may go from one holder of this client to the next while other
    /// clients wait for it. More is more throughput, fewer is a shorter wait for the others. Nobody
    /// is held to it while no other client waits. 100 unless set; zero hands nothing over, so that
    /// every release goes to all clients.
    pub fn hand_overs(mut self, most: u32) -> Self {
        self.config.hand_overs = most;
        self
    }

    /// For how long a client may keep a lock in that way while other clients wait for it; whichever
    /// of the two limits comes first ends it, with the hold that goes on then. So with `n` clients
    /// that wait, each has its turn about every `n` times this. Longer than a few holds take. 10 ms
    /// unless set; any.
    pub fn hand_over_time(mut self, longest: Duration) -> Self {
        self.config.hand_over_time = longest;
        self
    }

    /// Checks the options, connects once and starts the client's thread.
    ///
    /// # Errors
    ///
    /// Those of [`LockClient::connect`], and
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for options that cannot work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self) -> Result<LockClient, Error> {
        self.config.check()?;
        if self.sentinel.is_some() || self.cluster.is_some() || self.replicas.is_some() {
            return Err(Error::invalid("this topology is in the making"));
        }
        let info = match (self.url, self.client) {
            (Some(url), None) => url.into_connection_info().map_err(|error| {
                Error::invalid("the url of Redis is not usable").caused_by(error)
            })?,
            (None, Some(client)) => client.get_connection_info().clone(),
            (None, None) => return Err(Error::invalid("where is Redis? Set url or client")),
            (Some(_), Some(_)) => return Err(Error::invalid("set either url or client, not both")),
        };
        Ok(LockClient::new(Engine::start(&info, self.config).await?))
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address: it may carry a password.
        f.debug_struct("LockClientBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}
