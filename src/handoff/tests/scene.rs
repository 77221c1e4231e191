//! The stage on which the scenes are played: calls that do plainly what `acquire`, `releaser` and
//! the guard do, another client, an operator, and the background.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::future::{spawn, yield_now};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::error::Outcome;
use crate::holds::HoldId;
use crate::holds::Kind;
use crate::lease::Lease;
use crate::protocol::{Acquired, Released};
use crate::tests::explore::{Calls, some_time};
use crate::tests::naive::Naive;
use crate::waiters::{Next, Patience, Place, Seat};

const OURS: [&str; 3] = ["a", "b", "c"];
const OTHER: &str = "other";
const HOUR: Duration = Duration::from_secs(3600);

struct Stage {
    scene: Scene,
    handoffs: Handoffs,
    waiters: Arc<Waiters>,
    owners: Vec<Arc<Owner>>,
    redis: Mutex<Naive>,
    background: UnboundedSender<Job>,
    /// The terms of all guards that are there.
    believed: Mutex<Vec<Arc<Term>>>,
    unanswered: AtomicUsize,
    deleted: AtomicBool,
}

enum Job {
    Handoff,
    Pay { owner: usize, gate: Option<Gate>, on_its_way: bool },
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
        believed: Vec::new().into(),
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
        // Whoever has it still tells Redis of something. A debt may be on its way to the background.
        let _gate = owner.enter().await;
        stage.pay(stage.number(owner)).await;
    }
    assert!(stage.handoffs.queues.lock().is_empty(), "a hand-off of which Redis never hears");
    let left = stage.redis.lock().lock.clone();
    assert!(left.is_none_or(|held| held.owner == OTHER), "a hold is left behind");
}

/// Two holds, one after the other. One of them is unlocked and the other is dropped.
async fn call(stage: Arc<Stage>, me: usize) {
    for turn in 0..2 {
        let guard = stage.lock(me).await;
        yield_now().await;
        if (me + turn).is_multiple_of(2) { guard.unlock().await } else { drop(guard) }
    }
}

/// Another client, that gets the lock if it is free.
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
                if stage.handoffs.hear(names, &request, answer, &mut retry) {
                    break;
                }
            }
            assert!(retry.left.is_empty(), "given up");
        }
        Job::Pay { owner, gate, on_its_way } => {
            let gate = match gate {
                Some(gate) => gate,
                None => stage.owners[owner].enter().await,
            };
            if on_its_way {
                stage.redis.lock().acquire(OURS[owner], 1, 1, 0);
            }
            let mut gate = Some(gate);
            if on_its_way || stage.hand_off(owner, &mut gate).is_none() {
                stage.pay(owner).await;
            }
        }
    }
}

impl Stage {
    /// A request of the relay.
    async fn send(&self, request: &Request) -> Result<(HandOffReply, bool), Error> {
        let ids: Vec<&'static str> =
            request.owners.iter().map(|owner| OURS[self.number(owner)]).collect();
        yield_now().await;
        let less = |left: usize| left.checked_sub(1);
        let lost = self.unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        let executed = !lost || shuttle::rand::Rng::r#gen(&mut shuttle::rand::thread_rng());
        let held = executed && self.redis.lock().hand_off(&ids, 1, 0);
        yield_now().await;
        if lost {
            return Err(Error::new(ErrorKind::Unavailable, Outcome::Unknown, "no answer"));
        }
        let done = HandOffReply::Done { token: None, listening: Some(0) };
        Ok((if held { done } else { HandOffReply::Nothing }, false))
    }

    fn number(&self, owner: &Arc<Owner>) -> usize {
        self.owners.iter().position(|one| Arc::ptr_eq(one, owner)).expect("one of ours")
    }

    fn nobody_believes(&self) {
        let now = clock::now();
        let believed = self.believed.lock().iter().any(|term| term.until(now).is_some());
        assert!(!believed || self.scene.deletes, "two have the lock");
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
        let seat = Seat::new(owner.clone(), Lease::Watchdog, HOUR);
        let mut place = InLine { stage: self, me, place: Some(self.waiters.join(seat, None)) };
        loop {
            let place_now = place.place.as_ref().expect("in line");
            match place_now.next(&Patience { until: None, outage: None }).await {
                Next::Handed(granted) => {
                    owner.account.lock().claimed();
                    return self.guard(me, granted.hold, granted.term);
                }
                Next::Ask => match self.ask(me).await {
                    Some(guard) => {
                        place.place.take().expect("in line").granted(HOUR);
                        return guard;
                    }
                    None => place_now.refused(Some(HOUR)),
                },
                _ => panic!("nobody closes, and nothing is out of reach"),
            }
        }
    }

    fn guard(&self, me: usize, hold: HoldId, term: Arc<Term>) -> Guard<'_> {
        self.nobody_believes();
        self.believed.lock().push(term.clone());
        Guard { stage: self, me, hold: Some(hold), term }
    }

    async fn ask(&self, me: usize) -> Option<Guard<'_>> {
        let owner = &self.owners[me];
        let mut exchange = Exchange { stage: self, me, gate: None, on_its_way: false };
        exchange.gate = Some(owner.enter().await);
        self.pay(me).await;
        let ask = owner.account.lock().ask(clock::now());
        exchange.on_its_way = true;
        yield_now().await;
        let acquired = self.redis.lock().acquire(OURS[me], 1, ask.count, 0);
        exchange.on_its_way = false;
        yield_now().await;
        if acquired != Acquired::Granted(None) {
            owner.refused(clock::now());
            return None;
        }
        let term = Arc::new(Term::new(clock::now() + HOUR));
        let hold = owner.account.lock().granted(ask, Lease::Watchdog, term.clone(), clock::now());
        Some(self.guard(me, hold, term))
    }

    /// Pays what is owed. Only with the gate.
    async fn pay(&self, me: usize) {
        let owner = &self.owners[me];
        let Some(owed) = owner.account.lock().owed(clock::now(), HOUR) else { return };
        let sent_before = owner.account.lock().releasing(owed);
        let released = self.release(OURS[me]);
        yield_now().await;
        if released == Released::Nothing && !sent_before {
            owner.gone(clock::now());
        } else {
            owner.account.lock().released(owed);
        }
    }

    /// As the releaser does it.
    fn hand_off(&self, me: usize, gate: &mut Option<Gate>) -> Option<Confirmed> {
        let mut handed_off = self.handoffs.hand_off(&self.owners[me], gate, true)?;
        let confirmed = handed_off.confirmed.take();
        loop {
            if handed_off.flush {
                self.job(Job::Handoff);
            }
            let Some((owner, granted)) = handed_off.declined else { return confirmed };
            if self.scene.forgets {
                return confirmed;
            }
            owner.account.lock().give_back(granted.hold);
            let mut gate = None;
            handed_off = match self.handoffs.hand_off(&owner, &mut gate, false) {
                Some(handed_off) => handed_off,
                None => {
                    let owner = self.number(&owner);
                    self.job(Job::Pay { owner, gate, on_its_way: false });
                    return confirmed;
                }
            };
        }
    }

    fn job(&self, job: Job) {
        let done = self.background.send(job);
        assert!(done.is_ok() || std::thread::panicking(), "nobody does it");
    }
}

/// A place in line, as `acquire` has it.
struct InLine<'a> {
    stage: &'a Stage,
    me: usize,
    place: Option<Place<'a>>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if let Some(granted) = self.place.as_ref().and_then(Place::leave) {
            let owner = &self.stage.owners[self.me];
            owner.account.lock().give_back(granted.hold);
            let mut gate = None;
            if self.stage.hand_off(self.me, &mut gate).is_none() {
                self.stage.job(Job::Pay { owner: self.me, gate, on_its_way: false });
            }
        }
    }
}

/// The right to ask, whose drop leaves a debt to the background.
struct Exchange<'a> {
    stage: &'a Stage,
    me: usize,
    gate: Option<Gate>,
    on_its_way: bool,
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let owed = self.stage.owners[self.me].account.lock().owed(clock::now(), HOUR);
        if owed.is_some() {
            let (owner, gate, on_its_way) = (self.me, self.gate.take(), self.on_its_way);
            self.stage.job(Job::Pay { owner, gate, on_its_way });
        }
    }
}

struct Guard<'a> {
    stage: &'a Stage,
    me: usize,
    hold: Option<HoldId>,
    term: Arc<Term>,
}

impl Guard<'_> {
    /// Nobody else may have had the lock up to here.
    fn give_back(&mut self) -> bool {
        let Some(hold) = self.hold.take() else { return false };
        let believed = self.term.until(clock::now()).is_some() && !self.term.is_gone();
        let deleted = self.stage.deleted.load(Ordering::Relaxed);
        assert!(believed || deleted || std::thread::panicking(), "a hold nobody took is lost");
        self.stage.believed.lock().retain(|term| !Arc::ptr_eq(term, &self.term));
        self.stage.owners[self.me].account.lock().give_back(hold)
    }

    async fn unlock(mut self) {
        if self.give_back()
            && let Some(confirmed) = self.stage.hand_off(self.me, &mut None)
        {
            let _ = confirmed.await;
            return;
        }
        let (stage, me) = (self.stage, self.me);
        let mut exchange = Exchange { stage, me, gate: None, on_its_way: false };
        exchange.gate = Some(stage.owners[me].enter().await);
        stage.pay(me).await;
        drop(exchange);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.hold.is_some() {
            self.give_back();
            let mut gate = None;
            if self.stage.hand_off(self.me, &mut gate).is_none() {
                self.stage.job(Job::Pay { owner: self.me, gate, on_its_way: false });
            }
        }
    }
}
