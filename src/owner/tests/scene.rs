//! One owner's hold state under many schedules: its calls, a background that sends releases, a
//! watchdog, another owner, an operator. All of them do plainly what `acquire`, `releaser` and
//! `watchdog` do. No time passes, so no hold is lost by the clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::future::{block_on, spawn, yield_now};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::protocol::{Acquired, Released};
use crate::tests::naive::Naive;

use crate::tests::explore::{self, Calls, explore, fault, some_time};

const US: &str = "us";
const OTHER: &str = "other";
const LEASE: u64 = 3_600_000;

/// How many renewals are tried.
const RENEWALS: usize = 3;

#[derive(Debug, Clone, Copy)]
struct Scene {
    calls: usize,
    /// How many of the calls are dropped, each at any moment.
    dropped: usize,
    /// An operator deletes the key.
    deletes: bool,
    /// A fault: a refused renewal counts for whatever is held when its answer comes.
    forgets_tenure: bool,
}

struct Stage {
    scene: Scene,
    now: Instant,
    owner: Arc<Owner>,
    redis: explore::Mutex<Naive>,
    background: UnboundedSender<BackgroundRelease>,
    watchdog: UnboundedSender<()>,
    /// Whether the watchdog has the owner on its schedule, or renews it.
    watched: AtomicBool,
    /// Guards that have not been given back.
    live: AtomicUsize,
    deleted: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Acquire { count: u32 },
    Release { count: u32 },
}

struct BackgroundRelease {
    permit: Option<Permit>,
    /// Arrives before what undoes it.
    on_its_way: Option<Request>,
}

async fn play(scene: Scene) {
    let (background, debts) = unbounded_channel();
    let (watchdog, turns) = unbounded_channel();
    let stage = Arc::new(Stage {
        scene,
        now: Instant::now(),
        owner: Arc::new(Owner::new(Kind::Reentrant, Names::new("", "lock"), US.into())),
        redis: explore::Mutex::default(),
        background,
        watchdog,
        watched: AtomicBool::new(false),
        live: AtomicUsize::new(0),
        deleted: AtomicBool::new(false),
    });
    spawn(pay_debts(stage.clone(), debts));
    spawn(keep_renewed(stage.clone(), turns));
    spawn(other(stage.clone()));
    if scene.deletes {
        let stage = stage.clone();
        spawn(async move {
            some_time().await;
            let mut redis = stage.redis.lock();
            redis.lock = None;
            stage.deleted.store(true, Ordering::Relaxed);
        });
    }
    let calls = Calls::begin(scene.calls, scene.dropped, |me| call(stage.clone(), me));
    calls.end().await;
    let mut session = OwnerSession::enter(&stage).await;
    session.pay().await;
    assert_eq!(session.pending(), None, "one payment is enough");
    let held = stage.redis.lock().lock.clone();
    assert!(held.is_none_or(|held| held.owner == OTHER), "a hold is left behind");
    assert!(!stage.owner.holds.lock().holding(stage.now), "nobody holds anything");
}

/// Two holds, one after the other: the first is given back by a drop, the second is unlocked.
async fn call(stage: Arc<Stage>, me: usize) {
    let first = stage.hold().await;
    yield_now().await;
    drop(first);
    let Some(mut guard) = stage.hold().await else { return };
    if me > 0 {
        yield_now().await;
    }
    guard.check();
    guard.give_back();
    let mut session = OwnerSession::enter(&stage).await;
    session.pay().await;
    guard.check();
}

async fn other(stage: Arc<Stage>) {
    if stage.redis.lock().acquire(OTHER, LEASE, 1, 0) == Acquired::Granted(None) {
        stage.redis.lock().release(OTHER, 0, 1, 0);
    }
}

/// The background of the releaser.
async fn pay_debts(stage: Arc<Stage>, mut debts: UnboundedReceiver<BackgroundRelease>) {
    while let Some(release) = debts.recv().await {
        spawn(pay(stage.clone(), release));
    }
}

async fn pay(stage: Arc<Stage>, release: BackgroundRelease) {
    let _gate = match release.permit {
        Some(permit) => permit,
        None => stage.owner.permit().await,
    };
    if let Some(request) = release.on_its_way {
        stage.carry_out(request);
    }
    let mut session = OwnerSession { stage: &stage, permit: None, on_its_way: None };
    while session.pending().is_some() {
        session.pay().await;
    }
}

/// The watchdog, with its one owner.
async fn keep_renewed(stage: Arc<Stage>, mut turns: UnboundedReceiver<()>) {
    let Stage { owner, now, scene, .. } = &*stage;
    for _ in 0..RENEWALS {
        turns.recv().await.expect("the stage stays");
        let found = owner.holds.lock().renewal(*now, Duration::ZERO, Duration::MAX);
        let Renewal::Due { generation, .. } = found else {
            assert_eq!(found, Renewal::Idle { ran_out: false });
            stage.watched.store(false, Ordering::Relaxed);
            continue;
        };
        yield_now().await;
        let held = stage.redis.lock().renew(US, LEASE, 0);
        yield_now().await;
        if held.is_ok() {
            let lease = Duration::from_millis(LEASE);
            assert!(owner.holds.lock().renewed(generation, *now, lease, *now));
        } else if scene.forgets_tenure {
            owner.lose(FoundBy::Release, Loss::KeyGone, *now);
        } else {
            let lost = owner.lose(FoundBy::Renewal { generation }, Loss::KeyGone, *now);
            assert!(
                lost != Some(true) || scene.deletes,
                "a renewal loses a hold that was never taken away"
            );
        }
        let _ = stage.watchdog.send(());
    }
}

impl Stage {
    fn carry_out(&self, request: Request) -> (Acquired, Released) {
        let mut redis = self.redis.lock();
        match request {
            Request::Acquire { count } => (redis.acquire(US, LEASE, count, 0), Released::Held),
            Request::Release { count } => {
                (Acquired::Granted(None), redis.release(US, count, LEASE, 0))
            }
        }
    }

    /// One more hold, unless another owner has the lock.
    async fn hold(&self) -> Option<Guard<'_>> {
        let mut session = OwnerSession::enter(self).await;
        session.pay().await;
        loop {
            let before = self.scene.deletes && !self.deleted.load(Ordering::Relaxed);
            let ask = self.owner.holds.lock().ask(self.now);
            match session.send(Request::Acquire { count: ask.count }).await.0 {
                Acquired::Granted(_) => {
                    let lease = Duration::from_millis(LEASE);
                    let validity = Arc::new(Validity::new(valid_until(self.now, lease)));
                    let mut holds = self.owner.holds.lock();
                    let hold = holds.granted(ask, Lease::Watchdog, validity.clone(), self.now);
                    let watch = holds.start_watching().is_some();
                    drop(holds);
                    self.live.fetch_add(1, Ordering::Relaxed);
                    if watch {
                        let watched = self.watched.swap(true, Ordering::Relaxed);
                        assert!(!watched, "an owner is on the schedule once at most");
                        let _ = self.watchdog.send(());
                    }
                    return Some(Guard { stage: self, hold: Some(hold), validity, sure: !before });
                }
                Acquired::Refused { .. } => {
                    self.owner.lose(FoundBy::Refusal, Loss::TakenOver, self.now);
                    return None;
                }
                Acquired::Gone(_) => {
                    assert!(self.scene.deletes, "an outer hold is gone");
                    self.owner.lose(FoundBy::Release, Loss::KeyGone, self.now);
                }
            }
        }
    }
}

struct OwnerSession<'a> {
    stage: &'a Stage,
    permit: Option<Permit>,
    on_its_way: Option<Request>,
}

impl<'a> OwnerSession<'a> {
    async fn enter(stage: &'a Stage) -> Self {
        let mut session = Self { stage, permit: None, on_its_way: None };
        session.permit = Some(stage.owner.permit().await);
        session
    }

    fn pending(&self) -> Option<PendingRelease> {
        self.stage.owner.holds.lock().pending(self.stage.now, WATCHDOG)
    }

    async fn send(&mut self, request: Request) -> (Acquired, Released) {
        self.on_its_way = Some(request);
        yield_now().await;
        let answer = self.stage.carry_out(request);
        self.on_its_way = None;
        yield_now().await;
        answer
    }

    async fn pay(&mut self) {
        let Stage { owner, now, live, redis, scene, .. } = self.stage;
        let Some(pending) = self.pending() else { return };
        let sent_before = owner.holds.lock().release_sent(pending);
        let (_, released) = self.send(Request::Release { count: pending.count }).await;
        if matches!(released, Released::Nothing(_)) && !sent_before {
            owner.lose(FoundBy::Release, Loss::KeyGone, *now);
        } else {
            owner.holds.lock().release_confirmed(pending);
        }
        let redis = redis.lock();
        if self.pending().is_none() && !scene.deletes {
            let live = live.load(Ordering::Relaxed);
            let ours = redis.lock.as_ref().filter(|held| held.owner == US);
            assert_eq!(ours.map_or(0, |held| held.count as usize), live);
            let valid = owner.holds.lock().holding(*now);
            assert_eq!(valid, live > 0, "what was released is valid again");
        }
    }
}

impl Drop for OwnerSession<'_> {
    fn drop(&mut self) {
        // The scene has gone wrong already, and a second panic would end the process.
        if std::thread::panicking() {
            return;
        }
        if self.permit.is_some() && self.pending().is_some() {
            let release = BackgroundRelease {
                permit: self.permit.take(),
                on_its_way: self.on_its_way.take(),
            };
            self.stage.background.send(release).expect("somebody pays");
        }
        assert_eq!(self.on_its_way.take(), None, "a request under way that nobody undoes");
    }
}

struct Guard<'a> {
    stage: &'a Stage,
    hold: Option<HoldId>,
    validity: Arc<Validity>,
    /// The operator does not delete it: it was asked for after the one delete, or there is none.
    sure: bool,
}

impl Guard<'_> {
    fn check(&self) {
        let valid = self.validity.check(self.stage.now).is_some() && !self.validity.is_gone();
        assert!(valid || !self.sure, "a hold is lost that was never taken away");
    }

    /// From here on a release is pending. Returns whether it was not before.
    fn give_back(&mut self) -> bool {
        let Some(hold) = self.hold.take() else { return false };
        self.stage.owner.holds.lock().give_back(hold);
        self.stage.live.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if self.give_back() {
            self.check();
            let permit = self.stage.owner.try_permit();
            let release = BackgroundRelease { permit, on_its_way: None };
            self.stage.background.send(release).expect("somebody pays");
        }
    }
}

#[test]
fn a_hold_is_valid_until_it_is_given_back_and_never_again_under_every_schedule() {
    const SCENE: Scene = Scene { calls: 2, dropped: 1, deletes: false, forgets_tenure: false };
    explore(10_000, || block_on(play(SCENE)));
}

#[test]
fn a_renewal_of_a_generation_that_is_over_loses_no_later_one_under_every_schedule() {
    const SCENE: Scene = Scene { calls: 2, dropped: 1, deletes: true, forgets_tenure: false };
    explore(10_000, || block_on(play(SCENE)));
}

#[test]
fn a_renewal_that_does_not_know_its_generation_is_seen_to_lose_another() {
    const SCENE: Scene = Scene { calls: 2, dropped: 0, deletes: false, forgets_tenure: true };
    let said = fault(|| block_on(play(SCENE)));
    assert!(said.contains("never taken away"), "{said}");
}
