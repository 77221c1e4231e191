//! The client hands a lock to the next waiter, and its thread sees to that later.

use super::*;

impl Model {
    pub(super) fn hand_off(&mut self, lock: usize, lease: u64, later: bool) {
        let names = self.names[lock].clone();
        let (key, channel) = (names.key(), names.channel());
        let waiting = || (0..self.entries.len()).filter(|at| self.entries[*at].lock == lock);
        let passes = waiting().next().is_some_and(|at| {
            let head = &self.entries[at];
            head.asking && head.requests == 1
        });
        let next = waiting().nth(usize::from(passes)).filter(|at| !self.entries[*at].asking);
        let expected = next.map(|at| (self.entries[at].ticket, passes));
        let actual = self.queues.next_waiter(channel, key);
        assert_eq!(actual.map(|(ticket, _, passes)| (ticket, passes)), expected);
        let Some((at, ticket)) = next.map(|at| (at, self.entries[at].ticket)) else { return };
        if passes {
            // The head still waits for its answer, and says itself when it is due.
            let lease = Duration::from_millis(lease);
            let woken = self.queues.handed(channel, ticket, lease, self.clock());
            assert!(woken.0.is_none());
            self.leave(at, woken, 200);
            return;
        }
        let queue = self.expected.get_mut(&lock).unwrap();
        queue.ask_began = self.event;
        queue.ask_ended = false;
        self.answered(at, park_for(Some(lease)));
        let lease = Duration::from_millis(lease);
        let (head, dirty) = self.queues.handed(channel, ticket, lease, self.clock());
        let head = head.filter(|_| !later);
        if later {
            self.unwoken.insert(lock);
        }
        self.leave(at, (head, dirty), 200);
    }

    pub(super) fn handed_off(&mut self, lock: usize, lease: Option<u64>) {
        let (key, channel) = (self.names[lock].key(), self.names[lock].channel());
        let of_redis = lease.map(Duration::from_millis);
        let head = self.queues.handed_off(channel, key, of_redis, self.clock());
        let deferral = self.turns.deferred_until(key, self.clock());
        self.woken(head);
        self.unwoken.remove(&lock);
        let (event, park) = (self.event, park_for(lease));
        let asking = self.entries.iter().any(|entry| entry.lock == lock && entry.asking);
        let shorter = park < 30_000 && deferral.is_none();
        let Some(queue) = self.expected.get_mut(&lock).filter(|_| shorter) else { return };
        queue.due = queue.due.min(self.now + park);
        if asking {
            queue.reason = event;
        }
    }
}
