//! The wait queues beside a naive model. Of a queue, the model knows only when there is a
//! reason to ask, and which reasons are newer than a request that is under way. From that follows what its head
//! does. Of the subscriptions, it knows what Redis would say. Of the turns between clients, it asks
//! an [`Order`] of its own; the turns have tests of their own.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

mod driver;
mod events;
mod handoff;
mod turns;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Pass(u64),
    Join(usize),
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

struct Expected {
    /// When the head asks again after its request that is under way: the reason is newer than that.
    again: Option<u64>,
    /// What a hand-off has set `due` to.
    handed: Option<u64>,
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
    queues: Queues<Notify>,
    names: Vec<Arc<Names>>,
    entries: Vec<Entry>,
    orders: Vec<Order>,
    times: TurnTimes,
    expected: BTreeMap<usize, Expected>,
    /// The channels for which a waiter has parked.
    wanted: BTreeSet<String>,
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
        let mut queues = Queues::default();
        // No first request takes too long.
        queues.cx.at.limits.request = Duration::from_secs(1_000_000);
        Self {
            base: Instant::now(),
            now: 0,
            queues,
            names: LOCKS.iter().map(|name| Names::new("", name).into()).collect(),
            entries: Vec::new(),
            orders: LOCKS.iter().map(|_| Order::TakesTurns(None)).collect(),
            times: TurnTimes::default(),
            expected: BTreeMap::new(),
            wanted: BTreeSet::new(),
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

    fn queues(&mut self) -> &mut Queues<Notify> {
        let now = self.clock();
        self.queues.at(now)
    }

    /// What happens to the turns of a lock, beside the same in the queues.
    fn turns<R>(&mut self, lock: usize, change: impl FnOnce(&mut Order, &mut Moment) -> R) -> R {
        let times = std::mem::take(&mut self.times);
        let mut at = Moment { now: self.clock(), limits: self.queues.cx.at.limits, times };
        let result = change(&mut self.orders[lock], &mut at);
        self.times = at.times;
        result
    }

    fn deferral(&self, lock: usize) -> Option<Instant> {
        self.orders[lock].deferred_until(self.clock())
    }

    /// Wakes what the last change has caused to wake.
    fn effects(&mut self) {
        let Effects { wake, drivers } = self.queues.take_effects();
        self.notified |= drivers;
        self.woken(wake);
    }

    /// Whether there is a waiter of a lock for which one has parked.
    fn is_needed(&self, channel: &str) -> bool {
        let locks = self.lines_on(channel);
        self.entries.iter().any(|entry| locks.contains(&entry.lock))
    }

    /// The entries of a lock, in their order.
    fn entries_of(&self, lock: usize) -> impl Iterator<Item = usize> {
        (0..self.entries.len()).filter(move |at| self.entries[*at].lock == lock)
    }

    fn is_head(&self, entry: &Entry) -> bool {
        let head = self.entries_of(entry.lock).next();
        head.is_some_and(|head| self.entries[head].ticket == entry.ticket)
    }

    /// What the queues must say to that waiter now.
    fn expected(&self, entry: &Entry) -> WaitStep {
        let queue = &self.expected[&entry.lock];
        if !self.is_head(entry) {
            let before = self.entries.iter().filter(|other| other.lock == entry.lock);
            let before = before.take_while(|other| other.ticket != entry.ticket).last();
            let first = before.filter(|before| before.asking && before.requests == 1);
            return WaitStep::Park(
                first.map(|before| self.at(before.asked_at) + self.queues.cx.at.limits.request),
            );
        }
        if queue.due <= self.now {
            return WaitStep::Ask;
        }
        WaitStep::Park(Some(self.at(queue.due)))
    }

    fn pick(&self, n: usize, which: impl Fn(&Entry) -> bool) -> Option<usize> {
        let fit: Vec<usize> =
            (0..self.entries.len()).filter(|at| which(&self.entries[*at])).collect();
        (!fit.is_empty()).then(|| fit[n % fit.len()])
    }

    fn step(&mut self, at: usize) {
        let Entry { lock, ticket, .. } = self.entries[at];
        let (names, now) = (self.names[lock].clone(), self.clock());
        let mut expected = self.expected(&self.entries[at]);
        let joins = !self.queues.subscriptions.locks(names.channel()).contains(&names);
        if expected != WaitStep::Ask && joins && self.hears(lock) {
            // The messages of another lock's subscription are for this one from here on.
            self.asks_at(lock, self.deferral(lock).unwrap_or(now));
            expected = self.expected(&self.entries[at]);
        }
        let step = self.queues().step(&names, ticket);
        self.effects();
        assert_eq!(step, expected);
        let base = self.base;
        match step {
            WaitStep::Ask => {
                let entry = &mut self.entries[at];
                (entry.asking, entry.asked_at) = (true, self.now);
                entry.requests += 1;
                self.expected.get_mut(&lock).unwrap().again = None;
            }
            WaitStep::Park(until) => {
                let is_head = self.is_head(&self.entries[at]);
                assert!(!is_head || until.is_some_and(|until| until <= now + LONGEST_PARK));
                let millis = |until: Instant| u64::try_from((until - base).as_millis()).unwrap();
                let entry = &mut self.entries[at];
                entry.parked = Some(until.map(millis));
                entry.looks = false;
                self.wanted.insert(names.channel().to_owned());
            }
        }
    }

    /// An ask has ended; its waiter checks the queues next, if it does not leave. A reason to ask that came meanwhile
    /// is not forgotten.
    fn answered(&mut self, at: usize, park: u64) -> Ticket {
        let entry = &mut self.entries[at];
        entry.asking = false;
        entry.looks = true;
        let (lock, ticket) = (entry.lock, entry.ticket);
        if self.is_head(&self.entries[at]) {
            let now = self.now;
            let queue = self.expected.get_mut(&lock).unwrap();
            queue.due = queue.again.take().into_iter().fold(now + park, u64::min);
        }
        ticket
    }

    pub(super) fn leave(&mut self, at: usize, linger: u64) {
        let lock = self.entries.remove(at).lock;
        self.effects();
        let channel = self.channel(lock).to_owned();
        self.forget(&channel);
        if self.entries_of(lock).next().is_some() {
        } else if !self.lines_on(&channel).contains(&lock) {
            self.expected.remove(&lock);
        } else if !self.is_needed(&channel) {
            self.kept_until.insert(channel, self.now + linger);
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
            // One behind another sleeps until that one has gone.
            if !self.is_head(entry) {
                continue;
            }
            let sleeps_until = entry.parked.unwrap().map(|until| self.at(until));
            let too_late = |when| sleeps_until.is_none_or(|until| until > when);
            match self.expected(entry) {
                WaitStep::Ask => assert!(!too_late(self.clock()), "a waiter sleeps that must ask"),
                WaitStep::Park(Some(due)) => assert!(!too_late(due), "a waiter will oversleep"),
                WaitStep::Park(None) => {}
            }
        }
        for lock in 0..LOCKS.len() {
            let asking = self.entries_of(lock).filter(|at| self.entries[*at].asking);
            assert!(asking.count() <= 1, "one of a queue asks at a time");
        }
        if let Some(look) = self.asleep.filter(|_| !self.notified) {
            assert!(self.missing().is_empty(), "the driver sleeps and a waiter waits for it");
            let first = self.kept().map(|(_, until)| until).min();
            let in_time = first.is_none_or(|first| look.is_some_and(|look| look <= first));
            assert!(in_time, "a subscription that no waiter needs outlives its time");
        }
    }

    /// All waiters leave, and nothing is left of them but what is known of turns.
    pub(super) fn end(&mut self) {
        while !self.entries.is_empty() {
            self.run(&Op::Leave(0));
        }
        for op in [Op::Confirm, Op::Look, Op::Confirm, Op::Pass(200), Op::Look, Op::Confirm] {
            self.run(&op);
        }
        assert!(self.subscribed.is_empty(), "{:?}", self.subscribed);
        assert!(self.queues.subscriptions.is_empty() && self.queues.is_empty());
        let later = self.clock() + 60 * SECOND;
        assert!(self.queues.by_lock.values().all(|queue| queue.is_unused(later)));
    }
}
