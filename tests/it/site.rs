//! A place where locks are, and a look at them past the client under test.
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

pub(crate) struct Site {
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
}

impl Site {
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
            for sentinel in set.sentinels() {
                // Nothing fails here, however busy the machine is.
                sentinel.ask::<()>(&[
                    "SENTINEL",
                    "SET",
                    MASTER,
                    "down-after-milliseconds",
                    "60000",
                ]);
            }
            set
        });
        Self::at(Place::Sentinel(&SET))
    }

    pub(crate) fn cluster() -> Self {
        static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);
        Self::at(Place::Cluster(&CLUSTER))
    }

    fn at(place: Place) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { place, prefix: format!("site-{number}:") }
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
        };
        self.connected(builder.watchdog_timeout(watchdog_timeout)).await
    }

    /// A client that goes to the one server by way of that proxy.
    pub(crate) async fn client_through(&self, proxy: &Proxy) -> LockClient {
        self.client_through_with(proxy, Duration::from_secs(30)).await
    }

    pub(crate) async fn client_through_with(
        &self,
        proxy: &Proxy,
        watchdog_timeout: Duration,
    ) -> LockClient {
        let builder = LockClient::builder().url(proxy.url(self.one()));
        self.connected(builder.watchdog_timeout(watchdog_timeout)).await
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

    /// Publishes a message where waiters for `name` listen.
    pub(crate) fn publish(&self, name: &str, message: &str) {
        self.one().ask::<()>(&["PUBLISH", &channel(&self.key(name)), message]);
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
    fn server(&self) -> Result<&Server, &'static Cluster> {
        match &self.place {
            Place::Alone(server) | Place::Far(server, _) => Ok(server),
            Place::Replicas(pair) => Ok(pair.primary()),
            Place::Sentinel(set) => Ok(set.master()),
            Place::Cluster(cluster) => Err(cluster),
        }
    }

    fn one(&self) -> &Server {
        self.server().unwrap_or_else(|_| panic!("a cluster has more than one server"))
    }

    /// What the server answers that has the key of `name`: the command's words are before that key
    /// and after it.
    pub(crate) fn ask<T: FromRedisValue>(&self, before: &str, name: &str, after: &[&str]) -> T {
        let key = self.key(name);
        let command = [&[before, &key], after].concat();
        self.server()
            .map_or_else(|cluster| cluster.ask_at(&key, &command), |server| server.ask(&command))
    }

    /// The same about a key that is derived from a name.
    pub(crate) fn ask_key<T: FromRedisValue>(&self, command: &str, key: &str) -> T {
        let command = [command, key];
        self.server()
            .map_or_else(|cluster| cluster.ask_at(key, &command), |server| server.ask(&command))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.ask("EXISTS", name, &[])
    }

    /// What Redis counts for each owner of `name`.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        self.ask("HGETALL", name, &[])
    }

    /// As [`Server::pttl`].
    pub(crate) fn pttl(&self, name: &str) -> i64 {
        self.ask("PTTL", name, &[])
    }

    /// How many connections wait for a release of `name`.
    pub(crate) fn subscribers(&self, name: &str) -> u64 {
        let key = self.key(name);
        self.server().map_or_else(|all| all.subscribers(&key), |server| server.subscribers(&key))
    }

    /// The counter of fencing tokens.
    pub(crate) fn token(&self, name: &str) -> Option<u64> {
        let key = format!("redisson_lock_token:{{{}}}", self.key(name));
        let get = ["GET", &key];
        self.server().map_or_else(|cluster| cluster.ask_at(&key, &get), |server| server.ask(&get))
    }

    /// Takes `name` as a client of another make would, or as one that has since died.
    pub(crate) fn hold_by_hand(&self, name: &str, owner: &str, lease: Duration) {
        let key = self.key(name);
        match self.server() {
            Ok(server) => server.hold_by_hand(&key, owner, lease),
            Err(cluster) => cluster.hold_by_hand(&key, owner, lease),
        }
    }

    /// Gives `name` back as a client of another make would.
    pub(crate) fn free_by_hand(&self, name: &str) {
        let key = self.key(name);
        match self.server() {
            Ok(server) => server.free_by_hand(&key),
            Err(cluster) => cluster.free_by_hand(&key),
        }
    }
}

impl Drop for Site {
    /// As when a server ends that only one test had.
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        match self.server() {
            Ok(server) => server.assert_clean_under(&self.prefix),
            Err(cluster) => {
                cluster.nodes().iter().for_each(|node| node.assert_clean_under(&self.prefix));
            }
        }
    }
}
