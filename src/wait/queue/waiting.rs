//! Which calls wait, and which ask.

use std::sync::Arc;
use std::time::Instant;

use super::{QueuedCall, WaitQueue};

impl<W> WaitQueue<W> {
    /// Whether a call has not parked: it may be about to bring the entry, and gives that up.
    pub(in crate::wait) fn asks_first(&self) -> bool {
        self.calls.iter().any(|call| call.waiter.is_none())
    }

    /// Whether a request is under way, or a call has not parked.
    pub(in crate::wait) fn is_asked_for(&self) -> bool {
        self.calls.iter().any(|call| call.waiter.is_none() || call.asking.is_some())
    }

    /// When the calls began that have been refused, or that sleep.
    pub(in crate::wait) fn waiting(&self) -> impl Iterator<Item = Instant> {
        let waits = |call: &&QueuedCall<W>| call.requests > 0 || call.asking.is_none();
        self.calls.iter().filter(waits).map(|call| call.since)
    }

    /// The waiters that are not asking Redis.
    pub(in crate::wait) fn parked(&self) -> impl Iterator<Item = &Arc<W>> {
        self.calls.iter().filter(|call| call.asking.is_none()).filter_map(|e| e.waiter.as_ref())
    }
}
