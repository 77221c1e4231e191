//! The place in a queue that Redis keeps, from the first try until the call is in the wait queue.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::handle::Handle;
use crate::protocol::QueueEntry;
use crate::wait::Ticket;

use super::{Acquisition, Wait};

/// The place that a first try takes in a queue that Redis keeps. The drop gives it up.
pub(super) struct FirstPlace<'a> {
    engine: &'a Engine,
    handle: &'a Arc<Handle>,
    pub(super) ticket: Ticket,
}

impl FirstPlace<'_> {
    /// Redis granted the lock to this call for `lease`, and its place went with that.
    pub(super) fn granted(self, lease: Duration) {
        self.engine.waiters.first_place_granted(&self.handle.names, self.ticket, lease);
        std::mem::forget(self);
    }

    /// The waiter that this call has become has the place now.
    pub(super) fn ends(self) {
        self.engine.waiters.first_place_ends(&self.handle.names, self.ticket);
        std::mem::forget(self);
    }
}

impl Drop for FirstPlace<'_> {
    fn drop(&mut self) {
        self.engine.waiters.first_place_ends(&self.handle.names, self.ticket);
        // A younger waiter may have been refused because this one was to ask.
        self.engine.waiters.asks_for_place(&self.handle.names);
        self.engine.releaser.leave_queue(self.handle);
    }
}

impl Acquisition<'_> {
    /// The first try asks for a place already, so that others know of it after half a round trip. A
    /// call that does not wait takes none, and neither does one that nests.
    pub(super) fn first_place(&self) -> Option<FirstPlace<'_>> {
        let Self { engine, handle, wait, begun, .. } = *self;
        let takes = handle.kind.has_queue() && !matches!(wait, Wait::Once) && !self.nests();
        takes.then(|| {
            let ticket = engine.waiters.first_place_begins(&handle.names, begun);
            FirstPlace { engine, handle, ticket }
        })
    }

    /// What a request says of this client in the queue, if Redis keeps one. `ticket` is that of this call,
    /// if it takes a place.
    pub(super) fn queue_entry(&self, ticket: Option<Ticket>) -> Option<QueueEntry> {
        let Self { engine, handle, .. } = *self;
        handle.kind.has_queue().then(|| match ticket {
            None => QueueEntry::none(&engine.config),
            Some(ticket) => {
                let oldest = engine.waiters.queue_entry(&handle.names, &engine.config, false);
                QueueEntry { of_another: oldest.ticket != ticket, ..oldest }
            }
        })
    }
}
