//! The client hands a lock to the next waiter, and its thread sees to that later.

use super::*;

impl Model {
    pub(super) fn hand_off(&mut self, lock: usize, lease: u64, later: bool) {
        let names = self.names[lock].clone();
        let passes = self.entries_of(lock).next().is_some_and(|at| {
            let head = &self.entries[at];
            head.asking && head.requests <= 2
        });
        let next = self.entries_of(lock).nth(usize::from(passes));
        let next = next.filter(|at| !self.entries[*at].asking);
        let expected = next.map(|at| (self.entries[at].ticket, passes));
        let actual = self.queues().next_waiter(&names);
        assert_eq!(actual.map(|next| (next.ticket, next.passes)), expected);
        let Some((at, ticket)) = next.map(|at| (at, self.entries[at].ticket)) else { return };
        let was_head = self.is_head(&self.entries[at]);
        let due = self.now + park_for(Some(lease));
        self.queues().record_hand_off(&names, ticket, Duration::from_millis(lease));
        let queue = self.expected.get_mut(&lock).unwrap();
        (queue.due, queue.handed) = (due, Some(due));
        // Behind a first request the next one looks when that takes too long: from now on the one behind this.
        let behind = self.entries_of(lock).skip_while(|other| *other != at).nth(1);
        let is_behind = |wake: &Arc<Notify>| {
            passes && behind.is_some_and(|behind| Arc::ptr_eq(wake, &self.entries[behind].wake))
        };
        assert!(was_head || self.queues.cx.effects.wake.iter().all(is_behind));
        if later && was_head {
            self.queues.cx.effects.wake.clear();
            self.unwoken.insert(lock);
        }
        self.leave(at, 200);
    }

    pub(super) fn handed_off(&mut self, lock: usize, lease: Option<u64>) {
        let (names, of_redis) = (self.names[lock].clone(), lease.map(Duration::from_millis));
        self.queues().change(&names, |queue, cx| queue.record_heard_hand_off(of_redis, cx));
        let deferral = self.deferral(lock);
        self.effects();
        self.unwoken.remove(&lock);
        let park = park_for(lease);
        let decides = lease.is_some() && deferral.is_none();
        let now = self.now;
        let Some(queue) = self.expected.get_mut(&lock).filter(|_| decides) else { return };
        let shorter = park < 30_000;
        if queue.handed == Some(queue.due) {
            queue.due = now + park;
            queue.handed = Some(queue.due);
        } else if shorter {
            queue.due = queue.due.min(now + park);
        }
        if shorter {
            let due = queue.due;
            self.asks_at(lock, self.at(due));
        }
    }
}
