//! What this client does to the lock, and who has a reason to ask for it then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::park_for;
use super::{LONGEST_PARK, WaitQueues};

impl<S> WaitQueues<S> {
    /// How a call fared that asked Redis without standing in line.
    pub(crate) fn tried(&mut self, key: &str, granted: bool, asked: Instant, now: Instant) {
        self.turns.answered(now.saturating_duration_since(asked));
        if granted {
            self.turns.granted(key, self.limits, now);
        } else {
            self.turns.refused(key);
        }
    }

    /// This client is about to free the lock. Where it has kept it from others long enough, it
    /// stands back: the head asks when they have had their turns. Returns whether it does, and who
    /// has to look again. `others` is how many wait, where a run of hand-offs ends because of them.
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

    /// This client has freed the lock, and so many clients heard of it, this one included. Those
    /// who stand in line hear it from Redis; the next caller has a reason to ask. Returns who
    /// has to look again.
    pub(crate) fn freed(
        &mut self,
        channel: &str,
        key: &str,
        told: Option<u32>,
        now: Instant,
    ) -> Option<Arc<S>> {
        let hears_itself = u32::from(self.is_live(channel));
        let others = told.map(|told| told.saturating_sub(hears_itself));
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

    /// A request for hand-offs was answered, or failed. Returns the head of the line, which may have no
    /// timer yet. If Redis has confirmed hand-offs, the last of those holders has the lock for `lease`,
    /// and what Redis said to the head before, or is about to say, may be the longer lease of another.
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
        let head = queue.entries.first_entry()?.into_mut();
        head.recheck |= shorter && head.asking.is_some() && !head.asked_for;
        Some(head.waiter.clone())
    }

    fn asks_at(&mut self, channel: &str, key: &str, due: Instant) -> Option<Arc<S>> {
        let queue = self.queue_named(channel, key)?;
        queue.due = due;
        let head = queue.entries.first_entry()?.into_mut();
        // What it was woken for was before this, unless it asks at this moment.
        head.recheck &= head.asking.is_some();
        Some(head.waiter.clone())
    }
}
