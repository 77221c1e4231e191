//! What follows when a request finds that Redis does not have the key of a lock: the lock is lost.
//!
//! A renewal, an extension, an execution, a release, a nested acquire or a hand-off
//! finds that out and calls [`found_gone`]. It sets the guards to lost ([`Possession::lose`]).
//! The waiters of this client had parked until the lease could have ended, and Redis published nothing:
//! so it wakes them, and the head asks Redis at once.

use crate::clock;
use crate::error::Loss;
use crate::possession::{FoundBy, Possession};
use crate::wait::Waiters;

/// Redis does not have `possession`: sets its guards to lost, logs the loss, and wakes the waiters.
///
/// A possession without holds, such as one whose acquire Redis never executed, loses nothing: then no
/// waiter counted on it.
pub(crate) fn found_gone(waiters: &Waiters, possession: &Possession, by: FoundBy, loss: Loss) {
    let Some(valid) = possession.lose(by, loss, clock::now()) else { return };
    let how = match by {
        FoundBy::Renewal => "found by a renewal",
        FoundBy::Release => "found by its release",
        FoundBy::NestedAcquire => "found by a nested acquire",
        FoundBy::Extension => "found by an extension",
        FoundBy::Execution => "found by an execution",
        FoundBy::HandOff => "found by a hand-off",
    };
    if valid {
        report(waiters, possession, loss, how);
    }
    waiters.look(&possession.names);
}

/// Logs a loss, once: as a warning, unless so many locks are lost that these would hide the reason.
pub(crate) fn report(waiters: &Waiters, possession: &Possession, loss: Loss, how: &str) {
    let (name, owner) = (possession.names.key(), &*possession.id);
    match waiters.losses.admit(clock::now()) {
        Some(others) => tracing::warn!(name, owner, ?loss, "lost a lock: {loss}, {how}{others}"),
        None => tracing::debug!(name, owner, ?loss, "lost a lock: {loss}, {how}"),
    }
}
