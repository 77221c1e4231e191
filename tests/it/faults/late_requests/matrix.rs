//! Every kind of request, late in every way: a proxy holds the request up, the client drops the
//! connection that carries it, something newer is sent, and then the request goes on.
//!
//! In every run a few of each; `REDLATCH_LATE=10000` makes that many in a release build, which
//! takes about ten minutes:
//!
//! ```sh
//! REDLATCH_LATE=10000 cargo test --release --test it -- --nocapture late_requests::matrix
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::servers::{Servers, command_timeout};
use super::*;

/// A third of it, after which renewals are sent, is more than [`command_timeout`]; two thirds
/// outlast a topology that moves on and back.
const RENEWED: Duration = ms(4_500);

/// So many scenes play at the same time: as a rule, and in the full form, where most of the time is
/// spent in waiting for time-outs.
const SCENES: [u64; 2] = [5, 24];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Acquire,
    Nested,
    Release,
    Renew,
    HandOff,
    Execute,
}

/// How the client comes to drop the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// No answer comes within the command timeout.
    Timeout,
    /// The runtime that drives the connection ends.
    RuntimeEnds,
    /// The client is closed.
    Close,
    /// The Sentinel names the server by another address.
    Renamed,
    /// The Sentinel names another primary, and then the one of before again.
    FailedOver,
    /// The node of a cluster goes by another address.
    Announced,
    /// The last slot of a node goes to another one, and comes back.
    Moved,
    /// No answer comes in time on a connection to which `ASK` led, while the map is renewed.
    Asked,
}

impl Way {
    /// Whether the client finds the server where it was before.
    pub(super) fn leads_back(self) -> bool {
        matches!(self, Way::FailedOver | Way::Moved)
    }

    /// Whether the client drops the connection because the topology has moved on.
    pub(super) fn moves_on(self) -> bool {
        self.leads_back() || matches!(self, Way::Renamed | Way::Announced)
    }
}

/// A client whose requests pass a proxy, and another one beside it.
struct Scene<'a> {
    servers: &'a Servers,
    way: Way,
    proxy: &'a Proxy,
    client: LockClient,
    other: LockClient,
    name: String,
    /// What the Sentinel calls the primary.
    master: String,
}

impl<'a> Scene<'a> {
    async fn new(servers: &'a Servers, way: Way, kind: Kind) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (name, master) = (servers.name(number), format!("master{number}"));
        let [proxy, other_way] = servers.proxies();
        proxy.forget_commands();
        other_way.forget_commands();
        // Renewals would be held up in place of other requests.
        let watchdog = if kind == Kind::Renew { RENEWED } else { HOUR };
        servers.names(&master, proxy);
        let timeout = command_timeout(way);
        let client = connected(watchdog, timeout, || servers.builder(&master)).await;
        let other = connected(watchdog, timeout, || servers.beside(&master)).await;
        let scene = Self { servers, way, proxy, client, other, name, master };
        // A connection that can be broken, so that the client asks for the map.
        let elsewhere = scene.client.lock(format!("elsewhere:{number}"));
        // Released again until it is answered: a release in the background would be the request that is held up.
        while let Err(error) = soon("unlocking", hold(&elsewhere).await.unlock()).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        scene
    }

    /// How many scripts the client has called, by whichever name of the server. One that was sent
    /// on counts once.
    fn calls(&self) -> u64 {
        if self.way == Way::Asked {
            return self.proxy.sent("EVALSHA");
        }
        self.servers.proxies().iter().map(|proxy| proxy.sent("EVALSHA")).sum()
    }

    /// The topology moves on, and back if the way is such. Returns when the client has followed.
    async fn moves_on(&self) {
        if self.way == Way::Asked {
            return self.site_moves(false);
        }
        if !self.way.moves_on() {
            return;
        }
        let [here, there] = self.servers.proxies();
        self.site_moves(false);
        self.follows(there).await;
        if self.way.leads_back() {
            self.site_moves(true);
            self.follows(here).await;
        }
    }

    fn site_moves(&self, back: bool) {
        tokio::task::block_in_place(|| self.servers.moves_on(&self.master, back));
    }

    async fn follows(&self, proxy: &Proxy) {
        let (before, lock) =
            (proxy.sent("EVALSHA"), self.client.lock(format!("{}:follows", self.name)));
        soon("a client that follows", async {
            while proxy.sent("EVALSHA") == before {
                let _ = hold(&lock).await.unlock().await;
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
        let proxy = self.proxy;
        wait_until("a request that is held back", SOON, || proxy.held() > before).await;
    }

    /// Begins `call`, whose request is held up, and has the client drop its connection.
    async fn drop_under<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) {
        let before = self.proxy.held();
        self.hold_back_the_next();
        match self.way {
            Way::Timeout => {
                drop(soon("an error", call).await);
                self.is_held_back(before).await;
            }
            Way::Renamed | Way::FailedOver | Way::Announced | Way::Moved | Way::Asked => {
                let call = tokio::spawn(call);
                self.is_held_back(before).await;
                self.moves_on().await;
                drop(soon("an outcome", call).await.expect("no panic"));
            }
            Way::RuntimeEnds => {
                let (end, ended) = oneshot::channel::<()>();
                let next = self.client.lock("of another runtime");
                let runtime = tokio::task::spawn_blocking(move || {
                    let first = runtime();
                    first.spawn(call);
                    let _ = first.block_on(ended);
                    drop(first);
                    // The next runtime is there before the background has looked at what is left.
                    let ask = patiently(|| next.is_locked());
                    assert!(!runtime().block_on(ask));
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
        // Or nothing would come of any request.
        assert!(self.servers.knows_scripts(), "{what}");
        self.proxy.let_go();
        wait_until("its fate", SOON, || self.proxy.fates_are_known()).await;
        assert_eq!(self.proxy.executed_late(), 0, "{what}: executed behind something newer");
        assert_eq!(self.proxy.executed_slow(), 0, "{what}: the client kept the connection");
    }

    async fn becomes_free(&self, what: &str) {
        let what = format!("{what}: a lock without a holder");
        wait_until(&what, SOON, || !self.servers.exists(&self.name)).await;
    }

    /// Only that guard is believed, and Redis counts one hold, its own.
    async fn is_held_by(&self, guard: &LockGuard, what: &str) {
        assert!(!guard.is_lost(), "{what}");
        let holds = self.servers.holds(&self.name);
        assert_eq!(holds, [(guard.owner().to_owned(), 1)].into(), "{what}");
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

async fn connected(
    watchdog: Duration,
    timeout: Duration,
    builder: impl Fn() -> LockClientBuilder,
) -> LockClient {
    patiently(|| builder().watchdog_timeout(watchdog).command_timeout(timeout).connect()).await
}

async fn hold(lock: &Lock) -> LockGuard {
    patiently(|| lock.lock()).await
}

async fn give_back(scene: &Scene<'_>, guard: LockGuard, what: &str) {
    drop(guard);
    scene.becomes_free(what).await;
}

/// Lets the request go behind a new hold, if the client can still have one.
async fn let_go_behind_another(scene: &Scene<'_>, lock: &Lock, what: &str) {
    if scene.way == Way::Close {
        return scene.let_go(what).await;
    }
    let again = hold(lock).await;
    scene.let_go(what).await;
    scene.is_held_by(&again, what).await;
    give_back(scene, again, what).await;
}

async fn acquire(scene: &Scene<'_>, what: &str) {
    let (lock, before) = (scene.lock(), scene.calls());
    scene.drop_under(async move { lock.lock().await.map(drop) }).await;
    if scene.way != Way::Close {
        // Something newer, which need not be the undo.
        drop(hold(&scene.lock()).await);
    } else {
        wait_until("the undo", SOON, || scene.calls() >= before + 2).await;
    }
    scene.let_go(what).await;
    scene.becomes_free(what).await;
}

async fn nested(scene: &Scene<'_>, what: &str) {
    let lock = scene.lock();
    let outer = hold(&lock).await;
    let before = scene.calls();
    let inner = lock.clone();
    scene.drop_under(async move { inner.lock().await.map(drop) }).await;
    wait_until("the undo", SOON, || scene.calls() >= before + 2).await;
    scene.let_go(what).await;
    wait_until("one hold", SOON, || {
        scene.servers.holds(&scene.name).into_values().collect::<Vec<_>>() == [1]
    })
    .await;
    scene.is_held_by(&outer, what).await;
    give_back(scene, outer, what).await;
}

async fn releases(scene: &Scene<'_>, what: &str) {
    let lock = scene.lock();
    let guard = hold(&lock).await;
    scene.drop_under(guard.unlock()).await;
    scene.becomes_free(what).await;
    let_go_behind_another(scene, &lock, what).await;
}

async fn renews(scene: &Scene<'_>, what: &str) {
    let lock = scene.lock();
    let guard = hold(&lock).await;
    let before = scene.proxy.held();
    scene.hold_back_the_next();
    scene.is_held_back(before).await;
    if scene.way == Way::Close {
        soon("closing", scene.client.close()).await;
        give_back(scene, guard, what).await;
        return scene.let_go(what).await;
    }
    scene.moves_on().await;
    let sent = scene.calls();
    // On a busy machine the lease may end before the topology has moved on.
    wait_until("another renewal", SOON, || scene.calls() > sent || guard.is_lost()).await;
    give_back(scene, guard, what).await;
    let again = patiently(|| lock.lock_with_lease(SOON)).await;
    scene.let_go(what).await;
    assert!(again.remaining() <= SOON, "{what}");
    let left = scene.servers.pttl(&scene.name);
    assert!(left <= SOON.as_millis() as i64, "{what}");
    scene.is_held_by(&again, what).await;
    give_back(scene, again, what).await;
}

async fn hands_off(scene: &Scene<'_>, what: &str) {
    let (first, second) = (scene.lock(), scene.lock());
    let guard = hold(&first).await;
    let asked = scene.proxy.sent("EVALSHA");
    let waiter = tokio::spawn(async move { hold(&second).await });
    wait_until("a waiter", SOON, || scene.servers.subscribers(&scene.name) >= 1).await;
    // It asks when it comes, and once more when it is subscribed.
    wait_until("its questions", SOON, || scene.proxy.sent("EVALSHA") >= asked + 2).await;
    // A waiter that has no answer yet is handed nothing. Redis answers this question behind it.
    assert!(patiently(|| first.is_locked()).await, "{what}");
    scene.proxy.settled(ms(50)).await;
    let before = scene.proxy.held();
    scene.hold_back_the_next();
    let unlock = tokio::spawn(guard.unlock());
    scene.is_held_back(before).await;
    if scene.way == Way::Close {
        soon("closing", scene.client.close()).await;
    }
    scene.moves_on().await;
    let handed = soon("the lock", waiter).await.expect("a waiter that did not panic");
    // Confirmed by the second sending, or left to the background.
    drop(soon("unlocking", unlock).await.expect("no panic"));
    give_back(scene, handed, what).await;
    let_go_behind_another(scene, &first, what).await;
}

async fn executes(scene: &Scene<'_>, what: &str) {
    let lock = scene.lock();
    let guard = Arc::new(hold(&lock).await);
    let written = format!("{}:written", scene.name);
    let (executing, write) = (guard.clone(), redis::pipe().set(&written, 1).clone());
    scene.drop_under(async move { executing.execute::<()>(&write).await }).await;
    give_back(scene, Arc::into_inner(guard).expect("the only one"), what).await;
    let_go_behind_another(scene, &lock, what).await;
    assert!(!scene.servers.exists(&written), "{what}");
}

async fn play(servers: &Servers, kind: Kind, way: Way) {
    let what = format!("{kind:?}, {way:?}");
    let proxy = servers.proxies()[0];
    let (held, nothing) = (proxy.held(), proxy.came_to_nothing());
    let scene = Scene::new(servers, way, kind).await;
    match kind {
        Kind::Acquire => acquire(&scene, &what).await,
        Kind::Nested => nested(&scene, &what).await,
        Kind::Release => releases(&scene, &what).await,
        Kind::Renew => renews(&scene, &what).await,
        Kind::HandOff => hands_off(&scene, &what).await,
        Kind::Execute => executes(&scene, &what).await,
    }
    let held = proxy.held() - held;
    assert!(held >= 1, "{what}: nothing was late");
    assert_eq!(proxy.came_to_nothing() - nothing, held, "{what}");
    let elsewhere = servers.proxies()[1].sent("EVALSHA");
    assert!(!way.moves_on() || elsewhere >= 1, "{what}: nothing went anywhere else");
    soon("closing", scene.client.close()).await;
    soon("closing", scene.other.close()).await;
    servers.forgets(&scene.master);
    if way.moves_on() && !way.leads_back() {
        servers.stays();
    }
}

/// Six kinds by eight ways, but for two that do not exist, and for one in which the key is at neither
/// node.
const PAIRS: u64 = 45;

/// At least so many requests of each of the `kinds`.
fn all_come_to_nothing(way: Way, kinds: &'static [Kind], least: u64) {
    let full = std::env::var("REDLATCH_LATE").ok().and_then(|many| many.parse::<u64>().ok());
    let each = full.map_or(least, |many| many.div_ceil(PAIRS));
    let workers = workers();
    workers.block_on(async {
        let next = Arc::new(AtomicU64::new(0));
        let mut scenes = JoinSet::new();
        for _ in 0..SCENES[usize::from(full.is_some())] {
            let next = next.clone();
            scenes.spawn(async move {
                let Some(servers) = tokio::task::block_in_place(|| Servers::new(way)) else {
                    return;
                };
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(kind) = kinds.get((number / each) as usize) else { break };
                    play(&servers, *kind, way).await;
                }
                block_until("no lock", SOON, || servers.size() == 0);
            });
        }
        while let Some(played) = scenes.join_next().await {
            played.expect("a scene that did not fail");
        }
    });
    let count = each * kinds.len() as u64;
    println!("{way:?}: {count} requests of {kinds:?} late, none executed, none left behind");
}

const ALL: &[Kind] =
    &[Kind::Execute, Kind::Acquire, Kind::Nested, Kind::Release, Kind::Renew, Kind::HandOff];

#[test]
fn w8_requests_of_a_runtime_that_ended_come_to_nothing() {
    all_come_to_nothing(Way::RuntimeEnds, &ALL[..4], 8);
}

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

#[test]
fn w22_requests_by_the_old_address_of_a_node_come_to_nothing() {
    all_come_to_nothing(Way::Announced, ALL, 1);
}

#[test]
fn w23_requests_to_a_primary_that_another_replaced_for_a_while_come_to_nothing() {
    all_come_to_nothing(Way::FailedOver, ALL, 1);
}

#[test]
fn w23_requests_to_a_node_that_lost_its_slots_for_a_while_come_to_nothing() {
    all_come_to_nothing(Way::Moved, ALL, 1);
}

#[test]
fn w25_requests_to_a_node_to_which_ask_led_come_to_nothing() {
    all_come_to_nothing(Way::Asked, &ALL[1..], 1);
}
