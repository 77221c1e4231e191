//! The client hands a lock to the next waiter, and Redis is updated asynchronously.

use super::*;

impl Model {
    pub(super) fn hand_off(&mut self, lock: usize, lease: u64, awaited: bool, later: bool) {
        let names = self.names[lock].clone();
        let (key, channel) = (names.key(), names.channel());
        let head = self.entries.iter().position(|entry| entry.lock == lock);
        let head = head.filter(|at| !self.entries[*at].asking);
        let next = self.queues.next_waiter(channel, key).map(|(ticket, _)| ticket);
        assert_eq!(next, head.map(|at| self.entries[at].ticket));
        let (Some(at), Some(ticket)) = (head, next) else { return };
        let queue = self.expected.get_mut(&lock).unwrap();
        queue.ask_began = self.event;
        queue.ask_ended = false;
        if awaited {
            self.queues.asked_for(channel, ticket, self.clock());
            assert_eq!(self.queues.step(channel, ticket, self.clock()), WaitStep::Park(None));
            let entry = &mut self.entries[at];
            (entry.asking, entry.awaits, entry.asked_at) = (true, true, self.now);
        } else {
            self.answered(at, park_for(Some(lease)));
            let lease = Duration::from_millis(lease);
            let (head, dirty) = self.queues.handed(channel, ticket, lease, self.clock());
            let head = head.filter(|_| !later);
            if later {
                self.unwoken.insert(lock);
            }
            self.leave(at, (head, dirty), 200);
        }
    }

    pub(super) fn handed_off(&mut self, lock: usize, lease: Option<u64>) {
        let (key, channel) = (self.names[lock].key(), self.names[lock].channel());
        let of_redis = lease.map(Duration::from_millis);
        let head = self.queues.handed_off(channel, key, of_redis, self.clock());
        let deferral = self.turns.deferred_until(key, self.clock());
        self.woken(head);
        self.unwoken.remove(&lock);
        let (event, park) = (self.event, park_for(lease));
        let asks = |entry: &Entry| entry.lock == lock && entry.asking && !entry.awaits;
        let asking = self.entries.iter().any(asks);
        let shorter = park < 30_000 && deferral.is_none();
        let Some(queue) = self.expected.get_mut(&lock).filter(|_| shorter) else { return };
        queue.due = queue.due.min(self.now + park);
        if asking {
            queue.reason = event;
        }
    }
}
