//! Hand-offs that the client keeps back until the waiter has taken the lock, or gives up.

use std::sync::Arc;

use crate::protocol::Names;
use crate::wait::{HandoffOutcome, Waiter};

use super::queue::{HandoffQueue, To};
use super::{Handoffs, PendingOwner};

impl Handoffs {
    /// The waiter that has that lock by a hand-off which the client has not sent to Redis yet.
    pub(crate) fn first_unsent(&self, names: &Names) -> Option<Arc<Waiter>> {
        self.queues.lock().get(names.key()).and_then(HandoffQueue::first_waiter)
    }

    /// Gives up the hand-offs of that lock, none of which the client has sent to Redis. Returns the owners
    /// whose releases are pending.
    pub(crate) fn give_up_unsent(&self, names: &Names) -> Vec<PendingOwner> {
        self.given_up(names, HandoffOutcome::Unanswered)
    }

    /// Leaves unconfirmed hand-offs to the hold states, which know their pending releases.
    pub(super) fn given_up(&self, names: &Names, outcome: HandoffOutcome) -> Vec<PendingOwner> {
        let mut pending = Vec::new();
        for handoff in self.take(names, usize::MAX).0 {
            if let To::Awaits(_, ticket) = handoff.to {
                self.waiters.report(&handoff.waiter, ticket, outcome);
            }
            let requested = handoff.waiter.requested;
            pending.push((handoff.from, self.config.watchdog_timeout.max(requested)));
            pending.push((handoff.waiter.owner.clone(), requested));
        }
        pending
    }
}
