//! What this client knows of the waiters for a fair lock in other clients.

use std::time::{Duration, Instant};

use crate::clock;

/// The oldest waiter of other clients, while this one has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OldestForeignWaiter {
    /// When the request was sent: this client knows of all others that had an entry in the queue then.
    pub(crate) as_of: Instant,
    /// When the answer arrived. Waiters that came between these two times came within one round trip of each other.
    pub(crate) answered: Instant,
    /// Since when the oldest of them has waited; `None` if none does.
    pub(crate) oldest: Option<Instant>,
}

impl OldestForeignWaiter {
    /// The oldest has waited for `age` microseconds; for none if that is negative. The request that was
    /// answered so was sent at `as_of`, and the age of a waiter of this client would count from then, too.
    pub(super) fn new(as_of: Instant, age: i64) -> Option<Self> {
        Self::known(as_of, clock::now(), age)
    }

    /// As [`Self::new`] has it, of an answer that was here at `answered`.
    pub(super) fn known(as_of: Instant, answered: Instant, age: i64) -> Option<Self> {
        let age = u64::try_from(age).ok().map(Duration::from_micros);
        let oldest = age.and_then(|age| as_of.checked_sub(age));
        // No clock goes back so far: then nothing is known.
        let known = age.is_none() || oldest.is_some();
        known.then_some(Self { as_of, answered, oldest })
    }
}
