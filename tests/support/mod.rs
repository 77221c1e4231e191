//! What every black-box test stands on: a private Redis server, alone or with
//! replicas, Sentinels or a cluster around it, a proxy that misbehaves on demand,
//! and waiting for a condition instead of for a time.
//!
//! No test sleeps to let something happen: it waits until it has, with a deadline that says what
//! it waited for. A sleep is right only where *nothing* must happen for a while, or where a lease
//! has to run its course.

pub(crate) mod child;
pub(crate) mod cluster;
pub(crate) mod crowd;
pub(crate) mod forks;
mod listener;
pub(crate) mod machine;
mod network;
mod process;
pub(crate) mod proxy;
pub(crate) mod replicas;
pub(crate) mod scripts;
pub(crate) mod sentinel;
mod server;
#[cfg(feature = "test-util")]
#[allow(dead_code, unused_imports, reason = "the world and the hammer need a part of it each")]
pub(crate) mod simulated;
mod steps;
pub(crate) mod tokens;

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redlatch::kind::LockKind;
use redlatch::{Lock, LockClient, LockClientBuilder, LockGuard};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

pub(crate) use child::Child;
pub(crate) use cluster::Cluster;
pub(crate) use listener::Listener;
pub(crate) use network::{Distance, Network};
pub(crate) use process::{free_port, listen};
pub(crate) use proxy::{Fault, Proxy};
pub(crate) use replicas::Replicated;
pub(crate) use sentinel::Sentinels;
pub(crate) use server::Server;
pub(crate) use steps::{Steps, turns};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// Long enough for anything that ought to be quick, on a slow machine under load.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// "Within one round trip": what a background release may take on a busy machine.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(250);

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(2);

impl Network {
    /// A client's way to the server.
    pub(crate) fn new(server: &Server, distance: Distance) -> Self {
        Self::to_port(listen(), server.port(), distance)
    }

    /// The server at the other end.
    pub(crate) fn url(&self, server: &Server) -> String {
        server.url_at(self.port())
    }
}

/// A directory for a socket, whose path may have 107 bytes: not every temporary directory leaves room for it.
pub(crate) fn socket_dir() -> TempDir {
    let temporary = std::env::temp_dir();
    let is_short = temporary.as_os_str().len() <= 60;
    let parent = if is_short { temporary } else { "/tmp".into() };
    TempDir::with_prefix_in("redlatch-socket-", parent).expect("a temporary directory")
}

/// What fails while it has one of these must not hide behind "poisoned".
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The future's value, or a failed test if it takes longer than [`SOON`].
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(SOON, what, future).await
}

/// The future's value, or a failed test if it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// Waits until `condition` holds; the runtime goes on meanwhile.
pub(crate) async fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = tokio::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// [`wait_until`] for a thread without a runtime.
pub(crate) fn block_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

/// A runtime of one thread, for a test that blocks or drives it itself.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// One of two workers.
pub(crate) fn workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A server, and a proxy in front of it.
pub(crate) fn proxied() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    (server, proxy)
}

/// A server, and a client of it by way of a proxy.
pub(crate) struct Far {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) client: LockClient,
}

impl Far {
    pub(crate) async fn new() -> Self {
        Self::with(|options| options).await
    }

    pub(crate) async fn with(options: impl FnOnce(LockClientBuilder) -> LockClientBuilder) -> Self {
        let (server, proxy) = proxied();
        let client = connected(options(LockClient::builder().url(proxy.url(&server)))).await;
        Self { server, proxy, client }
    }
}

/// A client of `server` with every option at its default.
pub(crate) async fn connect(server: &Server) -> LockClient {
    connected(LockClient::builder().url(server.url())).await
}

/// A client with these options.
pub(crate) async fn connected(builder: LockClientBuilder) -> LockClient {
    soon("connecting", builder.connect()).await.expect("connecting")
}

/// A client whose default leases are that long.
pub(crate) async fn client_with(url: impl Into<String>, watchdog_timeout: Duration) -> LockClient {
    connected(LockClient::builder().url(url).watchdog_timeout(watchdog_timeout)).await
}

/// A client whose commands may take that long.
pub(crate) async fn impatient(url: impl Into<String>, command_timeout: Duration) -> LockClient {
    connected(LockClient::builder().url(url).command_timeout(command_timeout)).await
}

/// `lock.lock()` that has to succeed soon.
pub(crate) async fn hold<K: LockKind>(lock: &Lock<K>) -> LockGuard<K::Token> {
    soon("locking", lock.lock()).await.expect("locking")
}

/// `guard.unlock()` that has to succeed soon.
pub(crate) async fn release(guard: LockGuard) {
    soon("unlocking", guard.unlock()).await.expect("unlocking");
}

/// A task that waits for `name`, and is patient.
pub(crate) fn waiting(client: &LockClient, name: &str) -> JoinHandle<LockGuard> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await.expect("the lock, in the end") })
}

/// When the guard will know by itself that it is lost, if nothing renews it.
pub(crate) fn deadline(guard: &LockGuard) -> Instant {
    Instant::now() + guard.remaining()
}

/// Waits for the loss of a lock that nothing can renew, and checks that it is not told early.
pub(crate) async fn lost_at(guard: &LockGuard, deadline: Instant) -> Instant {
    soon("the loss", guard.lost()).await;
    let told = Instant::now();
    assert!(told >= deadline, "told {:?} before the deadline", deadline - told);
    told
}

/// Waits until Redis has confirmed a renewal: what is left of the lease rises.
pub(crate) async fn renewed(guard: &LockGuard) {
    let mut last = guard.remaining();
    wait_until("a renewal", SOON, || {
        assert!(!guard.is_lost(), "lost before a renewal was confirmed");
        let before = std::mem::replace(&mut last, guard.remaining());
        before < last
    })
    .await;
}

/// Whether anybody else could take the lock right now: tries, and gives it back at once.
pub(crate) async fn is_free(client: &LockClient, name: &str) -> bool {
    let taken = soon("trying", client.lock(name).try_lock_now()).await.expect("trying");
    match taken {
        Some(guard) => {
            release(guard).await;
            true
        }
        None => false,
    }
}

/// Whether a key is a lock or belongs to one: what else a test keeps in Redis is its own affair.
pub(crate) fn is_of_a_lock(key: &str, kind: &str) -> bool {
    kind == "hash" || key.starts_with("redlatch_") || key.contains(":rwlock_timeout:")
}

/// The channel on which a release of `name` is told.
pub(crate) fn channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}
