//! Short forms, for `cargo test`.

use std::collections::BTreeSet;

use super::campaign::judge;
use super::plan::{Edits, Plan};
use crate::report;

/// A short world, with everything in it. Code that is not optimized takes ten times as long for it.
fn short(seed: u64) -> Plan {
    let millis = if cfg!(debug_assertions) { 600 } else { 2_000 };
    Plan::new(seed, &Edits { millis: Some(millis), tasks: Some(4), ..Edits::default() })
}

pub(crate) fn twenty_worlds_break_no_rule() {
    for seed in 0..20 {
        let judged = judge(&short(seed));
        let text = report::violations(&judged.found, &judged.history);
        assert!(judged.found.is_empty(), "seed {seed}: {text}");
    }
}

pub(crate) fn a_seed_plays_again_and_another_does_not() {
    let traces = || -> Vec<u64> { (0..4).map(|seed| judge(&short(seed)).trace).collect() };
    let first = traces();
    assert_eq!(first, traces(), "the same seeds, and not the same runs");
    assert_eq!(BTreeSet::from_iter(&first).len(), 4, "{first:x?}");
}
