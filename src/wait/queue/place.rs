//! This client's place in a queue of clients that Redis keeps: pure state.

use std::time::Instant;

/// A place, as far as this client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuePlace {
    /// A request that takes a place has been sent since the last grant.
    taken: bool,
    /// Redis may have an older waiter there, which has left.
    moves: bool,
}

impl Default for QueuePlace {
    fn default() -> Self {
        // A place that is given up just now may be there still.
        Self { taken: false, moves: true }
    }
}

impl QueuePlace {
    pub(super) fn is_taken(self) -> bool {
        self.taken
    }

    pub(super) fn moves(self) -> bool {
        self.moves
    }

    /// Whether there was a place. From here on there is none.
    pub(super) fn give_up(&mut self) -> bool {
        std::mem::take(&mut self.taken)
    }

    /// The head is about to ask.
    pub(super) fn asks(&mut self) {
        self.taken = true;
    }

    /// Redis refused the head, and knows how old it is.
    pub(super) fn refused(&mut self) {
        self.moves = false;
    }

    /// Redis granted the lock to the head, and the place went with that. Returns when the next head
    /// asks (invariant 1 of [`super::places`]).
    pub(super) fn granted(&mut self, now: Instant) -> Instant {
        (self.taken, self.moves) = (false, false);
        now
    }

    /// The head left without the lock.
    pub(super) fn left(&mut self) {
        self.moves = true;
    }
}
