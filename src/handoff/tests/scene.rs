//! The stage on which the scenes are played: calls that do plainly what `acquire`, `releaser` and
//! the guard do, another client, an operator, and the client's thread.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::future::{spawn, yield_now};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::error::Outcome;
use crate::lease::Lease;
use crate::owner::HoldId;
use crate::owner::Kind;
use crate::protocol::{Acquired, Released};
use crate::tests::explore::{Calls, some_time};
use crate::tests::naive::Naive;
use crate::wait::{Next, Registration, WaitLimits, Waiter};

const OURS: [&str; 3] = ["a", "b", "c"];
const OTHER: &str = "other";
const HOUR: Duration = Duration::from_secs(3600);

struct Stage {
    scene: Scene,
    handoffs: Handoffs,
    waiters: Arc<Waiters>,
    owners: Vec<Arc<Owner>>,
    redis: OuterMutex<Naive>,
    background: UnboundedSender<Job>,
    /// The validities of all live guards.
    valid: OuterMutex<Vec<Arc<Validity>>>,
    unanswered: AtomicUsize,
    deleted: AtomicBool,
}

enum Job {
    Handoff,
    Pay { owner: usize, permit: Option<Permit>, on_its_way: bool },
}

pub(super) async fn play(scene: Scene) {
    let (background, jobs) = unbounded_channel();
    let waiters = Arc::new(Waiters::default());
    let config = Arc::new(Config::default());
    let watchdog = Arc::new(Watchdog::new(&config, &waiters));
    let owner = |id: &str| Arc::new(Owner::new(Kind::Reentrant, Names::new("", "lock"), id.into()));
    let stage = Arc::new(Stage {
        scene,
        handoffs: Handoffs::new(&waiters, &watchdog, &config),
        waiters,
        owners: OURS[..scene.calls].iter().map(|id| owner(id)).collect(),
        redis: Naive::default().into(),
        background,
        valid: Vec::new().into(),
        unanswered: AtomicUsize::new(scene.unanswered),
        deleted: AtomicBool::new(false),
    });
    spawn(do_jobs(stage.clone(), jobs));
    spawn(other(stage.clone()));
    if scene.deletes {
        let stage = stage.clone();
        spawn(async move {
            some_time().await;
            stage.deleted.store(true, Ordering::Relaxed);
            stage.redis.lock().lock = None;
            stage.waiters.look(&stage.owners[0].names);
        });
    }
    let calls = Calls::begin(scene.calls, scene.dropped, |me| call(stage.clone(), me));
    calls.end().await;
    for owner in &stage.owners {
        // A flush may still have the permit. A pending release may be on its way to the background.
        let _gate = owner.permit().await;
        stage.pay(stage.number(owner)).await;
    }
    assert!(stage.handoffs.queues.lock().is_empty(), "a hand-off of which Redis never hears");
    let held = stage.redis.lock().lock.clone();
    assert!(held.is_none_or(|held| held.owner == OTHER), "a hold is left behind");
}

/// Two holds, one after the other. One of them is unlocked and the other is dropped.
async fn call(stage: Arc<Stage>, me: usize) {
    for turn in 0..2 {
        let guard = stage.lock(me).await;
        yield_now().await;
        if (me + turn).is_multiple_of(2) { guard.unlock().await } else { drop(guard) }
    }
}

/// Another client, which gets the lock if it is free.
async fn other(stage: Arc<Stage>) {
    some_time().await;
    if stage.redis.lock().acquire(OTHER, 1, 1, 0) == Acquired::Granted(None) {
        stage.nobody_believes();
        yield_now().await;
        stage.release(OTHER);
    }
}

async fn do_jobs(stage: Arc<Stage>, mut jobs: UnboundedReceiver<Job>) {
    while let Some(job) = jobs.recv().await {
        spawn(work(stage.clone(), job));
    }
}

async fn work(stage: Arc<Stage>, job: Job) {
    match job {
        Job::Handoff => {
            let names = &stage.owners[0].names;
            let mut retry = RetryState::default();
            while let Some(request) = stage.handoffs.request(names) {
                let answer = stage.send(&request).await;
                if stage.handoffs.hear(names, &request, answer, &mut retry, || ()) {
                    break;
                }
            }
            assert!(retry.pending.is_empty(), "given up");
        }
        Job::Pay { owner, permit, on_its_way } => {
            let permit = match permit {
                Some(permit) => permit,
                None => stage.owners[owner].permit().await,
            };
            if on_its_way {
                stage.redis.lock().acquire(OURS[owner], 1, 1, 0);
            }
            let mut permit = Some(permit);
            if on_its_way || stage.hand_off(owner, &mut permit).is_none() {
                stage.pay(owner).await;
            }
        }
    }
}

impl Stage {
    /// A request for hand-offs.
    async fn send(&self, request: &Request) -> Result<(HandOffReply, bool), Error> {
        let ids: Vec<&'static str> =
            request.owners.iter().map(|owner| OURS[self.number(owner)]).collect();
        yield_now().await;
        let less = |remaining: usize| remaining.checked_sub(1);
        let lost = self.unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        let executed = !lost || shuttle::rand::Rng::r#gen(&mut shuttle::rand::thread_rng());
        let held =
            if executed { self.redis.lock().hand_off(&ids, 1, 0) } else { Err(Loss::KeyGone) };
        yield_now().await;
        if lost {
            return Err(Error::new(ErrorKind::Unavailable, Outcome::Unknown, "no answer"));
        }
        let done = HandOffReply::Done { token: None, listening: Some(0), elsewhere: None };
        Ok((held.map_or_else(HandOffReply::Nothing, |()| done), false))
    }

    fn number(&self, owner: &Arc<Owner>) -> usize {
        self.owners.iter().position(|one| Arc::ptr_eq(one, owner)).expect("one of ours")
    }

    fn nobody_believes(&self) {
        let now = clock::now();
        let valid = self.valid.lock().iter().any(|validity| validity.check(now).is_some());
        assert!(!valid || self.scene.deletes, "two have the lock");
    }

    fn release(&self, owner: &str) -> Released {
        let released = self.redis.lock().release(owner, 0, 1, 0);
        if matches!(released, Released::Freed { .. }) {
            self.waiters.look(&self.owners[0].names);
        }
        released
    }

    async fn lock(&self, me: usize) -> Guard<'_> {
        let owner = &self.owners[me];
        let waiter = Waiter::new(owner.clone(), Lease::Watchdog, HOUR, clock::now());
        let mut registration =
            Enqueued { stage: self, me, registration: Some(self.waiters.join(waiter, None, None)) };
        loop {
            let place_now = registration.registration.as_ref().expect("in line");
            match place_now.next(&WaitLimits { until: None, outage: None, warn_at: None }).await {
                Next::Handed(granted) => {
                    owner.holds.lock().claimed();
                    return self.guard(me, granted.hold, granted.validity);
                }
                Next::Ask => match self.ask(me).await {
                    Some(guard) => {
                        registration.registration.take().expect("in line").granted(HOUR);
                        return guard;
                    }
                    None => place_now.refused(Some(HOUR), "other".into()),
                },
                _ => panic!("nobody closes, and nothing is out of reach"),
            }
        }
    }

    fn guard(&self, me: usize, hold: HoldId, validity: Arc<Validity>) -> Guard<'_> {
        self.nobody_believes();
        self.valid.lock().push(validity.clone());
        Guard { stage: self, me, hold: Some(hold), validity }
    }

    async fn ask(&self, me: usize) -> Option<Guard<'_>> {
        let owner = &self.owners[me];
        let mut session = OwnerSession { stage: self, me, permit: None, on_its_way: false };
        session.permit = Some(owner.permit().await);
        self.pay(me).await;
        let ask = owner.holds.lock().ask(clock::now());
        session.on_its_way = true;
        yield_now().await;
        let acquired = self.redis.lock().acquire(OURS[me], 1, ask.count, 0);
        session.on_its_way = false;
        yield_now().await;
        if acquired != Acquired::Granted(None) {
            owner.lose(FoundBy::Refusal, Loss::TakenOver, clock::now());
            return None;
        }
        let validity = Arc::new(Validity::new(clock::now() + HOUR));
        let hold = owner.holds.lock().granted(ask, Lease::Watchdog, validity.clone(), clock::now());
        Some(self.guard(me, hold, validity))
    }

    /// Sends the pending release. Only with the permit.
    async fn pay(&self, me: usize) {
        let owner = &self.owners[me];
        let Some(pending) = owner.holds.lock().pending(clock::now(), HOUR) else { return };
        let sent_before = owner.holds.lock().release_sent(pending);
        let released = self.release(OURS[me]);
        yield_now().await;
        if matches!(released, Released::Nothing(_)) && !sent_before {
            owner.lose(FoundBy::Release, Loss::KeyGone, clock::now());
        } else {
            owner.holds.lock().release_confirmed(pending);
        }
    }

    /// As the releaser does it.
    fn hand_off(&self, me: usize, permit: &mut Option<Permit>) -> Option<Confirmation> {
        let mut handed_off = self.handoffs.hand_off(&self.owners[me], permit, true)?;
        let confirmation = handed_off.confirmation.take();
        loop {
            if handed_off.flush {
                self.job(Job::Handoff);
            }
            let Some((owner, granted)) = handed_off.declined else { return confirmation };
            if self.scene.forgets {
                return confirmation;
            }
            owner.holds.lock().give_back(granted.hold);
            let mut permit = None;
            handed_off = match self.handoffs.hand_off(&owner, &mut permit, false) {
                Some(handed_off) => handed_off,
                None => {
                    let owner = self.number(&owner);
                    self.job(Job::Pay { owner, permit, on_its_way: false });
                    return confirmation;
                }
            };
        }
    }

    fn job(&self, job: Job) {
        let done = self.background.send(job);
        assert!(done.is_ok() || std::thread::panicking(), "nobody does it");
    }
}

/// A registration in the queue, as `acquire` has it.
struct Enqueued<'a> {
    stage: &'a Stage,
    me: usize,
    registration: Option<Registration<'a>>,
}

impl Drop for Enqueued<'_> {
    fn drop(&mut self) {
        if let Some(granted) =
            self.registration.as_ref().and_then(|registered| registered.leave().0)
        {
            let owner = &self.stage.owners[self.me];
            owner.holds.lock().give_back(granted.hold);
            let mut permit = None;
            if self.stage.hand_off(self.me, &mut permit).is_none() {
                self.stage.job(Job::Pay { owner: self.me, permit, on_its_way: false });
            }
        }
    }
}

/// The right to ask, whose drop leaves a pending release to the background.
struct OwnerSession<'a> {
    stage: &'a Stage,
    me: usize,
    permit: Option<Permit>,
    on_its_way: bool,
}

impl Drop for OwnerSession<'_> {
    fn drop(&mut self) {
        let pending = self.stage.owners[self.me].holds.lock().pending(clock::now(), HOUR);
        if pending.is_some() {
            let (owner, permit, on_its_way) = (self.me, self.permit.take(), self.on_its_way);
            self.stage.job(Job::Pay { owner, permit, on_its_way });
        }
    }
}

struct Guard<'a> {
    stage: &'a Stage,
    me: usize,
    hold: Option<HoldId>,
    validity: Arc<Validity>,
}

impl Guard<'_> {
    /// No other owner may have had the lock up to here.
    fn give_back(&mut self) -> bool {
        let Some(hold) = self.hold.take() else { return false };
        let valid = self.validity.check(clock::now()).is_some() && !self.validity.is_gone();
        let deleted = self.stage.deleted.load(Ordering::Relaxed);
        assert!(valid || deleted || std::thread::panicking(), "a hold nobody took is lost");
        self.stage.valid.lock().retain(|validity| !Arc::ptr_eq(validity, &self.validity));
        self.stage.owners[self.me].holds.lock().give_back(hold)
    }

    async fn unlock(mut self) {
        if self.give_back()
            && let Some(confirmation) = self.stage.hand_off(self.me, &mut None)
        {
            let _ = confirmation.await;
            return;
        }
        let (stage, me) = (self.stage, self.me);
        let mut session = OwnerSession { stage, me, permit: None, on_its_way: false };
        session.permit = Some(stage.owners[me].permit().await);
        stage.pay(me).await;
        drop(session);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.hold.is_some() {
            self.give_back();
            let mut permit = None;
            if self.stage.hand_off(self.me, &mut permit).is_none() {
                self.stage.job(Job::Pay { owner: self.me, permit, on_its_way: false });
            }
        }
    }
}
