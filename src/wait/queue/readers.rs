//! The readers and the writers among those that wait for a read-write lock.

use std::sync::Arc;
use std::time::Instant;

use crate::wait::Ticket;
use crate::wait::change::Context;

use super::{QueuedCall, WaitQueue};

impl<W> WaitQueue<W> {
    /// The readers that may come in where this client reads, each with whether it is asking: those before the first
    /// waiter that `reads` does not accept, and before the first one of other clients.
    pub(in crate::wait) fn readers(
        &self,
        reads: impl Fn(&W) -> bool,
    ) -> Vec<(Ticket, Arc<W>, bool)> {
        let comes = |call: &QueuedCall<W>| {
            let waiter = call.waiter.as_ref().filter(|waiter| reads(waiter))?;
            let is_next = self.order.is_next(call.since);
            is_next.then(|| (call.ticket, waiter.clone(), call.asking.is_some()))
        };
        self.calls.iter().map_while(comes).collect()
    }

    /// The first waiter that `reads` does not accept, and when it came.
    pub(in crate::wait) fn first_writer(
        &self,
        reads: impl Fn(&W) -> bool,
        now: Instant,
    ) -> Option<(Ticket, Instant)> {
        let writes =
            |call: &&QueuedCall<W>| call.waiter.as_ref().is_some_and(|waiter| !reads(waiter));
        let first = self.counting(now).find(writes)?;
        Some((first.ticket, first.since))
    }

    /// The first writer has come, or left. If Redis has an entry of this client, the head says that.
    pub(in crate::wait) fn record_first_writer(&mut self, cx: &mut Context<W>) {
        if self.order.has_entry() && !self.is_empty() {
            self.ask_at(cx.at.now, cx);
        }
    }

    /// The waiters with these tickets have the lock, and leave. No request has said so: Redis has no entry of this
    /// client, or that of one of them. So the next head asks at once. It does not wait for a hand-off, because readers
    /// may stay for long.
    pub(in crate::wait) fn record_let_in(&mut self, let_in: &[Ticket], cx: &mut Context<W>) {
        let now = cx.at.now;
        let before = self.head(now).map(|head| head.ticket);
        let is_first_request = |call: &QueuedCall<W>| call.first_request().is_some();
        let behind = let_in.last().and_then(|last| {
            let before = self.before(let_in[0]).next_back().is_some_and(is_first_request);
            self.calls.iter().find(|call| call.ticket > *last).filter(|_| before)
        });
        // It has the timer of those that were behind a first request.
        cx.effects.wake.extend(behind.and_then(|behind| behind.waiter.clone()));
        cx.waiting -= self.calls.len();
        self.calls.retain(|call| let_in.binary_search(&call.ticket).is_err());
        cx.waiting += self.calls.len();
        self.asking = self.calls.iter().filter(|call| call.asking.is_some()).count();
        let Some(head) = self.head(now) else { return };
        // A head that is asking has yet to learn when it is due.
        if Some(head.ticket) != before && head.asking.is_none() {
            cx.effects.wake.extend(head.waiter.clone());
            self.due = now;
        }
    }
}
