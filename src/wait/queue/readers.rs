//! The readers of a read-write lock that come in together with one that has it.

use std::sync::Arc;

use crate::wait::Ticket;
use crate::wait::change::Context;

use super::{Entry, WaitQueue};

impl<W> WaitQueue<W> {
    /// The readers that may come in where this client reads, each with whether it is asking: those before the first
    /// waiter that `reads` does not accept, and before the first one of other clients.
    pub(in crate::wait) fn readers(
        &self,
        reads: impl Fn(&W) -> bool,
    ) -> Vec<(Ticket, Arc<W>, bool)> {
        let comes = |entry: &Entry<W>| {
            let waiter = entry.waiter.as_ref().filter(|waiter| reads(waiter))?;
            let is_next = self.order.is_next(entry.since);
            is_next.then(|| (entry.ticket, waiter.clone(), entry.asking.is_some()))
        };
        self.entries.iter().map_while(comes).collect()
    }

    /// Those waiters have the lock, and leave. No request has said so: Redis has no entry of this client, or that of one
    /// of them. So the next head asks at once. To wait for a hand-off would be in vain, for readers may stay for long.
    pub(in crate::wait) fn record_let_in(&mut self, let_in: &[Ticket], cx: &mut Context<W>) {
        let now = cx.at.now;
        let before = self.head(now).map(|head| head.ticket);
        self.entries.retain(|entry| let_in.binary_search(&entry.ticket).is_err());
        let Some(head) = self.head(now) else { return };
        // A head that is asking has yet to learn when it is due.
        if Some(head.ticket) != before && head.asking.is_none() {
            cx.effects.wake.extend(head.waiter.clone());
            self.due = now;
        }
    }
}
