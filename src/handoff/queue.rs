//! The hand-offs of one lock that Redis has still to hear of: pure state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::error::Error;
use crate::lease::Validity;
use crate::owner::{Ask, Granted, HandoffStart, HoldId, Owner, PendingRelease, Permit, Streak};
use crate::wait::{Ticket, Waiter};

/// What came of a hand-off: whether there was something to give back.
pub(crate) type Confirmed = oneshot::Receiver<Result<bool, Error>>;
pub(super) type HandoffOutcome = oneshot::Sender<Result<bool, Error>>;

/// The most owners in one request. A script over so many takes the server a tenth of a
/// millisecond or so.
const LONGEST: usize = 128;

/// The most steps in a queue: as many as four requests carry. So an `unlock` is confirmed within
/// five round trips, and a lock is handed on without a pause wherever Redis confirms as fast.
const FULL: usize = 4 * LONGEST;

/// From one owner to the next.
pub(super) struct Handoff {
    pub(super) from: Arc<Owner>,
    /// What it pays of the old owner's debt.
    pub(super) pending: PendingRelease,
    pub(super) told: Option<HandoffOutcome>,
    pub(super) waiter: Arc<Waiter>,
    pub(super) to: To,
    /// Until when the new hold is valid once this is confirmed.
    pub(super) until: Instant,
    pub(super) streak: Streak,
    /// In the first step only; later ones have it from the step before.
    pub(super) from_permit: Option<Permit>,
    pub(super) to_permit: Option<Permit>,
}

/// The new owner.
pub(super) enum To {
    /// It has the lock already.
    Holds(HoldId, Arc<Validity>),
    /// It gets the lock when it is confirmed: it needs the fencing token, or the queue is full.
    Awaits(Ask, Ticket),
}

/// What to tell Redis.
pub(super) struct Request {
    pub(super) owners: Vec<Arc<Owner>>,
    pub(super) lease: Duration,
}

/// Each step begins where the one before ended. It is carried out by one task at a time.
#[derive(Default)]
pub(super) struct HandoffQueue {
    handoffs: VecDeque<Handoff>,
}

impl HandoffQueue {
    /// Whether that owner is the one to whom the last step goes, so that its permit is in here.
    pub(super) fn ends_with(&self, owner: &Arc<Owner>) -> bool {
        self.handoffs.back().is_some_and(|last| {
            Arc::ptr_eq(&last.waiter.owner, owner) && matches!(last.to, To::Holds(..))
        })
    }

    pub(super) fn push(&mut self, handoff: Handoff) {
        self.handoffs.push_back(handoff);
    }

    /// Whether one more step makes it full.
    pub(super) fn is_full(&self) -> bool {
        self.handoffs.len() + 1 >= FULL
    }

    pub(super) fn is_empty(&self) -> bool {
        self.handoffs.is_empty()
    }

    /// All that is to be told, from the first step on: what was sent before and never answered
    /// is in it again.
    pub(super) fn request(&self) -> Request {
        let mut owners: Vec<Arc<Owner>> =
            self.handoffs.front().map(|first| first.from.clone()).into_iter().collect();
        let handoffs = || self.handoffs.iter().take(LONGEST);
        owners.extend(handoffs().map(|handoff| handoff.waiter.owner.clone()));
        let lease = handoffs().next_back().map_or(Duration::ZERO, |last| last.waiter.asked);
        Request { owners, lease }
    }

    /// Takes out the first steps, which are done. The permit of an owner whose lock has gone on
    /// already stays.
    pub(super) fn take(&mut self, handoffs: usize) -> Vec<Handoff> {
        let mut done: Vec<Handoff> =
            self.handoffs.drain(..handoffs.min(self.handoffs.len())).collect();
        if let (Some(last), Some(next)) = (done.last_mut(), self.handoffs.front_mut()) {
            next.from_permit = last.to_permit.take();
        }
        done
    }

    /// Those who await the first steps.
    pub(super) fn take_told(&mut self, handoffs: usize) -> Vec<HandoffOutcome> {
        self.handoffs.iter_mut().take(handoffs).filter_map(|handoff| handoff.told.take()).collect()
    }

    /// Whether the last step is awaited.
    pub(super) fn is_awaited(&self) -> bool {
        self.handoffs.back().is_some_and(|last| matches!(last.to, To::Awaits(..)))
    }

    pub(super) fn longest_lease(&self) -> Duration {
        self.handoffs.iter().map(|handoff| handoff.waiter.asked).max().unwrap_or_default()
    }
}

/// Takes the permit of whoever passes a lock on, unless the queue has it. False if it has to wait.
pub(super) fn take_permit(
    queue: Option<&HandoffQueue>,
    owner: &Arc<Owner>,
    permit: &mut Option<Permit>,
) -> bool {
    match queue {
        Some(queue) if queue.ends_with(owner) => return true,
        // It is of holders whose lease has ended since, and Redis has still to say so. This one
        // came after them, by itself.
        Some(_) => return false,
        None => {}
    }
    if permit.is_none() {
        *permit = owner.try_permit();
    }
    permit.is_some()
}

/// The hold state of the new owner: it has the lock, or will have it when that is confirmed, if that is
/// `awaited` under its ticket.
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
    let granted = Granted { hold, validity: validity.clone(), lease: waiter.asked, token: None };
    (To::Holds(hold, validity), Some(granted))
}
