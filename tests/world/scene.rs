//! A world for one test: a network with a server, and machines around it, in paused time.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::Seek as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::FromRedisValue;
use redlatch::kind::LockKind;
use redlatch::simulation::{
    Direction, Distance, Fate, Flow, Machine, Network, Random, Server, ServerNumber, Settings,
};
use redlatch::test_util::Redis;
use redlatch::{
    Lock, LockClient, LockClientBuilder, LockGuard, ReadGuard, ReadWriteLock, WriteGuard,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::Dispatch;

use crate::support::{channel, is_of_a_lock};

/// Where the machines know the server.
pub(crate) const ADDRESS: &str = "redis:6379";

/// How many seeds or how much time: in a build without optimization, in which a world takes several
/// times as long, and in one with it.
pub(crate) const fn in_short<T: Copy>(short: T, whole: T) -> T {
    if cfg!(debug_assertions) { short } else { whole }
}

pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) server: ServerNumber,
    machines: AtomicU64,
    seed: u64,
}

/// Plays a scene to its end: the same seed is the same play.
pub(crate) fn play<T>(seed: u64, scene: impl AsyncFnOnce(&Scene) -> T) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut random = Random::new(seed);
        let network = Network::new(random.number());
        let settings =
            Settings { host: "redis".into(), seed: random.number(), ..Settings::default() };
        let server = network.add(Server::new(settings), ADDRESS);
        let play = Scene { network, server, machines: AtomicU64::new(0), seed: random.number() };
        let came = scene(&play).await;
        play.assert_all_ends();
        came
    })
}

/// What this thread logs meanwhile, and what comes of it.
pub(crate) fn logged<T>(work: impl FnOnce() -> T) -> (String, T) {
    let log = Arc::new(tempfile::tempfile().expect("a file"));
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    // While there is only one, another thread that comes to an event first would switch that off for all.
    let _another = Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    let came = tracing::subscriber::with_default(subscriber, work);
    (&*log).rewind().expect("a file");
    (std::io::read_to_string(&*log).expect("a text"), came)
}

/// A simulated Redis that far away.
pub(crate) fn redis_at(each_way: Duration) -> Redis {
    let redis = Redis::new();
    redis.delay(each_way);
    redis
}

/// So many moments of a time, or all: a timer knows whole milliseconds only.
pub(crate) fn moments(time: Duration, many: u32) -> impl Iterator<Item = Duration> {
    let step = (time / many).max(Duration::from_millis(1));
    (0..many).map(move |number| step * number).take_while(move |moment| *moment <= time)
}

/// A guard of one of the two sides of a read-write lock.
pub(crate) enum Side {
    Reads(ReadGuard),
    Writes(WriteGuard),
}

impl Side {
    pub(crate) async fn of(lock: &ReadWriteLock, writes: bool) -> Self {
        match writes {
            true => Self::Writes(lock.write().await.expect("to write")),
            false => Self::Reads(lock.read().await.expect("to read")),
        }
    }

    pub(crate) async fn unlock(self) {
        match self {
            Self::Reads(guard) => guard.unlock().await.expect("a release"),
            Self::Writes(guard) => guard.unlock().await.expect("a release"),
        }
    }
}

/// A call for a lock, with a lease of its own or a default one.
pub(crate) async fn lock_for<K: LockKind<Token = ()>>(
    lock: Arc<Lock<K>>,
    lease: Option<Duration>,
) -> Result<LockGuard, redlatch::Error> {
    match lease {
        Some(lease) => lock.lock_with_lease(lease).await,
        None => lock.lock().await,
    }
}

/// A call that waits for a lock, in a task of its own on that machine: its guard, and when it came.
pub(crate) fn waiting_for<K: LockKind>(
    machine: &Machine,
    lock: Lock<K>,
) -> JoinHandle<(LockGuard<K::Token>, Instant)> {
    machine.spawn(async move {
        let guard = lock.lock().await.expect("the lock");
        (guard, Instant::now())
    })
}

/// The distance of a round trip that long.
pub(crate) fn round_trip(round_trip: Duration) -> Distance {
    Distance { each_way: round_trip / 2, ..Distance::default() }
}

impl Scene {
    /// A client on a machine of its own.
    pub(crate) async fn client(
        &self,
        away: Duration,
        options: LockClientBuilder,
    ) -> (Machine, LockClient) {
        let machine = self.machine(round_trip(away));
        let client = self.connect(&machine, options).await;
        (machine, client)
    }

    pub(crate) fn flow(&self, machine: &Machine, flow: Flow) {
        for direction in [Direction::Up, Direction::Down] {
            self.network.set_flow(machine, self.server, direction, flow);
        }
    }

    /// Nothing comes through for so long, either way; then all of it does.
    pub(crate) async fn stall(&self, machine: &Machine, time: Duration) {
        self.flow(machine, Flow::Held);
        sleep(time).await;
        self.flow(machine, Flow::Open);
    }

    /// What the server answers to somebody beside it.
    pub(crate) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.ask_at(self.server, words)
    }

    pub(crate) fn ask_at<T: FromRedisValue>(&self, server: ServerNumber, words: &[&str]) -> T {
        crate::support::simulated::ask_at(&self.network, server, words)
    }

    /// What Redis counts for each owner of `name`.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        self.ask(&["HGETALL", name])
    }

    /// No key of a client is there for ever (P12). Locks that a test has made by hand may be.
    fn assert_all_ends(&self) {
        for key in self.keys() {
            let kind: String = self.ask(&["TYPE", &key]);
            if !is_of_a_lock(&key, &kind) {
                continue;
            }
            let is_hash = kind == "hash" && !key.starts_with("redlatch_");
            let fields: Vec<String> = if is_hash { self.ask(&["HKEYS", &key]) } else { vec![] };
            if !is_hash || fields.iter().any(|field| field.len() > 36) {
                assert_ne!(self.pttl(&key), -1, "{key} has no end");
            }
        }
    }

    /// The names of all keys, in their order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.sort_unstable();
        keys
    }

    /// What becomes of the next request of that machine that runs a script.
    pub(crate) fn trap(&self, machine: &Machine, fate: Fate) {
        self.network.set_trap(machine, self.server, "EVALSHA", 0, fate);
    }

    /// What becomes of the next request of that machine that runs this script.
    pub(crate) fn trap_script(&self, machine: &Machine, text: &str, fate: Fate) {
        let call = format!("EVALSHA\r\n$40\r\n{}", redis::Script::new(text).get_hash());
        self.network.set_trap(machine, self.server, &call, 0, fate);
    }

    pub(crate) fn pttl(&self, name: &str) -> i64 {
        self.ask(&["PTTL", name])
    }

    /// How many connections wait for a release of `name`.
    pub(crate) fn subscribers(&self, name: &str) -> u64 {
        let (_, count): (String, u64) = self.ask(&["PUBSUB", "NUMSUB", &channel(name)]);
        count
    }

    /// How often the server was asked that.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.network.at(self.server, |server, _| server.calls(command))
    }

    /// A machine that far away.
    pub(crate) fn machine(&self, distance: Distance) -> Machine {
        let number = self.machines.fetch_add(1, Ordering::Relaxed);
        let machine = Machine::new(&self.network, number, self.seed.wrapping_add(number));
        self.network.set_distance_of(&machine, self.server, distance);
        machine
    }

    /// A client on that machine.
    pub(crate) fn connect(
        &self,
        machine: &Machine,
        options: LockClientBuilder,
    ) -> impl Future<Output = LockClient> + use<> {
        let connect = options.url(format!("redis://{ADDRESS}")).connect();
        machine.run(async move { connect.await.expect("connecting") })
    }
}
