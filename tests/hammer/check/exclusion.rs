//! H1: no two owners' holds of a name are believed at the same time, unless both read.
//!
//! A hold counts from its grant's return until the last moment at which it was certainly believed
//! (see [`crate::record`] on which side times are taken). So the sweep can miss an overlap that
//! nobody acted on, and cannot find one that was not there.

use crate::check::who;
use crate::prelude::*;

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let [mut alone, mut readers] = [Longest::default(), Longest::default()];
    let mut key = None;
    for hold in history.grants().filter(|hold| hold.ret < hold.believed) {
        if key != Some(hold.key) {
            key = Some(hold.key);
            [alone, readers] = [Longest::default(), Longest::default()];
        }
        // Readers share the lock.
        let others = [&alone, &readers].into_iter().take(if hold.reads { 1 } else { 2 });
        let overlapping = others.filter_map(|of| of.beside(hold));
        found.extend(overlapping.map(|other| overlap(other, hold)));
        if hold.reads { &mut readers } else { &mut alone }.add(hold);
    }
    found
}

/// The hold that lasts longest so far, and the longest of another handle.
#[derive(Default)]
struct Longest<'a>([Option<&'a Acquire>; 2]);

impl<'a> Longest<'a> {
    /// One of another handle that lasts when that one begins.
    fn beside(&self, hold: &Acquire) -> Option<&'a Acquire> {
        let other = self.0.into_iter().flatten().find(|other| other.handle != hold.handle);
        other.filter(|other| hold.ret < other.believed)
    }

    fn add(&mut self, hold: &'a Acquire) {
        let [first, second] = &mut self.0;
        if first.is_none_or(|first| first.handle == hold.handle) {
            if first.is_none_or(|first| first.believed < hold.believed) {
                *first = Some(hold);
            }
        } else if first.is_some_and(|first| first.believed < hold.believed) {
            *second = first.replace(hold);
        } else if second.is_none_or(|second| second.believed < hold.believed) {
            *second = Some(hold);
        }
    }
}

fn overlap(a: &Acquire, b: &Acquire) -> Violation {
    let (from, to) = (b.ret, a.believed.min(b.believed));
    let (first, second, time) = (who(a), who(b), (to - from) as f64 / MS as f64);
    let what = format!("is held by {first} and {second} at once, for {time:.3} ms at least");
    let what = format!("name {} {what}", b.key);
    Violation::new("H1", what, (from, to)).of(&[a, b])
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, deleted, held, history};
    use crate::witness::GRANTED;

    fn overlaps<const N: usize>(calls: [Acquire; N], deleted_at: Option<u64>) -> bool {
        let history = history(calls).fault(deleted_at.map(|t| deleted(KEY, t)));
        !check(&history).is_empty()
    }

    pub(crate) const TRIALS: Trials = &[
        ("what is not believed at once is no overlap", || {
            for (case, holds) in [
                ("one after the other", [held(0, 10).until(20, 22), held(1, 21).until(30, 31)]),
                ("the same handle may nest", [held(0, 10), held(0, 20)]),
                ("a hold that was lost does not count", [held(0, 10).lost_at(40), held(1, 30)]),
            ] {
                assert_eq!(check(&history(holds)), [], "{case}");
            }
        }),
        ("two at once are an overlap", || {
            let found = check(&history([held(0, 10).until(40, 41), held(1, 39)]));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].rule, found[0].from, found[0].to), ("H1", 39 * MS, 40 * MS));
        }),
        ("a short hold does not hide a long one", || {
            let holds = [held(0, 10), held(1, 2000).until(2001, 2002), held(2, 1000)];
            let found = check(&history(holds));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].from, found[0].to), (1000 * MS, 1010 * MS));
        }),
        ("readers share a lock and nobody writes beside them", || {
            let [one, two] = [held(0, 10).reading(), held(1, 20).reading()];
            assert_eq!(check(&history([one.clone(), two.clone()])), []);
            assert_eq!(check(&history([one.clone(), two, held(2, 30)])).len(), 1);
            assert_eq!(check(&history([held(2, 5).until(30, 31), one])).len(), 1);
        }),
        ("who has a lock from one whose key was deleted never had it", || {
            let overlaps = |outcome, deleted_at| {
                let handed = held(1, 30).until(40, 41).told(outcome).believed_until(35);
                overlaps([held(0, 20), handed], deleted_at)
            };
            assert!(!overlaps(Outcome::Lost, Some(10)));
            assert!(overlaps(Outcome::Lost, None), "it was told of a loss that nobody caused");
            assert!(overlaps(Outcome::Done, Some(10)), "it had it, and gave it back");
        }),
        ("who was handed a lock whose key had been deleted never had it", || {
            let overlaps = |deleted_at| {
                let handed = held(0, 30).until(40, 41).by_handle(2);
                overlaps([held(0, 5).until(28, 29), handed, held(1, 20)], Some(deleted_at))
            };
            assert!(!overlaps(15));
            assert!(overlaps(3), "its possession is younger");
        }),
        ("who was handed what a call that gave up had before the deletion never had it", || {
            let overlaps = |later: u64, number: u32| {
                // Of the same client, which has counted on by then; its lock is another one.
                let after = held(0, later).until(later + 1, later + 2).of(KEY + 1).by_owner(number);
                let handed = held(0, 30).until(40, 41).by_handle(2).by_owner(8);
                overlaps([after, handed, held(1, 20)], Some(15))
            };
            assert!(!overlaps(10, 9));
            assert!(overlaps(16, 9), "its possession may be younger");
            assert!(overlaps(10, 7), "its possession may be younger");
            assert!(overlaps(10, GRANTED + 9), "Redis has made that number");
        }),
        ("who was handed less than it asked for may have it from before the deletion", || {
            let overlaps = |valid, deleted_at| {
                let handed = held(0, 30).by_handle(2).by_owner(8).valid_until(valid);
                overlaps([handed, held(1, 40)], Some(deleted_at))
            };
            assert!(!overlaps(900, 15));
            assert!(overlaps(900, 990), "that was later");
            assert!(overlaps(1030, 15), "it asked Redis itself");
        }),
        ("who deletes a key breaks exclusion by definition", || {
            assert!(!overlaps([held(0, 10), held(1, 30)], Some(20)));
        }),
    ];
}
