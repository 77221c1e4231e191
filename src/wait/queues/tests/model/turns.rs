//! When there is a reason to ask, and when this client defers to others.

use super::*;

impl Model {
    /// Whether a message would reach this client.
    pub(super) fn hears(&self, lock: usize) -> bool {
        self.queues.subscriptions.is_live(self.channel(lock))
    }

    /// The head has to ask at that moment. If it is asking now, it asks again then.
    pub(super) fn asks_at(&mut self, lock: usize, at: Instant) {
        let (due, now) = (self.millis(at), self.now);
        let head = self.entries_of(lock).next().map(|at| &self.entries[at]);
        let asked_at = head.filter(|head| head.asking).map(|head| head.asked_at);
        let Some(queue) = self.expected.get_mut(&lock) else { return };
        queue.due = due;
        if let Some(asked_at) = asked_at
            && queue.again.is_none_or(|before| before > asked_at)
        {
            queue.again = Some(if due <= now { asked_at } else { due });
        }
    }

    pub(super) fn took(&self, at: usize) -> Duration {
        Duration::from_millis(self.now - self.entries[at].asked_at)
    }

    pub(super) fn millis(&self, at: Instant) -> u64 {
        u64::try_from((at - self.base).as_millis()).unwrap()
    }

    pub(super) fn freed(&mut self, lock: usize, receivers: Option<u32>) {
        let hears = u32::from(self.hears(lock));
        let others = receivers.map(|receivers| receivers.saturating_sub(hears));
        let record = |others| self.turns(lock, |order, at| order.record_others(others, at));
        let no_other_waits = others.is_some_and(record);
        let names = self.names[lock].clone();
        self.queues().record_release(&names, receivers);
        self.effects();
        let deferral = self.deferral(lock);
        let no_waiter = self.entries.iter().all(|entry| entry.lock != lock);
        if no_other_waits || no_waiter {
            self.asks_at(lock, deferral.unwrap_or(self.clock()));
        }
    }

    pub(super) fn reason_on(&mut self, channel: &str) {
        for lock in self.lines_on(channel) {
            let deferral = self.deferral(lock);
            self.asks_at(lock, deferral.unwrap_or(self.clock()));
        }
    }

    /// The locks whose waiters hear what comes on a channel.
    pub(super) fn lines_on(&self, channel: &str) -> Vec<usize> {
        let locks = self.queues.subscriptions.locks(channel);
        (0..LOCKS.len()).filter(|lock| locks.contains(&self.names[*lock])).collect()
    }

    pub(super) fn message(&mut self, channel: &str) {
        for lock in self.lines_on(channel) {
            let due = self.clock();
            let at = self.turns(lock, |order, at| order.record_message(Duration::ZERO, due, at));
            self.asks_at(lock, at);
        }
    }
}
