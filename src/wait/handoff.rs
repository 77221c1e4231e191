//! Gives a waiter a lock that this client has already, without a request by the waiter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::owner::Owner;
use crate::protocol::Names;

use super::queue::{LONGEST_PARK, Ticket};
use super::{Waiter, Waiters, WakeList, wake};

/// The result of an awaited hand-off.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HandoffOutcome {
    Granted,
    Refused,
    /// Redis was out of reach.
    Unanswered,
}

impl Waiters {
    /// Whether a waiter can take the lock: one is in the queue that is not asking Redis.
    pub(crate) fn somebody_waits(&self, names: &Names) -> bool {
        self.queues.lock().next_waiter(names.channel(), names.key()).is_some()
    }

    /// Takes the next waiter from the queue of a lock that this client has, if `fits` accepts its
    /// owner. Where Redis keeps a queue, it must be the next of all clients, unless it may go
    /// `before_older` ones. The waiter has then left the queue. But if the lock is fenced or the handoff queue is
    /// `full`, the waiter parks until the client's thread calls [`report`](Self::report); the flag says
    /// so. The caller must [wake](Self::wake_all) the returned list.
    ///
    /// The waiter behind a head that is asking takes the lock only if it has it at once, and if the head
    /// hears of the hand-off before the new holder's lease could end.
    ///
    /// If the waiter has left, the queue has a new head, which must set its timer before the new
    /// holder's lease could end. A wake-up now would delay the new holder, so the caller wakes the
    /// head [later](Self::wake_head), within `longest_request`. If the lease could end before that,
    /// the head is in the returned list.
    pub(crate) fn take_next<T>(
        &self,
        names: &Names,
        full: bool,
        before_older: bool,
        longest_request: Duration,
        now: Instant,
        fits: impl FnOnce(&Arc<Owner>) -> Option<T>,
    ) -> Option<(Arc<Waiter>, Ticket, bool, T, WakeList)> {
        let mut queues = self.queues.lock();
        let (ticket, waiter, passes) = queues.next_waiter(names.channel(), names.key())?;
        let waiter = waiter.clone();
        let ends_soon = waiter.requested.min(LONGEST_PARK) <= longest_request;
        let awaits = full || waiter.owner.kind.has_token();
        if passes && (awaits || ends_soon) {
            return None;
        }
        if waiter.owner.kind.has_queue() && !before_older {
            let is_next = queues.is_next(names.channel(), names.key(), waiter.since);
            if !is_next || queues.is_behind(names.key(), ticket, now) {
                return None;
            }
        }
        let fit = fits(&waiter.owner)?;
        if awaits {
            queues.asked_for(names.channel(), ticket, now);
            return Some((waiter, ticket, true, fit, WakeList::default()));
        }
        let (head, dirty) = queues.handed(names.channel(), ticket, waiter.requested, now);
        let head = head.filter(|_| ends_soon);
        Some((waiter, ticket, false, fit, WakeList { head, dirty }))
    }

    /// Wakes the head of the lock's queue, which then sets its timer. `lease` is that of the last
    /// hand-off that Redis has confirmed, if any.
    pub(crate) fn wake_head(&self, names: &Names, lease: Option<Duration>) {
        let (channel, key) = (names.channel(), names.key());
        let head = self.queues.lock().handed_off(channel, key, lease, clock::now());
        wake(head);
    }

    /// The client's thread has asked Redis for this waiter. If Redis did not grant the lock, the
    /// waiter asks for itself.
    pub(crate) fn report(&self, waiter: &Waiter, ticket: Ticket, outcome: HandoffOutcome) {
        let now = clock::now();
        let channel = waiter.owner.names.channel();
        let mut queues = self.queues.lock();
        match outcome {
            HandoffOutcome::Granted => {
                let (head, dirty) = queues.granted(channel, ticket, waiter.requested, now);
                drop(queues);
                return self.wake_all(WakeList { head, dirty });
            }
            HandoffOutcome::Refused => queues.refused(channel, ticket, Some(Duration::ZERO), now),
            HandoffOutcome::Unanswered => queues.unanswered(channel, ticket, Duration::ZERO, now),
        }
        queues.has_place_still(channel, ticket);
        drop(queues);
        waiter.wake.notify_one();
    }
}
