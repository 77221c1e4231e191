//! This client's place in a queue of clients that Redis keeps: pure state.

use std::time::{Duration, Instant};

use crate::protocol::{OldestForeignWaiter, ServerClock};

/// While this client has the lock, its next head asks for a place after so long: by then the lock may
/// have been handed to it. A release says how old it is.
const WHILE_HELD: Duration = Duration::from_millis(10);

/// A place, as far as this client knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QueuePlace {
    /// A request that takes a place has been sent since the last grant.
    taken: bool,
    /// Who waited in other clients when this one had the lock last.
    elsewhere: Option<OldestForeignWaiter>,
    /// What the clock of the server said last.
    clock: Option<ServerClock>,
    /// When the last grant began that came in a message, in microseconds of the server's clock.
    granted_at: u64,
}

impl QueuePlace {
    pub(super) fn is_taken(self) -> bool {
        self.taken
    }

    /// Whether there was a place. From here on there is none.
    pub(super) fn give_up(&mut self) -> bool {
        std::mem::take(&mut self.taken)
    }

    /// The head is about to ask.
    pub(super) fn asks(&mut self) {
        self.taken = true;
    }

    /// Redis granted the lock to the head for `lease`, and the place went with that. Returns when the
    /// next head asks (invariant 1 of [`super::places`]): before that lease could end.
    pub(super) fn granted(&mut self, lease: Duration, now: Instant) -> Instant {
        self.taken = false;
        now + WHILE_HELD.min(lease / 2)
    }

    /// The lock is handed to the head. The request that says so brings the place of the next one.
    pub(super) fn handed(&mut self) {
        self.taken = false;
    }

    /// Redis has heard of it. Returns when the head asks at the latest, if it came after that request.
    pub(super) fn handed_off(self, now: Instant) -> Option<Instant> {
        (!self.taken).then_some(now + WHILE_HELD)
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(super) fn heard(&mut self, elsewhere: OldestForeignWaiter) {
        if self.elsewhere.is_none_or(|known| known.as_of <= elsewhere.as_of) {
            self.elsewhere = Some(elsewhere);
        }
    }

    /// Whether a waiter of this client came before all that wait in others, or within a round trip. One
    /// that came after the answer does not count: others may have come in between.
    pub(super) fn is_next(self, since: Instant) -> bool {
        self.elsewhere.is_some_and(|elsewhere| {
            since <= elsewhere.answered && elsewhere.oldest.is_none_or(|oldest| since <= oldest)
        })
    }

    /// A message says that a grant began at `at`. Returns the clock by which to judge it; `None` if that
    /// message was here before: while another server takes over, a client may be subscribed at both. A
    /// grant that is older than another is judged by no clock: it is a message of that kind, or the
    /// server's clock was set back.
    pub(super) fn granted_at(&mut self, at: u64) -> Option<Option<ServerClock>> {
        let last = self.granted_at;
        self.granted_at = last.max(at);
        (at != last).then(|| self.clock.filter(|_| at > last))
    }

    /// The server said its time; `None` if another server may be responsible now.
    pub(super) fn set_clock(&mut self, clock: Option<ServerClock>) {
        self.clock = clock;
    }
}
