//! Calls that wait for a lock, as `acquire` does it, and a Redis so simple that it is unlikely to
//! be wrong. No time passes: no timer makes up for a lost wake-up.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::future::{spawn, yield_now};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::subscriptions::Plan;
use super::*;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::possession::Possessions;
use crate::tests::explore::{Calls, some_time};
use crate::transport::Push;

/// They share a channel.
const LOCKS: [&str; 2] = ["a", "{a}"];

/// The holder of the locks at first.
const STRANGER: usize = usize::MAX;

const HOUR: Duration = Duration::from_secs(3600);

/// Which calls there are, and what happens to them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) calls: usize,
    /// The calls go round these.
    pub(super) locks: usize,
    /// How many of the calls are dropped, each at any moment.
    pub(super) dropped: usize,
    /// How often the connection with the subscriptions is cut.
    pub(super) cuts: usize,
    /// How often the first lock is freed by force.
    pub(super) forced: usize,
    /// A fault: a waiter that leaves takes its wake-up along.
    pub(super) keeps_wake_ups: bool,
    /// A fault: no head asks again when the subscription has become live.
    pub(super) asks_once: bool,
}

impl Scene {
    pub(super) const NOTHING: Self = Self {
        calls: 0,
        locks: 1,
        dropped: 0,
        cuts: 0,
        forced: 0,
        keeps_wake_ups: false,
        asks_once: false,
    };
}

/// Plays until all calls have had the lock, or were dropped.
pub(super) async fn play(scene: Scene) {
    let (server, pushes) = Server::new();
    let (undo, debts) = unbounded_channel();
    let stage = Arc::new(Stage {
        scene,
        waiters: Waiters::default(),
        server,
        undo,
        asking: [0, 0].map(AtomicUsize::new),
    });
    spawn(drive(stage.clone()));
    spawn(listen(stage.clone(), pushes));
    spawn(pay_debts(stage.clone(), debts));

    let calls = Calls::begin(scene.calls, scene.dropped, |me| call(stage.clone(), me));
    for _ in 0..scene.cuts {
        let stage = stage.clone();
        spawn(async move {
            some_time().await;
            stage.server.cut();
        });
    }
    for _ in 0..scene.forced {
        let stage = stage.clone();
        spawn(async move {
            some_time().await;
            stage.server.free(0, None);
        });
    }
    some_time().await;
    for lock in 0..scene.locks {
        stage.server.free(lock, Some(STRANGER));
    }

    calls.end().await;
    assert!(stage.waiters.queues.lock().is_empty());
}

struct Stage {
    scene: Scene,
    waiters: Waiters,
    server: Server,
    undo: UnboundedSender<BackgroundRelease>,
    /// How many waiters of each queue ask Redis.
    asking: [AtomicUsize; 2],
}

/// A call for a lock, which it gives back at once.
async fn call(stage: Arc<Stage>, me: usize) {
    let Stage { waiters, scene, .. } = &*stage;
    let lock = me % scene.locks;
    let names = Arc::new(Names::new("", LOCKS[lock]));
    let handle = Arc::new(Handle::new(Kind::Reentrant, names.clone(), &Possessions::default()));
    let stay = Stay { since: clock::now(), until: None };
    let registration = waiters.join(&handle, Lease::Watchdog, HOUR, stay, None);
    let _fault = scene.keeps_wake_ups.then(|| KeepsWakeUps(waiters, &names, registration.ticket()));
    loop {
        let limits = WaitLimits { until: None, request: HOUR, outage: None, warn_at: None };
        let next = registration.next(&limits, || {}).await;
        assert!(matches!(next, WakeReason::Ask(_)));
        let alone = Alone::new(&stage.asking[lock]);
        let granted = ask(&stage, lock, me).await;
        drop(alone);
        match granted {
            Some(_guard) => {
                registration.record_grant(HOUR);
                return;
            }
            None => registration.record_refusal(Some(HOUR), "other".into()),
        }
    }
}

/// Only the head of a queue asks.
struct Alone<'a>(&'a AtomicUsize);

impl<'a> Alone<'a> {
    fn new(asking: &'a AtomicUsize) -> Self {
        assert_eq!(asking.fetch_add(1, Ordering::Relaxed), 0, "two of one queue ask");
        Self(asking)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A waiter that leaves, and wakes no other waiter to ask in its place.
struct KeepsWakeUps<'a>(&'a Waiters, &'a Names, Ticket);

impl Drop for KeepsWakeUps<'_> {
    fn drop(&mut self) {
        let _kept = self.0.change_quietly(clock::now(), |queues| queues.leave(self.1, self.2));
    }
}

/// A hold, or the request for one, from when it is sent. Dropped, it is given back.
struct BackgroundRelease {
    lock: usize,
    me: usize,
    /// Otherwise it is still on its way, and comes before what undoes it.
    arrived: bool,
}

struct Guard<'a> {
    stage: &'a Stage,
    release: Option<BackgroundRelease>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            let paid = self.stage.undo.send(release);
            assert!(paid.is_ok() || std::thread::panicking(), "the job is lost");
        }
    }
}

/// Asks Redis once.
async fn ask(stage: &Stage, lock: usize, me: usize) -> Option<Guard<'_>> {
    // Not sent yet: there is nothing to undo, so no message will come.
    yield_now().await;
    let mut guard = Guard { stage, release: Some(BackgroundRelease { lock, me, arrived: false }) };
    yield_now().await;
    let granted = stage.server.acquire(lock, me);
    guard.release = Some(BackgroundRelease { lock, me, arrived: true });
    yield_now().await;
    if !granted {
        guard.release = None;
    }
    granted.then_some(guard)
}

async fn pay_debts(stage: Arc<Stage>, mut debts: UnboundedReceiver<BackgroundRelease>) {
    while let Some(BackgroundRelease { lock, me, arrived }) = debts.recv().await {
        if !arrived {
            stage.server.acquire(lock, me);
        }
        stage.server.free(lock, Some(me));
    }
}

/// Keeps the subscriptions, as `Waiters::subscribe_at` does.
async fn drive(stage: Arc<Stage>) {
    let Stage { waiters, server, scene, .. } = &*stage;
    let mut on = 0;
    loop {
        waiters.dirty(on, |_| true).await;
        let connection = server.connection();
        if on != connection {
            waiters.cut(on);
            on = connection;
        }
        let plan = waiters.queues.lock().at(clock::now()).plan(on, |_| true);
        yield_now().await;
        let confirmed = server.resubscribe(connection, &plan);
        yield_now().await;
        if !confirmed {
            waiters.not_subscribed(&plan.subscribe, on);
        } else if scene.asks_once {
            let subscribed = |queues: &mut Queues<Waiter>| {
                queues.record_subscribed(&plan.subscribe, on);
            };
            let _kept = waiters.change_quietly(clock::now(), subscribed);
        } else {
            waiters.subscribed(&plan.subscribe, on);
        }
    }
}

/// Passes messages to the wait queues, as `Waiters::listen` does.
async fn listen(stage: Arc<Stage>, mut pushes: UnboundedReceiver<Push>) {
    let waiters = &stage.waiters;
    while let Some(push) = pushes.recv().await {
        match push {
            Push::Message { channel, payload } => {
                assert_eq!(waiters.process_message(&channel, &payload), None);
            }
            Push::Cut { number } => waiters.cut(number),
            Push::Dropped { .. } => unreachable!("no channel moves"),
        }
    }
}

/// One Redis, which does one thing after the other, and the connection with the subscriptions.
struct Server(Mutex<State>);

struct State {
    held: [Option<usize>; 2],
    /// The number of the connection.
    connection: u64,
    subscribed: BTreeSet<Arc<str>>,
    pushes: UnboundedSender<Push>,
}

impl Server {
    fn new() -> (Self, UnboundedReceiver<Push>) {
        let (pushes, pushed) = unbounded_channel();
        let held = [Some(STRANGER); 2];
        let state = State { held, connection: 1, subscribed: BTreeSet::new(), pushes };
        (Self(state.into()), pushed)
    }

    fn acquire(&self, lock: usize, who: usize) -> bool {
        *self.0.lock().held[lock].get_or_insert(who) == who
    }

    /// The holder gives the lock back, or it is freed by force.
    fn free(&self, lock: usize, by: Option<usize>) {
        let state = &mut *self.0.lock();
        if state.held[lock].take_if(|held| by.is_none_or(|by| *held == by)).is_some() {
            let channel = Names::new("", LOCKS[lock]).channel().to_owned();
            if state.subscribed.contains(&*channel) {
                let _ = state.pushes.send(Push::Message { channel, payload: b"0".into() });
            }
        }
    }

    fn connection(&self) -> u64 {
        self.0.lock().connection
    }

    /// False if that connection was cut.
    fn resubscribe(&self, connection: u64, plan: &Plan) -> bool {
        let mut state = self.0.lock();
        if state.connection != connection {
            return false;
        }
        state.subscribed.retain(|channel| !plan.unsubscribe.contains(channel));
        state.subscribed.extend(plan.subscribe.iter().cloned());
        true
    }

    fn cut(&self) {
        let state = &mut *self.0.lock();
        let _ = state.pushes.send(Push::Cut { number: state.connection });
        state.subscribed.clear();
        state.connection += 1;
    }
}
