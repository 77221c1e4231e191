//! Every kind of request, late in every way: a proxy holds the request up, the client drops the
//! connection that carries it, something newer is sent, and then the request goes on.
//!
//! In every run a few of each; `REDLATCH_LATE=10000` makes that many in a release build, which
//! takes about four minutes:
//!
//! ```sh
//! REDLATCH_LATE=10000 cargo test --release --test faults -- --nocapture late_requests::matrix
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlatch::{ErrorKind, Lock, LockClient, LockGuard};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::{Fault, Proxy, SOON, Server, block_until, ms, release, soon, wait_until};

/// Short, because most requests here have to run into it. Not shorter, because those that are not
/// held up must not, on a busy machine.
const COMMAND_TIMEOUT: Duration = ms(400);

const HOUR: Duration = Duration::from_secs(3600);

/// So many scenes play at the same time.
const SCENES: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Acquire,
    Nested,
    Release,
    Renew,
    HandOff,
}

/// How the client comes to drop the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// No answer comes within the command timeout.
    Timeout,
    /// The runtime that drives the connection ends.
    RuntimeEnds,
    /// The client is closed.
    Close,
}

/// A client whose requests pass a proxy, and another one beside it.
struct Scene {
    server: Arc<Server>,
    proxy: Proxy,
    client: LockClient,
    other: LockClient,
    name: String,
}

impl Scene {
    async fn new(server: &Arc<Server>, kind: Kind) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let proxy = Proxy::new(server);
        // Renewals would be held up in place of other requests.
        let watchdog = if kind == Kind::Renew { 3 * COMMAND_TIMEOUT } else { HOUR };
        let connected = |url| {
            let builder = LockClient::builder().url(url).watchdog_timeout(watchdog);
            soon("connecting", builder.command_timeout(COMMAND_TIMEOUT).connect())
        };
        let client = connected(proxy.url(server)).await.expect("connecting");
        let other = connected(server.url()).await.expect("connecting");
        let name = format!("late:{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { server: server.clone(), proxy, client, other, name }
    }

    fn lock(&self) -> Arc<Lock> {
        Arc::new(self.client.lock(&self.name))
    }

    fn hold_back_the_next(&self) {
        self.proxy.plan("EVALSHA", 1, Fault::HoldBack);
    }

    async fn is_held_back(&self, before: u64) {
        let proxy = &self.proxy;
        wait_until("a request that is held back", SOON, || proxy.held() > before).await;
    }

    /// Begins `call`, whose request is held up, and has the client drop its connection.
    async fn drop_under<T: Send + 'static>(
        &self,
        way: Way,
        call: impl Future<Output = T> + Send + 'static,
    ) {
        let before = self.proxy.held();
        self.hold_back_the_next();
        match way {
            Way::Timeout => drop(soon("an error", call).await),
            Way::RuntimeEnds => {
                let (end, ended) = oneshot::channel::<()>();
                let next = self.client.lock("of another runtime");
                let runtime = tokio::task::spawn_blocking(move || {
                    let runtime = crate::process::runtime();
                    runtime.spawn(call);
                    let _ = runtime.block_on(ended);
                    drop(runtime);
                    // The next runtime is there before the background has looked at what is left.
                    let asked = crate::process::runtime().block_on(next.is_locked());
                    assert!(!asked.expect("an answer"));
                });
                self.is_held_back(before).await;
                drop(end);
                soon("the end of the runtime", runtime).await.expect("no panic");
            }
            Way::Close => {
                let call = tokio::spawn(call);
                self.is_held_back(before).await;
                soon("closing", self.client.close()).await;
                soon("an error", call).await.expect("no panic");
            }
        }
        assert_eq!(self.proxy.held(), before + 1);
    }

    /// Lets the request go, and checks that the server does not execute it.
    async fn let_go(&self, what: &str) {
        self.proxy.let_go();
        wait_until("its fate", SOON, || self.proxy.fates_are_known()).await;
        assert_eq!(self.proxy.executed_late(), 0, "{what}: executed behind something newer");
        assert_eq!(self.proxy.executed_slow(), 0, "{what}: the client kept the connection");
    }

    async fn becomes_free(&self, what: &str) {
        let what = format!("{what}: a lock without a holder");
        wait_until(&what, SOON, || !self.server.exists(&self.name)).await;
    }

    /// Only that guard is believed, and Redis counts one hold, its own.
    async fn is_held_by(&self, guard: &LockGuard, lock: &Lock, what: &str) {
        assert!(!guard.is_lost(), "{what}");
        let holds = self.server.holds(&self.name);
        assert_eq!(holds.into_iter().collect::<Vec<_>>(), [(lock.owner().to_owned(), 1)], "{what}");
        let taken = self.other.lock(&self.name).try_lock_now().await.expect("trying");
        assert!(taken.is_none(), "{what}: two believe that they hold the lock");
    }
}

/// The lock; `Unavailable` only means that the machine is busy.
async fn hold(lock: &Lock) -> LockGuard {
    soon("locking", async {
        loop {
            match lock.lock().await {
                Ok(guard) => return guard,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    })
    .await
}

async fn give_back(scene: &Scene, guard: LockGuard, what: &str) {
    drop(guard);
    scene.becomes_free(what).await;
}

async fn acquire(scene: &Scene, way: Way, what: &str) {
    let lock = scene.lock();
    scene.drop_under(way, async move { lock.lock().await.map(drop) }).await;
    if way != Way::Close {
        // Something newer, which need not be the undo.
        release(hold(&scene.lock()).await).await;
    } else {
        wait_until("the undo", SOON, || scene.proxy.sent("EVALSHA") >= 2).await;
    }
    scene.let_go(what).await;
    scene.becomes_free(what).await;
}

async fn nested(scene: &Scene, way: Way, what: &str) {
    let lock = scene.lock();
    let outer = hold(&lock).await;
    let before = scene.proxy.sent("EVALSHA");
    let inner = lock.clone();
    scene.drop_under(way, async move { inner.lock().await.map(drop) }).await;
    wait_until("the undo", SOON, || scene.proxy.sent("EVALSHA") >= before + 2).await;
    scene.let_go(what).await;
    wait_until("one hold", SOON, || {
        scene.server.holds(&scene.name).into_values().collect::<Vec<_>>() == [1]
    })
    .await;
    scene.is_held_by(&outer, &lock, what).await;
    give_back(scene, outer, what).await;
}

async fn releases(scene: &Scene, way: Way, what: &str) {
    let lock = scene.lock();
    let guard = hold(&lock).await;
    scene.drop_under(way, guard.unlock()).await;
    scene.becomes_free(what).await;
    if way == Way::Close {
        return scene.let_go(what).await;
    }
    let again = hold(&lock).await;
    scene.let_go(what).await;
    scene.is_held_by(&again, &lock, what).await;
    give_back(scene, again, what).await;
}

async fn renews(scene: &Scene, way: Way, what: &str) {
    let lock = scene.lock();
    let guard = hold(&lock).await;
    let before = scene.proxy.held();
    scene.hold_back_the_next();
    scene.is_held_back(before).await;
    if way == Way::Close {
        soon("closing", scene.client.close()).await;
        give_back(scene, guard, what).await;
        return scene.let_go(what).await;
    }
    let sent = scene.proxy.sent("EVALSHA");
    wait_until("another renewal", SOON, || scene.proxy.sent("EVALSHA") > sent).await;
    give_back(scene, guard, what).await;
    let again = lock.lock_with_lease(SOON).await.expect("locking");
    scene.let_go(what).await;
    assert!(again.remaining() <= SOON, "{what}");
    let left = scene.server.pttl(&scene.name);
    assert!(left <= SOON.as_millis() as i64, "{what}");
    scene.is_held_by(&again, &lock, what).await;
    give_back(scene, again, what).await;
}

async fn hands_off(scene: &Scene, way: Way, what: &str) {
    let (first, second) = (scene.lock(), scene.lock());
    let guard = hold(&first).await;
    let waiter: JoinHandle<LockGuard> = {
        let second = second.clone();
        tokio::spawn(async move { second.lock().await.expect("the lock") })
    };
    wait_until("a waiter", SOON, || scene.server.subscribers(&scene.name) >= 1).await;
    // It asks once more when it is subscribed.
    scene.proxy.settled(ms(20)).await;
    let before = scene.proxy.held();
    scene.hold_back_the_next();
    let unlock = tokio::spawn(guard.unlock());
    scene.is_held_back(before).await;
    if way == Way::Close {
        soon("closing", scene.client.close()).await;
    }
    let handed = soon("the lock", waiter).await.expect("a waiter that did not panic");
    // Confirmed by the second sending, or left to the background.
    drop(soon("unlocking", unlock).await.expect("no panic"));
    give_back(scene, handed, what).await;
    if way == Way::Close {
        return scene.let_go(what).await;
    }
    let again = hold(&first).await;
    scene.let_go(what).await;
    scene.is_held_by(&again, &first, what).await;
    give_back(scene, again, what).await;
}

async fn play(server: &Arc<Server>, kind: Kind, way: Way) {
    let what = format!("{kind:?}, {way:?}");
    let scene = Scene::new(server, kind).await;
    match kind {
        Kind::Acquire => acquire(&scene, way, &what).await,
        Kind::Nested => nested(&scene, way, &what).await,
        Kind::Release => releases(&scene, way, &what).await,
        Kind::Renew => renews(&scene, way, &what).await,
        Kind::HandOff => hands_off(&scene, way, &what).await,
    }
    assert_eq!(scene.proxy.came_to_nothing(), scene.proxy.held(), "{what}");
    assert!(scene.proxy.held() >= 1, "{what}: nothing was late");
    soon("closing", scene.client.close()).await;
}

/// So many requests of one way, of all `kinds` in turn.
fn all_come_to_nothing(way: Way, kinds: &'static [Kind], least: u64) {
    let full = std::env::var("REDLATCH_LATE").ok().and_then(|many| many.parse::<u64>().ok());
    // Five kinds by three ways, but for two that do not exist.
    let each = full.map_or(least, |many| many.div_ceil(13));
    let server = Arc::new(Server::start());
    let workers = crate::process::workers();
    workers.block_on(async {
        let next = Arc::new(AtomicU64::new(0));
        let mut scenes = JoinSet::new();
        for _ in 0..SCENES {
            let (server, next) = (server.clone(), next.clone());
            scenes.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(kind) = kinds.get((number / each) as usize) else { return };
                    play(&server, *kind, way).await;
                }
            });
        }
        while let Some(played) = scenes.join_next().await {
            played.expect("a scene that did not fail");
        }
    });
    let count = each * kinds.len() as u64;
    println!("{way:?}: {count} requests of {kinds:?} late, none executed, none left behind");
    block_until("no lock", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0);
}

#[test]
fn w8_requests_of_a_runtime_that_ended_come_to_nothing() {
    all_come_to_nothing(Way::RuntimeEnds, &[Kind::Acquire, Kind::Nested, Kind::Release], 8);
}

const ALL: &[Kind] = &[Kind::Acquire, Kind::Nested, Kind::Release, Kind::Renew, Kind::HandOff];

#[test]
fn w9_requests_of_a_client_that_was_closed_come_to_nothing() {
    all_come_to_nothing(Way::Close, ALL, 5);
}

#[test]
fn n6_requests_that_were_not_answered_in_time_come_to_nothing() {
    all_come_to_nothing(Way::Timeout, ALL, 5);
}
