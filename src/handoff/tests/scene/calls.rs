//! A call: it waits for the lock, asks for it, has it, and gives it back.

use tokio::sync::oneshot;

use super::*;
use crate::wait::{Registration, Stay, WaitLimits, WakeReason};

type Confirmation = oneshot::Receiver<Result<bool, Error>>;

impl Stage {
    pub(super) async fn lock(&self, me: usize, lease: Lease) -> Guard<'_> {
        let handle = &self.handles[me];
        let stay = Stay { since: clock::now(), until: None };
        let registration = self.waiters.join(handle, lease, HOUR, stay, None);
        let enqueued = Enqueued { stage: self, registration };
        loop {
            let limits = WaitLimits { until: None, request: HOUR, outage: None, warn_at: None };
            match enqueued.registration.next(&limits, || {}).await {
                WakeReason::Handed(granted) => {
                    let lease = granted.longest_lease();
                    granted.possession.holds.lock().takes(granted.hold, lease, clock::now());
                    return self.guard(&granted.possession, granted.hold, granted.validity.clone());
                }
                WakeReason::Ask(_) => match self.ask(handle, lease).await {
                    Some(guard) => {
                        enqueued.registration.record_grant(HOUR);
                        return guard;
                    }
                    None => enqueued.registration.record_refusal(Some(HOUR), "other".into()),
                },
                _ => panic!("no task closes the client, and nothing is out of reach"),
            }
        }
    }

    fn guard(
        &self,
        possession: &Arc<Possession>,
        hold: HoldId,
        validity: Arc<Validity>,
    ) -> Guard<'_> {
        self.nobody_believes();
        self.valid.lock().push(validity.clone());
        Guard { stage: self, possession: possession.clone(), hold: Some(hold), validity }
    }

    /// Asks for a new possession. No handle of this scene nests.
    async fn ask(&self, handle: &Arc<Handle>, lease: Lease) -> Option<Guard<'_>> {
        let possession = self.possessions.begin(Kind::Reentrant, &self.names, None);
        self.begun.lock().push(possession.clone());
        let mut session = PossessionSession::enter(self, &possession).await;
        let ask = loop {
            if let Some(ask) = handle.asks_for(&possession) {
                break ask;
            }
            // Its last possession has yet to be released, in the background.
            if let Some(last) = handle.possession() {
                drop(last.permit().await);
            }
            yield_now().await;
        };
        session.on_its_way = true;
        yield_now().await;
        let acquired = self.redis.lock().acquire(&possession.id(), MILLIS, 1, 0);
        session.on_its_way = false;
        yield_now().await;
        if !matches!(acquired, Acquired::Granted(_)) {
            possession.holds.lock().record_refusal();
            return None;
        }
        let none = TokenBlock::default();
        let granted = possession.holds.lock().record_grant(ask, lease, HOUR, none, clock::now());
        handle.enter(&possession);
        Some(self.guard(&possession, granted.0, granted.1))
    }
}

/// A registration in the queue, as `acquire` has it.
struct Enqueued<'a> {
    stage: &'a Stage,
    registration: Registration<'a>,
}

impl Drop for Enqueued<'_> {
    fn drop(&mut self) {
        if let (Some(granted), _) = self.registration.leave() {
            self.stage.give_back(&granted.possession, granted.hold);
        }
    }
}

/// The right to talk to Redis, whose drop leaves a pending release to the background.
struct PossessionSession<'a> {
    stage: &'a Stage,
    possession: &'a Arc<Possession>,
    permit: Option<Permit>,
    on_its_way: bool,
}

impl<'a> PossessionSession<'a> {
    async fn enter(stage: &'a Stage, possession: &'a Arc<Possession>) -> Self {
        let mut session = Self { stage, possession, permit: None, on_its_way: false };
        session.permit = Some(possession.permit_of_call().await);
        session
    }
}

impl Drop for PossessionSession<'_> {
    fn drop(&mut self) {
        if self.possession.holds.lock().pending(clock::now(), HOUR).is_some() {
            let (possession, permit) = (self.possession.clone(), self.permit.take());
            self.stage.job(Job::Pay { possession, permit, on_its_way: self.on_its_way });
        }
    }
}

pub(super) struct Guard<'a> {
    stage: &'a Stage,
    possession: Arc<Possession>,
    hold: Option<HoldId>,
    validity: Arc<Validity>,
}

impl Guard<'_> {
    /// No other owner may have had the lock up to here.
    fn end(&mut self) -> Option<HoldId> {
        let hold = self.hold.take()?;
        let valid = self.validity.check(clock::now()).is_some() && !self.validity.is_gone();
        let deleted = self.stage.deleted.load(Ordering::Relaxed);
        assert!(valid || deleted || std::thread::panicking(), "a hold that was not taken is lost");
        let holds = self.possession.holds.lock();
        let never = holds.is_unwritten() && self.stage.owed.load(Ordering::Relaxed) == 0;
        drop(holds);
        assert!(!never || std::thread::panicking(), "a hand-off of which Redis never hears");
        self.stage.valid.lock().retain(|validity| !Arc::ptr_eq(validity, &self.validity));
        Some(hold)
    }

    pub(super) async fn unlock(mut self) {
        let Some(hold) = self.end() else { return };
        let (stage, possession) = (self.stage, self.possession.clone());
        // From here on its drop leaves what is pending to the background.
        let mut session =
            PossessionSession { stage, possession: &possession, permit: None, on_its_way: false };
        let counts = possession.holds.lock().give_back(hold);
        let hand_off = |permit: Option<&Permit>| {
            let (confirm, confirmation): (_, Confirmation) = oneshot::channel();
            let handed_off = counts && stage.hand_off(&possession, permit, Some(confirm));
            handed_off.then_some(confirmation)
        };
        let mut handed_off = hand_off(None);
        if handed_off.is_none() {
            session.permit = Some(possession.permit_of_call().await);
            handed_off = hand_off(session.permit.as_ref());
        }
        let Some(confirmation) = handed_off else { return stage.pay(&possession).await };
        // The client's thread needs the permit, and nothing is left to undo.
        session.permit = None;
        std::mem::forget(session);
        let answer = confirmation.await.expect("an answer");
        if let Ok(false) = answer {
            assert!(stage.scene.deletes, "a hold that was not taken is lost");
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.end() {
            self.stage.give_back(&self.possession, hold);
        }
    }
}
