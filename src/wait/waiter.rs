//! One waiter: its grant slot, where others leave a lock for it, and its registration in the queue.
//!
//! 1. **A lock that is handed off is never lost on the way.** It lies in the grant slot until the
//!    waiter takes it. A waiter that leaves closes the grant slot, and gives back a lock that it
//!    finds there. A holder that finds the grant slot closed gives back the lock that it brought.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock;
use crate::handle::Handle;
use crate::lease::Lease;
use crate::possession::{Granted, HandOff};

use super::queue::{Ticket, WaitStep};
use super::{Mutex, Next, WaitLimits, Waiters, WakeList, sleep_until};

/// How to reach a waiter, and what it waits for.
pub(crate) struct Waiter {
    pub(crate) handle: Arc<Handle>,
    pub(crate) lease: Lease,
    /// The lease in whole milliseconds.
    pub(crate) requested: Duration,
    /// When its call began.
    pub(super) since: Instant,
    pub(super) wake: Notify,
    grant_slot: Mutex<GrantSlot>,
}

/// Where a waiter finds a lock that is handed to it.
enum GrantSlot {
    Empty,
    Full(Granted),
    /// The waiter has left.
    Closed,
}

impl Waiter {
    pub(crate) fn new(
        handle: Arc<Handle>,
        lease: Lease,
        requested: Duration,
        since: Instant,
    ) -> Self {
        let grant_slot = GrantSlot::Empty.into();
        Self { handle, lease, requested, since, wake: Notify::new(), grant_slot }
    }

    /// What it asks of a hand-off.
    pub(crate) fn hand_off(&self) -> HandOff {
        let kind = self.handle.kind;
        HandOff {
            to: self.handle.number,
            lease: self.lease,
            requested: self.requested,
            needs_token: kind.has_token(),
            in_queue: kind.has_queue(),
        }
    }

    /// Hands the lock to the waiter. If the waiter has left, the caller must give the lock back.
    pub(crate) fn hand(&self, granted: Granted) -> Result<(), Granted> {
        let mut grant_slot = self.grant_slot.lock();
        if let GrantSlot::Closed = *grant_slot {
            return Err(granted);
        }
        *grant_slot = GrantSlot::Full(granted);
        drop(grant_slot);
        self.wake.notify_one();
        Ok(())
    }

    /// Whether a lock that was handed to it is still there.
    pub(crate) fn has_yet_to_take(&self) -> bool {
        matches!(*self.grant_slot.lock(), GrantSlot::Full(_))
    }

    fn take(&self, leave: GrantSlot) -> Option<Granted> {
        match std::mem::replace(&mut *self.grant_slot.lock(), leave) {
            GrantSlot::Full(granted) => Some(granted),
            GrantSlot::Empty | GrantSlot::Closed => None,
        }
    }
}

/// A waiter's registration in the queue of one lock. Dropping it leaves the queue, and passes an
/// unused wake-up on to the next waiter.
pub(crate) struct Registration<'a> {
    pub(super) waiters: &'a Waiters,
    pub(super) waiter: Arc<Waiter>,
    pub(super) ticket: Ticket,
}

impl Registration<'_> {
    /// Its place in the wait queue.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Parks until it is this waiter's turn to ask, or until there is no point in waiting.
    pub(crate) async fn next(&self, limits: &WaitLimits) -> Next {
        loop {
            if let Some(granted) = self.waiter.take(GrantSlot::Empty) {
                self.tell_thread();
                return Next::Handed(granted);
            }
            let (wake_at, outage_over) = {
                let now = clock::now();
                let mut queues = self.waiters.queues.lock();
                if queues.closed {
                    return Next::Closed;
                }
                let outage = queues.outage(self.waiter.handle.names.channel());
                if limits.until.is_some_and(|until| until <= now) {
                    return Next::TimedOut { in_outage: outage.is_some() };
                }
                let outage_over =
                    outage.zip(limits.outage).and_then(|(since, most)| since.checked_add(most));
                if outage_over.is_some_and(|over| over <= now) {
                    return Next::OutOfReach;
                }
                // An outage has warnings of its own.
                let warn_at = limits.warn_at.filter(|_| outage.is_none());
                if warn_at.is_some_and(|at| at <= now) {
                    return Next::WaitsLong;
                }
                match queues.step(self.waiter.handle.names.channel(), self.ticket, now) {
                    WaitStep::Ask => return Next::Ask,
                    WaitStep::Park(at) => (at, outage_over),
                }
            };
            let at = [wake_at, outage_over, limits.until].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = self.waiter.wake.notified() => {}
                () = sleep_until(at) => {}
            }
        }
    }

    /// Redis reported that `holder` has the lock, for `remaining` unless it is renewed.
    pub(crate) fn refused(&self, remaining: Option<Duration>, holder: Box<str>) {
        let now = clock::now();
        let mut queues = self.waiters.queues.lock();
        queues.refused(self.channel(), self.ticket, remaining, now);
        // A fair lock without a holder is the next one's.
        let lease = remaining.filter(|_| !holder.is_empty());
        let until = lease.and_then(|lease| now.checked_add(lease));
        queues.held_by(self.channel(), self.ticket, (holder, until));
        drop(queues);
        self.tell_thread();
    }

    /// Redis was out of reach.
    pub(crate) fn unanswered(&self, pause: Duration) {
        let now = clock::now();
        self.waiters.queues.lock().unanswered(self.channel(), self.ticket, pause, now);
        self.tell_thread();
    }

    /// The client's thread may wait for this to hand on a lock that Redis has granted, or to confirm it.
    fn tell_thread(&self) {
        if self.waiter.handle.kind.has_queue() {
            self.waiters.progress.notify_waiters();
        }
    }

    /// Redis granted the lock, for `lease` unless it is renewed.
    pub(crate) fn granted(&self, lease: Duration) {
        let now = clock::now();
        let (head, dirty) =
            self.waiters.queues.lock().granted(self.channel(), self.ticket, lease, now);
        self.waiters.wake_all(WakeList { head, dirty });
        // The drop finds that this waiter has left already.
    }

    /// Leaves the queue. Returns a lock that was handed off and not taken: the caller must give it
    /// back. The flag says that this client has a place in a queue that Redis keeps, and no waiter: the
    /// caller must give that up, too.
    pub(crate) fn leave(&self) -> (Option<Granted>, bool) {
        let now = clock::now();
        let mut queues = self.waiters.queues.lock();
        let (head, dirty) = queues.leave(self.channel(), self.ticket, now);
        // Now: a driver that plans next forgets the queue.
        let place = queues.gives_place_up(self.channel(), self.waiter.handle.names.key());
        drop(queues);
        self.waiters.wake_all(WakeList { head, dirty });
        let granted = self.waiter.take(GrantSlot::Closed);
        self.tell_thread();
        (granted, place)
    }

    pub(super) fn channel(&self) -> &str {
        self.waiter.handle.names.channel()
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let (handed, _) = self.leave();
        debug_assert!(
            handed.is_none(),
            "BUG: a lock that was handed off went with its registration"
        );
    }
}
