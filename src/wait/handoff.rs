//! The waiter who is given a lock without asking Redis, because this client has it already.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::owner::Owner;
use crate::protocol::Names;

use super::queue::{LONGEST_PARK, Ticket};
use super::{Waiter, Waiters, WakeList, wake};

/// What came of asking Redis in a waiter's stead.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HandoffOutcome {
    Granted,
    Refused,
    /// Redis could not be asked.
    Nothing,
}

impl Waiters {
    /// Whether the lock can be handed to a waiter: one stands in line, and its head is not asking Redis.
    pub(crate) fn somebody_waits(&self, names: &Names) -> bool {
        self.queues.lock().next_waiter(names.channel(), names.key()).is_some()
    }

    /// Takes the next waiter in line for a lock that this client has, if `fits` says that the lock can
    /// be handed to it. The waiter has left the line then; or, if the lock is fenced or the chain is
    /// `full`, it awaits the lock, and parks there until the relay calls [`told`](Self::told). The
    /// flag says so. The caller has to [wake_all](Self::wake_all) the others that this returns.
    ///
    /// If it has left, another waiter is the head, which has to look before the new holder's lease
    /// could end. A wake-up at this moment would keep the new holder waiting, so the caller wakes it
    /// [later](Self::wake_head): within `longest_request`. If the lease could end before that, this
    /// returns the head to wake_all.
    pub(crate) fn take_next<T>(
        &self,
        names: &Names,
        full: bool,
        longest_request: Duration,
        now: Instant,
        fits: impl FnOnce(&Arc<Owner>) -> Option<T>,
    ) -> Option<(Arc<Waiter>, Ticket, bool, T, WakeList)> {
        let mut queues = self.queues.lock();
        let (ticket, waiter) = queues.next_waiter(names.channel(), names.key())?;
        let fit = fits(&waiter.owner)?;
        let waiter = waiter.clone();
        if full || waiter.owner.kind.has_token() {
            queues.asked_for(names.channel(), ticket, now);
            return Some((waiter, ticket, true, fit, WakeList::default()));
        }
        let (head, dirty) = queues.handed(names.channel(), ticket, waiter.asked, now);
        let head = head.filter(|_| waiter.asked.min(LONGEST_PARK) <= longest_request);
        Some((waiter, ticket, false, fit, WakeList { head, dirty }))
    }

    /// Wakes the head of the line for that lock, which sets its timer. `lease` is that of the last
    /// hand-off that Redis has confirmed, if it has confirmed one.
    pub(crate) fn wake_head(&self, names: &Names, lease: Option<Duration>) {
        let (channel, key) = (names.channel(), names.key());
        let head = self.queues.lock().handed_off(channel, key, lease, clock::now());
        wake(head);
    }

    /// The relay has asked Redis for that waiter. If Redis did not grant the lock, the waiter asks by
    /// itself.
    pub(crate) fn told(&self, waiter: &Waiter, ticket: Ticket, told: HandoffOutcome) {
        let now = clock::now();
        let channel = waiter.owner.names.channel();
        let mut queues = self.queues.lock();
        match told {
            HandoffOutcome::Granted => {
                let (head, dirty) = queues.granted(channel, ticket, waiter.asked, now);
                drop(queues);
                return self.tell(head, dirty);
            }
            HandoffOutcome::Refused => queues.refused(channel, ticket, Some(Duration::ZERO), now),
            HandoffOutcome::Nothing => queues.unanswered(channel, ticket, Duration::ZERO, now),
        }
        drop(queues);
        waiter.wake.notify_one();
    }
}
