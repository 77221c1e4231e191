//! W14: a process that forks while it has a client, guards, and calls under way.
//!
//! The process that forks is a child of the test, so that the test's own process does not. Its
//! child, the fork, ends by a signal and never returns to the test harness.

use std::sync::atomic::AtomicU64;
use std::task::Poll;

use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::*;
use crate::errors::calls;
use crate::support::forks::{self, fork};

const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(3);

const HELD: &str = "held";
const RELEASED: &str = "released";
const ACQUIRED: &str = "acquired";

/// So many times a process forks whose threads use the client all the time.
const FORKS: usize = 50;

type Call<T> = BoxFuture<'static, Result<T, Error>>;

/// A client, what comes of it, and calls that were begun and not ended.
struct Everything {
    waiting: Call<LockGuard>,
    unlocking: Call<()>,
    acquiring: Call<LockGuard>,
    losing: BoxFuture<'static, ()>,
    guard: Arc<LockGuard>,
    nested: LockGuard,
    lock: Lock,
    fenced: FencedLock,
    client: LockClient,
}

impl Everything {
    async fn new(url: &str) -> Self {
        let client = client_with(url, WATCHDOG_TIMEOUT).await;
        // Redis knows the scripts: a call that is polled once has its effect.
        release(hold(&client.lock(RELEASED)).await).await;
        let lock = client.lock(HELD);
        let (guard, nested) = (Arc::new(hold(&lock).await), hold(&lock).await);
        renewed(&guard).await;
        let waiter = client.lock(HELD);
        let mut waiting = async move { waiter.lock().await }.boxed();
        child::say("waiting");
        tokio::select! {
            _ = &mut waiting => panic!("it is held"),
            () = hear() => {}
        }
        let releasing = hold(&client.lock(RELEASED)).await;
        let unlocking = begun(releasing.unlock().boxed()).await;
        let acquirer = client.lock(ACQUIRED);
        let acquiring = async move { acquirer.lock_with_lease(MINUTE).await };
        let acquiring = begun(acquiring.boxed()).await;
        let watched = guard.clone();
        let mut losing = async move { watched.lost().await }.boxed();
        assert!(futures::poll!(&mut losing).is_pending());
        let fenced = client.fenced_lock("fenced");
        // What comes behind them is answered, so their answers are here: a copy of this runtime
        // shares its epoll instance, and would take the news of a later one from it.
        assert!(lock.is_locked().await.expect("an answer"));
        child::say("ready");
        hear().await;
        Self { waiting, unlocking, acquiring, losing, guard, nested, lock, fenced, client }
    }

    /// What the process that forked has left of it.
    async fn goes_on(self) {
        // The first may have been on its way when the process forked.
        for _ in 0..3 {
            renewed(&self.guard).await;
        }
        child::say("renewed");
        hear().await;
        assert!(futures::poll!(self.losing).is_pending());
        soon("the unlock from before", self.unlocking).await.expect("unlocking");
        release(soon("the acquire from before", self.acquiring).await.expect("locking")).await;
        release(Arc::into_inner(self.guard).expect("the only one")).await;
        release(self.nested).await;
        release(soon("the wait from before", self.waiting).await.expect("locking")).await;
        release(hold(&self.lock).await).await;
        drop(soon("a fenced lock", self.fenced.lock()).await.expect("locking"));
        soon("closing", self.client.close()).await;
    }

    /// In the fork, each call is an error at once, each guard is lost, and each drop does nothing.
    fn belongs_to_the_parent(self) {
        let Self { waiting, unlocking, acquiring, losing, guard, nested, lock, fenced, client } =
            self;
        drop((waiting, unlocking, acquiring, losing));
        for (what, call) in calls(&lock) {
            refused(what, call);
        }
        refused("fenced", fenced.lock());
        refused("clone", lock.clone().try_lock_now());
        refused("another handle", client.lock("another").lock());
        assert_eq!(client.stats(), redlatch::Stats::default());
        assert!(!client.health().is_ready() && client.health().is_live(Duration::ZERO));

        assert!(guard.is_lost(), "both processes believe in it");
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert!(guard.lost().now_or_never().is_some(), "lost() waits");
        let run = guard.run_until_lost(async {}).now_or_never().expect("an answer at once");
        assert_eq!(run.expect_err("a lost guard").kind(), ErrorKind::Lost);
        refused("extend", guard.extend(WATCHDOG_TIMEOUT));
        refused("execute", guard.execute::<()>(redis::pipe().ping()));
        refused("unlock", nested.unlock());
        assert!(client.close().now_or_never().is_some(), "close() waits");
        drop((guard, lock, fenced, client));
    }
}

/// The call after one poll. On a busy machine its answer may have come by then.
async fn begun<T: Send + 'static>(mut call: Call<T>) -> Call<T> {
    match futures::poll!(&mut call) {
        Poll::Pending => call,
        Poll::Ready(answer) => Box::pin(async move { answer }),
    }
}

/// Waits until the test says something. The runtime goes on meanwhile.
async fn hear() {
    tokio::task::spawn_blocking(child::hear).await.expect("a test that says something");
}

fn refused<T>(what: &str, call: impl Future<Output = Result<T, Error>>) {
    let answer = call.now_or_never().unwrap_or_else(|| panic!("{what} waits"));
    let Err(error) = answer else { panic!("{what} works") };
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotExecuted));
    assert!(error.to_string().contains("another process"), "{what}: {error}");
}

/// The end of the fork.
fn ends_after(work: impl FnOnce()) -> ! {
    forks::end(catch_unwind(AssertUnwindSafe(work)).is_ok())
}

/// Waits until the fork has done its work.
fn done(fork: Pid) {
    let mut status = None;
    let waited = catch_unwind(AssertUnwindSafe(|| {
        block_until("the end of the fork", SOON, || {
            status = waitpid(Some(fork), WaitOptions::NOHANG).expect("a child of this process");
            status.is_some()
        });
    }));
    if waited.is_err() {
        let _ = kill_process(fork, Signal::KILL);
        panic!("the fork hangs");
    }
    assert!(
        status.is_some_and(|(_, status)| forks::went_well(status)),
        "the fork failed: {status:?}"
    );
}

pub(super) fn child(way: &str, url: &str) {
    match way {
        "inside" => runtime().block_on(forks_inside_the_runtime(url)),
        "outside" => forks_outside_the_runtime(url),
        "anew" => forks_and_connects(url),
        "busy" => forks_while_busy(url),
        _ => panic!("no such way: {way}"),
    }
}

/// The fork goes on in a copy of the runtime, and its tasks run.
async fn forks_inside_the_runtime(url: &str) {
    let all = Everything::new(url).await;
    match fork() {
        Some(fork) => done(fork),
        None => {
            let done = catch_unwind(AssertUnwindSafe(|| all.belongs_to_the_parent())).is_ok();
            // Tasks that have a reason to end do so now.
            turns(50).await;
            ends_after(|| assert!(done));
        }
    }
    child::say("forked");
    all.goes_on().await;
}

fn forks_outside_the_runtime(url: &str) {
    let runtime = workers();
    let all = runtime.block_on(Everything::new(url));
    match fork() {
        Some(fork) => done(fork),
        None => ends_after(|| all.belongs_to_the_parent()),
    }
    child::say("forked");
    runtime.block_on(all.goes_on());
}

fn forks_and_connects(url: &str) {
    let old = workers();
    let client = old.block_on(client_with(url, WATCHDOG_TIMEOUT));
    let lock = client.lock(HELD);
    let guard = old.block_on(hold(&lock));
    match fork() {
        Some(fork) => done(fork),
        None => ends_after(|| runtime().block_on(connects_anew(url, &lock))),
    }
    child::say("forked");
    old.block_on(async {
        renewed(&guard).await;
        release(guard).await;
        client.close().await;
    });
}

async fn connects_anew(url: &str, parents: &Lock) {
    let client = client_with(url, WATCHDOG_TIMEOUT).await;
    let lock = client.lock(HELD);
    let uuid = |lock: &Lock| lock.owner().split(':').next().map(str::to_owned);
    assert_ne!(uuid(&lock), uuid(parents), "two processes are one owner");
    assert!(soon("trying", lock.try_lock_now()).await.expect("trying").is_none(), "it is held");
    let guard = hold(&client.lock("the fork's own")).await;
    renewed(&guard).await;
    release(guard).await;
    client.close().await;
}

fn forks_while_busy(url: &str) {
    let runtime = workers();
    let client = runtime.block_on(client_with(url, WATCHDOG_TIMEOUT));
    let (over, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            // Two of them share a name, so that hand-offs and waits are under way, too.
            let lock = client.lock(format!("busy:{}", task / 2));
            let (over, pairs) = (over.clone(), pairs.clone());
            runtime.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = hold(&lock).await;
                    assert!(!guard.is_lost());
                    match pairs.fetch_add(1, Ordering::Relaxed) % 2 {
                        0 => release(guard).await,
                        _ => drop(guard),
                    }
                }
            })
        })
        .collect();
    let held = client.lock(HELD);
    let guard = runtime.block_on(hold(&held));
    for _ in 0..FORKS {
        let before = pairs.load(Ordering::Relaxed);
        let (client, lock) = (client.clone(), client.lock("busy:0"));
        let waiter = client.lock(HELD);
        let mut waiting = Box::pin(async move { waiter.lock().await });
        let acquirer = client.lock("busy:0");
        let mut acquiring = Box::pin(async move { acquirer.lock().await });
        runtime.block_on(async {
            let _ = futures::poll!(&mut waiting);
            let _ = futures::poll!(&mut acquiring);
            wait_until("work", SOON, || pairs.load(Ordering::Relaxed) > before + 8).await;
        });
        match fork() {
            Some(fork) => done(fork),
            None => ends_after(|| {
                drop((waiting, acquiring));
                refused("lock", lock.lock());
                refused("try_lock_now", held.try_lock_now());
                refused("is_locked", held.is_locked());
                assert!(guard.is_lost());
                assert_eq!(guard.loss(), None, "it is its parent's");
                assert!(format!("{client:?} {held:?} {guard:?}").contains("lost: true"));
                refused("unlock", guard.unlock());
                drop((lock, held, client));
            }),
        }
    }
    over.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for task in tasks {
            soon("the last pair", task).await.expect("a task that works");
        }
        renewed(&guard).await;
        release(guard).await;
        client.close().await;
    });
    child::say(FORKS);
}

fn no_lock_is_left(server: &Server) {
    let locks = || server.ask::<Vec<String>>(&["KEYS", "*"]);
    block_until("free locks", SOON, || {
        locks().iter().all(|key| key.starts_with("redisson_lock_token"))
    });
}

fn a_fork_has_a_client_that_is_of_no_use(way: &str) {
    let server = Server::start();
    let mut child = start_child(&format!("forking {way} {}", server.url()));
    child.hear_that("waiting");
    block_until("a subscription", SOON, || server.subscribers(HELD) == 1);
    child.say("it waits");
    child.hear_that("ready");
    // What was under way has arrived.
    block_until("the release", SOON, || !server.exists(RELEASED));
    block_until("the acquire", SOON, || server.exists(ACQUIRED));
    let (owners, acquired) = (server.holds(HELD), server.holds(ACQUIRED));
    server.reset_stats();
    child.say("fork");
    child.hear_that("forked");
    child.hear_that("renewed");
    let mut commands = server.commandstats();
    assert!(commands.get("pexpire").is_some_and(|renewals| *renewals >= 2), "{commands:?}");
    // The watchdog's, and ours, as Redis calls them from 7.0 on and before.
    let watchdog = ["evalsha", "hlen", "hget", "pexpire", "pttl"];
    let ours = ["info", "config|resetstat", "config"];
    let known = [&watchdog[..], &ours].concat();
    commands.retain(|name, _| !known.contains(&&**name));
    assert!(commands.is_empty(), "the fork told Redis something: {commands:?}");
    let connections = server.info("total_connections_received");
    assert_eq!(connections.as_deref(), Some("0"), "a new connection");
    assert_eq!(server.subscribers(HELD), 1);
    assert_eq!((server.holds(HELD), server.holds(ACQUIRED)), (owners, acquired));
    child.say("go on");
    assert!(child.ended().success());
    no_lock_is_left(&server);
}

#[test]
fn w14_a_fork_inside_the_runtime_touches_nothing_of_its_parents_client() {
    a_fork_has_a_client_that_is_of_no_use("inside");
}

#[test]
fn w14_a_fork_outside_the_runtime_touches_nothing_of_its_parents_client() {
    a_fork_has_a_client_that_is_of_no_use("outside");
}

#[test]
fn w14_a_fork_that_connects_anew_is_another_owner_and_is_kept_out() {
    let server = Server::start();
    let mut child = start_child(&format!("forking anew {}", server.url()));
    child.hear_that("forked");
    assert!(child.ended().success());
    no_lock_is_left(&server);
}

#[test]
fn w14_a_fork_never_hangs_while_the_parents_threads_use_the_client() {
    let server = Server::start();
    let mut child = start_child(&format!("forking busy {}", server.url()));
    let mut forks = None;
    // One line, at the end: each fork has its own limit.
    block_until("all forks", 6 * SOON, || {
        forks = child.heard();
        forks.is_some()
    });
    assert_eq!(forks, Some(FORKS.to_string()));
    assert!(child.ended().success());
    no_lock_is_left(&server);
}
