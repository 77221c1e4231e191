//! When there is a reason to ask, and when this client defers to others.

use super::*;

impl Model {
    /// Whether a message would reach this client.
    pub(super) fn hears(&self, channel: &str) -> bool {
        self.queues.is_live(channel)
    }

    /// The head has to ask at that moment. If it is asking now and `recheck` is set, it asks again.
    pub(super) fn asks_at(&mut self, lock: usize, at: Instant, recheck: bool) {
        let (event, due) = (self.event, self.millis(at));
        let asking = self.entries.iter().any(|entry| entry.lock == lock && entry.asking);
        let Some(queue) = self.expected.get_mut(&lock) else { return };
        match (asking, recheck) {
            (true, true) if due <= self.now => queue.reason = event,
            (true, _) => {}
            (false, _) => (queue.reason, queue.ask_ended) = (0, true),
        }
        queue.due = due;
    }

    pub(super) fn took(&self, at: usize) -> Duration {
        Duration::from_millis(self.now - self.entries[at].asked_at)
    }

    pub(super) fn millis(&self, at: Instant) -> u64 {
        u64::try_from((at - self.base).as_millis()).unwrap()
    }

    pub(super) fn freed(&mut self, lock: usize, receivers: Option<u32>) {
        let (key, channel) = (self.names[lock].key(), self.names[lock].channel());
        let now = self.clock();
        let others =
            receivers.map(|receivers| receivers.saturating_sub(self.hears(channel).into()));
        let nobody_waits = others.is_some_and(|others| self.turns.freed(key, others, now));
        let head = self.queues.freed(channel, key, receivers, now);
        let deferral = self.turns.deferred_until(key, now);
        self.woken(head);
        let nobody = self.entries.iter().all(|entry| entry.lock != lock);
        if nobody_waits || nobody {
            self.asks_at(lock, deferral.unwrap_or(now), false);
        }
    }

    pub(super) fn reason_on(&mut self, channel: &str) {
        for lock in self.lines_on(channel) {
            let deferral = self.turns.deferred_until(self.names[lock].key(), self.clock());
            self.asks_at(lock, deferral.unwrap_or(self.clock()), true);
        }
    }

    pub(super) fn lines_on(&self, channel: &str) -> Vec<usize> {
        let on = |lock: &&usize| self.names[**lock].channel() == channel;
        self.expected.keys().filter(on).copied().collect()
    }

    pub(super) fn message(&mut self, channel: &str) {
        for lock in self.lines_on(channel) {
            let now = self.clock();
            let deferral = self.turns.message(self.names[lock].key(), self.queues.limits, now);
            self.asks_at(lock, deferral.unwrap_or(now), true);
        }
    }
}
