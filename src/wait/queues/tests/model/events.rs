//! What happens to the queues, and to the model beside them.

use super::*;

impl Model {
    pub(in crate::wait::queues::tests) fn run(&mut self, op: &Op) {
        let asking = |n| self.pick(n, |entry| entry.asking);
        match *op {
            Op::Pass(millis) => self.now += millis,
            Op::Join(lock) => self.join(lock),
            Op::WaitStep(n) => {
                if let Some(at) = self.pick(n, |entry| !entry.asking) {
                    self.step(at);
                }
            }
            Op::Refused(n, remaining) => {
                if let Some(at) = asking(n) {
                    let (lock, took) = (self.entries[at].lock, self.took(at));
                    let until = self.deferral(lock).map(|deferral| self.millis(deferral));
                    let deferral = until.map_or(u64::MAX, |until| until - self.now);
                    let ticket = self.answered(at, park_for(remaining).min(deferral));
                    self.turns(lock, |order, at| {
                        order.record_try(false, at);
                        at.times.record_answer(took);
                    });
                    let (names, holder) = (self.names[lock].clone(), ("other".into(), None));
                    let remaining = remaining.map(Duration::from_millis);
                    self.queues().record_refusal(&names, ticket, remaining, holder);
                    self.effects();
                }
            }
            Op::Unanswered(n, pause) => {
                if let Some(at) = asking(n) {
                    let names = self.names[self.entries[at].lock].clone();
                    let (ticket, since) = (self.answered(at, pause), self.base);
                    let pause = Duration::from_millis(pause);
                    self.queues()
                        .change(&names, |queue, cx| queue.record_failure(ticket, since, pause, cx));
                    self.effects();
                }
            }
            Op::Granted(n, lease) => {
                if let Some(at) = asking(n) {
                    let (lock, took) = (self.entries[at].lock, self.took(at));
                    let now = self.now;
                    let queue = self.expected.get_mut(&lock).unwrap();
                    queue.again = queue.again.filter(|again| *again <= now);
                    let ticket = self.answered(at, park_for(Some(lease)));
                    self.turns(lock, |order, at| {
                        order.record_try(true, at);
                        at.times.record_answer(took);
                    });
                    let (names, lease) = (self.names[lock].clone(), Duration::from_millis(lease));
                    self.queues().record_grant(&names, ticket, lease);
                    self.leave(at, 200);
                }
            }
            Op::Leave(n) => {
                if let Some(at) = self.pick(n, |_| true) {
                    let Entry { ticket, lock, asking, .. } = self.entries[at];
                    let is_head = self.is_head(&self.entries[at]);
                    if is_head && asking {
                        let until = self.deferral(lock).unwrap_or(self.clock());
                        let due = self.millis(until);
                        self.expected.get_mut(&lock).unwrap().due = due;
                    }
                    let names = self.names[lock].clone();
                    self.queues().leave(&names, ticket);
                    self.leave(at, 0);
                }
            }
            Op::HandOff { lock, lease, later } => self.hand_off(lock, lease, later),
            Op::HandedOff(lock, lease) => self.handed_off(lock, lease),
            Op::Freed(lock, receivers) => self.freed(lock, receivers),
            Op::Message(lock) => {
                let channel = self.channel(lock).to_owned();
                self.queues().record_message(&channel, Duration::ZERO);
                self.effects();
                self.message(&channel);
            }
            Op::StandBack(lock, others) => {
                let hears = self.hears(lock);
                let until =
                    self.turns(lock, |order, at| order.begin_deferral(Some(others), hears, at));
                let names = self.names[lock].clone();
                let defers = self.queues().begin_deferral(&names, Some(others));
                assert_eq!(defers, until.is_some());
                self.effects();
                if let Some(until) = until {
                    self.asks_at(lock, until);
                }
            }
            Op::Lost(lock) => {
                let names = self.names[lock].clone();
                self.queues().record_loss(&names);
                self.effects();
                self.orders[lock].end_deferral();
                self.asks_at(lock, self.clock());
            }
            Op::Look => self.look(),
            Op::Confirm => self.confirm(),
            Op::Deny => self.deny(),
            Op::Cut => self.cut(),
        }
        self.check();
    }

    fn join(&mut self, lock: usize) {
        let wake = Arc::new(Notify::new());
        let names = self.names[lock].clone();
        let stay = Stay { since: self.clock(), until: None };
        let knows = self.queues.subscriptions.has(&names);
        let live = knows && self.queues.subscriptions.is_live(names.channel());
        let out = self.queues.get(&names).is_some_and(|queue| queue.reach.in_outage(stay.since));
        let ticket = self.queues().join(&names, Some(wake.clone()), stay);
        self.effects();
        let due = self.deferral(lock).map_or(self.now, |deferral| self.millis(deferral));
        let first = self.entries.iter().all(|entry| entry.lock != lock);
        if first && !(live && !out && self.expected.contains_key(&lock)) {
            self.expected.insert(lock, Expected { again: None, handed: None, due });
        } else if first {
            // When it asks comes from what this client has heard since.
            self.expected.get_mut(&lock).unwrap().handed = None;
        } else if out && self.entries_of(lock).next().is_some_and(|at| !self.entries[at].asking) {
            self.asks_at(lock, self.clock());
        }
        self.entries.push(Entry {
            ticket,
            lock,
            wake,
            asking: false,
            asked_at: 0,
            requests: 0,
            parked: None,
            looks: true,
        });
    }
}
