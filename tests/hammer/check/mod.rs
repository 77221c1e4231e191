//! The rules that every history has to keep. Each is a pure function, in O(n log n).

use crate::calm::Calm;
use crate::history::{Acquire, History, Id};
use crate::record::MS;

pub(crate) mod count;
pub(crate) mod exclusion;
pub(crate) mod floor;
pub(crate) mod liveness;
pub(crate) mod notice;
pub(crate) mod order;
pub(crate) mod orphans;
pub(crate) mod outcomes;
pub(crate) mod resource;
pub(crate) mod sample;
pub(crate) mod tokens;
pub(crate) mod turns;

/// Within that time a machine, if it is calm, is done with a release or a wake-up, however busy.
pub(crate) const PROMPT: u64 = 600 * MS;

/// Of the process that is farthest away.
pub(crate) const ROUND_TRIP: u64 = 22 * MS;

/// A rule that was broken, and the smallest window that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) what: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The calls whose lines to show.
    pub(crate) calls: Vec<Id>,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, what: String, (from, to): (u64, u64)) -> Self {
        Self { rule, what, from, to, calls: Vec::new() }
    }

    pub(crate) fn of(mut self, calls: &[&Acquire]) -> Self {
        self.calls.extend(calls.iter().map(|acquire| acquire.id));
        self
    }
}

/// All rules but the floor, which says whether their silence means anything.
pub(crate) fn all(history: &History) -> Vec<Violation> {
    let calm = Calm::of(history);
    let mut found = exclusion::check(history);
    found.extend(tokens::order(history));
    found.extend(tokens::unique(history));
    found.extend(resource::check(history));
    found.extend(count::check(history));
    found.extend(liveness::check(history, &calm));
    found.extend(notice::in_time(history));
    found.extend(notice::of_deletion(history));
    found.extend(notice::not_false(history));
    found.extend(count::once(history));
    found.extend(orphans::check(history));
    found.extend(outcomes::check(history));
    found.extend(turns::check(history, &calm));
    found.extend(order::check(history, &calm));
    found
}
