//! A call in a wait queue, and its request to Redis.

use std::sync::Arc;
use std::time::Instant;

use crate::wait::change::Ticket;

/// A call in the wait queue. The queue is in the order of the tickets.
pub(super) struct QueuedCall<W> {
    pub(super) ticket: Ticket,
    /// When the waiter's call began.
    pub(super) since: Instant,
    /// `None` before the waiter parks: a call that gets the lock at once needs none.
    pub(super) waiter: Option<Arc<W>>,
    /// The waiter's request, while one is under way.
    pub(super) asking: Option<Request>,
    /// How many requests of this waiter are over.
    pub(super) requests: u32,
}

pub(super) struct Request {
    pub(super) sent: Instant,
    /// Since the request was sent there has been a reason to ask again at that moment, or at once: the answer may be
    /// older than the reason.
    pub(super) again_at: Option<Instant>,
}

impl<W> QueuedCall<W> {
    /// There is a reason to ask at `due`. One to ask at once outlasts all that come later.
    pub(super) fn asks_again_at(&mut self, due: Instant, now: Instant) {
        if let Some(request) = &mut self.asking {
            let at_once = request.sent;
            let before = request.again_at.filter(|before| *before <= at_once);
            request.again_at = before.or(Some(if due <= now { at_once } else { due }));
        }
    }

    /// The waiter's request is over.
    pub(super) fn end_request(&mut self) -> Option<Request> {
        self.requests += 1;
        self.asking.take()
    }

    /// Since when the waiter's first request is under way.
    pub(super) fn first_request(&self) -> Option<Instant> {
        self.asking.as_ref().filter(|_| self.requests == 0).map(|request| request.sent)
    }

    /// Whether waiters behind this one may have the lock by a hand-off: while its first request is under way, or the
    /// one after the client has subscribed. The waiter would never get the lock if it asked again and again and they
    /// passed it each time.
    pub(super) fn can_be_passed(&self) -> bool {
        self.asking.is_some() && self.requests < 2
    }
}
