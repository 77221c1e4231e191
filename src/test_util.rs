//! A simulated Redis, for tests of code that holds locks, and for a single node (feature `test-util`).
//!
//! It is a Redis 7.0 that knows what the locks need, and most of the commands about strings, hashes, lists, sets, sorted sets
//! and expiry that people put into [`execute`](crate::LockGuard::execute). A million random steps beside real servers
//! show no other difference than those in a list, which each has its reason (`tests/differential/wanted.rs` in the repository).
//! What it does not know it refuses as an unknown command. Of what `execute` takes, that is:
//!
//! - all of streams, bits, geographic positions and HyperLogLogs; `COPY`, `DUMP`, `RESTORE`, `OBJECT`, `LCS` and `SUBSTR`;
//! - of hashes: what came after Redis 7.0, such as `HEXPIRE`, `HGETEX` and `HSETEX`;
//! - of lists: `LINSERT`, `LMPOP` and `LPOS`;
//! - of sets: `SDIFFSTORE`, `SINTERCARD`, `SINTERSTORE`, `SSCAN` and `SUNIONSTORE`;
//! - of sorted sets: `ZMPOP`, `ZMSCORE`, `ZRANDMEMBER`, `ZRANGESTORE`, `ZSCAN`, what goes by the order of names (`ZLEXCOUNT`,
//!   say), and what combines several (`ZUNION`, say).
//!
//! Its scripts have neither `cjson` nor `cmsgpack`, `struct` or `bit`. Its rules for users know the categories `@all`, `@read`
//! and `@write` alone.
//!
//! It is one server, without replicas, Sentinels or a cluster. It asks for no password, needs no TLS, and writes nothing to
//! disk. Its clock shows the time of this machine, and goes on by the time of its runtime. Its clients alone can connect to it;
//! [`Redis::query`] asks it anything else. A request takes no time until [`Redis::delay`] says so.
//!
//! By configuration alone a program uses one with the address `memory://`: see
//! [`url`](crate::LockClientBuilder::url). All clients of that address in one process share a server, in real
//! time, and a warning in the log says that no other process sees it. The program needs the feature `test-util` for that as
//! a dependency, and not as one of its tests alone.
//!
//! [`Redis`] is a server in this process. It runs the scripts of this crate as they are, and its clients
//! are [`LockClient`]s like any other: nothing of the code under test changes. In a test whose time is
//! paused (`#[tokio::test(start_paused = true)]`) leases end, the watchdog renews and
//! [`lost`](crate::LockGuard::lost) completes in virtual time: an hour takes no time. Sleep for it:
//! `tokio::time::advance` jumps over the moments at which the watchdog would have renewed, and leases end.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use redlatch::{ErrorKind, test_util::Redis};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = Redis::new();
//! let (here, elsewhere) = (redis.client(), redis.client()); // two clients, as in two processes
//!
//! let guard = here.lock("order:4711").lock().await?;
//! assert!(elsewhere.lock("order:4711").try_lock_now().await?.is_none());
//!
//! redis.lose("order:4711"); // as if an operator had deleted it
//! assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
//!
//! redis.stop(); // as if the server were down
//! let client = redis.builder().command_timeout(Duration::from_millis(50)).connect_lazy()?;
//! let error = client.lock("order:4711").try_lock_now().await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Unavailable);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::builder::LockClientBuilder;
use crate::client::LockClient;
use crate::lease::MAX_LEASE;
use crate::protocol::Names;
use crate::simulation::{Distance, Machine, Network, Server, ServerNumber, Settings};

/// A simulated Redis server. Cloning is cheap, and all clones are the same server.
///
/// It takes the time of the runtime in which it is made, paused or not, and its clients run there; they
/// have no threads of their own. If it is made outside of a runtime, it goes by real time, and its clients
/// have their threads. Each client of [`client`](Self::client) and [`builder`](Self::builder) is as
/// independent as one in a process of its own.
///
/// It ends with its runtime, and so do its clients, whose calls panic from then on. `#[tokio::test]` makes
/// a runtime for each test, so make the server in the test, not in a `static`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use redlatch::test_util::Redis;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // What `#[tokio::test(start_paused = true)]` does.
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
/// runtime.block_on(async {
///     let redis = Redis::new();
///     let guard = redis.client().lock("nightly-report").lock().await?;
///     tokio::time::sleep(Duration::from_secs(3600)).await; // takes no time
///     assert!(!guard.is_lost()); // the watchdog has renewed it
///     redis.lose("nightly-report");
///     guard.lost().await; // the next renewal finds the loss
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    network: Network,
    server: ServerNumber,
    clients: Arc<AtomicU64>,
}

/// The address under which its clients know the server.
const ADDRESS: (&str, u16) = ("simulated", 6379);

impl Redis {
    /// A server that has no keys.
    #[must_use]
    pub fn new() -> Self {
        let network = Network::new(0);
        let (host, port) = ADDRESS;
        let settings = Settings { host: host.into(), port, ..Settings::default() };
        let server = network.add(Server::new(settings), &format!("{host}:{port}"));
        network.set_clock_to_now(server);
        Self { network, server, clients: Arc::default() }
    }

    /// A client of this server with the default options. It connects with its first call.
    ///
    /// # Panics
    ///
    /// If the runtime has ended in which the server was made.
    #[must_use]
    pub fn client(&self) -> LockClient {
        let client = self.builder().connect_lazy();
        client.unwrap_or_else(|error| panic!("a client of a simulated Redis: {error}"))
    }

    /// Options for a client of this server. The address is set.
    ///
    /// # Panics
    ///
    /// If the runtime has ended in which the server was made.
    pub fn builder(&self) -> LockClientBuilder {
        assert!(
            !self.network.has_ended(),
            "this simulated Redis has ended with the runtime in which it was made: make it in the test that uses it"
        );
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let machine = Machine::new(&self.network, number, number);
        let (host, port) = ADDRESS;
        LockClient::builder().url(format!("redis://{host}:{port}")).on(machine.host())
    }

    /// Ends the server: connections are reset, and new ones refused. It keeps its keys.
    pub fn stop(&self) {
        self.network.kill(self.server);
    }

    /// Starts the server again after [`stop`](Self::stop). It has the keys that it had, except those whose
    /// TTL has ended meanwhile. If it runs, its connections are reset.
    pub fn start(&self) {
        self.network.start(self.server, |server, now| {
            let kept = server.snapshot();
            server.start(now);
            server.load(now, kept);
        });
    }

    /// Starts the server again with no keys, as one that keeps no file.
    pub fn restart_empty(&self) {
        self.network.kill(self.server);
        self.network.start(self.server, |server, now| server.start(now));
    }

    /// Has the server hang: connections stay, and from now on it answers nothing, as after `SIGSTOP`. What reaches it meanwhile
    /// it carries out after [`resume`](Self::resume).
    pub fn hang(&self) {
        self.network.stop(self.server);
    }

    /// Has the server go on after [`hang`](Self::hang).
    pub fn resume(&self) {
        self.network.go_on(self.server);
    }

    /// From now on each request takes that long to reach the server, and each answer to come back: in whole milliseconds.
    pub fn delay(&self, each_way: Duration) {
        // A later moment would be none that a clock knows.
        let each_way = each_way.min(MAX_LEASE);
        self.network.set_distance(Distance { each_way, ..Distance::default() });
    }

    /// Deletes a lock, as an operator might. Its holder finds out with its next renewal, or with `unlock`.
    /// The name is the key: with the client's prefix, if that has one.
    ///
    /// # Panics
    ///
    /// If the server refuses that: a [`query`](Self::query) may have changed its rights or its memory limit.
    pub fn lose(&self, name: &str) {
        self.ask(redis::cmd("DEL").arg(name));
    }

    /// Gives a lock to another owner for 30 s, as if its lease had ended and that one had been faster. A read-write
    /// lock goes to a reader or to a writer, below. An owner is `<id>:<number>`, as `other:1`.
    ///
    /// # Panics
    ///
    /// As for [`lose`](Self::lose).
    pub fn give(&self, name: &str, owner: &str) {
        self.give_fields(&[name], &[owner, "1"]);
    }

    /// Gives a read-write lock to another owner for 30 s, to read: `<id>:<number>`. Its holders have lost it.
    ///
    /// # Panics
    ///
    /// As for [`lose`](Self::lose).
    pub fn give_to_reader(&self, name: &str, owner: &str) {
        let marker = Names::of_read_write("", name, &"-".repeat(36)).marker_key(owner, 1);
        self.give_fields(&[name, &marker], &["mode", "read", owner, "1"]);
    }

    /// Gives a read-write lock to another owner for 30 s, to write: `<id>:<number>:write`. Its holders have lost
    /// it.
    ///
    /// # Panics
    ///
    /// As for [`lose`](Self::lose).
    pub fn give_to_writer(&self, name: &str, owner: &str) {
        self.give_fields(&[name], &["mode", "write", owner, "1"]);
    }

    /// In one step: no client comes between.
    fn give_fields(&self, keys: &[&str], fields: &[&str]) {
        const GIVE: &str = "
            redis.call('DEL', KEYS[1])
            redis.call('HSET', KEYS[1], unpack(ARGV))
            redis.call('PEXPIRE', KEYS[1], 30000)
            if KEYS[2] then
                redis.call('SET', KEYS[2], 1, 'PX', 30000)
            end";
        self.ask(redis::cmd("EVAL").arg(GIVE).arg(keys.len()).arg(keys).arg(fields));
    }

    /// Who holds a lock: the owners in Redis, and how many holds each has. Empty if the lock is free.
    ///
    /// Of a read-write lock, an owner with `:write` at its end writes, and any other one reads. All readers of a client
    /// are one owner, with one hold.
    ///
    /// # Panics
    ///
    /// If the key is no hash.
    #[must_use]
    pub fn holders(&self, name: &str) -> BTreeMap<String, u32> {
        let fields = redis::from_redis_value(self.ask(redis::cmd("HGETALL").arg(name)));
        let fields: BTreeMap<String, String> = fields.unwrap_or_default();
        // The mode of a read-write lock is no number.
        let holder = |(owner, count): (_, String)| Some((owner, count.parse().ok()?));
        fields.into_iter().filter_map(holder).collect()
    }

    /// How many clients wait for a lock, to read or to write one of that kind: those that listen for its release. A client listens for 200 ms
    /// more after its last waiter has got the lock.
    #[must_use]
    pub fn waiting(&self, name: &str) -> usize {
        let heard = |channel: &[u8]| {
            str::from_utf8(channel).is_ok_and(|channel| Names::is_heard_on(name, channel))
        };
        self.network.at(self.server, |server, _| server.listeners(heard))
    }

    /// Has the server carry out a command, whatever the network is like and whether or not it is stopped:
    /// what a test looks at, or what another program does.
    ///
    /// # Errors
    ///
    /// What the server answers as an error, or an answer of another type.
    pub fn query<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> redis::RedisResult<T> {
        Ok(redis::from_redis_value(self.network.ask(self.server, command)?)?)
    }

    fn ask(&self, command: &redis::Cmd) -> redis::Value {
        let answer = self.network.ask(self.server, command);
        answer.unwrap_or_else(|error| panic!("the simulated Redis refused a command: {error}"))
    }
}

impl LockClient {
    /// A client of a simulated Redis of its own, for a test that needs no other client: that of
    /// [`Redis::new`].
    #[must_use]
    pub fn in_memory() -> Self {
        Redis::new().client()
    }
}

impl Default for Redis {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}
