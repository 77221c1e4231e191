//! A lock goes from one handle of a client to the next inside the client. Its owner in Redis stays the
//! same, and Redis hears behind that of what changes for others: another lease, a lower count.
//!
//! What is promised all the same: nobody else has the lock while a guard is believed, nothing is
//! left behind that nobody holds, everybody who waits is served, and what `unlock` says is true.
//!
//! A waiter is parked by hand, so that a test says when it goes on; a proxy holds the request up
//! that tells Redis, so that there is a time between the hand-off and its confirmation.

use std::task::Poll;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_test::task::{self, Spawn};

use crate::prelude::*;

mod at_once;
mod blocked_workers;
mod cancelled;
mod counts;
mod ends;
mod fenced;
mod lost;
mod outages;
mod passing;
mod standstill;

/// By which call somebody waits.
type Take = fn(Arc<Lock>) -> Taking;
type Taking = BoxFuture<'static, Result<LockGuard, Error>>;

/// A waiter without a lease of its own.
const LOCK: Take = |lock| async move { lock.lock().await }.boxed();

/// A waiter with an explicit lease.
const FOR_A_MINUTE: Take = |lock| async move { lock.lock_with_lease(MINUTE).await }.boxed();

/// The scripts are there already, so that a fault befalls the hand-off and not the first try of it.
async fn scene(options: fn(LockClientBuilder) -> LockClientBuilder) -> Far {
    let scene = Far::with(options).await;
    // Every script once.
    let (guard, next) = scene.pair("before", LOCK).await;
    release(guard).await;
    release(next.gets().await).await;
    scene.server.reset_stats();
    scene
}

impl Far {
    /// A holder, and the first who waits for it.
    async fn pair(&self, name: &str, take: Take) -> (LockGuard, Waiter) {
        let guard = hold(&self.client.lock(name)).await;
        (guard, Waiter::first(self, name, take).await)
    }

    /// Another client, which goes straight to the server.
    async fn other(&self) -> LockClient {
        connect(&self.server).await
    }

    /// Another client, which is subscribed beside this one and waits for the lock.
    async fn outside(&self, name: &str) -> JoinHandle<LockGuard> {
        let waiting = waiting(&self.other().await, name);
        wait_until("another client waits", SOON, || self.server.subscribers(name) == 2).await;
        waiting
    }

    /// Redis has that owner there, and once.
    fn assert_held(&self, name: &str, owner: &str) {
        assert_eq!(self.server.holds(name), [(owner.to_owned(), 1)].into());
    }

    /// Nothing that the client sends by a script reaches the server before `let_go`.
    fn hold_scripts(&self) -> u64 {
        self.proxy.hold("EVALSHA");
        self.proxy.held()
    }

    /// Waits until a request is held up since then.
    async fn until_held(&self, since: u64) {
        wait_until("a request is held up", SOON, || self.proxy.held() > since).await;
    }

    /// Waits until Redis keeps the lock for longer than that.
    async fn until_kept_for(&self, name: &str, longer_than: Duration) {
        let kept = || self.server.pttl(name) > longer_than.as_millis() as i64;
        wait_until("Redis has heard of a longer lease", SOON, kept).await;
    }

    /// Waits until Redis keeps the lock for no longer than that.
    async fn until_kept_at_most(&self, name: &str, lease: Duration) {
        let kept = || self.server.pttl(name) <= lease.as_millis() as i64;
        wait_until("Redis has heard of a shorter lease", SOON, kept).await;
    }

    /// The last who has the lock gives it back, and nothing is left.
    async fn ends(&self, guard: LockGuard) {
        let name = guard.name().to_owned();
        release(guard).await;
        self.until_gone(&name).await;
    }

    /// Nobody has the lock any more, and nobody is counted on to give it back.
    async fn until_gone(&self, name: &str) {
        wait_until("no key is left", SOON, || !self.server.exists(name)).await;
    }
}

/// A call in the line of its client, which goes on only when it is polled.
struct Waiter {
    lock: Arc<Lock>,
    task: Spawn<Taking>,
}

impl Waiter {
    /// Parks the first waiter of a name that somebody of the same client holds.
    async fn first(scene: &Far, name: &str, take: Take) -> Self {
        let mut waiter = Self::of(scene.client.lock(name), take);
        waiter.park(&scene.server).await;
        waiter
    }

    /// Stands behind a parked one.
    fn behind(client: &LockClient, name: &str, take: Take) -> Self {
        let mut waiter = Self::of(client.lock(name), take);
        assert!(waiter.task.poll().is_pending());
        waiter
    }

    fn of(lock: Lock, take: Take) -> Self {
        let lock = Arc::new(lock);
        let task = task::spawn(take(lock.clone()));
        Self { lock, task }
    }

    async fn park(&mut self, server: &Server) {
        park(server, self.lock.name(), &mut self.task).await;
    }

    /// The lock that it was handed already.
    fn has(&mut self) -> LockGuard {
        assert!(self.task.is_woken(), "nobody handed it the lock");
        match self.task.poll() {
            Poll::Ready(granted) => granted.expect("the lock"),
            Poll::Pending => panic!("it was woken, and not for the lock"),
        }
    }

    /// The lock, soon.
    async fn gets(mut self) -> LockGuard {
        self.waits().await
    }

    async fn waits(&mut self) -> LockGuard {
        soon("its turn", &mut self.task).await.expect("the lock")
    }
}

/// Polls the first waiter of a name when it is woken, until it rests: it is subscribed, was refused
/// once more, and has heard so.
async fn park<F: Future>(server: &Server, name: &str, waiter: &mut Spawn<F>) {
    let start = Instant::now();
    let asked = server.calls("evalsha");
    assert!(waiter.poll().is_pending());
    let mut parked = false;
    let (mut polls, mut quiet) = (0, 0);
    // In turns of the runtime, which has to read the answer, and not by a clock. The first answer wakes the waiter, the
    // subscription does, if that did not come at the same time, and the second answer.
    while quiet < if polls >= 3 { 30 } else { 500 } {
        assert!(start.elapsed() < SOON, "the waiter of {name} does not park");
        parked = parked || (server.subscribers(name) > 0 && server.calls("evalsha") >= asked + 2);
        tokio::time::sleep(ms(1)).await;
        quiet = if parked { quiet + 1 } else { 0 };
        if waiter.is_woken() {
            (polls, quiet) = (polls + 1, 0);
            assert!(waiter.poll().is_pending(), "{name} was free");
        }
    }
}

/// `unlock`, polled once: it has given the lock back, and waits for Redis.
fn unlocking(guard: LockGuard) -> Spawn<BoxFuture<'static, Result<(), Error>>> {
    let mut unlocking = task::spawn(guard.unlock().boxed());
    match unlocking.poll() {
        Poll::Ready(said) => task::spawn(std::future::ready(said).boxed()),
        Poll::Pending => unlocking,
    }
}

/// `unlock` says that the lock had been lost.
fn assert_lost(unlocked: Result<(), Error>) {
    let error = unlocked.expect_err("it was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}
