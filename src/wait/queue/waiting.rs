//! Which calls wait, and which ask.

use std::sync::Arc;
use std::time::Instant;

use super::{Entry, WaitQueue};

impl<W> WaitQueue<W> {
    /// Whether a call has not parked: it may be about to bring the entry, and gives that up.
    pub(in crate::wait) fn asks_first(&self) -> bool {
        self.entries.iter().any(|entry| entry.waiter.is_none())
    }

    /// Whether a request is under way, or a call has not parked.
    pub(in crate::wait) fn is_asked_for(&self) -> bool {
        self.entries.iter().any(|entry| entry.waiter.is_none() || entry.asking.is_some())
    }

    /// When the calls began that have been refused, or that sleep.
    pub(in crate::wait) fn waiting(&self) -> impl Iterator<Item = Instant> {
        let waits = |entry: &&Entry<W>| entry.requests > 0 || entry.asking.is_none();
        self.entries.iter().filter(waits).map(|entry| entry.since)
    }

    /// The waiters that are not asking Redis.
    pub(in crate::wait) fn parked(&self) -> impl Iterator<Item = &Arc<W>> {
        self.entries.iter().filter(|entry| entry.asking.is_none()).filter_map(|e| e.waiter.as_ref())
    }
}
