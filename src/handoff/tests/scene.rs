//! The stage on which the scenes are played: calls that do plainly what `acquire`, `releaser` and
//! the guard do, another client, an operator, and the client's thread.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::future::{spawn, yield_now};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::handle::Handle;
use crate::kind::Kind;
use crate::lease::{Lease, Validity};
use crate::possession::{HoldId, Possessions};
use crate::protocol::{Acquired, Names, Released};
use crate::tests::explore::{Calls, OuterMutex, some_time};
use crate::tests::naive::Naive;
use crate::tests::parts::losses;
use crate::token::TokenBlock;

mod calls;

const OTHER: &str = "other:1";
const HOUR: Duration = Duration::from_secs(3600);
const MILLIS: u64 = 3_600_000;

struct Stage {
    scene: Scene,
    handoffs: Handoffs,
    waiters: Arc<Waiters>,
    names: Arc<Names>,
    possessions: Arc<Possessions>,
    handles: Vec<Arc<Handle>>,
    redis: OuterMutex<Naive>,
    background: UnboundedSender<Job>,
    /// How many jobs the background has not done.
    owed: AtomicUsize,
    /// Every possession, and the validities of all live guards.
    begun: OuterMutex<Vec<Arc<Possession>>>,
    valid: OuterMutex<Vec<Arc<Validity>>>,
    unanswered: AtomicUsize,
    deleted: AtomicBool,
}

enum Job {
    Update(Arc<Possession>),
    Pay { possession: Arc<Possession>, permit: Option<Permit>, on_its_way: bool },
}

pub(super) async fn play(scene: Scene) {
    let (background, jobs) = unbounded_channel();
    let losses = losses(Arc::default());
    let config = Arc::new(Config { watchdog_timeout: HOUR, ..Config::default() });
    let (names, possessions) = (Arc::new(Names::new("", "lock")), Arc::<Possessions>::default());
    let handle = |_| Arc::new(Handle::new(Kind::Reentrant, names.clone(), &possessions));
    let handles = (0..scene.calls).map(handle).collect();
    let stage = Arc::new(Stage {
        scene,
        handoffs: Handoffs::new(
            losses.clone(),
            possessions.clone(),
            Arc::default(),
            config.clone(),
        ),
        waiters: losses.waiters.clone(),
        names,
        possessions,
        handles,
        redis: Naive::default().into(),
        background,
        owed: AtomicUsize::new(0),
        begun: Vec::new().into(),
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
            stage.waiters.record_loss(&stage.names);
        });
    }
    let calls = Calls::begin(scene.calls, scene.dropped, |me| call(stage.clone(), me));
    calls.end().await;
    while stage.owed.load(Ordering::Relaxed) > 0 {
        yield_now().await;
    }
    for possession in &*stage.begun.lock() {
        let holds = possession.holds.lock();
        assert_eq!(holds.confirmations_due(), 0, "a caller waits to which no answer comes");
    }
    let held = stage.redis.lock().lock.clone();
    assert!(held.is_none_or(|held| &*held.owner == OTHER), "a hold is left behind");
}

/// Two holds, one after the other. One of them is unlocked and the other is dropped.
async fn call(stage: Arc<Stage>, me: usize) {
    for turn in 0..2 {
        // All but the first have leases of which Redis has to hear.
        let lease = if me == 0 { Lease::Watchdog } else { Lease::Fixed(HOUR) };
        let guard = stage.lock(me, lease).await;
        yield_now().await;
        if (me + turn).is_multiple_of(2) { guard.unlock().await } else { drop(guard) }
    }
}

/// Another client, which gets the lock if it is free.
async fn other(stage: Arc<Stage>) {
    some_time().await;
    let acquired = stage.redis.lock().acquire(OTHER, MILLIS, 1, 0);
    if matches!(acquired, Acquired::Granted(_)) {
        stage.nobody_believes();
        yield_now().await;
        stage.release(OTHER, 0);
    }
}

async fn do_jobs(stage: Arc<Stage>, mut jobs: UnboundedReceiver<Job>) {
    while let Some(job) = jobs.recv().await {
        let stage = stage.clone();
        spawn(async move {
            match job {
                Job::Update(possession) => stage.update_redis(&possession).await,
                Job::Pay { possession, permit, on_its_way } => {
                    stage.work(&possession, permit, on_its_way).await;
                }
            }
            stage.owed.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Stage {
    /// As [`Handoffs::update_redis`] does it.
    async fn update_redis(&self, possession: &Arc<Possession>) {
        let permit = possession.permit().await;
        let _updating = Updating::begin(possession, &permit);
        let mut heard = false;
        loop {
            let asked = clock::now();
            let config = &self.handoffs.config;
            let update = possession.holds.lock().next_update(config, Some(0), asked);
            let Some(update) = update else { break };
            match self.send(possession, update).await {
                Some(Ok(())) => {
                    heard = true;
                    let (tokens, listening) = (TokenBlock::default(), Some(0));
                    let updated = Updated { tokens, listening, foreign: None };
                    self.handoffs.record_update(possession, update, updated, asked);
                }
                Some(Err(loss)) => {
                    self.handoffs.losses.found_gone(possession, FoundBy::HandOff, loss);
                    break;
                }
                None => {
                    let error = Error::new(ErrorKind::Unavailable, Outcome::Unknown, "no answer");
                    self.handoffs.record_failure(possession, update.confirms, &error);
                }
            }
            self.waiters.wake_head(&self.names, None);
            if self.scene.looks_once {
                break;
            }
        }
        self.waiters.wake_head(&self.names, heard.then_some(HOUR));
    }

    /// One request about a possession; `None` if it is not answered.
    async fn send(&self, possession: &Possession, update: Update) -> Option<Result<(), Loss>> {
        yield_now().await;
        let less = |remaining: usize| remaining.checked_sub(1);
        let lost = self.unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        let executed = !lost || shuttle::rand::Rng::r#gen(&mut shuttle::rand::thread_rng());
        let mut held = Ok(());
        if executed {
            let lease = u64::try_from(update.lease.as_millis()).unwrap();
            held = self.redis.lock().update(&possession.id(), update.count, lease, 0);
        }
        yield_now().await;
        (!lost).then_some(held)
    }

    /// The pending release, in the background.
    async fn work(&self, possession: &Arc<Possession>, permit: Option<Permit>, on_its_way: bool) {
        let permit = match permit {
            Some(permit) => permit,
            None => possession.permit().await,
        };
        if on_its_way {
            self.redis.lock().acquire(&possession.id(), MILLIS, 1, 0);
        }
        if on_its_way || !self.hand_off(possession, Some(&permit), None) {
            self.pay(possession).await;
        }
    }

    fn nobody_believes(&self) {
        let now = clock::now();
        let valid = self.valid.lock().iter().any(|validity| validity.check(now).is_some());
        assert!(!valid || self.scene.deletes, "two have the lock");
    }

    fn release(&self, owner: &str, count: u32) -> Released {
        let released = self.redis.lock().release(owner, count, MILLIS, 0);
        if matches!(released, Released::Freed { .. }) {
            self.waiters.record_loss(&self.names);
        }
        released
    }

    /// Sends the pending release. Only with the permit.
    async fn pay(&self, possession: &Arc<Possession>) {
        let (pending, sent_before, confirms) = {
            let mut holds = possession.holds.lock();
            let Some(pending) = holds.pending(clock::now(), HOUR) else { return };
            (pending, holds.release_sent(pending, clock::now()), holds.confirmations_due())
        };
        let released = self.release(&possession.id(), pending.count);
        yield_now().await;
        match released {
            Released::Nothing(loss) if !sent_before => {
                possession.holds.lock().forget_asked();
                self.handoffs.losses.found_gone(possession, FoundBy::Release, loss);
            }
            _ => {
                let confirms = {
                    let mut holds = possession.holds.lock();
                    holds.release_confirmed(pending);
                    holds.take_confirms(confirms)
                };
                confirms.into_iter().for_each(|confirm| drop(confirm.send(Ok(true))));
            }
        }
    }

    /// As the releaser does it.
    fn hand_off(
        &self,
        possession: &Arc<Possession>,
        permit: Option<&Permit>,
        mut confirm: Option<Confirm>,
    ) -> bool {
        let mut declined = false;
        // Before the next holder can look.
        let _job = Owed::new(&self.owed);
        loop {
            let Some(handed_off) = self.handoffs.hand_off(possession, permit, confirm.take())
            else {
                if declined {
                    let possession = possession.clone();
                    self.job(Job::Pay { possession, permit: None, on_its_way: false });
                }
                return declined;
            };
            if handed_off.needs_update {
                self.job(Job::Update(possession.clone()));
            }
            let Some(granted) = handed_off.declined else { return true };
            if self.scene.forgets {
                return true;
            }
            possession.holds.lock().give_back(granted.hold);
            declined = true;
        }
    }

    /// As a dropped guard does it.
    fn give_back(&self, possession: &Arc<Possession>, hold: HoldId) {
        possession.holds.lock().give_back(hold);
        if !self.hand_off(possession, None, None) {
            let permit = possession.try_permit();
            self.job(Job::Pay { possession: possession.clone(), permit, on_its_way: false });
        }
    }

    fn job(&self, job: Job) {
        self.owed.fetch_add(1, Ordering::Relaxed);
        let done = self.background.send(job);
        assert!(done.is_ok() || std::thread::panicking(), "the job is lost");
    }
}

/// A job that will be, or will not.
struct Owed<'a>(&'a AtomicUsize);

impl<'a> Owed<'a> {
    fn new(owed: &'a AtomicUsize) -> Self {
        owed.fetch_add(1, Ordering::Relaxed);
        Self(owed)
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
