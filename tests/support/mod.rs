//! What every black-box test stands on: a private Redis server, alone or with
//! replicas, Sentinels or a cluster around it, a proxy that misbehaves on demand,
//! and waiting for a condition instead of for a time.
//!
//! No test sleeps to let something happen: it waits until it has, with a deadline that says what
//! it waited for. A sleep is right only where *nothing* must happen for a while, or where a lease
//! has to run its course.

pub(crate) mod child;
mod clock;
pub(crate) mod cluster;
mod listener;
pub(crate) mod machine;
mod network;
mod process;
pub(crate) mod proxy;
pub(crate) mod replicas;
pub(crate) mod scripts;
pub(crate) mod sentinel;
mod server;
mod steps;
pub(crate) mod tokens;

use std::future::Future;
use std::time::{Duration, Instant};

use redlatch::{Lock, LockClient, LockGuard};

pub(crate) use child::Child;
pub(crate) use clock::Clock;
pub(crate) use cluster::Cluster;
pub(crate) use listener::Listener;
pub(crate) use network::{Distance, Network};
pub(crate) use process::free_port;
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
        Self::to_port(server.port(), distance)
    }

    /// The server at the other end.
    pub(crate) fn url(&self, server: &Server) -> String {
        server.url_at(self.port())
    }
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

/// A client of `server` with every option at its default.
pub(crate) async fn connect(server: &Server) -> LockClient {
    let url = server.url();
    let client = soon("connecting", LockClient::connect(url.as_str())).await;
    client.expect("connecting to a running server")
}

/// `lock.lock()` that has to succeed soon.
pub(crate) async fn hold(lock: &Lock) -> LockGuard {
    soon("locking", lock.lock()).await.expect("locking")
}

/// `guard.unlock()` that has to succeed soon.
pub(crate) async fn release(guard: LockGuard) {
    soon("unlocking", guard.unlock()).await.expect("unlocking");
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

/// The channel on which a release of `name` is told.
pub(crate) fn channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}
