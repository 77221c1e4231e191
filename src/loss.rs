//! What follows when a request finds that Redis does not have the key of a lock: the lock is lost.
//!
//! A renewal, an extension, an execution, a release, a nested acquire, a hand-off or a refused acquire
//! finds that out and calls [`found_gone`]. It sets the guards of the owner to lost ([`Owner::lose`]).
//! The waiters of this client had parked until the lease could have ended, and Redis published nothing:
//! so it wakes them, and the head asks Redis at once.

use crate::clock;
use crate::owner::{FoundBy, Owner};
use crate::wait::Waiters;

/// Redis counts nothing for `owner`: sets its guards to lost, logs the loss, and wakes the waiters.
///
/// An owner without holds, such as one whose acquire Redis never executed, loses nothing: then no
/// waiter counted on it.
pub(crate) fn found_gone(waiters: &Waiters, owner: &Owner, by: FoundBy) {
    let Some(valid) = owner.lose(by, clock::now()) else { return };
    let how = match by {
        FoundBy::Renewal { .. } => "the key expired, or was deleted or taken",
        FoundBy::Release => "found gone when it was released",
        FoundBy::NestedAcquire => "found gone when a nested hold was asked for",
        FoundBy::Extension => "found gone when its lease was to be extended",
        FoundBy::Execution => "found gone when commands were to be executed under it",
        FoundBy::HandOff => "found gone when it was handed off",
        // The caller holds nothing any more, and asks again itself.
        FoundBy::Refusal => return,
    };
    if valid {
        report(waiters, owner, how);
    }
    waiters.look(&owner.names);
}

/// Logs a loss, once: as a warning, unless so many locks are lost that these would hide the reason.
pub(crate) fn report(waiters: &Waiters, owner: &Owner, how: &str) {
    let (name, owner) = (owner.names.key(), &*owner.id);
    match waiters.losses.admit(clock::now()) {
        Some(others) => tracing::warn!(name, owner, "lost a lock: {how}{others}"),
        None => tracing::debug!(name, owner, "lost a lock: {how}"),
    }
}
