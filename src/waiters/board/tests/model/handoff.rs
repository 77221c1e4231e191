//! A lock goes to the next waiter inside the client, and Redis hears of it behind that.

use super::*;

impl Model {
    pub(super) fn hand_off(&mut self, lock: usize, lease: u64, awaited: bool, later: bool) {
        let names = self.names[lock].clone();
        let (key, channel) = (names.key(), names.channel());
        let head = self.waiters.iter().position(|waiter| waiter.lock == lock);
        let head = head.filter(|at| !self.waiters[*at].asking);
        let next = self.board.next_in_line(channel, key).map(|(ticket, _)| ticket);
        assert_eq!(next, head.map(|at| self.waiters[at].ticket));
        let (Some(at), Some(ticket)) = (head, next) else { return };
        let line = self.lines.get_mut(&lock).unwrap();
        line.ask_began = self.event;
        line.ask_ended = false;
        if awaited {
            self.board.asked_for(channel, ticket, self.clock());
            assert_eq!(self.board.step(channel, ticket, self.clock()), Step::Park(None));
            let waiter = &mut self.waiters[at];
            (waiter.asking, waiter.awaits, waiter.asked_at) = (true, true, self.now);
        } else {
            self.answered(at, park_for(Some(lease)));
            let lease = Duration::from_millis(lease);
            let (head, news) = self.board.handed(channel, ticket, lease, self.clock());
            let head = head.filter(|_| !later);
            if later {
                self.unwoken.insert(lock);
            }
            self.gone(at, (head, news), 200);
        }
    }

    pub(super) fn handed_off(&mut self, lock: usize, lease: Option<u64>) {
        let (key, channel) = (self.names[lock].key(), self.names[lock].channel());
        let of_redis = lease.map(Duration::from_millis);
        let head = self.board.handed_off(channel, key, of_redis, self.clock());
        let back = self.turns.stands_back(key, self.clock());
        self.woken(head);
        self.unwoken.remove(&lock);
        let (event, park) = (self.event, park_for(lease));
        let asks = |waiter: &Waiter| waiter.lock == lock && waiter.asking && !waiter.awaits;
        let asking = self.waiters.iter().any(asks);
        let shorter = park < 30_000 && back.is_none();
        let Some(line) = self.lines.get_mut(&lock).filter(|_| shorter) else { return };
        line.due = line.due.min(self.now + park);
        if asking {
            line.reason = event;
        }
    }
}
