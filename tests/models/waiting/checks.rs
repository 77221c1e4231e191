//! The spaces that are visited, and the bugs that are seen.

use super::properties::*;
use super::*;
use crate::{assert_violates, check_all, is_full};

fn waiting(faults: u8) -> Waiting {
    Waiting { faults, bug: None, every_step: false }
}

/// No steps are taken together.
fn every_step(faults: u8) -> Waiting {
    Waiting { every_step: true, ..waiting(faults) }
}

fn with_bug(bug: Bug, faults: u8) -> Waiting {
    Waiting { bug: Some(bug), ..waiting(faults) }
}

#[test]
fn three_clients_lock_once_and_two_faults_break_nothing() {
    check_all("waiting, 2 faults", waiting(2), 92_268, 22);
    if is_full() {
        check_all("waiting, 3 faults", waiting(3), 365_068, 25);
        check_all("waiting, 1 fault, every step", every_step(1), 80_464, 34);
        check_all("waiting, 2 faults, every step", every_step(2), 394_314, 40);
    }
}

#[test]
fn each_bug_of_waiting_violates_the_property_that_is_there_for_it() {
    for (bug, faults, property) in [
        (Bug::ReleaseUnchecked, 0, EXCLUSION),
        (Bug::NoExpiry, 0, NO_ETERNAL_KEY),
        (Bug::DeadlineFromReply, 0, EXCLUSION),
        (Bug::NoSecondTry, 0, WOKEN),
        (Bug::NoDueTime, 1, END),
        (Bug::NoResubscription, 1, WOKEN),
        (Bug::UndoOvertakes, 1, COUNT),
        (Bug::NoUndo, 1, COUNT),
    ] {
        assert_violates(&format!("{bug:?}"), with_bug(bug, faults), property);
    }
}

#[test]
fn exclusion_rests_on_clocks_that_agree_within_the_margin() {
    let clocks = with_bug(Bug::ClocksDiffer, 0);
    assert_violates("a TTL that ends before the deadline", clocks, EXCLUSION);
}
