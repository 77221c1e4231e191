//! When there is a reason to ask, and when this client leaves the lock to others.

use super::*;

impl Model {
    /// Whether a message would reach the board.
    pub(super) fn hears(&self, channel: &str) -> bool {
        self.board.is_live(channel)
    }

    /// The head is to ask at that moment. One that is asking asks again then, if `again` says so.
    pub(super) fn asks_at(&mut self, lock: usize, at: Instant, again: bool) {
        let (event, due) = (self.event, self.millis(at));
        let asking = self.waiters.iter().any(|waiter| waiter.lock == lock && waiter.asking);
        let Some(line) = self.lines.get_mut(&lock) else { return };
        match (asking, again) {
            (true, true) if due <= self.now => line.reason = event,
            (true, _) => {}
            (false, _) => (line.reason, line.ask_ended) = (0, true),
        }
        line.due = due;
    }

    pub(super) fn took(&self, at: usize) -> Duration {
        Duration::from_millis(self.now - self.waiters[at].asked_at)
    }

    pub(super) fn millis(&self, at: Instant) -> u64 {
        u64::try_from((at - self.base).as_millis()).unwrap()
    }

    pub(super) fn freed(&mut self, lock: usize, told: Option<u32>) {
        let (key, channel) = (self.names[lock].key(), self.names[lock].channel());
        let now = self.clock();
        let others = told.map(|told| told.saturating_sub(self.hears(channel).into()));
        let nobody_waits = others.is_some_and(|others| self.turns.freed(key, others, now));
        let head = self.board.freed(channel, key, told, now);
        let back = self.turns.stands_back(key, now);
        self.woken(head);
        let nobody = self.waiters.iter().all(|waiter| waiter.lock != lock);
        if nobody_waits || nobody {
            self.asks_at(lock, back.unwrap_or(now), false);
        }
    }

    pub(super) fn reason_on(&mut self, channel: &str) {
        for lock in self.lines_on(channel) {
            let back = self.turns.stands_back(self.names[lock].key(), self.clock());
            self.asks_at(lock, back.unwrap_or(self.clock()), true);
        }
    }

    pub(super) fn lines_on(&self, channel: &str) -> Vec<usize> {
        let on = |lock: &&usize| self.names[**lock].channel() == channel;
        self.lines.keys().filter(on).copied().collect()
    }

    pub(super) fn message(&mut self, channel: &str) {
        for lock in self.lines_on(channel) {
            let now = self.clock();
            let back = self.turns.message(self.names[lock].key(), self.board.limits, now);
            self.asks_at(lock, back.unwrap_or(now), true);
        }
    }
}
