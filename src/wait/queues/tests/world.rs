//! The wait queues in a small world: locks that are held and released, messages on their way,
//! waiters that ask and leave, a connection that is cut. Whatever happened, when everything on its
//! way has arrived, no waiter sleeps beside a free lock. No waiter becomes due in so little time.

use std::collections::{BTreeSet, VecDeque};

use super::*;

/// The first two share a channel.
const LOCKS: [&str; 3] = ["a", "{a}", "b"];

#[derive(Debug, Clone)]
pub(super) enum Op {
    Pass(u64),
    /// A call joins the queue.
    Call(usize),
    /// The n-th waiter goes one step on: checks, is served by Redis, or reads the answer.
    Run(usize),
    Drop(usize),
    /// The holder gives the lock back, or it is freed by force.
    Release(usize),
    /// The holder hands the lock off.
    HandOff(usize),
    /// The first message on its way arrives.
    Deliver,
    /// The driver goes one step on.
    Drive,
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    None,
    Sent,
    Answered { granted: bool },
}

struct Entry {
    ticket: Ticket,
    lock: usize,
    wake: Arc<Notify>,
    awake: bool,
    ask: Ask,
}

pub(super) struct World {
    now: Instant,
    queues: Queues<Notify>,
    names: Vec<Arc<Names>>,
    /// The holder's ticket; zero is a holder that never waited.
    held: [Option<Ticket>; LOCKS.len()],
    entries: Vec<Entry>,
    subscribed: BTreeSet<Arc<str>>,
    messages: VecDeque<Arc<str>>,
    sent: Option<Plan>,
    /// The number of the connection in use.
    connection: u64,
}

impl World {
    pub(super) fn new() -> Self {
        let mut queues = Queues::default();
        queues.cx.at.limits.request = 3600 * SECOND;
        Self {
            now: Instant::now(),
            queues,
            names: LOCKS.iter().map(|name| Names::new("", name).into()).collect(),
            held: [Some(0); LOCKS.len()],
            entries: Vec::new(),
            subscribed: BTreeSet::new(),
            messages: VecDeque::new(),
            sent: None,
            connection: 1,
        }
    }

    pub(super) fn run(&mut self, op: &Op) {
        match *op {
            Op::Pass(millis) => self.now += Duration::from_millis(millis),
            Op::Call(lock) => self.call(lock),
            Op::Run(n) if !self.entries.is_empty() => {
                self.step(n % self.entries.len());
            }
            Op::Drop(n) if !self.entries.is_empty() => self.drop(n % self.entries.len()),
            Op::Release(lock) => self.release(lock),
            Op::HandOff(lock) => self.hand_off(lock),
            Op::Deliver => {
                self.deliver();
            }
            Op::Drive => {
                self.drive();
            }
            Op::Cut => {
                self.subscribed.clear();
                self.messages.clear();
                // The next plan asks again for what was sent.
                self.sent = None;
                self.queues.at(self.now).record_cut(self.connection);
                self.connection += 1;
                self.effects();
            }
            _ => {}
        }
    }

    fn call(&mut self, lock: usize) {
        let (wake, stay) = (Arc::new(Notify::new()), Stay { since: self.now, until: None });
        let ticket = self.queues.at(self.now).join(&self.names[lock], Some(wake.clone()), stay);
        self.effects();
        self.entries.push(Entry { ticket, lock, wake, awake: true, ask: Ask::None });
    }

    fn release(&mut self, lock: usize) {
        let channel = self.names[lock].channel();
        if self.held[lock].take().is_some() {
            self.messages.extend(self.subscribed.get(channel).cloned());
        }
    }

    fn hand_off(&mut self, lock: usize) {
        let queues = self.queues.at(self.now);
        let names = &self.names[lock];
        let next = queues.next_waiter(names).filter(|_| self.held[lock].is_some());
        if let Some(ticket) = next.map(|next| next.ticket) {
            self.held[lock] = Some(ticket);
            self.entries.retain(|entry| entry.ticket != ticket);
            queues.record_hand_off(names, ticket, LONGEST_PARK);
            self.effects();
        }
    }

    /// False if that waiter sleeps.
    fn step(&mut self, at: usize) -> bool {
        let Entry { ticket, lock, ask, awake, .. } = self.entries[at];
        let (queues, names) = (self.queues.at(self.now), &self.names[lock]);
        let entry = &mut self.entries[at];
        match ask {
            Ask::None if !awake => return false,
            Ask::None => {
                entry.awake = false;
                if queues.step(names, ticket) == WaitStep::Ask {
                    entry.ask = Ask::Sent;
                }
            }
            Ask::Sent => {
                let granted = *self.held[lock].get_or_insert(ticket) == ticket;
                entry.ask = Ask::Answered { granted };
            }
            Ask::Answered { granted: false } => {
                entry.ask = Ask::None;
                entry.awake = true;
                let holder = ("other".into(), None);
                queues.record_refusal(names, ticket, Some(LONGEST_PARK), holder);
            }
            Ask::Answered { granted: true } => {
                self.entries.remove(at);
                queues.record_grant(names, ticket, LONGEST_PARK);
                self.effects();
            }
        }
        true
    }

    fn drop(&mut self, at: usize) {
        let Entry { ticket, lock, ask, .. } = self.entries.remove(at);
        self.queues.at(self.now).leave(&self.names[lock], ticket);
        self.effects();
        // The undo of a grant whose caller has left.
        if ask == (Ask::Answered { granted: true }) && self.held[lock] == Some(ticket) {
            self.release(lock);
        }
    }

    fn deliver(&mut self) -> bool {
        let Some(channel) = self.messages.pop_front() else {
            return false;
        };
        self.queues.at(self.now).record_message(&channel, Duration::ZERO);
        self.effects();
        true
    }

    fn drive(&mut self) -> bool {
        let (queues, on) = (self.queues.at(self.now), self.connection);
        if let Some(plan) = self.sent.take() {
            for channel in &plan.unsubscribe {
                self.subscribed.remove(channel);
            }
            self.subscribed.extend(plan.subscribe.iter().cloned());
            queues.record_subscribed(&plan.subscribe, on);
            self.effects();
            return true;
        }
        if !queues.is_dirty(on, |_| true).0 {
            return false;
        }
        let plan = queues.plan(on, |_| true);
        if !plan.subscribe.is_empty() || !plan.unsubscribe.is_empty() {
            self.sent = Some(plan);
        }
        self.sent.is_some()
    }

    fn effects(&mut self) {
        for wake in self.queues.take_effects().wake {
            let woken = self.entries.iter_mut().filter(|entry| Arc::ptr_eq(&wake, &entry.wake));
            woken.for_each(|entry| entry.awake = true);
        }
    }

    /// Everything on its way arrives, and all waiters that are awake go on until they sleep.
    pub(super) fn settle(&mut self) {
        let mut steps = 0;
        while (0..self.entries.len()).any(|at| self.step(at)) || self.deliver() || self.drive() {
            steps += 1;
            assert!(steps < 10_000, "a waiter is busy for ever");
        }
        for (lock, key) in LOCKS.iter().enumerate() {
            let entries = self.entries.iter().filter(|entry| entry.lock == lock).count();
            assert!(
                self.held[lock].is_some() || entries == 0,
                "{entries} sleep beside the free lock {key}"
            );
        }
    }

    /// All waiters get the lock, one after the other.
    pub(super) fn end(&mut self) {
        self.settle();
        while !self.entries.is_empty() {
            let before = self.entries.len();
            for lock in 0..LOCKS.len() {
                self.release(lock);
            }
            self.settle();
            assert!(self.entries.len() < before, "a release was for no waiter");
        }
    }
}
