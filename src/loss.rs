//! How a lock is lost. There are three ways:
//!
//! 1. **Its deadline passes.** That is the loss, whether or not anything looks: `State::check` in `src/lease.rs`.
//! 2. **A request finds that Redis does not have the key**: a renewal, an extension, an execution, a release, a nested
//!    acquire or a hand-off. It calls [`Losses::found_gone`], and [`Possession::lose`] in `src/possession/lose.rs` marks
//!    the guards.
//! 3. **The client is shut down**: [`Possession::take_back`] in `src/possession/ending.rs` marks them.
//!
//! The holder hears of it by `lost()` or `run_until_lost`, which await the validity of its guard, or by the error of
//! its next call.
//!
//! The waiters of this client had parked until the lease could have ended, and Redis published nothing. So `found_gone`
//! wakes the head, which asks Redis at once.

use std::sync::Arc;

use crate::clock;
use crate::error::Loss;
use crate::events::Events;
use crate::possession::{FoundBy, Possession};
use crate::wait::Waiters;

/// What hears of the losses of one client, beside the guards: its log and counters, and its waiters.
pub(crate) struct Losses {
    pub(crate) events: Arc<Events>,
    pub(crate) waiters: Arc<Waiters>,
}

impl Losses {
    /// Redis does not have `possession`: sets its guards to lost, logs the loss, and wakes the head of the waiters.
    ///
    /// A possession without holds, such as one whose acquire Redis never executed, loses nothing: then no
    /// waiter counted on it.
    pub(crate) fn found_gone(&self, possession: &Possession, by: FoundBy, loss: Loss) {
        let now = clock::now();
        let Some(valid) = possession.lose(by, loss, now) else { return };
        let how = match by {
            FoundBy::Renewal => "found by a renewal",
            FoundBy::Release => "found by its release",
            FoundBy::NestedAcquire => "found by a nested acquire",
            FoundBy::Extension => "found by an extension",
            FoundBy::Execution => "found by an execution",
            FoundBy::HandOff => "found by a hand-off",
            FoundBy::Reader => "found by a reader of its handle",
        };
        if valid {
            possession.report_loss(&self.events, loss, how, now);
        }
        self.waiters.record_loss(&possession.names);
    }
}
