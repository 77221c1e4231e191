//! The spaces that are visited, and the bugs that are seen.

use super::properties::{END, EXCLUSION, HOLDER, NO_ETERNAL_KEY, NO_FALSE_LOSS, NO_ORPHAN, WOKEN};
use super::*;
use crate::{assert_violates, check, check_if_full};

const NEVER: Role = Role { calls: 0, long: false };
const LONG: Role = Role { calls: 1, long: true };
const SHORT: Role = Role { calls: 1, long: false };

/// What the owners of one client do.
const NONE: [Role; OWNERS] = [NEVER; OWNERS];
const ONE: [Role; OWNERS] = [LONG, NEVER, NEVER, NEVER];
const TWO: [Role; OWNERS] = [LONG, SHORT, NEVER, NEVER];
const THREE: [Role; OWNERS] = [LONG, SHORT, LONG, NEVER];
const FOUR: [Role; OWNERS] = [LONG, SHORT, LONG, SHORT];
/// One of the two calls again: the lock can come back to it.
const AGAIN: [Role; OWNERS] = [Role { calls: 2, ..LONG }, SHORT, NEVER, NEVER];

fn handoff(clients: [[Role; OWNERS]; 2], faults: u8) -> Handoff {
    Handoff { roles: clients, faults, late: Late::Killed, bug: None, every_step: false }
}

fn every_step(clients: [[Role; OWNERS]; 2], faults: u8) -> Handoff {
    Handoff { every_step: true, ..handoff(clients, faults) }
}

#[test]
fn two_clients_of_two_owners_hand_off_and_a_fault_breaks_nothing() {
    check("2 and 2 owners, 1 fault", handoff([TWO; 2], 1), 130_971, 23);
    check_if_full("2 and 1 owners, 2 faults", handoff([TWO, ONE], 2), 92_974, 22);
    check_if_full("2 and 2 owners, 1 fault, every step", every_step([TWO; 2], 1), 1_367_912, 36);
}

/// The queue keeps the permits of its owners, so with two of them it has one step.
#[test]
fn a_handoff_queue_of_several_steps_is_confirmed_in_order() {
    check("3 and 1 owners, 1 fault", handoff([THREE, ONE], 1), 156_020, 22);
    check_if_full("3 owners, 2 faults", handoff([THREE, NONE], 2), 76_255, 21);
    check_if_full("3 and 1 owners, every step", every_step([THREE, ONE], 0), 221_931, 34);
    check_if_full("3 owners, 1 fault, every step", every_step([THREE, NONE], 1), 57_134, 27);
    check_if_full("4 owners, 1 fault", handoff([FOUR, NONE], 1), 142_121, 22);
}

#[test]
fn a_lock_that_was_handed_off_comes_back_to_its_owner() {
    check("2 and 2 owners, one of them twice", handoff([AGAIN, TWO], 0), 40_388, 24);
    check_if_full("the same, 1 fault", handoff([AGAIN, TWO], 1), 743_104, 27);
}

#[test]
fn each_bug_of_a_handoff_violates_the_property_that_is_there_for_it() {
    for (bug, clients, faults, property) in [
        (Bug::UnconfirmedIsValid, [TWO, ONE], 0, EXCLUSION),
        (Bug::OldLeaseStays, [TWO, ONE], 0, EXCLUSION),
        (Bug::QueueReordered, [THREE, NONE], 0, HOLDER),
        (Bug::StuckQueueGoesOn, [FOUR, NONE], 0, HOLDER),
        (Bug::OldFieldFirst, [TWO, NONE], 0, NO_ETERNAL_KEY),
        (Bug::OldFieldStays, [TWO, NONE], 0, NO_ORPHAN),
        (Bug::HandoffCreates, [TWO, NONE], 0, NO_ORPHAN),
        (Bug::ResumesAtTheFirst, [TWO, NONE], 1, NO_ORPHAN),
        (Bug::PermitsDropped, [TWO, NONE], 0, NO_ORPHAN),
        (Bug::UnconfirmedIsRenewed, [TWO, NONE], 0, NO_ORPHAN),
        (Bug::DeclinedForgotten, [TWO, NONE], 1, NO_ORPHAN),
        (Bug::GivenUpForgotten, [TWO, NONE], 1, END),
        (Bug::ResendForgotten, [TWO, NONE], 1, NO_FALSE_LOSS),
        (Bug::ReleaseUnpublished, [TWO, ONE], 0, WOKEN),
    ] {
        let model = Handoff { bug: Some(bug), ..handoff(clients, faults) };
        assert_violates(&format!("{bug:?}"), model, property);
    }
}

#[test]
fn a_handoff_that_runs_after_its_connection_was_given_up_breaks_exclusion() {
    let open = Handoff { bug: Some(Bug::HandoffNotClosed), ..handoff([AGAIN, ONE], 1) };
    assert_violates("a late hand-off", open.clone(), EXCLUSION);
    assert_violates("a late hand-off", open, NO_ORPHAN);
    let late = Handoff { late: Late::Executed, ..handoff([TWO, NONE], 1) };
    assert_violates("any late request", late, NO_ORPHAN);
}

/// The state is copied for every transition.
#[test]
fn a_state_is_small() {
    let size = size_of::<State>();
    assert!(size <= 512, "{size} bytes");
}
