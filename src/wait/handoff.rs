//! Gives a waiter a lock that this client has already, without a request by the waiter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::protocol::Names;

use super::queue::LONGEST_PARK;
use super::{Waiter, Waiters, WakeList, wake};

impl Waiters {
    /// Whether a waiter can take the lock: one is in the queue that is not asking Redis.
    pub(crate) fn somebody_waits(&self, names: &Names) -> bool {
        self.queues.lock().next_waiter(names.channel(), names.key()).is_some()
    }

    /// Takes the next waiter from the queue of a lock that this client has, if `takes` gives it the lock.
    /// Where Redis keeps a queue, it must be the next of all clients, unless it may go `before_older` ones.
    /// The waiter has then left the queue. The caller must [wake](Self::wake_all) the returned list.
    ///
    /// The waiter behind a head that is asking takes the lock only if the head hears of the hand-off before
    /// the new holder's lease could end.
    ///
    /// The queue then has a new head, which must set its timer before the new holder's lease could end.
    /// A wake-up now would delay the new holder, so the caller wakes the head [later](Self::wake_head),
    /// within `longest_request`. If the lease could end before that, the head is in the returned list.
    pub(crate) fn take_next<T>(
        &self,
        names: &Names,
        before_older: bool,
        longest_request: Duration,
        now: Instant,
        takes: impl FnOnce(&Waiter) -> Option<T>,
    ) -> Option<(Arc<Waiter>, T, WakeList)> {
        let mut queues = self.queues.lock();
        let (ticket, waiter, passes) = queues.next_waiter(names.channel(), names.key())?;
        let waiter = waiter.clone();
        let ends_soon = waiter.requested.min(LONGEST_PARK) <= longest_request;
        if passes && ends_soon {
            return None;
        }
        if waiter.handle.kind.has_queue() && !before_older {
            let is_next = queues.is_next(names.channel(), names.key(), waiter.since);
            if !is_next || queues.is_behind(names.key(), ticket, now) {
                return None;
            }
        }
        let taken = takes(&waiter)?;
        let (head, dirty) = queues.handed(names.channel(), ticket, waiter.requested, now);
        let head = head.filter(|_| ends_soon);
        Some((waiter, taken, WakeList { head, dirty }))
    }

    /// The lease that the next waiter of a lock asks for.
    pub(crate) fn next_lease(&self, names: &Names) -> Option<Duration> {
        let queues = self.queues.lock();
        queues.next_waiter(names.channel(), names.key()).map(|(_, next, _)| next.requested)
    }

    /// How many fencing tokens this client draws for the waiters of a lock that need some: enough for those
    /// that come while a request for more is under way.
    pub(crate) fn tokens_wanted(&self, names: &Names) -> u32 {
        let queues = self.queues.lock();
        let fenced = queues.waiters(names.channel(), names.key());
        let fenced = fenced.filter(|waiter| waiter.handle.kind.has_token()).count();
        if fenced == 0 { 0 } else { u32::try_from(2 * fenced).unwrap_or(u32::MAX).clamp(64, 1024) }
    }

    /// Wakes the head of the lock's queue, which then sets its timer. `lease` is that of the last
    /// holder of which Redis has heard, if any.
    pub(crate) fn wake_head(&self, names: &Names, lease: Option<Duration>) {
        let (channel, key) = (names.channel(), names.key());
        let head = self.queues.lock().handed_off(channel, key, lease, clock::now());
        wake(head);
    }
}
