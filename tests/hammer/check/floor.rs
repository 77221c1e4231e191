//! H13: a run that did too little proves nothing, and says so.

use std::collections::{BTreeMap, BTreeSet};

use crate::prelude::*;

/// What all rounds of a run did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    /// Those of them on read-write locks.
    pub(crate) of_read_write: u64,
    /// And of several locks together.
    pub(crate) of_several: u64,
    /// In nanoseconds.
    pub(crate) longest_for_several: u64,
    pub(crate) grants: u64,
    pub(crate) renewals: u64,
    pub(crate) losses: u64,
    pub(crate) cancelled: u64,
    pub(crate) unknown: u64,
    pub(crate) crossed_processes: u64,
    pub(crate) hand_offs: u64,
    /// Late writes that the store refused, and that it could not know of.
    pub(crate) late_writes: (usize, usize),
    pub(crate) fates: Fates,
    /// How often each kind of fault was tried, and took effect.
    pub(crate) faults: BTreeMap<&'static str, (u64, u64)>,
}

/// The least that a run has to have done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    pub(crate) operations: u64,
    pub(crate) grants: u64,
    pub(crate) hand_offs: u64,
    pub(crate) kinds: usize,
    /// Which kinds have to have taken effect, beside late requests.
    pub(crate) lateness: &'static [&'static str],
    /// Whether every kind of fault has to have taken effect.
    pub(crate) every_kind: bool,
}

/// What processes do to themselves, in the table.
pub(crate) const END: &str = "end a runtime";
pub(crate) const CLOSE: &str = "close a client";

/// So many rounds bring every kind of fault several times.
const LONG: u64 = 300;

/// Of those that leave requests behind.
const LATENESS: &[&str] = &[END, CLOSE, "hold up requests", "rename the server"];

impl Floor {
    /// Every second has to bring its share; the longer the run, the more kinds of fault.
    pub(crate) fn for_seconds(seconds: u64) -> Self {
        let kinds = (seconds / 2).clamp(3, 6) as usize;
        let (operations, grants, hand_offs) = (500 * seconds, 50 * seconds, 5 * seconds);
        let (lateness, every_kind) = (if seconds >= 30 { LATENESS } else { &[] }, seconds >= LONG);
        Self { operations, grants, hand_offs, kinds, lateness, every_kind }
    }
}

/// What is missing; empty if the run counts.
pub(crate) fn missing(done: &Done, floor: &Floor) -> Vec<String> {
    let mut missing = Vec::new();
    let mut least = |what: &str, have: u64, want: u64| {
        if have < want {
            missing.push(format!("{have} {what}, not {want}"));
        }
    };
    least("operations", done.operations, floor.operations);
    least("operations on read-write locks", done.of_read_write, floor.operations / 20);
    least("operations of several locks", done.of_several, floor.operations / 50);
    least("grants", done.grants, floor.grants);
    least("renewals that were seen", done.renewals, 1);
    least("hand-offs inside a client", done.hand_offs, floor.hand_offs);
    let effective = done.faults.values().filter(|(_, effective)| *effective > 0).count();
    least("kinds of fault that took effect", effective as u64, floor.kinds as u64);
    if !floor.lateness.is_empty() {
        let arrived = done.fates.late + done.fates.slow + done.fates.never;
        least("requests that were held up and whose fate is known", arrived, 1);
    }
    let took_effect = |kind: &&str| done.faults.get(*kind).is_some_and(|(_, times)| *times > 0);
    let all = floor.lateness.iter().copied();
    let all = all.chain(done.faults.keys().copied().filter(|_| floor.every_kind));
    for kind in all.filter(|kind| !took_effect(kind)).collect::<BTreeSet<_>>() {
        missing.push(format!("\"{kind}\" never took effect"));
    }
    // A fault that is tried again and again and never happens is one that the hammer cannot do.
    for (kind, (tried, effective)) in &done.faults {
        if *tried >= 4 && *effective == 0 {
            missing.push(format!("\"{kind}\" was tried {tried} times and never took effect"));
        }
    }
    missing
}

pub(crate) mod trials {
    use super::*;

    fn enough() -> Done {
        let faults = ["a", "b", "c"].into_iter().map(|kind| (kind, (2, 1))).collect();
        let done = Done { operations: 1000, of_read_write: 50, of_several: 20, ..Done::default() };
        Done { grants: 100, renewals: 1, hand_offs: 10, faults, ..done }
    }

    pub(crate) const TRIALS: Trials = &[
        ("enough is enough", || {
            assert_eq!(missing(&enough(), &Floor::for_seconds(2)), Vec::<String>::new());
        }),
        ("a long run needs late requests and every kind", || {
            let floor =
                |lateness, every_kind| Floor { lateness, every_kind, ..Floor::for_seconds(2) };
            let mut done = enough();
            assert_eq!(missing(&done, &floor(LATENESS, false)).len(), 5);
            done.faults.extend(LATENESS.iter().map(|kind| (*kind, (1, 1))));
            done.fates.never = 1;
            assert_eq!(missing(&done, &floor(LATENESS, true)), Vec::<String>::new());
            done.faults.insert("d", (1, 0));
            assert_eq!(missing(&done, &floor(LATENESS, false)), Vec::<String>::new());
            assert_eq!(missing(&done, &floor(LATENESS, true)).len(), 1);
        }),
        ("too little of anything is too little", || {
            let floor = Floor::for_seconds(2);
            for spoil in [
                |done: &mut Done| done.operations = 999,
                |done: &mut Done| done.of_read_write = 49,
                |done: &mut Done| done.of_several = 19,
                |done: &mut Done| done.grants = 99,
                |done: &mut Done| done.renewals = 0,
                |done: &mut Done| done.hand_offs = 9,
                |done: &mut Done| done.faults.extend([("a", (2, 0))]),
                |done: &mut Done| done.faults.extend([("d", (4, 0))]),
            ] {
                let mut done = enough();
                spoil(&mut done);
                assert_eq!(missing(&done, &floor).len(), 1, "{done:?}");
            }
        }),
    ];
}
