//! Where the cases of one version of Redisson are played: a server or a cluster, and a Java process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use redis::FromRedisValue;
use redlatch::{LockClient, LockClientBuilder};
use tokio::sync::{Mutex, Semaphore};

use crate::java::Java;
use crate::support::{
    Cluster, Distance, Network, SOON, Server, block_until, connected, hold, ms, release, workers,
};

/// So many setups play a case at a time. Most of the time it waits, and starting Java does not.
static AT_ONCE: Semaphore = Semaphore::const_new(5);

pub(crate) type Case = for<'a> fn(&'a Setup) -> LocalBoxFuture<'a, ()>;

/// A version of Redisson. Its cases share a setup of each topology, one after the other.
pub(crate) struct Redisson {
    version: &'static str,
    class_path: PathBuf,
    topology: Topology,
    setup: Mutex<Option<Setup>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    Alone,
    /// A server that each client, Java or not, reaches in 2 ms.
    Far,
    /// Three masters.
    Cluster,
}

impl Topology {
    /// What stands behind the version in the names of trials and in reports.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Alone => "",
            Self::Far => ", far",
            Self::Cluster => ", cluster",
        }
    }
}

pub(crate) struct Setup {
    /// With the watchdog timeout that is Redisson's default, and ours.
    pub(crate) java: Arc<Java>,
    place: Place,
    pub(crate) topology: Topology,
    pub(crate) version: &'static str,
    class_path: PathBuf,
}

enum Place {
    One(Box<One>),
    Cluster(Cluster),
}

/// A server and, if it is far away, the ways of Java and of ours to it.
struct One {
    server: Server,
    ways: Option<[Network; 2]>,
}

impl Redisson {
    /// The version in the folder where `build` has put it.
    pub(crate) fn new(version: &'static str, topology: Topology, folder: &str) -> Self {
        let class_path = PathBuf::from(folder).join(version);
        Self { version, class_path, topology, setup: Mutex::default() }
    }

    /// Plays a case. One that fails takes the setup with it, so that it spoils no other.
    pub(crate) fn play(&self, case: Case) {
        // First come, first served: no case that measures comes to a Java that has just started.
        let mut place = self.setup.blocking_lock();
        let runtime = workers();
        let _one = runtime.block_on(AT_ONCE.acquire()).expect("it is never closed");
        let setup = place.take().unwrap_or_else(|| self.open());
        runtime.block_on(case(&setup));
        drop(runtime);
        setup.assert_nothing_is_left();
        *place = Some(setup);
    }

    fn open(&self) -> Setup {
        assert!(self.class_path.is_dir(), "{} is not built", self.class_path.display());
        let place = match self.topology {
            Topology::Alone => Place::One(Box::new(One { server: Server::start(), ways: None })),
            Topology::Far => {
                let server = Server::start();
                let distance = Distance { each_way: ms(2), ..Distance::default() };
                let ways = Some([(); 2].map(|()| Network::new(&server, distance)));
                Place::One(Box::new(One { server, ways }))
            }
            Topology::Cluster => Place::Cluster(Cluster::start()),
        };
        let java = Java::start(&self.class_path, &place.address(), Duration::from_secs(30));
        let Self { version, topology, .. } = *self;
        Setup { java, place, topology, version, class_path: self.class_path.clone() }
    }
}

impl One {
    fn url(&self, way: usize) -> String {
        match &self.ways {
            Some(ways) => ways[way].url(&self.server),
            None => self.server.url(),
        }
    }
}

impl Place {
    /// As the Java program wants it.
    fn address(&self) -> String {
        match self {
            Self::One(one) => one.url(0).trim_end_matches('/').to_owned(),
            Self::Cluster(cluster) => {
                let urls = cluster.urls();
                let urls: Vec<&str> = urls.iter().map(|url| url.trim_end_matches('/')).collect();
                format!("cluster:{}", urls.join(","))
            }
        }
    }

    fn builder(&self) -> LockClientBuilder {
        match self {
            Self::One(one) => LockClient::builder().url(one.url(1)),
            Self::Cluster(cluster) => LockClient::builder().cluster(cluster.urls()),
        }
    }
}

impl Setup {
    /// The one server that there is.
    pub(crate) fn server(&self) -> &Server {
        match &self.place {
            Place::One(one) => &one.server,
            Place::Cluster(_) => panic!("there is more than one"),
        }
    }

    pub(crate) fn servers(&self) -> &[Server] {
        match &self.place {
            Place::One(one) => std::slice::from_ref(&one.server),
            Place::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// One more Java process.
    pub(crate) fn another_java(&self, watchdog: Duration) -> Arc<Java> {
        Java::start(&self.class_path, &self.place.address(), watchdog)
    }

    /// A client of ours whose scripts each server has, so that each is one command.
    pub(crate) async fn client(&self) -> LockClient {
        self.client_of(self.place.builder()).await
    }

    /// A client of ours beside the server, however far away Java is.
    pub(crate) async fn near_client(&self) -> LockClient {
        self.client_of(LockClient::builder().url(self.server().url())).await
    }

    /// The same as [`client`](Self::client), with another watchdog timeout.
    pub(crate) async fn client_with(&self, watchdog: Duration) -> LockClient {
        self.client_of(self.place.builder().watchdog_timeout(watchdog)).await
    }

    async fn client_of(&self, builder: LockClientBuilder) -> LockClient {
        let client = connected(builder).await;
        let names = match &self.place {
            Place::One(_) => vec!["before".to_owned()],
            Place::Cluster(cluster) => (0..3).map(|at| cluster.name_at(at, "before")).collect(),
        };
        for name in names {
            release(hold(&client.lock(name)).await).await;
        }
        client
    }

    /// What Redis counts for each owner of `name`.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        self.ask_at(name, &["HGETALL", name])
    }

    /// What the server says that has this key.
    pub(crate) fn ask_at<T: FromRedisValue>(&self, key: &str, command: &[&str]) -> T {
        match &self.place {
            Place::One(one) => one.server.ask(command),
            Place::Cluster(cluster) => cluster.ask_at(key, command),
        }
    }

    /// Redis's answer to PTTL: -2 for no key, -1 for a key without an end.
    pub(crate) fn pttl(&self, name: &str) -> i64 {
        self.ask_at(name, &["PTTL", name])
    }

    /// What TYPE says of a key.
    pub(crate) fn kind(&self, name: &str) -> String {
        self.ask_at(name, &["TYPE", name])
    }

    /// How many connections wait for a release of `name`.
    pub(crate) fn subscribers(&self, name: &str) -> u64 {
        match &self.place {
            Place::One(one) => one.server.subscribers(name),
            Place::Cluster(cluster) => cluster.subscribers(name),
        }
    }

    /// How often a command was carried out.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.servers().iter().map(|server| server.calls(command)).sum()
    }

    /// Whatever Redis has, but for the keys that Redisson leaves behind: its counters of tokens,
    /// which have no end, and the latches of unlocks, which it removes a little later, or in some
    /// versions leaves to their TTL.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = self.all_keys();
        keys.retain(|key| !key.starts_with("redisson_lock_token:") && !self.is_latch(key));
        keys
    }

    pub(crate) fn all_keys(&self) -> Vec<String> {
        self.servers().iter().flat_map(|server| server.ask::<Vec<_>>(&["KEYS", "*"])).collect()
    }

    fn is_latch(&self, key: &str) -> bool {
        // -2: it is gone by now.
        key.starts_with("redisson_unlock_latch:") && self.pttl(key) != -1
    }

    /// Waits until no lock is left, as a guard that was dropped is given back in the background.
    fn assert_nothing_is_left(&self) {
        block_until("nothing is left", SOON, || self.keys().is_empty());
        for server in self.servers() {
            server.ask::<()>(&["FLUSHALL"]);
        }
    }
}
