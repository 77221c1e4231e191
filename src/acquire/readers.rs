//! A reader that joins those that its client has already, without a request.

use std::time::Duration;

use crate::clock;
use crate::possession::{AcquiredHold, Join};
use crate::protocol::QueueEntry;
use crate::wait::Ticket;

use super::{Acquisition, One, Wait};

impl Acquisition<'_, One<'_>> {
    /// Joins the readers of this client, if there are some. `passes` says that the call need not wait for its turn: its
    /// caller reads already, or it was woken because it came next. Any other has to be the only one
    /// that waits, and the share has to be open.
    pub(super) fn join_readers(&self, passes: bool) -> Option<AcquiredHold> {
        let Self { engine, lease, requested, question: One { handle, .. }, .. } = *self;
        if !handle.kind.is_shared() {
            return None;
        }
        let possession = handle.last()?;
        if engine.waiters.is_closed() || !passes && !engine.waiters.lets_in(&handle.names) {
            return None;
        }
        let has_limit = engine.config.max_hold < Duration::MAX;
        let join = Join { handle: handle.number, lease, requested, passes, has_limit };
        let hold = possession.holds.lock().join(join, clock::now())?;
        engine.watchdog.watch(handle);
        engine.events.counters.handed_off.add(1);
        Some(AcquiredHold::new(possession, hold, requested))
    }

    /// What a nested request says of this client's entry. One of a reader that has to wait for its turn is refused
    /// while another client is next.
    pub(super) fn nested_entry(&self, ticket: Option<Ticket>) -> Option<QueueEntry> {
        let waits = ticket.is_some() || matches!(self.wait, Wait::Once);
        let One { handle, recurs } = self.question;
        let in_turn = handle.kind.is_shared() && !recurs && waits;
        let entry = self.queue_entry(handle, ticket.filter(|_| in_turn))?;
        Some(QueueEntry { in_turn, ..entry })
    }
}
