//! The wait queues beside a naive model. Of a queue, the model knows only when a waiter last began
//! to ask, how that ended, and when there was last a reason to ask. From that follows what its head
//! does. Of the subscriptions, it knows what Redis would say. Of the turns between clients, it asks
//! another [`Turns`], which has tests of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::protocol::Names;

mod driver;
mod handoff;
mod turns;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Pass(u64),
    Join {
        lock: usize,
        remaining: Option<u64>,
    },
    /// The n-th of the waiters that are not asking checks the queues.
    WaitStep(usize),
    /// The result of the n-th of the waiters that are asking.
    Refused(usize, Option<u64>),
    Unanswered(usize, u64),
    Granted(usize, u64),
    /// The n-th waiter leaves, whatever it is doing.
    Leave(usize),
    /// This client hands the lock off.
    HandOff {
        lock: usize,
        lease: u64,
        /// The next head is woken when the client's thread has seen to the hand-off.
        later: bool,
    },
    /// It has seen to hand-offs, and Redis has heard of the last holder's lease if there is one.
    HandedOff(usize, Option<u64>),
    /// This client has freed the lock, and so many clients have received the message.
    Freed(usize, Option<u32>),
    /// It frees the lock for so many others.
    StandBack(usize, u32),
    /// A lock that this client relied on was lost.
    Lost(usize),
    Message(usize),
    /// The driver checks if it would.
    Look,
    Confirm,
    Deny,
    Cut,
}

/// `a` and `{a}` are two locks on one channel.
const LOCKS: [&str; 3] = ["a", "{a}", "b"];

struct Entry {
    ticket: Ticket,
    lock: usize,
    wake: Arc<Notify>,
    asking: bool,
    asked_at: u64,
    requests: u32,
    /// What the last step said, if it said to park.
    parked: Option<Option<u64>>,
    /// Woken since, or about to check without a wake-up.
    looks: bool,
}

struct WaitQueue {
    reason: u64,
    ask_began: u64,
    ask_ended: bool,
    due: u64,
}

struct Sent {
    plan: Plan,
    /// The connection was cut since.
    dead: bool,
}

pub(super) struct Model {
    base: Instant,
    now: u64,
    /// Grows with every event.
    event: u64,
    queues: WaitQueues<Notify>,
    names: Vec<Names>,
    entries: Vec<Entry>,
    turns: Turns,
    expected: BTreeMap<usize, WaitQueue>,
    /// What Redis has confirmed on the connection in use.
    subscribed: BTreeSet<String>,
    kept_until: BTreeMap<String, u64>,
    /// The number of the connection in use.
    connection: u64,
    /// What the driver has asked for on it.
    asked_for: BTreeSet<String>,
    sent: Option<Sent>,
    /// The locks whose heads are still to be woken after a hand-off.
    unwoken: BTreeSet<usize>,
    /// When the driver wakes by itself, while it sleeps.
    asleep: Option<Option<u64>>,
    notified: bool,
}

fn park_for(remaining: Option<u64>) -> u64 {
    remaining.map_or(30_000, |remaining| 30_000.min(remaining + 1))
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            base: Instant::now(),
            now: 0,
            event: 0,
            queues: WaitQueues::default(),
            names: LOCKS.iter().map(|name| Names::new("", name)).collect(),
            entries: Vec::new(),
            turns: Turns::default(),
            expected: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            kept_until: BTreeMap::new(),
            connection: 1,
            asked_for: BTreeSet::new(),
            sent: None,
            unwoken: BTreeSet::new(),
            asleep: None,
            notified: false,
        }
    }

    fn at(&self, millis: u64) -> Instant {
        self.base + Duration::from_millis(millis)
    }

    fn clock(&self) -> Instant {
        self.at(self.now)
    }

    fn channel(&self, lock: usize) -> &str {
        self.names[lock].channel()
    }

    fn is_wanted(&self, channel: &str) -> bool {
        self.entries.iter().any(|entry| self.channel(entry.lock) == channel)
    }

    fn is_head(&self, entry: &Entry) -> bool {
        let first = self.entries.iter().find(|other| other.lock == entry.lock);
        first.is_some_and(|first| first.ticket == entry.ticket)
    }

    /// What the queues must say to that waiter now.
    fn expected(&self, entry: &Entry) -> WaitStep {
        let queue = &self.expected[&entry.lock];
        if !self.is_head(entry) {
            return WaitStep::Park(None);
        }
        if queue.reason > queue.ask_began || !queue.ask_ended || queue.due <= self.now {
            return WaitStep::Ask;
        }
        WaitStep::Park(Some(self.at(queue.due)))
    }

    fn pick(&self, n: usize, which: impl Fn(&Entry) -> bool) -> Option<usize> {
        let fit: Vec<usize> =
            (0..self.entries.len()).filter(|at| which(&self.entries[*at])).collect();
        (!fit.is_empty()).then(|| fit[n % fit.len()])
    }

    pub(super) fn run(&mut self, op: &Op) {
        self.event += 1;
        let asking = |n| self.pick(n, |entry| entry.asking);
        match *op {
            Op::Pass(millis) => self.now += millis,
            Op::Join { lock, remaining } => self.join(lock, remaining),
            Op::WaitStep(n) => {
                if let Some(at) = self.pick(n, |entry| !entry.asking) {
                    self.step(at);
                }
            }
            Op::Refused(n, remaining) => {
                if let Some(at) = asking(n) {
                    let key = self.names[self.entries[at].lock].key();
                    let deferral = self.turns.deferred_until(key, self.clock());
                    let deferral =
                        deferral.map_or(u64::MAX, |deferral| self.millis(deferral) - self.now);
                    let (channel, ticket) = self.answered(at, park_for(remaining).min(deferral));
                    self.turns.refused(self.names[self.entries[at].lock].key());
                    self.turns.answered(self.took(at));
                    let remaining = remaining.map(Duration::from_millis);
                    self.queues.refused(&channel, ticket, remaining, self.clock());
                }
            }
            Op::Unanswered(n, pause) => {
                if let Some(at) = asking(n) {
                    let (channel, ticket) = self.answered(at, pause);
                    let pause = Duration::from_millis(pause);
                    self.queues.unanswered(&channel, ticket, pause, self.clock());
                }
            }
            Op::Granted(n, lease) => {
                if let Some(at) = asking(n) {
                    let (channel, ticket) = self.answered(at, park_for(Some(lease)));
                    let (key, now) = (self.names[self.entries[at].lock].key(), self.clock());
                    self.turns.granted(key, self.queues.limits, now);
                    self.turns.answered(self.took(at));
                    let lease = Duration::from_millis(lease);
                    let dirty = self.queues.granted(&channel, ticket, lease, self.clock());
                    self.leave(at, dirty, 200);
                }
            }
            Op::Leave(n) => {
                if let Some(at) = self.pick(n, |_| true) {
                    let Entry { ticket, lock, .. } = self.entries[at];
                    let dirty = self.queues.leave(self.names[lock].channel(), ticket, self.clock());
                    self.leave(at, dirty, 0);
                }
            }
            Op::HandOff { lock, lease, later } => self.hand_off(lock, lease, later),
            Op::HandedOff(lock, lease) => self.handed_off(lock, lease),
            Op::Freed(lock, receivers) => self.freed(lock, receivers),
            Op::Message(lock) => {
                let channel = self.channel(lock).to_owned();
                let wakes = self.queues.message(&channel, self.clock());
                self.woken(wakes);
                self.message(&channel);
            }
            Op::StandBack(lock, others) => {
                let (key, channel) = (self.names[lock].key(), self.names[lock].channel());
                let (now, hears) = (self.clock(), self.hears(channel));
                let until = self.turns.ends(key, Some(others), hears, self.queues.limits, now);
                let (ends, head) = self.queues.turn_ends(channel, key, Some(others), now);
                assert_eq!(ends, until.is_some());
                self.woken(head);
                if let Some(until) = until {
                    self.asks_at(lock, until, false);
                }
            }
            Op::Lost(lock) => {
                let channel = self.channel(lock).to_owned();
                let wakes = self.queues.look(&channel, self.clock());
                self.woken(wakes);
                for names in self.names.iter().filter(|names| names.channel() == channel) {
                    if self.expected.keys().any(|queue| self.names[*queue].key() == names.key()) {
                        self.turns.forget(names.key());
                    }
                }
                self.reason_on(&channel);
            }
            Op::Look => self.look(),
            Op::Confirm => self.confirm(),
            Op::Deny => self.deny(),
            Op::Cut => self.cut(),
        }
        self.check();
    }

    fn join(&mut self, lock: usize, remaining: Option<u64>) {
        let wake = Arc::new(Notify::new());
        let (key, channel) = (self.names[lock].key(), self.names[lock].channel());
        let duration = remaining.map(Duration::from_millis);
        let (ticket, dirty) =
            self.queues.join(channel, key, duration, None, wake.clone(), self.clock());
        self.notified |= dirty;
        let sent = self.sent.as_ref();
        let going = sent.is_some_and(|sent| sent.plan.unsubscribe.iter().any(|c| **c == *channel));
        let live = self.subscribed.contains(channel) && !going;
        let due =
            if live || remaining.is_none() { self.now } else { self.now + park_for(remaining) };
        let deferral = self.turns.deferred_until(key, self.clock());
        let due = deferral.map_or(due, |deferral| self.millis(deferral));
        let first = self.entries.iter().all(|entry| entry.lock != lock);
        if first && !(live && self.expected.contains_key(&lock)) {
            self.expected.insert(lock, WaitQueue { reason: 0, ask_began: 0, ask_ended: true, due });
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

    fn step(&mut self, at: usize) {
        let entry = &self.entries[at];
        let expected = self.expected(entry);
        let (lock, ticket, now) = (entry.lock, entry.ticket, self.clock());
        let step = self.queues.step(self.names[lock].channel(), ticket, now);
        assert_eq!(step, expected);
        let base = self.base;
        let entry = &mut self.entries[at];
        match step {
            WaitStep::Ask => {
                (entry.asking, entry.asked_at) = (true, self.now);
                entry.requests += 1;
                let queue = self.expected.get_mut(&lock).unwrap();
                queue.ask_began = self.event;
                queue.ask_ended = false;
            }
            WaitStep::Park(until) => {
                assert!(until.is_none_or(|until| until <= now + LONGEST_PARK));
                let millis = |until: Instant| u64::try_from((until - base).as_millis()).unwrap();
                entry.parked = Some(until.map(millis));
                entry.looks = false;
            }
        }
    }

    /// An ask has ended; its waiter checks the queues next, if it does not leave.
    fn answered(&mut self, at: usize, park: u64) -> (Box<str>, Ticket) {
        let entry = &mut self.entries[at];
        entry.asking = false;
        entry.looks = true;
        let queue = self.expected.get_mut(&entry.lock).unwrap();
        queue.ask_ended = true;
        queue.due = self.now + park;
        (self.names[entry.lock].channel().into(), entry.ticket)
    }

    fn leave(&mut self, at: usize, (head, dirty): (Option<Arc<Notify>>, bool), linger: u64) {
        let lock = self.entries.remove(at).lock;
        self.woken(head);
        self.notified |= dirty;
        if self.entries.iter().all(|entry| entry.lock != lock) {
            let channel = self.channel(lock).to_owned();
            if !self.is_wanted(&channel) {
                self.kept_until.insert(channel, self.now + linger);
            }
        }
    }

    fn woken(&mut self, wakes: impl IntoIterator<Item = Arc<Notify>>) {
        for wake in wakes {
            let woken = self.entries.iter_mut().filter(|entry| Arc::ptr_eq(&wake, &entry.wake));
            woken.for_each(|entry| entry.looks = true);
        }
    }

    fn check(&self) {
        let sleeps = |entry: &&Entry| !entry.asking && !entry.looks;
        let woken = |entry: &&Entry| !self.unwoken.contains(&entry.lock);
        for entry in self.entries.iter().filter(sleeps).filter(woken) {
            let sleeps_until = entry.parked.unwrap().map(|until| self.at(until));
            let too_late = |when| sleeps_until.is_none_or(|until| until > when);
            match self.expected(entry) {
                WaitStep::Ask => assert!(!too_late(self.clock()), "somebody sleeps who must ask"),
                WaitStep::Park(Some(due)) => assert!(!too_late(due), "somebody will oversleep"),
                WaitStep::Park(None) => {}
            }
        }
        for lock in 0..LOCKS.len() {
            let asking = self.entries.iter().filter(|entry| entry.lock == lock && entry.asking);
            assert!(asking.count() <= 1, "one of a queue asks at a time");
        }
        if let Some(look) = self.asleep.filter(|_| !self.notified) {
            assert!(self.missing().is_empty(), "the driver sleeps and somebody waits for it");
            let first = self.kept().map(|(_, until)| until).min();
            let in_time = first.is_none_or(|first| look.is_some_and(|look| look <= first));
            assert!(in_time, "a subscription that nobody needs outlives its time");
        }
    }

    /// All waiters leave, and nothing is left of them.
    pub(super) fn end(&mut self) {
        while !self.entries.is_empty() {
            self.run(&Op::Leave(0));
        }
        for op in [Op::Confirm, Op::Look, Op::Confirm, Op::Pass(200), Op::Look, Op::Confirm] {
            self.run(&op);
        }
        assert!(self.subscribed.is_empty(), "{:?}", self.subscribed);
        assert!(self.queues.channels.is_empty());
        assert!(self.queues.is_empty());
    }
}
