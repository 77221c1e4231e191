//! A place where locks are, and a look at them past the client under test.
//!
//! A topology of several servers is started once and shared by all cases: each has a prefix of its
//! own, which is put before all names here as the client puts it.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use redlatch::LockClient;

use crate::support::sentinel::MASTER;
use crate::support::{Cluster, Distance, Network, Replicated, Sentinels, Server, ms, soon};

pub(crate) struct Site {
    place: Place,
    prefix: String,
}

enum Place {
    Alone(Box<Server>),
    /// Each client has a network of its own to it.
    Far(Box<Server>, Mutex<Vec<Network>>),
    Replicas(&'static Replicated),
    Sentinel(&'static Sentinels),
    Cluster(&'static Cluster),
}

impl Site {
    pub(crate) async fn alone(case: &str) -> Self {
        Self::at(Place::Alone(Server::start().into()), case)
    }

    /// A server that each client reaches in 2 ms.
    pub(crate) async fn far(case: &str) -> Self {
        Self::at(Place::Far(Server::start().into(), Mutex::default()), case)
    }

    /// A server with a replica, which has every grant before it counts.
    pub(crate) async fn replicas(case: &str) -> Self {
        static PAIR: LazyLock<Replicated> = LazyLock::new(|| Replicated::start(1));
        Self::at(Place::Replicas(blocking(|| &*PAIR).await), case)
    }

    pub(crate) async fn sentinel(case: &str) -> Self {
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
        Self::at(Place::Sentinel(blocking(|| &*SET).await), case)
    }

    pub(crate) async fn cluster(case: &str) -> Self {
        static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);
        Self::at(Place::Cluster(blocking(|| &*CLUSTER).await), case)
    }

    fn at(place: Place, case: &str) -> Self {
        Self { place, prefix: format!("{case}:") }
    }

    /// A client with every option of no concern here at its default.
    pub(crate) async fn connect(&self) -> LockClient {
        self.client_with(Duration::from_secs(30)).await
    }

    pub(crate) async fn client_with(&self, watchdog_timeout: Duration) -> LockClient {
        let builder = LockClient::builder().name_prefix(self.prefix.as_str());
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
        let connecting = builder.watchdog_timeout(watchdog_timeout).connect();
        soon("connecting", connecting).await.expect("connecting")
    }

    fn key(&self, name: &str) -> String {
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

    pub(crate) fn exists(&self, name: &str) -> bool {
        let key = self.key(name);
        self.server().map_or_else(|cluster| cluster.exists(&key), |server| server.exists(&key))
    }

    /// What Redis counts for each owner of `name`.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        let key = self.key(name);
        self.server().map_or_else(|cluster| cluster.holds(&key), |server| server.holds(&key))
    }

    /// As [`Server::pttl`].
    pub(crate) fn pttl(&self, name: &str) -> i64 {
        let key = self.key(name);
        self.server().map_or_else(|cluster| cluster.pttl(&key), |server| server.pttl(&key))
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

/// The first case of several servers starts them, which takes its time.
async fn blocking<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(start).await.expect("servers that start")
}
