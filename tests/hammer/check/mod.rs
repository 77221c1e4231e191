//! The rules that every history has to keep. Each is a pure function, in O(n log n).

use crate::prelude::*;

pub(crate) mod count;
pub(crate) mod exclusion;
pub(crate) mod floor;
pub(crate) mod liveness;
pub(crate) mod notice;
pub(crate) mod order;
pub(crate) mod orphans;
pub(crate) mod outcomes;
pub(crate) mod reading;
pub(crate) mod resource;
pub(crate) mod sample;
pub(crate) mod several;
pub(crate) mod tokens;
pub(crate) mod turns;

/// What the rules leave room for. The default is for real processes, on a machine that may be busy; in
/// a simulated world it all follows from the distances.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Within that time a release or a wake-up is done with in a calm time.
    pub(crate) prompt: u64,
    /// For so long more a client may leave a lock to others that listen, and do not come (W4).
    pub(crate) room: u64,
    /// Of the process that is farthest away.
    pub(crate) round_trip: u64,
    /// Two calls of a fair lock that are closer together than this may come in any order.
    pub(crate) apart: u64,
    /// How late a notice of a loss may be, on top of the time for which its process was not run.
    pub(crate) late: u64,
    /// How wrong a clock may go: so many thousandths.
    pub(crate) permille: u64,
    /// For so long after a fault a renewal may still fail because of it.
    pub(crate) aftermath: u64,
    /// What was over so long before `close()` is done with by the time that it returns.
    pub(crate) before_close: u64,
    /// By so much the times of what was heard at the server may be off.
    pub(crate) off: u64,
    /// Shorter pauses of a process are what the bounds themselves leave room for.
    pub(crate) pause: u64,
    /// In a cluster each name has a slot of its own, and a request for several locks is one for each.
    pub(crate) is_cluster: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        let round_trip = 22 * MS;
        Self {
            prompt: 600 * MS,
            // That is in the other.
            room: 0,
            round_trip,
            // And the time for which a calm machine may not run a process, twice.
            apart: round_trip + 200 * MS,
            late: 50 * MS,
            permille: 0,
            aftermath: 150 * MS,
            before_close: 50 * MS,
            off: 2 * MS,
            pause: 100 * MS,
            is_cluster: false,
        }
    }
}

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

    /// What is wrong with a hold.
    pub(crate) fn of_hold(
        rule: &'static str,
        hold: &Acquire,
        what: &str,
        window: (u64, u64),
    ) -> Self {
        let what = format!("name {}: {} {what}", hold.key, who(hold));
        Self::new(rule, what, window).of(&[hold])
    }

    pub(crate) fn of(mut self, calls: &[&Acquire]) -> Self {
        self.calls.extend(calls.iter().map(|acquire| acquire.id));
        self
    }
}

pub(crate) fn who(acquire: &Acquire) -> String {
    let (process, handle) = acquire.handle;
    format!("process {process}'s handle {handle}")
}

/// All rules but the floor, which says whether their silence means anything.
pub(crate) fn all(history: &History) -> Vec<Violation> {
    let rules = [
        exclusion::check,
        tokens::order,
        tokens::unique,
        reading::check,
        resource::check,
        count::check,
        liveness::check,
        notice::in_time,
        notice::of_deletion,
        notice::not_false,
        count::once,
        orphans::check,
        outcomes::check,
        turns::check,
        order::check,
        several::check,
    ];
    rules.iter().flat_map(|check| check(history)).collect()
}
