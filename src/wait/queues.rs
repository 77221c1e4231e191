//! All that a client knows of the locks for which its calls wait: pure state. A [`WaitQueue`] for each lock,
//! and the [`Subscriptions`] to their channels.
//!
//! Each change happens at a moment, which [`Queues::at`] sets. It leaves what it has to cause as [`Effects`],
//! for the caller to run after it has released the mutex.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host::HashMap;
use crate::protocol::{Names, OldestForeignWaiter};
use crate::sweep::Sweep;

use super::change::{
    Brought, Context, Effects, EntryTicket, Holder, Moment, NextWaiter, QueueLimits, Stay, Ticket,
    WaitStep,
};
use super::entry::{AnswerDelay, OwnEntry};
use super::order::Order;
use super::queue::WaitQueue;
use super::reach::Reached;
use super::subscriptions::{LINGER, Plan, Subscriptions, Wanted};
use super::turns::TurnTimes;

/// Fewer queues than this are not swept.
const SWEEP_FROM: usize = 64;

/// How often more of them are swept, however many there were: when the next name comes. What a queue remembers of turns
/// is forgotten after as long.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The queues, with the waiters `W` in them.
pub(crate) struct Queues<W> {
    by_lock: HashMap<Arc<Names>, WaitQueue<W>>,
    /// Those in whose queues clients wait in order: mostly none.
    in_order: HashMap<Arc<Names>, ()>,
    pub(super) subscriptions: Subscriptions,
    /// The number of the last waiter that has come, or of the last entry that a request has brought for another one.
    last_ticket: Ticket,
    answer_delay: AnswerDelay,
    sweep: Sweep,
    swept: Instant,
    pub(crate) closed: bool,
    pub(super) cx: Context<W>,
}

impl<W> Queues<W> {
    pub(crate) fn new(limits: QueueLimits, now: Instant) -> Self {
        let at = Moment { now, limits, times: TurnTimes::default() };
        Self {
            by_lock: HashMap::default(),
            in_order: HashMap::default(),
            subscriptions: Subscriptions::default(),
            last_ticket: 0,
            answer_delay: AnswerDelay::default(),
            sweep: Sweep::from(SWEEP_FROM),
            swept: now,
            closed: false,
            cx: Context { at, effects: Effects::default(), waiting: 0 },
        }
    }

    /// What follows happens at that moment. It may be before that of the last change: a thread that read the clock may
    /// have waited for the mutex.
    pub(crate) fn at(&mut self, now: Instant) -> &mut Self {
        self.cx.at.now = now;
        self
    }

    /// What the changes since the last call have to cause.
    pub(crate) fn take_effects(&mut self) -> Effects<W> {
        std::mem::take(&mut self.cx.effects)
    }

    /// What the client knows of a lock: nothing if no call waits, or has waited lately.
    pub(super) fn get(&self, names: &Names) -> Option<&WaitQueue<W>> {
        self.by_lock.get(names)
    }

    /// The names of that lock as the calls have them that wait for it, or have waited lately.
    pub(super) fn names_of(&self, names: &Names) -> Option<Arc<Names>> {
        self.by_lock.get_key_value(names).map(|(names, _)| names.clone())
    }

    /// Changes what the client knows of a lock.
    pub(super) fn change<R>(
        &mut self,
        names: &Names,
        change: impl FnOnce(&mut WaitQueue<W>, &mut Context<W>) -> R,
    ) -> Option<R> {
        Some(change(self.by_lock.get_mut(names)?, &mut self.cx))
    }

    /// Has a queue for a lock. One without a waiter is forgotten some time later: the next call needs it again.
    fn make(&mut self, names: &Arc<Names>) {
        if self.by_lock.contains_key(&**names) {
            return;
        }
        let Moment { now, limits, .. } = self.cx.at;
        let is_large = self.by_lock.len() >= SWEEP_FROM;
        // A crowd of names would else stay for as long as no larger one comes.
        if self.sweep.is_due(self.by_lock.len()) || is_large && now >= self.swept + SWEEP_EVERY {
            self.swept = now;
            let subscriptions = &self.subscriptions;
            let keep = |names: &Arc<Names>, queue: &mut WaitQueue<W>| {
                !queue.is_unused(now) || subscriptions.has(names)
            };
            self.sweep.sweep(&mut self.by_lock, keep);
        }
        let (order, first_request) = match names.is_in_order() {
            true => (Order::Queued(OwnEntry::default()), limits.grace),
            false => (Order::TakesTurns(None), limits.request),
        };
        self.by_lock.insert(names.clone(), WaitQueue::new(order, first_request, now));
    }

    /// The place behind all others.
    pub(crate) fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Adds a waiter in that place: behind those that came before it.
    pub(crate) fn join_with(
        &mut self,
        ticket: Ticket,
        names: &Arc<Names>,
        waiter: Option<Arc<W>>,
        stay: Stay,
    ) {
        let is_live = self.subscriptions.keep(names);
        self.make(names);
        if names.is_in_order() && !self.in_order.contains_key(names) {
            self.in_order.insert(names.clone(), ());
        }
        self.change(names, |queue, cx| queue.join(ticket, waiter, stay, is_live, cx));
    }

    /// Redis was asked about that lock.
    pub(crate) fn record_reached(&mut self, names: &Names, reached: Reached) {
        self.change(names, |queue, cx| match reached {
            Reached::Answered(asked_at) => queue.record_reached(asked_at, cx),
            Reached::Silent(asked_at) => queue.reach.record_silence(asked_at),
        });
    }

    /// What a waiter does next. One that parks needs the messages of the channel.
    pub(crate) fn step(&mut self, names: &Arc<Names>, ticket: Ticket) -> WaitStep {
        // One that has left was handed the lock, and needs no message any more: no call would end the subscription.
        let queue = self.by_lock.get_mut(&**names).filter(|queue| queue.has(ticket));
        let Some(queue) = queue else { return WaitStep::Park(None) };
        let now = self.cx.at.now;
        let step = queue.step(ticket, now);
        let is_head = queue.is_head(ticket, now);
        if step == WaitStep::Ask || !self.listens(names, is_head) {
            return step;
        }
        self.change(names, |queue, cx| {
            queue.record_subscribed(cx);
            queue.step(ticket, now)
        })
        .unwrap_or(step)
    }

    /// A call that waits in no queue asked Redis at `asked_at`, and has got the lock, or not.
    pub(crate) fn record_try(&mut self, names: &Names, granted: bool, asked_at: Instant) {
        let at = &mut self.cx.at;
        at.times.record_answer(at.now.saturating_duration_since(asked_at));
        self.change(names, |queue, cx| {
            queue.record_reached(asked_at, cx);
            queue.order.record_try(granted, &mut cx.at);
        });
    }

    /// Redis refused that waiter, because `holder` has the lock; its lease could end after `remaining`.
    pub(crate) fn record_refusal(
        &mut self,
        names: &Names,
        ticket: Ticket,
        remaining: Option<Duration>,
        holder: Holder,
    ) {
        self.change(names, |queue, cx| {
            queue.record_refusal(ticket, remaining, cx);
            queue.holder = Some(holder);
        });
    }

    /// The waiter has the lock, for `lease` unless it is renewed, and leaves.
    pub(crate) fn record_grant(&mut self, names: &Names, ticket: Ticket, lease: Duration) {
        self.change(names, |queue, cx| queue.record_grant(ticket, lease, cx));
        self.keep_if_empty(names, LINGER);
    }

    /// The lock was handed to the waiter, for `lease` unless it is renewed, and the waiter leaves.
    pub(crate) fn record_hand_off(&mut self, names: &Names, ticket: Ticket, lease: Duration) {
        self.change(names, |queue, cx| queue.record_hand_off(ticket, lease, cx));
        self.keep_if_empty(names, LINGER);
    }

    /// The waiter leaves, if it has not left with the lock. True if an entry in a queue that Redis keeps is left
    /// with no waiter: the caller must give that up. From here on there is none.
    pub(crate) fn leave(&mut self, names: &Names, ticket: Ticket) -> bool {
        let left = self.change(names, |queue, cx| {
            let leaves = queue.leave(ticket, names.is_read_write(), cx);
            (leaves, queue.gives_entry_up())
        });
        let Some((leaves, entry_is_left)) = left else { return false };
        if leaves {
            self.keep_if_empty(names, Duration::ZERO);
        }
        entry_is_left
    }

    /// A lock that this client relied on was lost: the head of its queue asks.
    pub(crate) fn record_loss(&mut self, names: &Names) {
        self.change(names, |queue, cx| {
            queue.order.end_deferral();
            queue.ask_now(cx);
        });
    }

    /// This client is about to free the lock. If it has kept the lock from others long enough, it
    /// defers: the head asks when they have had their turns. Returns whether it defers. `others` is how many
    /// wait, if they end a streak of hand-offs.
    pub(crate) fn begin_deferral(&mut self, names: &Arc<Names>, others: Option<u32>) -> bool {
        if others.is_some_and(|others| others > 0) {
            self.make(names);
        }
        let hears_itself = self.subscriptions.is_live(names.channel());
        let defers = self.change(names, |queue, cx| {
            let until = queue.order.begin_deferral(others, hears_itself, &cx.at);
            until.map(|until| queue.ask_at(until, cx)).is_some()
        });
        defers == Some(true)
    }

    /// This client has freed the lock, and `receivers` clients have received the message, this one
    /// included. Its waiters hear from Redis; without waiters, the next caller has a reason to ask.
    pub(crate) fn record_release(&mut self, names: &Arc<Names>, receivers: Option<u32>) {
        let ourselves = u32::from(self.hears_itself(names));
        let others = receivers.map(|receivers| receivers.saturating_sub(ourselves));
        if others.is_some_and(|others| others > 0) {
            self.make(names);
        }
        self.change(names, |queue, cx| {
            let now = cx.at.now;
            if others.is_some_and(|others| queue.order.record_others(others, &cx.at)) {
                queue.ask_at(now, cx);
            } else {
                queue.ask_if_empty_at(queue.order.deferred_until(now).unwrap_or(now));
            }
        });
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(crate) fn record_foreign(&mut self, names: &Names, foreign: OldestForeignWaiter) {
        let foreign = self.answer_delay.bound(foreign);
        if let Some(entry) = self.own_entry(names) {
            entry.record_foreign(foreign);
        }
    }

    /// The next waiter for a lock that this client has.
    pub(crate) fn next_waiter(&self, names: &Names) -> Option<NextWaiter<'_, W>> {
        self.by_lock.get(names).filter(|_| !self.closed)?.next_waiter(self.cx.at.now)
    }

    pub(super) fn own_entry(&mut self, names: &Names) -> Option<&mut OwnEntry> {
        self.by_lock.get_mut(names)?.order.own_entry()
    }

    /// A request brings the entry of this client to Redis: that of its oldest waiter, or of the one `behind` it.
    /// Returns whose it is, or a ticket that no later entry has.
    pub(super) fn bring_entry(
        &mut self,
        names: &Names,
        behind: bool,
    ) -> Result<Brought, EntryTicket> {
        if self.closed {
            // It would outlive its waiters. One that is there is given up.
            return Err(self.last_ticket);
        }
        let new = self.last_ticket + 1;
        let brought = self.change(names, |queue, cx| {
            let oldest = queue.oldest(behind, cx.at.now);
            // A reader that was let in has left the queue before its call has: that one gives the entry up then.
            if oldest.is_some() || !names.is_read_write() {
                queue.order.set_entry_asked_for(oldest.is_some());
            }
            let own = queue.order.own_entry()?;
            let Some((waiter, since)) = oldest else {
                own.bring_none();
                return None;
            };
            Some(Brought { waiter, since, ticket: own.bring(waiter, new) })
        });
        let brought = brought.flatten().ok_or(self.last_ticket)?;
        self.last_ticket = self.last_ticket.max(brought.ticket);
        Ok(brought)
    }

    /// A ticket that no entry exceeds that is to be given up, and that no later one has. `None` if a waiter has asked for
    /// one.
    pub(crate) fn last_to_leave(&self, names: &Names) -> Option<EntryTicket> {
        match self.by_lock.get(names) {
            Some(queue) if !self.closed => queue.last_to_leave(self.last_ticket),
            _ => Some(self.last_ticket),
        }
    }

    /// Whether the client is closed, and a call is left that has asked.
    pub(crate) fn is_asked_for_still(&self, names: &Names) -> bool {
        self.closed && self.by_lock.get(names).is_some_and(WaitQueue::is_asked_for)
    }

    /// The locks in whose queues this client has an entry.
    pub(crate) fn locks_with_entries(&self) -> Vec<Arc<Names>> {
        let entries = self.by_lock.iter().filter(|(_, queue)| queue.order.has_entry());
        entries.map(|(names, _)| names.clone()).collect()
    }

    /// Whether a waiter of this client is in a queue that Redis keeps, too. Or one was there lately: a next one that
    /// finds the subscription there is nothing that the drivers hear of.
    pub(crate) fn any_in_order(&mut self) -> bool {
        let Self { by_lock, subscriptions, in_order, .. } = self;
        let is_used = |names: &Arc<Names>| {
            by_lock.get(names).is_some_and(|queue| !queue.is_empty()) || subscriptions.has(names)
        };
        if in_order.keys().next().is_some_and(is_used) {
            return true;
        }
        // Each that is used no more is looked at once.
        in_order.retain(|names, ()| is_used(names));
        !in_order.is_empty()
    }

    /// The client was closed: all waiters leave. Returns the locks in whose queues its entries are to be given up,
    /// each with its head, if that has parked.
    pub(crate) fn close(&mut self) -> Vec<(Arc<Names>, Option<Arc<W>>)> {
        self.closed = true;
        self.cx.effects.drivers = true;
        let all = self.waiters().cloned().collect::<Vec<_>>();
        self.cx.effects.wake.extend(all);
        let now = self.cx.at.now;
        let queues = self.by_lock.iter_mut();
        queues.filter_map(|(names, queue)| Some((names.clone(), queue.close(now)?))).collect()
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Arc<W>> {
        self.by_lock.values().flat_map(WaitQueue::waiters)
    }

    /// When the calls began that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Instant> {
        self.by_lock.values().flat_map(WaitQueue::waiting)
    }
}

mod channels;
#[cfg(test)]
mod tests;
