//! What a hand-off inside the client means for those that wait behind it.

use std::time::{Duration, Instant};

use crate::wait::change::{Context, LONGEST_PARK, Ticket, park_for};

use super::WaitQueue;

impl<W> WaitQueue<W> {
    /// The lock was handed to the waiter, Redis keeps it for `lease` unless it is renewed or hears of another one, and the
    /// waiter leaves. Its wake-ups were older. The next waiter in the queue has to check before that lease ends.
    pub(in crate::wait) fn record_hand_off(
        &mut self,
        ticket: Ticket,
        lease: Duration,
        cx: &mut Context<W>,
    ) {
        self.due = cx.at.now + park_for(Some(lease));
        self.due_of_hand_off = Some(self.due);
        self.order.set_entry_asked_for(false);
        self.remove(ticket, cx);
    }

    /// The client's thread has seen to hand-offs. Wakes the head of the queue, which may have no timer
    /// yet. `lease` is that of which Redis has heard just now, if any. An earlier or pending refusal of the head may
    /// name a longer one.
    pub(in crate::wait) fn record_heard_hand_off(
        &mut self,
        lease: Option<Duration>,
        cx: &mut Context<W>,
    ) {
        let now = cx.at.now;
        let park = park_for(lease);
        let decides = lease.is_some() && self.order.deferred_until(now).is_none();
        let shorter = decides && park < LONGEST_PARK;
        if decides && self.due_of_hand_off == Some(self.due) {
            self.due = now + park;
            self.due_of_hand_off = Some(self.due);
        } else if shorter {
            self.due = self.due.min(now + park);
        }
        let entry = self.order.own_entry();
        let brings = entry.and_then(|entry| entry.record_heard_hand_off(now));
        self.due = brings.into_iter().fold(self.due, Instant::min);
        if shorter || brings.is_some() {
            self.ask_at(self.due, cx);
        } else {
            cx.effects.wake.extend(self.head(now).and_then(|head| head.waiter.clone()));
        }
    }
}
