//! The one place where a lock becomes lost because Redis does not have its key.
//!
//! A renewal, a release, a nested acquire or a hand-off finds that out. The guards of the owner
//! are told. The waiters of this client had parked until the lease could have ended, and nothing
//! was published: so they are woken, and ask Redis at once.

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

/// Redis counts nothing for `owner`: tells its guards, logs the loss, and wakes the waiters.
///
/// An owner without holds, for one whose acquire was never executed, loses nothing: then no waiter
/// counted on it.
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
