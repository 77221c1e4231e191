//! The servers, one or several, on which a test runs, and a look at their locks past the client under
//! test.
//!
//! The servers are started once and shared by all tests: each test has a prefix of its own, which is
//! put before all names here as the client puts it. So this is for tests that do nothing to a server
//! itself: they neither stop it nor change its settings, and count neither its keys nor its commands.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use redis::FromRedisValue;
use redlatch::{LockClient, LockClientBuilder};

use crate::support::sentinel::MASTER;
use crate::support::{
    Cluster, Distance, Listener, Network, Proxy, Replicated, Sentinels, Server, channel, ms, soon,
};

/// Longer than a round trip, within which the order of two calls is not promised.
pub(crate) async fn apart() {
    tokio::time::sleep(ms(30)).await;
}

/// The same for fair waiters one of which has no entry of its own when the other comes: it stands behind another one
/// of its client. A later request tells Redis of it, and how old it is: by the time that this request takes to be
/// executed, on a machine that is busy, it is younger in the queue.
pub(crate) async fn far_apart() {
    tokio::time::sleep(ms(600)).await;
}

pub(crate) struct Setup {
    place: Place,
    prefix: String,
}

enum Place {
    Alone(&'static Server),
    /// Each client has a network of its own to it.
    Far(&'static Server, Mutex<Vec<Network>>),
    Replicas(&'static Replicated),
    Sentinel(&'static Sentinels),
    Cluster(&'static Cluster),
    #[cfg(feature = "test-util")]
    Memory(redlatch::test_util::Redis),
}

impl Setup {
    pub(crate) fn alone() -> Self {
        Self::at(Place::Alone(Server::shared()))
    }

    /// A server that each client reaches in 2 ms.
    pub(crate) fn far() -> Self {
        Self::at(Place::Far(Server::shared(), Mutex::default()))
    }

    /// A server with a replica, which has every grant before it counts.
    pub(crate) fn replicas() -> Self {
        static PAIR: LazyLock<Replicated> = LazyLock::new(|| Replicated::start(1));
        Self::at(Place::Replicas(&PAIR))
    }

    pub(crate) fn sentinel() -> Self {
        static SET: LazyLock<Sentinels> = LazyLock::new(|| {
            let set = Sentinels::start();
            // Nothing fails here, however busy the machine is.
            let patience = ["SENTINEL", "SET", MASTER, "down-after-milliseconds", "60000"];
            set.sentinels().iter().for_each(|sentinel| sentinel.ask::<()>(&patience));
            set
        });
        Self::at(Place::Sentinel(&SET))
    }

    pub(crate) fn cluster() -> Self {
        static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);
        Self::at(Place::Cluster(&CLUSTER))
    }

    /// A simulated server in this runtime, and in its time.
    #[cfg(feature = "test-util")]
    pub(crate) fn memory() -> Self {
        Self::at(Place::Memory(redlatch::test_util::Redis::new()))
    }

    /// The same, for a runtime whose time is paused. Requests take time, so that time goes on.
    #[cfg(feature = "test-util")]
    pub(crate) fn paused() -> Self {
        let setup = Self::memory();
        if let Place::Memory(redis) = &setup.place {
            redis.delay(ms(1));
        }
        setup
    }

    fn at(place: Place) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { place, prefix: format!("setup-{number}:") }
    }

    /// Three times as long: beside others a machine may not run a client for as long as two thirds of a
    /// lease of 600 ms. (Where time is paused, it costs nothing.)
    pub(crate) fn stretch(&self, time: Duration) -> Duration {
        3 * time
    }

    /// A client with every option of no concern here at its default.
    pub(crate) async fn connect(&self) -> LockClient {
        self.client_with(Duration::from_secs(30)).await
    }

    pub(crate) async fn client_with(&self, watchdog_timeout: Duration) -> LockClient {
        let builder = LockClient::builder();
        let builder = match &self.place {
            Place::Alone(server) => builder.url(server.url()),
            Place::Far(server, networks) => {
                let network =
                    Network::new(server, Distance { each_way: ms(2), ..Distance::default() });
                let url = network.url(server);
                networks.lock().unwrap().push(network);
                builder.url(url)
            }
            Place::Replicas(pair) => {
                builder.url(pair.primary().url()).replicas(1, watchdog_timeout / 2)
            }
            Place::Sentinel(set) => builder.sentinel(MASTER, set.urls()),
            Place::Cluster(cluster) => builder.cluster(cluster.urls()),
            #[cfg(feature = "test-util")]
            Place::Memory(redis) => redis.builder(),
        };
        self.connected(builder.watchdog_timeout(watchdog_timeout)).await
    }

    /// A client that goes to the one server by way of that proxy.
    pub(crate) async fn client_through(&self, proxy: &Proxy) -> LockClient {
        self.connected(LockClient::builder().url(proxy.url(self.one()))).await
    }

    async fn connected(&self, builder: LockClientBuilder) -> LockClient {
        let connecting = builder.name_prefix(self.prefix.as_str()).connect();
        soon("connecting", connecting).await.expect("connecting")
    }

    /// A proxy before the one server.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::new(self.one())
    }

    /// A connection of its own to the one server.
    pub(crate) fn connection(&self) -> redis::Connection {
        self.one().connection().expect("a connection")
    }

    /// Hears what is published for `name`.
    pub(crate) fn listener(&self, name: &str) -> Listener {
        Listener::new(self.one(), &channel(&self.key(name)))
    }

    /// What it has heard by now.
    pub(crate) fn heard(&self, listener: Listener) -> Vec<String> {
        listener.heard(self.one())
    }

    /// The key of a name.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The one server, or the one of several that has all keys.
    fn one(&self) -> &Server {
        match &self.place {
            Place::Alone(server) | Place::Far(server, _) => server,
            Place::Replicas(pair) => pair.primary(),
            Place::Sentinel(set) => set.master(),
            _ => panic!("there is no one server in a process of its own"),
        }
    }

    /// What the server answers that has that key.
    fn command<T: FromRedisValue>(&self, key: &str, command: &[&str]) -> T {
        match &self.place {
            Place::Cluster(cluster) => cluster.ask_at(key, command),
            #[cfg(feature = "test-util")]
            Place::Memory(redis) => {
                let answer = redis.query(redis::cmd(command[0]).arg(&command[1..]));
                answer.unwrap_or_else(|error| panic!("{command:?}: {error}"))
            }
            _ => self.one().ask(command),
        }
    }

    /// What the server answers that has the key of `name`: the command's words are before that key
    /// and after it.
    pub(crate) fn ask<T: FromRedisValue>(&self, before: &str, name: &str, after: &[&str]) -> T {
        let key = self.key(name);
        self.command(&key, &[&[before, &key], after].concat())
    }

    /// The same about a key that is derived from a name.
    pub(crate) fn ask_key<T: FromRedisValue>(&self, command: &str, key: &str) -> T {
        self.command(key, &[command, key])
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.ask("EXISTS", name, &[])
    }

    /// What Redis counts for each owner of `name`.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        self.ask("HGETALL", name, &[])
    }

    /// What stands in the hash of a read-write lock.
    pub(crate) fn fields(&self, name: &str) -> BTreeMap<String, String> {
        self.ask("HGETALL", name, &[])
    }

    /// The clients in the queue of a read-write lock, in their order.
    pub(crate) fn queue(&self, name: &str) -> Vec<String> {
        let key = format!("redlatch_rw_queue:{{{}}}", self.key(name));
        self.command(&key, &["ZRANGE", &key, "0", "-1"])
    }

    /// As [`Server::pttl`].
    pub(crate) fn pttl(&self, name: &str) -> i64 {
        self.ask("PTTL", name, &[])
    }

    /// How many connections wait for a release of `name`.
    pub(crate) fn subscribers(&self, name: &str) -> u64 {
        let key = self.key(name);
        match &self.place {
            Place::Cluster(cluster) => cluster.subscribers(&key),
            #[cfg(feature = "test-util")]
            Place::Memory(redis) => redis.waiting(&key) as u64,
            _ => self.one().subscribers(&key),
        }
    }

    /// The counter of fencing tokens.
    pub(crate) fn token(&self, name: &str) -> Option<u64> {
        let key = format!("redisson_lock_token:{{{}}}", self.key(name));
        self.command(&key, &["GET", &key])
    }

    /// Takes `name` as a client of another make would, or as one that has since died.
    pub(crate) fn hold_by_hand(&self, name: &str, owner: &str, lease: Duration) {
        let key = self.key(name);
        self.command::<()>(&key, &["HSET", &key, owner, "1"]);
        self.command::<()>(&key, &["PEXPIRE", &key, &lease.as_millis().to_string()]);
    }

    /// Gives `name` back as a client of another make would.
    pub(crate) fn free_by_hand(&self, name: &str) {
        let key = self.key(name);
        match &self.place {
            Place::Cluster(cluster) => cluster.free_by_hand(&key),
            #[cfg(feature = "test-util")]
            Place::Memory(_) => {
                self.command::<()>(&key, &["DEL", &key]);
                self.command::<()>(&key, &["PUBLISH", &channel(&key), "0"]);
            }
            _ => self.one().free_by_hand(&key),
        }
    }
}

impl Drop for Setup {
    /// As when a server ends that only one test had.
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        match &self.place {
            Place::Cluster(cluster) => {
                cluster.nodes().iter().for_each(|node| node.assert_clean_under(&self.prefix));
            }
            #[cfg(feature = "test-util")]
            Place::Memory(redis) => {
                let keys: Vec<String> =
                    redis.query(redis::cmd("KEYS").arg("*")).expect("the names of the keys");
                for key in keys {
                    let kind: String = redis.query(redis::cmd("TYPE").arg(&key)).expect("a type");
                    let left: i64 = redis.query(redis::cmd("PTTL").arg(&key)).expect("a TTL");
                    let is_ours = crate::support::is_of_a_lock(&key, &kind);
                    assert!(!is_ours || left != -1, "{key} has no end");
                }
            }
            _ => self.one().assert_clean_under(&self.prefix),
        }
    }
}
