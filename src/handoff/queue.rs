//! The hand-offs of one lock that Redis has not confirmed: pure state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::error::Error;
use crate::lease::Validity;
use crate::owner::{Ask, Granted, HandoffStart, HoldId, Owner, PendingRelease, Permit, Streak};
use crate::wait::{Ticket, Waiter};

/// The result of a hand-off: whether there was something to give back.
pub(crate) type Confirmation = oneshot::Receiver<Result<bool, Error>>;
pub(super) type Confirm = oneshot::Sender<Result<bool, Error>>;

/// The most hand-offs in one request. A script over so many owners takes the server a tenth of a
/// millisecond or so.
pub(super) const LONGEST: usize = 128;

/// The most hand-offs in a queue: as many as four requests carry. So an `unlock` is confirmed
/// within five round trips, and a lock is handed off without a pause if Redis confirms as fast.
const FULL: usize = 4 * LONGEST;

/// A hand-off from one owner to the next.
pub(super) struct Handoff {
    pub(super) from: Arc<Owner>,
    /// The pending release of the old owner that this fulfills.
    pub(super) pending: PendingRelease,
    /// For a caller that awaits the confirmation.
    pub(super) confirm: Option<Confirm>,
    pub(super) waiter: Arc<Waiter>,
    pub(super) to: To,
    /// Until when the new hold is valid once this is confirmed.
    pub(super) until: Instant,
    pub(super) streak: Streak,
    /// In the first hand-off only; later ones get it from the one before.
    pub(super) from_permit: Option<Permit>,
    pub(super) to_permit: Option<Permit>,
}

/// The new owner.
pub(super) enum To {
    /// It has the lock already.
    Holds(HoldId, Arc<Validity>),
    /// It gets the lock when Redis confirms: it needs the fencing token, or the queue is full.
    Awaits(Ask, Ticket),
}

/// What to send to Redis.
pub(super) struct Request {
    pub(super) owners: Vec<Arc<Owner>>,
    pub(super) lease: Duration,
}

/// Each hand-off begins where the one before ended. One task at a time sends them.
#[derive(Default)]
pub(super) struct HandoffQueue {
    handoffs: VecDeque<Handoff>,
}

impl HandoffQueue {
    /// Whether the last hand-off goes to that owner, so that this queue has its permit.
    pub(super) fn ends_with(&self, owner: &Arc<Owner>) -> bool {
        self.handoffs.back().is_some_and(|last| {
            Arc::ptr_eq(&last.waiter.owner, owner) && matches!(last.to, To::Holds(..))
        })
    }

    pub(super) fn push(&mut self, handoff: Handoff) {
        self.handoffs.push_back(handoff);
    }

    pub(super) fn first_waiter(&self) -> Option<Arc<Waiter>> {
        self.handoffs.front().map(|first| first.waiter.clone())
    }

    /// Whether one more hand-off makes it full.
    pub(super) fn is_full(&self) -> bool {
        self.handoffs.len() + 1 >= FULL
    }

    pub(super) fn len(&self) -> usize {
        self.handoffs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.handoffs.is_empty()
    }

    /// The hand-offs to send, from the first on: those that were sent before and never answered are
    /// sent again.
    pub(super) fn request(&self) -> Request {
        let mut owners: Vec<Arc<Owner>> =
            self.handoffs.front().map(|first| first.from.clone()).into_iter().collect();
        let handoffs = || self.handoffs.iter().take(LONGEST);
        owners.extend(handoffs().map(|handoff| handoff.waiter.owner.clone()));
        let lease = handoffs().next_back().map_or(Duration::ZERO, |last| last.waiter.requested);
        Request { owners, lease }
    }

    /// Takes out the first hand-offs, which are done. The permit of an owner that has handed the
    /// lock off again stays.
    pub(super) fn take(&mut self, handoffs: usize) -> Vec<Handoff> {
        let mut done: Vec<Handoff> =
            self.handoffs.drain(..handoffs.min(self.handoffs.len())).collect();
        if let (Some(last), Some(next)) = (done.last_mut(), self.handoffs.front_mut()) {
            next.from_permit = last.to_permit.take();
        }
        done
    }

    /// Takes out the senders for the callers that await the first hand-offs.
    pub(super) fn take_confirms(&mut self, handoffs: usize) -> Vec<Confirm> {
        let first = self.handoffs.iter_mut().take(handoffs);
        first.filter_map(|handoff| handoff.confirm.take()).collect()
    }

    /// Whether the last hand-off is awaited.
    pub(super) fn is_awaited(&self) -> bool {
        self.handoffs.back().is_some_and(|last| matches!(last.to, To::Awaits(..)))
    }

    pub(super) fn longest_lease(&self) -> Duration {
        self.handoffs.iter().map(|handoff| handoff.waiter.requested).max().unwrap_or_default()
    }
}

/// Takes the permit of the owner that hands off, unless the queue has it. False if it has to wait.
pub(super) fn take_permit(
    queue: Option<&HandoffQueue>,
    owner: &Arc<Owner>,
    permit: &mut Option<Permit>,
) -> bool {
    match queue {
        Some(queue) if queue.ends_with(owner) => return true,
        // The queue is of holders whose lease has ended, and Redis has not reported that yet. This
        // owner acquired the lock after them, by a request of its own.
        Some(_) => return false,
        None => {}
    }
    if permit.is_none() {
        *permit = owner.try_permit();
    }
    permit.is_some()
}

/// Records the hold in the new owner's hold state: it has the lock, or, if `awaited` under its
/// ticket, will have it when Redis confirms.
pub(super) fn hand(
    waiter: &Waiter,
    awaited: Option<Ticket>,
    until: Instant,
    start: &HandoffStart,
    now: Instant,
) -> (To, Option<Granted>) {
    let mut holds = waiter.owner.holds.lock();
    let ask = holds.ask(now);
    if let Some(ticket) = awaited {
        return (To::Awaits(ask, ticket), None);
    }
    let validity = Arc::new(Validity::new(until.min(start.until)));
    let hold = holds.handed(ask, waiter.lease, validity.clone(), start.streak.clone(), now);
    let granted = Granted::new(hold, validity.clone(), waiter.requested, None);
    (To::Holds(hold, validity), Some(granted))
}
