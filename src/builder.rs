//! The options of a client.

use std::fmt;
use std::time::Duration;

use crate::client::LockClient;
use crate::config::{Config, Replicas};
use crate::engine::Engine;
use crate::error::Error;
#[cfg(feature = "test-util")]
use crate::events::Events;
use crate::host::Host;
use crate::lease::whole_millis;
use crate::transport::Endpoint;

mod seen;

/// Options for a [`LockClient`], from [`LockClient::builder`].
///
/// [`connect`](Self::connect) refuses options that are out of bounds, or do not fit together, before
/// any I/O.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), redlatch::Error> {
/// use std::time::Duration;
///
/// use redlatch::LockClient;
///
/// let client = LockClient::builder()
///     .url("redis://127.0.0.1/")
///     .name_prefix("locks:")
///     .watchdog_timeout(Duration::from_secs(10))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "options have no effect until `connect` or `connect_lazy` is called"]
#[derive(Clone, Default)]
pub struct LockClientBuilder {
    url: Option<String>,
    client: Option<redis::Client>,
    sentinel: Option<(String, Vec<String>)>,
    sentinel_credentials: Option<(String, String)>,
    cluster: Option<Vec<String>>,
    config: Config,
    /// Where the client runs, if not where it is connected.
    host: Option<Host>,
}

impl LockClientBuilder {
    /// Where Redis is. A client needs one of this, [`client`](Self::client), [`sentinel`](Self::sentinel) and
    /// [`cluster`](Self::cluster).
    ///
    /// | address | |
    /// |---|---|
    /// | `redis://[[user]:password@]host[:port][/database]` | TCP |
    /// | `rediss://[[user]:password@]host[:port][/database]` | TLS, with the cargo feature `rustls` |
    /// | `unix:` and a path | the socket of a server on this machine |
    /// | `memory://` | a simulated server in this process, for a laptop or a single node, with the cargo feature `test-util` |
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// A ready-made client of the `redis` crate. The lock client uses its address, credentials and
    /// TCP settings, but always speaks RESP3, and sets `TCP_NODELAY`, `SO_LINGER` and
    /// `TCP_USER_TIMEOUT` to what it needs. Where that client has no settings for keepalive, the kernel probes a connection
    /// after 30 seconds without a byte.
    pub fn client(mut self, client: redis::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The primary that Sentinels watch under that name, whichever server it is now. The urls are
    /// those of all the Sentinels; at least one Sentinel has to answer when connecting. After a
    /// failover, planned or not, waiters and renewals go on with the new primary. Locks that had not
    /// been replicated are lost with the old one, and the guards of their holders report that.
    ///
    /// User, password, TLS and database of the urls have to be the same in all of them, and are
    /// those of the servers, too. If a Sentinel refuses them, the client asks it without; for other
    /// credentials of the Sentinels, see [`sentinel_credentials`](Self::sentinel_credentials).
    pub fn sentinel(
        mut self,
        master_name: impl Into<String>,
        urls: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.sentinel = Some((master_name.into(), urls.into_iter().map(Into::into).collect()));
        self
    }

    /// The Sentinels' own user and password, where they are not those of the servers. The default
    /// user is called `default`. Unless set, the client uses those of the urls, or none.
    pub fn sentinel_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.sentinel_credentials = Some((user.into(), password.into()));
        self
    }

    /// A cluster. The urls name some nodes; the client finds the others. At least one has to answer
    /// when connecting. User, password and TLS of the urls have to be the same in all of
    /// them, and are those of every node.
    ///
    /// The first node that answers decides which cluster it is: name nodes by addresses that lead to no other one. From then
    /// on the client uses no server that is not of the cluster, whatever address it has, if its user may ask for the nodes
    /// (`+cluster|myid +cluster|nodes`). If it has looked for a node that serves requests for 30 s or more and found none,
    /// it takes another cluster at these addresses for it, as after one was made anew, and says so in the log. Another
    /// version of Redis there may need a new client.
    ///
    /// Releases are published on sharded channels if the first node that answers has them (Redis 7.0
    /// and newer), else on plain ones. Redisson from 3.28 on decides it like that, too, unless its
    /// `shardedSubscriptionMode` is set; an older one may use plain ones in any case. All clients of one lock
    /// have to come to the same answer. So during an upgrade of the servers from 6.2 start no new
    /// clients before the last node is upgraded, and then start all of them again. A lock stays safe
    /// without that, but a release reaches only the clients that listen on channels of its kind: the
    /// others get the lock when the lease of its last holder would have ended, or after 30 s if that
    /// is sooner.
    ///
    /// Every call refuses names whose braces are no hash tag (`a{b`, `a{}b`, `a}b`), with
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument): their key and their channel would be in
    /// different slots.
    pub fn cluster(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.cluster = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Counts an acquire only once `count` replicas have it, by Redis' `WAIT`. If fewer have it within
    /// `timeout`, the client gives the lock back, and the call returns
    /// [`Unavailable`](crate::ErrorKind::Unavailable), which says how many had it. A call that waits already without an end
    /// goes on: it takes the lock again each half second, until the `outage_limit`. Off unless set; the
    /// count is at least 1, the timeout from 1 ms to half the watchdog timeout.
    ///
    /// An acquire is two round trips then, and what the replicas take. Many acquires share one `WAIT`,
    /// which has a connection of its own for each runtime and server. An acquire that comes while a
    /// `WAIT` is under way waits for that one first, so a call may take twice the timeout, and 200 ms or two
    /// round trips, after Redis has answered it; or the rest of its command timeout, if that is longer, where the
    /// connection for `WAIT` cannot be made. The client hands no locks off inside then, because Redis
    /// confirms a hand-off later. No lease should be shorter than the timeout.
    ///
    /// It narrows what a failover can lose, and does not close it. If `count` is less than the number
    /// of replicas, one without the lock can become the primary. The client does not wait until
    /// replicas have a renewal or a release: a new primary can have the lease as it was before a
    /// renewal, or a lock that was released. What closes it is a store that checks the
    /// [fencing token](crate::FencingToken).
    pub fn replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.config.replicas = Some(Replicas { count, timeout });
        self
    }

    /// The lease of a lock that was acquired without one. The watchdog renews it every third of it.
    /// After a holder's crash, others wait for up to this long. A shorter one frees sooner; a longer
    /// one survives longer outages and pauses of the holder. 30 s unless set; from 30 ms to a day.
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.config.watchdog_timeout = timeout;
        self
    }

    /// For how long the watchdog renews a lock, counted from the first default lease of a handle until
    /// the handle has given back its last hold. After that the client logs a warning and renews no
    /// more: the lock ends with its lease, at most a [`watchdog_timeout`](Self::watchdog_timeout) later,
    /// and its guards are lost as they are when a renewal does not get through. So work that hangs does
    /// not keep others out for ever. Set it longer than the longest work that is right.
    ///
    /// It limits neither an explicit lease nor [`extend`](crate::LockGuard::extend), and a nested hold
    /// has its lease from its own acquire. A lock that is handed off counts anew. No limit unless set;
    /// any.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.config.max_hold = longest;
        self
    }

    /// How long a single command may take before a call returns
    /// [`Unavailable`](crate::ErrorKind::Unavailable). A call waits no longer for a connection
    /// either, but the client goes on making it, and gives each round trip of that as long. Set it
    /// longer for a Redis that is far away or often busy, shorter where an early error is worth more,
    /// and in any case longer than a round trip. 3 s unless set; from 10 ms to an hour.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.config.command_timeout = timeout;
        self
    }

    /// How long a call without a time limit that is already waiting, such as [`lock`](crate::Lock::lock), keeps waiting in an
    /// outage of Redis before it returns [`Unavailable`](crate::ErrorKind::Unavailable). Set it longer than a
    /// restart or a failover takes. 30 s unless set; any. If another call of its handle has the lock by
    /// then, a waiting call asks for a nested hold, and does not wait for the end of an outage.
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.config.outage_limit = limit;
        self
    }

    /// A call that waits for a lock for longer than this logs a warning, once, that names the lock, the
    /// owner that has it, and the rest of that owner's lease if Redis reported it. If a handle of this
    /// client has the lock, the warning says so: a call under a held lock that uses another handle waits
    /// for itself. If another client has it, the warning names that client's [label](Self::label), machine
    /// and process, as far as this user may ask for them (`+client|list`), and the server has 1,000 connections at most:
    /// the client asks it for the list of its clients, once for a warning, and the call goes on waiting. Of the calls that
    /// wait that long within a minute, two log a warning, and the others log at debug. Set it longer than the longest wait
    /// that is right;
    /// `Duration::MAX` is never, say for calls that stand by (the metrics count their waits all the same). 30 s unless
    /// set; at least 10 ms.
    pub fn warn_waits_longer_than(mut self, longest: Duration) -> Self {
        self.config.warn_waits_longer_than = longest;
        self
    }

    /// What the client puts before every lock's name to make its key, so that several applications
    /// can share a database. None unless set; any.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.name_prefix = prefix.into();
        self
    }

    /// How often in a row the client may hand a lock off from one holder to the next while other
    /// clients wait for it. More is more throughput, fewer is a shorter wait for the others. Ignored
    /// unless another client is waiting. 100 unless set; with zero the client hands nothing off, so
    /// that every release goes to all clients.
    ///
    /// The client counts the others by the subscribers at the server that has the lock. Beside a Redisson
    /// that is configured to listen at replicas (its `subscriptionMode`), set zero.
    pub fn max_handoffs(mut self, most: u32) -> Self {
        self.config.max_handoffs = most;
        self
    }

    /// For how long a client may keep a lock while other clients wait for it, by hand-offs or by
    /// locking it again; the hold that is under way at that time is the last. The first of the two
    /// limits ends a streak of hand-offs. Then the client defers to each of the others, and gives
    /// them the time that they were seen to need, at most a quarter of the command timeout. So with
    /// `n` clients that wait, each has its turn about every `n` times this and a round trip. Set it
    /// longer than a few holds take. 10 ms unless set; any.
    pub fn max_handoff_time(mut self, longest: Duration) -> Self {
        self.config.max_handoff_time = longest;
        self
    }

    /// How long a client may take to come when its turn at a [fair lock](crate::FairLock) has come. After
    /// that, the next client has its turn. 1 s unless set; from 10 ms to 10 s.
    ///
    /// It matters for a client that has stopped without closing its connection: until the grace is over, no
    /// client has the lock. A shorter grace passes such a client over sooner. A longer one suits clients that are
    /// far away or pause for long: a client that is passed over stays first in the queue, but the lock goes to
    /// another one meanwhile. A release also grants the lock to the next client for the grace, until that one's
    /// request for more is there. So set it longer than two round trips. The grace of the client that
    /// releases the lock, or finds it free, counts.
    pub fn fair_grace(mut self, grace: Duration) -> Self {
        self.config.fair_grace = grace;
        self
    }

    /// For how long this client, once it has a [fair lock](crate::FairLock) and begins to hand it off, may
    /// serve its own waiters before older ones of other clients. Zero unless set: then the order of arrival is
    /// that of all clients. Any.
    ///
    /// A turn inside a client costs no round trip. So with 10 ms, say, more turns fit into a second where many
    /// tasks of several clients want the lock. But each client that has the lock can keep an older waiter of
    /// another one waiting for 10 ms more.
    pub fn fair_turn(mut self, turn: Duration) -> Self {
        self.config.fair_turn = turn;
        self
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn on(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Checks the options, connects once and starts the client's thread.
    ///
    /// # Errors
    ///
    /// Those of [`LockClient::connect`], and
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for options that cannot work.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self) -> Result<LockClient, Error> {
        let (host, endpoint, config) = self.checked()?;
        Ok(LockClient::new(Engine::start(host, endpoint, config).await?))
    }

    /// Checks the options and starts the client's thread, with no I/O before the first call of the client,
    /// of a handle or of a guard. So a service can start while Redis is down. It needs no runtime. Like any
    /// client it [belongs to the process](LockClient#forking) that made it.
    ///
    /// From the first call on, the client connects in the background, and goes on with that if the call
    /// fails. Calls before Redis is there behave as in an outage: they return
    /// [`Unavailable`](crate::ErrorKind::Unavailable) after the command timeout, those that would wait for a lock
    /// included. What [`connect`](Self::connect) reports as its error, calls report: a password
    /// that is refused, say. While no Sentinel names the primary, and no node of a cluster reports the slots, they report it as
    /// `Unavailable`, and the reason is in the log.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), redlatch::Error> {
    /// use redlatch::LockClient;
    ///
    /// let client = LockClient::builder().url("redis://127.0.0.1/").connect_lazy()?;
    /// let lock = client.lock("nightly-report");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an unusable address and for options
    /// that cannot work, [`Unavailable`](crate::ErrorKind::Unavailable) if the client's thread or its
    /// runtime cannot be made.
    pub fn connect_lazy(self) -> Result<LockClient, Error> {
        let (host, endpoint, config) = self.checked()?;
        Ok(LockClient::new(Engine::start_lazily(host, endpoint, config)?))
    }

    /// Checks the options, with no I/O.
    fn checked(mut self) -> Result<(Host, Endpoint, Config), Error> {
        self.config.check()?;
        // As every other lease: what the client asks for next to it has the same length.
        self.config.watchdog_timeout = whole_millis(self.config.watchdog_timeout);
        if self.config.replicas.is_some() {
            // A hand-off would be valid before any replica has it.
            self.config.max_handoffs = 0;
        }
        if self.sentinel.is_none() && self.sentinel_credentials.is_some() {
            let message = "there are credentials of sentinels, and no sentinels: set sentinel, too";
            return Err(Error::invalid(message));
        }
        let is_in_memory = self.url.as_deref().is_some_and(|url| url.starts_with("memory:"));
        if is_in_memory {
            self.in_memory()?;
        }
        let endpoints = [
            self.url.map(Endpoint::url),
            self.client.as_ref().map(|client| Ok(Endpoint::client(client))),
            self.sentinel.map(|(master, urls)| {
                Endpoint::sentinel(master, urls, self.sentinel_credentials.clone())
            }),
            self.cluster.map(Endpoint::cluster),
        ];
        let mut endpoints = endpoints.into_iter().flatten();
        let endpoint = match (endpoints.next(), endpoints.next()) {
            (Some(endpoint), None) => endpoint?,
            (None, _) => {
                let message = "where is Redis? Set url, client, sentinel or cluster";
                return Err(Error::invalid(message));
            }
            (Some(_), Some(_)) => {
                let message = "set one of url, client, sentinel and cluster, not several";
                return Err(Error::invalid(message));
            }
        };
        #[cfg(feature = "test-util")]
        if is_in_memory {
            Events::are_in_memory();
        }
        Ok((self.host.unwrap_or_else(Host::current), endpoint, self.config))
    }
}

impl LockClientBuilder {
    /// The server of `memory://`, in place of that address.
    #[cfg(feature = "test-util")]
    fn in_memory(&mut self) -> Result<(), Error> {
        if self.url.as_deref() != Some("memory://") {
            return Err(Error::invalid("the address of a Redis in memory is `memory://`"));
        }
        let (host, url) = crate::simulation::memory();
        (self.host, self.url) = (Some(host), Some(url));
        Ok(())
    }

    #[cfg(not(feature = "test-util"))]
    fn in_memory(&mut self) -> Result<(), Error> {
        Err(Error::invalid(
            "this url asks for a Redis in memory, which takes the feature `test-util`",
        ))
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address: it may carry a password.
        f.debug_struct("LockClientBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}
