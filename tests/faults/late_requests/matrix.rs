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

use redlatch::{Error, ErrorKind, Lock, LockClient, LockClientBuilder, LockGuard};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::{Fault, Proxy, SOON, Server, block_until, ms, soon, wait_until};

/// Short, because most requests here have to run into it. Not shorter, because those that are not
/// held up must not, on a busy machine.
const COMMAND_TIMEOUT: Duration = ms(400);

const HOUR: Duration = Duration::from_secs(3600);

/// So many scenes play at the same time: as a rule, and in the full form, where most of the time is
/// spent in waiting for time-outs.
const SCENES: [u64; 2] = [8, 24];

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
    /// The Sentinel names the server by another address, and no answer comes in time.
    Renamed,
}

/// A master of that name for a Sentinel, which finds no others to agree with and never fails over.
fn monitor(sentinel: &Server, name: &str, proxy: &Proxy) {
    let port = proxy.port().to_string();
    sentinel.ask::<()>(&["SENTINEL", "MONITOR", name, "127.0.0.1", &port, "99"]);
    sentinel.ask::<()>(&["SENTINEL", "SET", name, "down-after-milliseconds", "600000"]);
}

/// The servers that all scenes of a test share.
struct Site {
    server: Arc<Server>,
    /// Names the server by an address of each scene's own.
    sentinel: Option<Server>,
}

impl Site {
    fn new(way: Way) -> Self {
        let server = Arc::new(Server::start());
        // It has to have one from the start.
        let first = format!("sentinel monitor first 127.0.0.1 {} 99\n", server.port());
        let sentinel = (way == Way::Renamed).then(|| Server::start_sentinel(&first));
        Self { server, sentinel }
    }
}

/// A client whose requests pass a proxy, and another one beside it.
struct Scene {
    site: Arc<Site>,
    server: Arc<Server>,
    proxy: Proxy,
    /// The server by another name.
    renamed: Proxy,
    client: LockClient,
    other: LockClient,
    name: String,
}

impl Scene {
    async fn new(site: &Arc<Site>, kind: Kind) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let server = &site.server;
        let name = format!("late:{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let (proxy, renamed) = (Proxy::new(server), Proxy::new(server));
        // Renewals would be held up in place of other requests.
        let watchdog = if kind == Kind::Renew { 3 * COMMAND_TIMEOUT } else { HOUR };
        if let Some(sentinel) = &site.sentinel {
            monitor(sentinel, &name, &proxy);
        }
        let client = connected(watchdog, || match &site.sentinel {
            Some(sentinel) => LockClient::builder().sentinel(&name, [sentinel.url()]),
            None => LockClient::builder().url(proxy.url(server)),
        });
        let other = connected(watchdog, || LockClient::builder().url(server.url()));
        let (client, other) = (client.await, other.await);
        let (site, server) = (site.clone(), server.clone());
        Self { site, server, proxy, renamed, client, other, name }
    }

    /// How many scripts the client has called, by whichever name of the server.
    fn calls(&self) -> u64 {
        self.proxy.sent("EVALSHA") + self.renamed.sent("EVALSHA")
    }

    /// The Sentinel names the server anew. Returns when the client has sent something by that name.
    async fn rename(&self) {
        let Some(sentinel) = &self.site.sentinel else { return };
        sentinel.ask::<()>(&["SENTINEL", "REMOVE", &self.name]);
        monitor(sentinel, &self.name, &self.renamed);
        let follows = self.client.lock(format!("{}:follows", self.name));
        soon("a client that follows", async {
            while self.renamed.sent("EVALSHA") == 0 {
                drop(hold(&follows).await);
                tokio::time::sleep(ms(5)).await;
            }
        })
        .await;
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
            Way::Renamed => {
                let call = tokio::spawn(call);
                self.is_held_back(before).await;
                self.rename().await;
                drop(soon("an error", call).await.expect("no panic"));
            }
            Way::RuntimeEnds => {
                let (end, ended) = oneshot::channel::<()>();
                let next = self.client.lock("of another runtime");
                let runtime = tokio::task::spawn_blocking(move || {
                    let runtime = crate::process::runtime();
                    runtime.spawn(call);
                    let _ = runtime.block_on(ended);
                    drop(runtime);
                    // The next runtime is there before the background has looked at what is left.
                    let ask = patiently(|| next.is_locked());
                    assert!(!crate::process::runtime().block_on(ask));
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
        let other = self.other.lock(&self.name);
        let taken = patiently(|| other.try_lock_now()).await;
        assert!(taken.is_none(), "{what}: two believe that they hold the lock");
    }
}

/// What comes of `ask` in the end; `Unavailable` only means that the machine is busy.
async fn patiently<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> T {
    soon("an answer", async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    })
    .await
}

async fn connected(watchdog: Duration, builder: impl Fn() -> LockClientBuilder) -> LockClient {
    let connect =
        || builder().watchdog_timeout(watchdog).command_timeout(COMMAND_TIMEOUT).connect();
    patiently(connect).await
}

async fn hold(lock: &Lock) -> LockGuard {
    patiently(|| lock.lock()).await
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
        drop(hold(&scene.lock()).await);
    } else {
        wait_until("the undo", SOON, || scene.calls() >= 2).await;
    }
    scene.let_go(what).await;
    scene.becomes_free(what).await;
}

async fn nested(scene: &Scene, way: Way, what: &str) {
    let lock = scene.lock();
    let outer = hold(&lock).await;
    let before = scene.calls();
    let inner = lock.clone();
    scene.drop_under(way, async move { inner.lock().await.map(drop) }).await;
    wait_until("the undo", SOON, || scene.calls() >= before + 2).await;
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
    scene.rename().await;
    let sent = scene.calls();
    wait_until("another renewal", SOON, || scene.calls() > sent).await;
    give_back(scene, guard, what).await;
    let again = patiently(|| lock.lock_with_lease(SOON)).await;
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
    let asked = scene.proxy.sent("EVALSHA");
    let waiter: JoinHandle<LockGuard> = {
        let second = second.clone();
        tokio::spawn(async move { hold(&second).await })
    };
    wait_until("a waiter", SOON, || scene.server.subscribers(&scene.name) >= 1).await;
    // It asks when it comes, and once more when it is subscribed.
    wait_until("its questions", SOON, || scene.proxy.sent("EVALSHA") >= asked + 2).await;
    scene.proxy.settled(ms(50)).await;
    let before = scene.proxy.held();
    scene.hold_back_the_next();
    let unlock = tokio::spawn(guard.unlock());
    scene.is_held_back(before).await;
    if way == Way::Close {
        soon("closing", scene.client.close()).await;
    }
    scene.rename().await;
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

async fn play(site: &Arc<Site>, kind: Kind, way: Way) {
    let what = format!("{kind:?}, {way:?}");
    let scene = Scene::new(site, kind).await;
    match kind {
        Kind::Acquire => acquire(&scene, way, &what).await,
        Kind::Nested => nested(&scene, way, &what).await,
        Kind::Release => releases(&scene, way, &what).await,
        Kind::Renew => renews(&scene, way, &what).await,
        Kind::HandOff => hands_off(&scene, way, &what).await,
    }
    assert_eq!(scene.proxy.came_to_nothing(), scene.proxy.held(), "{what}");
    assert!(scene.proxy.held() >= 1, "{what}: nothing was late");
    assert!(way != Way::Renamed || scene.renamed.sent("EVALSHA") >= 1, "{what}");
    soon("closing", scene.client.close()).await;
    if let Some(sentinel) = &site.sentinel {
        sentinel.ask::<()>(&["SENTINEL", "REMOVE", &scene.name]);
    }
}

/// So many requests of one way, of all `kinds` in turn.
fn all_come_to_nothing(way: Way, kinds: &'static [Kind], least: u64) {
    let full = std::env::var("REDLATCH_LATE").ok().and_then(|many| many.parse::<u64>().ok());
    // Five kinds by four ways, but for two that do not exist.
    let each = full.map_or(least, |many| many.div_ceil(18));
    let site = Arc::new(Site::new(way));
    let workers = crate::process::workers();
    workers.block_on(async {
        let next = Arc::new(AtomicU64::new(0));
        let mut scenes = JoinSet::new();
        for _ in 0..SCENES[usize::from(full.is_some())] {
            let (site, next) = (site.clone(), next.clone());
            scenes.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(kind) = kinds.get((number / each) as usize) else { return };
                    play(&site, *kind, way).await;
                }
            });
        }
        while let Some(played) = scenes.join_next().await {
            played.expect("a scene that did not fail");
        }
    });
    let count = each * kinds.len() as u64;
    println!("{way:?}: {count} requests of {kinds:?} late, none executed, none left behind");
    block_until("no lock", SOON, || site.server.ask::<u64>(&["DBSIZE"]) == 0);
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

#[test]
fn w22_requests_by_the_old_name_of_a_server_come_to_nothing() {
    all_come_to_nothing(Way::Renamed, ALL, 3);
}
