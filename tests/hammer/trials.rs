//! What `cargo test` runs: the rules on hand-written histories, and the short form of the hammer.

use clap::Parser;
use libtest_mimic::{Failed, Trial};

use crate::check::{
    count, exclusion, floor, liveness, notice, order, orphans, outcomes, reading, resource,
    several, tokens, turns,
};
use crate::prelude::*;
use crate::run::{Length, Verdict, run};
use crate::{Arguments, calm_times, monitor, nemesis, processes, record};

/// Trials of one rule, with their names.
pub(crate) type Trials = &'static [(&'static str, fn())];

macro_rules! of_rules {
    ($($rule:ident)*) => {
        [$((stringify!($rule), $rule::trials::TRIALS),)*]
    };
}

macro_rules! trials {
    ($($module:ident::$($path:ident)::+,)*) => {
        vec![$(trial(stringify!($module::$($path)::+), $module::$($path)::+),)*]
    };
}

pub(crate) fn all() -> Vec<Trial> {
    let mut all = trials![
        record::a_record_survives_being_written_and_read,
        monitor::acquires_releases_and_writes_are_heard,
        calm_times::windows_are_joined_and_cut,
        nemesis::trials::the_connections_of_a_client_are_killed_and_that_of_the_witness_is_spared,
        processes::trials::a_process_that_is_told_to_stop_while_it_starts_stops,
    ];
    for (rule, trials) in of_rules![
        exclusion tokens reading resource count liveness notice orphans outcomes several turns order floor
    ] {
        let named = |(name, check): &(&str, fn())| {
            trial(&format!("{rule}::{}", name.replace(' ', "_")), *check)
        };
        all.extend(trials.iter().map(named));
    }
    #[cfg(feature = "test-util")]
    {
        use crate::simulated;
        all.extend(trials![
            simulated::trials::a_seed_plays_again_and_another_does_not,
            simulated::trials::twenty_worlds_break_no_rule,
        ]);
    }
    all.push(Trial::test("the_short_form_passes", || short_form(false)));
    all.push(Trial::test("the_short_form_passes_at_a_distance", || short_form(true)));
    all
}

fn trial(name: &str, check: fn()) -> Trial {
    let name = name.replace(char::is_whitespace, "").replace("trials::", "");
    Trial::test(name, move || {
        check();
        Ok(())
    })
}

fn short_form(far: bool) -> Result<(), Failed> {
    // One at a time: each fills the machine.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = lock(&ALONE);
    let arguments = ["hammer", "--far"].into_iter().take(if far { 2 } else { 1 });
    match run(&Arguments::parse_from(arguments).settings, Length::short()) {
        Verdict::Pass => Ok(()),
        Verdict::Violation(text) | Verdict::Inconclusive(text) => Err(text.into()),
    }
}
