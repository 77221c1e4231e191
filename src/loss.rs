//! What follows when a request finds that Redis does not have the key of a lock: the lock is lost.
//!
//! A renewal, a release, a nested acquire or a hand-off finds that out and calls [`found_gone`]. It
//! sets the guards of the owner to lost. The waiters of this client had parked until the lease could
//! have ended, and Redis published nothing: so it wakes them, and the head asks Redis at once.

use crate::clock;
use crate::owner::Owner;
use crate::wait::Waiters;

/// The request that found the key gone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FoundBy {
    /// Its answer is about the holds of one generation.
    Renewal {
        generation: u64,
    },
    Release,
    NestedAcquire,
    HandOff,
}

/// Redis counts nothing for `owner`: sets its guards to lost, logs the loss, and wakes the waiters.
///
/// An owner without holds, such as one whose acquire Redis never executed, loses nothing: then no
/// waiter counted on it.
pub(crate) fn found_gone(waiters: &Waiters, owner: &Owner, by: FoundBy) {
    let now = clock::now();
    let (lost, how) = match by {
        FoundBy::Renewal { generation } => {
            (owner.renewal_refused(generation, now), "the key expired, or was deleted or taken")
        }
        FoundBy::Release => (owner.gone(now), "found gone when it was released"),
        FoundBy::NestedAcquire => (owner.gone(now), "found gone when a nested hold was asked for"),
        FoundBy::HandOff => (owner.gone(now), "found gone when it was handed off"),
    };
    let Some(valid) = lost else { return };
    if valid {
        tracing::warn!(name = %owner.names.key(), owner = %owner.id, "lost a lock: {how}");
    }
    waiters.look(&owner.names);
}
