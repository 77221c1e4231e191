//! The possessions of one handle under many schedules: its calls, a background that sends releases, a
//! watchdog, another owner, an operator. All of them do plainly what `acquire`, `releaser` and
//! `watchdog` do. No time passes, so no hold is lost by the clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::future::{block_on, spawn, yield_now};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::error::Loss;
use crate::lease::{Lease, Validity};
use crate::possession::{FoundBy, HoldId, Nesting, PendingRelease, Permit};
use crate::protocol::{Acquired, Released};
use crate::tests::explore::{self, Calls, explore, fault, some_time};
use crate::tests::naive::Naive;
use crate::token::TokenBlock;

const OTHER: &str = "other:1";
const LEASE: u64 = 3_600_000;

const RENEWALS: usize = 3;

#[derive(Debug, Clone, Copy)]
struct Scene {
    calls: usize,
    /// How many of the calls are dropped, each at any moment.
    dropped: usize,
    /// An operator deletes the key.
    deletes: bool,
    /// A fault: a refused renewal counts for whatever its handle holds when the answer comes.
    loses_the_last: bool,
}

struct Stage {
    scene: Scene,
    now: Instant,
    possessions: Arc<Possessions>,
    handle: Handle,
    redis: explore::Mutex<Naive>,
    background: UnboundedSender<BackgroundRelease>,
    watchdog: UnboundedSender<()>,
    /// How many guards of each possession have not been given back.
    live: parking_lot::Mutex<BTreeMap<Box<str>, u32>>,
    /// How many releases the background has not done.
    owed: AtomicUsize,
    deleted: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Acquire { count: u32 },
    Release { count: u32 },
}

struct BackgroundRelease {
    possession: Arc<Possession>,
    permit: Option<Permit>,
    /// Arrives before what undoes it.
    on_its_way: Option<Request>,
}

async fn play(scene: Scene) {
    let (background, debts) = unbounded_channel();
    let (watchdog, turns) = unbounded_channel();
    let possessions: Arc<Possessions> = Arc::default();
    let names = Arc::new(Names::new("", "lock"));
    let stage = Arc::new(Stage {
        scene,
        now: Instant::now(),
        handle: Handle::new(Kind::Reentrant, names, &possessions),
        possessions,
        redis: explore::Mutex::default(),
        background,
        watchdog,
        live: Default::default(),
        owed: AtomicUsize::new(0),
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
    while stage.owed.load(Ordering::Relaxed) > 0 {
        yield_now().await;
    }
    let held = stage.redis.lock().lock.clone();
    assert!(held.is_none_or(|held| &*held.owner == OTHER), "a hold is left behind");
    assert!(stage.handle.holding(stage.now).is_none(), "the handle holds nothing");
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
    let possession = guard.possession.clone();
    let mut session = PossessionSession::enter(&stage, &possession).await;
    session.pay().await;
    guard.check();
}

async fn other(stage: Arc<Stage>) {
    some_time().await;
    let acquired = stage.redis.lock().acquire(OTHER, LEASE, 1, 0);
    if matches!(acquired, Acquired::Granted(_)) {
        yield_now().await;
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
    let BackgroundRelease { possession, permit, on_its_way } = release;
    let _permit = match permit {
        Some(permit) => permit,
        None => possession.permit().await,
    };
    if let Some(request) = on_its_way {
        stage.carry_out(&possession, request);
    }
    let mut session = PossessionSession {
        stage: &stage,
        possession: &possession,
        permit: None,
        on_its_way: None,
    };
    while session.pending().is_some() {
        session.pay().await;
    }
    stage.owed.fetch_sub(1, Ordering::Relaxed);
}

/// The watchdog, with its one handle.
async fn keep_renewed(stage: Arc<Stage>, mut turns: UnboundedReceiver<()>) {
    let Stage { handle, now, scene, .. } = &*stage;
    for _ in 0..RENEWALS {
        turns.recv().await.expect("the stage stays");
        let found = handle.renewal(*now, Duration::ZERO, Duration::MAX);
        let (possession, found) = found.expect("it was inside");
        let Renewal::Due { shortened, .. } = found else {
            assert_eq!(found, Renewal::Idle { ran_out: false });
            continue;
        };
        yield_now().await;
        let held = stage.redis.lock().renew(&possession.id(), LEASE, 0);
        yield_now().await;
        if held.is_ok() {
            let lease = Duration::from_millis(LEASE);
            assert!(possession.holds.lock().renewed(shortened, *now, lease, *now));
        } else {
            let last = handle.possession().filter(|_| scene.loses_the_last);
            possession.holds.lock().renewal_ends();
            let lost = last.unwrap_or(possession).lose(FoundBy::Renewal, Loss::KeyGone, *now);
            assert!(
                lost != Some(true) || scene.deletes,
                "a renewal loses a hold that was never taken away"
            );
        }
        let _ = stage.watchdog.send(());
    }
}

impl Stage {
    fn carry_out(&self, possession: &Possession, request: Request) -> (Acquired, Released) {
        let (mut redis, id) = (self.redis.lock(), possession.id());
        let granted = Acquired::Granted(TokenBlock::default());
        match request {
            Request::Acquire { count } => {
                (redis.acquire(&id, LEASE, count, 0), Released::CountLowered)
            }
            Request::Release { count } => (granted, redis.release(&id, count, LEASE, 0)),
        }
    }

    fn enqueue(&self, release: BackgroundRelease) {
        self.owed.fetch_add(1, Ordering::Relaxed);
        self.background.send(release).expect("the background runs");
    }

    /// One more hold, unless another possession has the lock.
    async fn hold(&self) -> Option<Guard<'_>> {
        loop {
            if let Some(last) = self.handle.possession()
                && last.holds.lock().is_of(self.handle.number)
                && let Some(guard) = self.nest(last).await
            {
                return Some(guard);
            }
            let possession = self.handle.begins(&self.possessions);
            let session = PossessionSession::enter(self, &possession).await;
            if let Some(ask) = self.handle.asks_for(&possession) {
                return self.ask_first(&possession, session, ask).await;
            }
        }
    }

    async fn ask_first(
        &self,
        possession: &Arc<Possession>,
        mut session: PossessionSession<'_>,
        ask: Ask,
    ) -> Option<Guard<'_>> {
        let sure = self.is_sure();
        let acquired = session.send(Request::Acquire { count: ask.count }).await.0;
        if let Acquired::Granted(_) = acquired {
            return Some(self.granted(possession, ask, sure));
        }
        possession.holds.lock().record_refusal();
        None
    }

    async fn nest(&self, possession: Arc<Possession>) -> Option<Guard<'_>> {
        let mut session = PossessionSession::enter(self, &possession).await;
        loop {
            let sure = self.is_sure();
            let nesting = possession.holds.lock().ask_nested(self.handle.number, self.now);
            match nesting {
                Nesting::Ask(ask) => {
                    match session.send(Request::Acquire { count: ask.count }).await.0 {
                        Acquired::Granted(_) => return Some(self.granted(&possession, ask, sure)),
                        Acquired::Refused { .. } => unreachable!("it is a nested one"),
                        Acquired::Gone(_) => {
                            assert!(self.scene.deletes, "an outer hold is gone");
                            possession.lose(FoundBy::NestedAcquire, Loss::KeyGone, self.now);
                            return None;
                        }
                    }
                }
                Nesting::ReleaseFirst => session.pay().await,
                Nesting::Over => return None,
            }
        }
    }

    /// The operator does not delete what is asked for now: the one delete was before, or there is none.
    fn is_sure(&self) -> bool {
        !self.scene.deletes || self.deleted.load(Ordering::Relaxed)
    }

    fn granted(&self, possession: &Arc<Possession>, ask: Ask, sure: bool) -> Guard<'_> {
        let (lease, none) = (Duration::from_millis(LEASE), TokenBlock::default());
        let new = possession.holds.lock().record_grant(ask, Lease::Watchdog, lease, none, self.now);
        self.handle.enter(possession);
        *self.live.lock().entry((*possession.id()).into()).or_default() += 1;
        if self.handle.start_watching().is_some() {
            let _ = self.watchdog.send(());
        }
        let (hold, validity, _) = new;
        Guard { stage: self, possession: possession.clone(), hold: Some(hold), validity, sure }
    }
}

struct PossessionSession<'a> {
    stage: &'a Stage,
    possession: &'a Arc<Possession>,
    permit: Option<Permit>,
    on_its_way: Option<Request>,
}

impl<'a> PossessionSession<'a> {
    async fn enter(stage: &'a Stage, possession: &'a Arc<Possession>) -> Self {
        let mut session = Self { stage, possession, permit: None, on_its_way: None };
        session.permit = Some(possession.permit_of_call().await);
        session
    }

    fn pending(&self) -> Option<PendingRelease> {
        self.possession.holds.lock().pending(self.stage.now, Duration::from_millis(LEASE))
    }

    async fn send(&mut self, request: Request) -> (Acquired, Released) {
        self.on_its_way = Some(request);
        yield_now().await;
        let answer = self.stage.carry_out(self.possession, request);
        self.on_its_way = None;
        yield_now().await;
        answer
    }

    async fn pay(&mut self) {
        let (stage, possession) = (self.stage, self.possession);
        let Some(pending) = self.pending() else { return };
        let sent_before = possession.holds.lock().release_sent(pending, stage.now);
        let (_, released) = self.send(Request::Release { count: pending.count }).await;
        if matches!(released, Released::Nothing(_)) && !sent_before {
            possession.lose(FoundBy::Release, Loss::KeyGone, stage.now);
        } else {
            possession.holds.lock().release_confirmed(pending);
        }
        // From here on no task goes on.
        let redis = stage.redis.lock();
        if self.pending().is_none() && !stage.scene.deletes {
            let live = stage.live.lock().get(&*possession.id()).copied().unwrap_or_default();
            let ours = redis.lock.as_ref().filter(|held| *held.owner == *possession.id());
            assert_eq!(ours.map_or(0, |held| held.count), live, "a count without its guards");
            let valid = possession.holds.lock().holding(stage.now);
            assert_eq!(valid, live > 0, "what was released is valid again");
        }
    }
}

impl Drop for PossessionSession<'_> {
    fn drop(&mut self) {
        // The scene has gone wrong already, and a second panic would end the process.
        if std::thread::panicking() {
            return;
        }
        if self.permit.is_some() && self.pending().is_some() {
            let release = BackgroundRelease {
                possession: self.possession.clone(),
                permit: self.permit.take(),
                on_its_way: self.on_its_way.take(),
            };
            self.stage.enqueue(release);
        }
        assert_eq!(self.on_its_way.take(), None, "a request under way that no release undoes");
    }
}

struct Guard<'a> {
    stage: &'a Stage,
    possession: Arc<Possession>,
    hold: Option<HoldId>,
    validity: Arc<Validity>,
    /// The operator does not delete it.
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
        self.possession.holds.lock().give_back(hold);
        *self.stage.live.lock().get_mut(&*self.possession.id()).expect("it is there") -= 1;
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
            let (possession, permit) = (self.possession.clone(), self.possession.try_permit());
            let release = BackgroundRelease { possession, permit, on_its_way: None };
            self.stage.enqueue(release);
        }
    }
}

const SCENE: Scene = Scene { calls: 2, dropped: 1, deletes: false, loses_the_last: false };

#[test]
fn i9_a_hold_is_valid_until_it_is_given_back_and_never_again_under_every_schedule() {
    explore(10_000, || block_on(play(SCENE)));
}

#[test]
fn i10_a_key_that_was_deleted_loses_no_later_possession_under_every_schedule() {
    explore(10_000, || block_on(play(Scene { deletes: true, ..SCENE })));
}

#[test]
fn a_renewal_that_does_not_know_its_possession_is_seen_to_lose_another() {
    const FAULT: Scene = Scene { dropped: 0, loses_the_last: true, ..SCENE };
    let said = fault(|| block_on(play(FAULT)));
    let seen = ["never taken away", "without its guards"];
    assert!(seen.iter().any(|seen| said.contains(seen)), "{said}");
}
