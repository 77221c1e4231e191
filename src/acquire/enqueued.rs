//! A call that is in a wait queue.

use std::ops::Deref;
use std::time::Instant;

use crate::engine::Engine;
use crate::error::Error;
use crate::wait::{Reached, Registration, Stay, WaitLimits, WakeReason};

use super::{Acquisition, Question, Tried};

/// A registration in the wait queue of one of the locks. Its drop gives back a lock that was handed off meanwhile.
pub(super) struct Enqueued<'a> {
    pub(super) registration: Registration<'a>,
    pub(super) engine: &'a Engine,
    /// Which lock it is.
    pub(super) of: usize,
}

impl<'a, Q: Question> Acquisition<'a, Q> {
    /// Has the call wait for the first of the locks.
    pub(super) fn enqueue(&self, until: Option<Instant>) -> Enqueued<'a> {
        let (engine, handle) = (self.engine, &self.question.handles()[0]);
        let stay = Stay { since: self.begun, until };
        let (lease, requested, place) = (self.lease, self.requested, self.stage.place());
        let mut registration = engine.waiters.join(handle, lease, requested, stay, place);
        self.question.note_place(registration.ticket());
        registration.set_takes_hand_offs(self.question.takes_hand_offs());
        if self.waits_again() {
            registration.waits_since(self.begun);
        }
        Enqueued { registration, engine, of: 0 }
    }

    /// Has the call wait for that lock, unless it does: when Redis was asked for all, another owner had it, or the
    /// request for it was not answered. Nothing is held meanwhile.
    pub(super) fn wait_for(&self, of: usize, reached: Reached, waiting: &mut Enqueued<'_>) {
        if of != waiting.of {
            waiting.of = of;
            waiting.registration.move_to(&self.question.handles()[of], self.until(), reached);
        }
    }

    /// Asks Redis for a nested hold, if the lock is not handed to this call before it can ask: then it is `None`.
    pub(super) fn unless_handed(
        &self,
        waiting: &Enqueued<'_>,
        asked_at: Instant,
    ) -> impl Future<Output = Option<Option<Result<Tried<Q::Holds>, Error>>>> {
        // Boxed, because few calls nest while they wait.
        Box::pin(async move {
            tokio::select! {
                biased;
                () = waiting.is_handed() => None,
                tried = self.try_until(asked_at, None, None) => Some(tried),
            }
        })
    }
}

impl Enqueued<'_> {
    /// Parks until there is a reason to go on. If the lock is in a gap then, hands it off.
    pub(super) fn next(&self, limits: &WaitLimits) -> impl Future<Output = WakeReason> {
        let parked = || self.engine.releaser.offer_gap_to_waiters(&self.handle().names);
        self.registration.next(limits, parked)
    }
}

impl<'a> Deref for Enqueued<'a> {
    type Target = Registration<'a>;

    fn deref(&self) -> &Registration<'a> {
        &self.registration
    }
}

impl Drop for Enqueued<'_> {
    fn drop(&mut self) {
        if !self.engine.process.is_this_one() {
            self.registration.forget();
            return;
        }
        let (handed, entry_is_left) = self.registration.leave();
        if let Some(granted) = handed {
            self.engine.releaser.give_back(&granted);
        }
        if entry_is_left {
            self.engine.releaser.leave_queue(self.handle());
        }
    }
}
