//! How this client's grants and releases change the queues, which waiters must check then, and who
//! has the lock while they wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::{Holder, park_for};
use super::{LONGEST_PARK, Ticket, WaitQueues};

impl<S> WaitQueues<S> {
    /// The next waiter for a lock that this client has (invariant 7), and whether it passes the head.
    /// Where Redis keeps a queue, nobody does.
    pub(crate) fn next_waiter(&self, channel: &str, key: &str) -> Option<(Ticket, &Arc<S>, bool)> {
        let queue = self.channels.get(channel)?.queues.iter().find(|queue| &*queue.key == key)?;
        let mut entries = queue.entries.iter().filter(|_| !self.closed);
        let (_, head) = entries.clone().next()?;
        let passes = queue.place.is_none() && head.can_be_passed();
        let (ticket, next) = if passes { entries.nth(1)? } else { entries.next()? };
        next.asking.is_none().then_some((*ticket, &next.waiter, passes))
    }

    /// The waiters of a lock.
    pub(crate) fn waiters(&self, channel: &str, key: &str) -> impl Iterator<Item = &Arc<S>> {
        let queues = self.channels.get(channel).into_iter().flat_map(|channel| &channel.queues);
        let of_key = queues.filter(move |queue| &*queue.key == key);
        of_key.flat_map(|queue| queue.entries.values()).map(|entry| &entry.waiter)
    }

    /// Records the result of a call that asked Redis without waiting in the queue.
    pub(crate) fn tried(&mut self, key: &str, granted: bool, asked_at: Instant, now: Instant) {
        self.turns.answered(now.saturating_duration_since(asked_at));
        if granted {
            self.turns.granted(key, self.limits, now);
        } else {
            self.turns.refused(key);
        }
    }

    /// This client is about to free the lock. If it has kept the lock from others long enough, it
    /// defers: the head asks when they have had their turns. Returns whether it defers, and the
    /// head to wake. `others` is how many wait, if they end a streak of hand-offs.
    pub(crate) fn turn_ends(
        &mut self,
        channel: &str,
        key: &str,
        others: Option<u32>,
        now: Instant,
    ) -> (bool, Option<Arc<S>>) {
        let hears_itself = self.is_live(channel);
        let until = self.turns.ends(key, others, hears_itself, self.limits, now);
        let head = until.and_then(|until| self.asks_at(channel, key, until));
        (until.is_some(), head)
    }

    /// This client has freed the lock, and `receivers` clients have received the message, this one
    /// included. Its waiters hear from Redis; without waiters, the next caller has a reason to ask.
    /// Returns the head to wake.
    pub(crate) fn freed(
        &mut self,
        channel: &str,
        key: &str,
        receivers: Option<u32>,
        now: Instant,
    ) -> Option<Arc<S>> {
        let hears_itself = u32::from(self.is_live(channel));
        let others = receivers.map(|receivers| receivers.saturating_sub(hears_itself));
        if others.is_some_and(|others| self.turns.freed(key, others, now)) {
            return self.asks_at(channel, key, now);
        }
        let due = self.turns.deferred_until(key, now).unwrap_or(now);
        let queue = self.queue_named(channel, key);
        if let Some(queue) = queue.filter(|queue| queue.entries.is_empty()) {
            queue.due = due;
        }
        None
    }

    /// The client's thread has seen to hand-offs. Returns the head of the queue, which may have no timer
    /// yet. If Redis has heard of the last new holder, that has the lock for `lease`. An earlier or pending refusal of the head may name a longer lease.
    pub(crate) fn handed_off(
        &mut self,
        channel: &str,
        key: &str,
        lease: Option<Duration>,
        now: Instant,
    ) -> Option<Arc<S>> {
        let park = park_for(lease);
        let shorter = park < LONGEST_PARK && self.turns.deferred_until(key, now).is_none();
        let queue = self.queue_named(channel, key)?;
        if shorter {
            queue.due = queue.due.min(now + park);
        }
        if let Some(due) = queue.place.and_then(|place| place.handed_off(now)) {
            queue.due = queue.due.min(due);
        }
        let head = queue.entries.first_entry()?.into_mut();
        head.recheck |= shorter && head.asking.is_some();
        Some(head.waiter.clone())
    }

    /// Redis named the holder when it refused the head.
    pub(in crate::wait) fn held_by(&mut self, channel: &str, ticket: Ticket, holder: Holder) {
        if let Some(queue) = self.queue_of(channel, ticket) {
            queue.holder = Some(holder);
        }
    }

    pub(in crate::wait) fn holder(&mut self, channel: &str, key: &str) -> Option<Holder> {
        self.queue_named(channel, key)?.holder.clone()
    }

    fn asks_at(&mut self, channel: &str, key: &str, due: Instant) -> Option<Arc<S>> {
        let queue = self.queue_named(channel, key)?;
        queue.due = due;
        let head = queue.entries.first_entry()?.into_mut();
        // Its wake-up is older than this, unless the head is asking now.
        head.recheck &= head.asking.is_some();
        Some(head.waiter.clone())
    }
}
