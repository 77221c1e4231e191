use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::sweep::SWEEP_FROM;

const ALL: usize = usize::MAX;

impl<S> Schedule<S> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// A watchdog's day: owners come and go, and the driver looks when it is notified or has slept enough.
struct Model {
    base: Instant,
    now: u64,
    schedule: Schedule<usize>,
    owners: Vec<Option<Arc<usize>>>,
    /// Due and owner, in the order of insertion.
    entries: Vec<(u64, usize)>,
    notified: bool,
    look_at: Option<Instant>,
    /// The most entries of living owners there ever were.
    most_alive: usize,
}

#[derive(Debug, Clone)]
enum Op {
    /// A new owner, due after so long.
    Come(u64),
    /// Some owner is put on again.
    Again(usize, u64),
    /// So many owners come and are gone at once.
    PassThrough(usize, u64),
    Go(usize),
    Sleep(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..100u64).prop_map(Op::Come),
        3 => (any::<usize>(), 0..100u64).prop_map(|(owner, due)| Op::Again(owner, due)),
        1 => (0..900usize, 0..100u64).prop_map(|(many, due)| Op::PassThrough(many, due)),
        2 => any::<usize>().prop_map(Op::Go),
        3 => (0..40u64).prop_map(Op::Sleep),
    ]
}

impl Model {
    fn new() -> Self {
        Self {
            base: Instant::now(),
            now: 0,
            schedule: Schedule::default(),
            owners: Vec::new(),
            entries: Vec::new(),
            notified: true,
            look_at: None,
            most_alive: 0,
        }
    }

    fn at(&self, millis: u64) -> Instant {
        self.base + Duration::from_millis(millis)
    }

    fn insert(&mut self, owner: usize, after: u64) {
        let due = self.now + after;
        let item = self.owners[owner].clone().unwrap();
        self.notified |= self.schedule.insert(self.at(due), &item);
        self.entries.push((due, owner));
        let alive = self.entries.iter().filter(|(_, owner)| self.owners[*owner].is_some()).count();
        self.most_alive = self.most_alive.max(alive);
        assert!(self.schedule.len() <= SWEEP_FROM.max(2 * self.most_alive), "the dead pile up");
    }

    fn come(&mut self, after: u64) -> usize {
        let owner = self.owners.len();
        self.owners.push(Some(Arc::new(owner)));
        self.insert(owner, after);
        owner
    }

    /// An owner that is still there.
    fn pick(&self, owner: usize) -> Option<usize> {
        let there: Vec<usize> =
            (0..self.owners.len()).filter(|owner| self.owners[*owner].is_some()).collect();
        (!there.is_empty()).then(|| there[owner % there.len()])
    }

    /// The driver looks if it would, and finds what is due, in order.
    fn driver(&mut self) {
        let now = self.at(self.now);
        if self.notified || self.look_at.is_some_and(|look| look <= now) {
            self.notified = false;
            let mut found: Vec<usize> = Vec::new();
            loop {
                let some = self.schedule.take_due(now, 3);
                if some.is_empty() {
                    break;
                }
                assert!(some.len() <= 3, "more than were asked for");
                found.extend(some.iter().map(|item| **item));
            }
            let mut due = self.take(|due, now| due <= now);
            // Each of them once for each of its entries.
            let at =
                |owner: &usize, due: &[(u64, usize)]| due.iter().position(|one| one.1 == *owner);
            due.sort_unstable();
            let mut left = due.clone();
            let found: Vec<_> = found
                .iter()
                .map(|owner| left.remove(at(owner, &left).expect("one that is due")).0)
                .collect();
            assert!(found.is_sorted(), "{found:?}");
            assert_eq!(left, [], "found {found:?} of {due:?}");
            self.look_at = self.schedule.next_look();
        }
        let forgotten = self.take(|due, now| due <= now);
        assert!(forgotten.is_empty(), "{forgotten:?} is due at {} and the driver sleeps", self.now);
    }

    fn take(&mut self, which: impl Fn(u64, u64) -> bool) -> Vec<(u64, usize)> {
        self.entries.retain(|(_, owner)| self.owners[*owner].is_some());
        self.entries.extract_if(.., |(due, _)| which(*due, self.now)).collect()
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Come(after) => {
                self.come(after);
            }
            Op::Again(owner, after) => {
                if let Some(owner) = self.pick(owner) {
                    self.insert(owner, after);
                }
            }
            Op::PassThrough(many, after) => {
                for _ in 0..many {
                    let owner = self.come(after);
                    self.owners[owner] = None;
                    self.entries.pop();
                }
            }
            Op::Go(owner) => {
                if let Some(owner) = self.pick(owner) {
                    self.owners[owner] = None;
                }
            }
            Op::Sleep(passed) => self.now += passed,
        }
        self.driver();
    }
}

proptest! {
    #[test]
    fn nothing_due_is_forgotten_and_the_dead_are_swept(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut model = Model::new();
        for op in ops {
            model.run(op);
        }
        model.run(Op::Sleep(1000));
        prop_assert!(model.entries.is_empty());
        prop_assert_eq!(model.schedule.len(), 0);
        prop_assert_eq!(model.look_at, None);
    }
}

#[test]
fn the_driver_is_told_only_of_what_it_would_look_at_too_late() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let owner = Arc::new(());
    let mut schedule = Schedule::default();
    assert!(schedule.insert(now + 2 * second, &owner), "it sleeps until it is notified");
    assert!(schedule.take_due(now, ALL).is_empty());
    assert_eq!(schedule.next_look(), Some(now + 2 * second));
    assert!(!schedule.insert(now + 2 * second, &owner));
    assert!(!schedule.insert(now + 3 * second, &owner));
    assert!(schedule.insert(now + second, &owner));
}

#[test]
fn an_owner_that_went_away_needs_no_call_to_say_so() {
    let now = Instant::now();
    let (stays, goes) = (Arc::new("stays"), Arc::new("goes"));
    let mut schedule = Schedule::default();
    schedule.insert(now, &goes);
    schedule.insert(now, &stays);
    drop(goes);
    assert_eq!(schedule.take_due(now, ALL), [stays]);
    assert_eq!(schedule.len(), 0);
}

#[test]
fn living_owners_survive_every_sweep_and_dead_ones_none() {
    let now = Instant::now();
    let living: Vec<Arc<usize>> = (0..SWEEP_FROM).map(Arc::new).collect();
    let mut schedule = Schedule::default();
    for owner in &living {
        schedule.insert(now, owner);
        for _ in 0..10 {
            schedule.insert(now, &Arc::new(0));
        }
    }
    assert!(schedule.len() <= 2 * living.len(), "{} entries", schedule.len());
    let mut due = schedule.take_due(now, ALL);
    due.sort_unstable();
    assert_eq!(due, living);
}

#[test]
fn the_memory_of_many_goes_when_few_are_left() {
    let now = Instant::now();
    let owners: Vec<Arc<usize>> = (0..100 * SWEEP_FROM).map(Arc::new).collect();
    let mut schedule = Schedule::default();
    for owner in &owners {
        schedule.insert(now, owner);
    }
    assert!(schedule.entries.capacity() >= owners.len());
    while !schedule.take_due(now, 100).is_empty() {}
    assert!(schedule.entries.capacity() <= 4 * SWEEP_FROM, "{}", schedule.entries.capacity());
}

#[test]
fn nothing_is_swept_until_the_dead_could_outnumber_the_living() {
    let now = Instant::now();
    let living: Vec<Arc<usize>> = (0..SWEEP_FROM).map(Arc::new).collect();
    let mut schedule = Schedule::default();
    schedule.insert(now, &Arc::new(0));
    for owner in &living[1..] {
        schedule.insert(now, owner);
    }
    assert_eq!(schedule.len(), SWEEP_FROM, "few are left where they are");
    schedule.insert(now, &living[0]);
    assert_eq!(schedule.len(), SWEEP_FROM, "the dead one goes");
    for _ in 0..SWEEP_FROM - 2 {
        schedule.insert(now, &Arc::new(0));
    }
    assert_eq!(schedule.len(), 2 * (SWEEP_FROM - 1), "not before there are twice as many");
}
