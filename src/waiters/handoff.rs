//! The waiter who is given a lock without asking Redis, because this client has it already.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::owner::Owner;
use crate::protocol::Names;

use super::board::{LONGEST_PARK, Ticket};
use super::{Seat, Stirred, Waiters, wake};

/// What came of asking Redis in a waiter's stead.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told {
    Granted,
    Refused,
    /// Redis could not be asked.
    Nothing,
}

impl Waiters {
    /// Whether the lock can be handed to a waiter: one stands in line, and its head is not asking Redis.
    pub(crate) fn somebody_waits(&self, names: &Names) -> bool {
        self.board.lock().next_in_line(names.channel(), names.key()).is_some()
    }

    /// Takes the next waiter in line for a lock that this client has, if `fits` says that the lock can
    /// be handed to it. The waiter has left the line then; or, if the lock is fenced or the chain is
    /// `full`, it awaits the lock, and parks there until the relay calls [`told`](Self::told). The
    /// flag says so. The caller has to [stir](Self::stir) the others that this returns.
    ///
    /// If it has left, another waiter is the head, which has to look before the new holder's lease
    /// could end. A wake-up at this moment would keep the new holder waiting, so the caller wakes it
    /// [later](Self::wake_head): within `longest_request`. If the lease could end before that, this
    /// returns the head to stir.
    pub(crate) fn take_next<T>(
        &self,
        names: &Names,
        full: bool,
        longest_request: Duration,
        now: Instant,
        fits: impl FnOnce(&Arc<Owner>) -> Option<T>,
    ) -> Option<(Arc<Seat>, Ticket, bool, T, Stirred)> {
        let mut board = self.board.lock();
        let (ticket, seat) = board.next_in_line(names.channel(), names.key())?;
        let fit = fits(&seat.owner)?;
        let seat = seat.clone();
        if full || seat.owner.kind.has_token() {
            board.asked_for(names.channel(), ticket, now);
            return Some((seat, ticket, true, fit, Stirred::default()));
        }
        let (head, news) = board.handed(names.channel(), ticket, seat.asked, now);
        let head = head.filter(|_| seat.asked.min(LONGEST_PARK) <= longest_request);
        Some((seat, ticket, false, fit, Stirred { head, news }))
    }

    /// Wakes the head of the line for that lock, which sets its timer. `lease` is that of the last
    /// hand-off that Redis has confirmed, if it has confirmed one.
    pub(crate) fn wake_head(&self, names: &Names, lease: Option<Duration>) {
        let (channel, key) = (names.channel(), names.key());
        let head = self.board.lock().handed_off(channel, key, lease, clock::now());
        wake(head);
    }

    /// The relay has asked Redis for that waiter. If Redis did not grant the lock, the waiter asks by
    /// itself.
    pub(crate) fn told(&self, seat: &Seat, ticket: Ticket, told: Told) {
        let now = clock::now();
        let channel = seat.owner.names.channel();
        let mut board = self.board.lock();
        match told {
            Told::Granted => {
                let (head, news) = board.granted(channel, ticket, seat.asked, now);
                drop(board);
                return self.tell(head, news);
            }
            Told::Refused => board.refused(channel, ticket, Some(Duration::ZERO), now),
            Told::Nothing => board.unanswered(channel, ticket, Duration::ZERO, now),
        }
        drop(board);
        seat.wake.notify_one();
    }
}
