//! The spaces that are visited, and the bugs that are seen.

use super::properties::*;
use super::*;
use crate::{assert_certain_steps_end, assert_violates, check, check_all, is_full};

const NEVER: Role = Role { calls: [0, 0], grants: true };
const ONE: Role = Role { calls: [1, 0], grants: true };
/// Its message is `0`, and its head asks.
const IS_NOTIFIED: Role = Role { grants: false, ..ONE };
/// Two callers, the second of which waits behind the first.
const TWO: Role = Role { calls: [1, 1], grants: true };
/// One caller that comes again.
const AGAIN: Role = Role { calls: [2, 0], grants: true };

fn fair(roles: [Role; 3], faults: u8) -> Fair {
    Fair { roles, faults, bug: None, every_step: false }
}

fn every_step(roles: [Role; 3], faults: u8) -> Fair {
    Fair { every_step: true, ..fair(roles, faults) }
}

#[test]
fn three_clients_wait_in_order_and_a_fault_breaks_nothing() {
    check("3 clients, 1 fault", fair([ONE; 3], 1), 136_347, 34);
    assert_certain_steps_end(&fair([ONE; 3], 0));
}

#[test]
fn a_client_with_two_waiters_hands_off_in_order() {
    check_all("2 waiters and 1", fair([TWO, ONE, NEVER], 0), 15_229, 24);
}

#[test]
fn a_client_that_cannot_be_granted_the_lock_is_notified() {
    check_all("2 clients and 1 that is notified", fair([ONE, ONE, IS_NOTIFIED], 0), 12_363, 24);
}

#[test]
fn larger_spaces() {
    if is_full() {
        assert_certain_steps_end(&fair([ONE; 3], 1));
        check("3 clients, 2 faults", fair([ONE; 3], 2), 1_869_786, 43);
        check_all("2 waiters and 1, 1 fault", fair([TWO, ONE, NEVER], 1), 388_162, 35);
        check_all("2 waiters and 2 clients", fair([TWO, ONE, ONE], 0), 907_687, 35);
        check_all("3 clients, one of them twice", fair([AGAIN, ONE, ONE], 0), 158_416, 33);
        let notified = fair([ONE, ONE, IS_NOTIFIED], 1);
        check_all("2 clients and 1 that is notified, 1 fault", notified, 296_838, 34);
        check_all("3 clients, every step", every_step([ONE; 3], 0), 154_993, 46);
        let hands_off = fair([TWO, AGAIN, NEVER], 1);
        check_all("2 waiters and 1 twice, 1 fault", hands_off, 4_371_561, 46);
        check_all("2 clients twice, 1 fault", fair([AGAIN, AGAIN, NEVER], 1), 514_048, 43);
        let two = every_step([ONE, ONE, NEVER], 2);
        check_all("2 clients, 2 faults, every step", two, 75_587, 43);
    }
}

#[test]
fn each_bug_of_a_fair_lock_violates_the_property_that_is_there_for_it() {
    for (bug, roles, faults, property) in [
        (Bug::BelievedFromArrival, [ONE; 3], 1, EXCLUSION),
        (Bug::OwnLeaseAtOnce, [ONE; 3], 1, EXCLUSION),
        (Bug::ReleaseUnchecked, [ONE; 3], 1, EXCLUSION),
        (Bug::GrantTwice, [TWO, ONE, NEVER], 1, EXCLUSION),
        (Bug::AgeForgotten, [ONE; 3], 1, ORDER),
        (Bug::OthersIgnored, [TWO, ONE, NEVER], 0, ORDER),
        (Bug::AnsweredIgnored, [TWO, AGAIN, NEVER], 0, ORDER),
        (Bug::GrantStays, [ONE; 3], 0, NO_ETERNAL_KEY),
        (Bug::UnheardGrantStays, [ONE; 3], 1, GRANT_GOES_ON),
        (Bug::UntakenGrantStays, [ONE; 3], 1, END),
        (Bug::HandOffKeepsEntry, [ONE; 3], 0, ENTRY),
        (Bug::LeaveForgotten, [ONE; 3], 1, ENTRY),
        (Bug::ReleaseSilent, [ONE; 3], 0, WOKEN),
        (Bug::LeaveSilent, [ONE, ONE, IS_NOTIFIED], 1, WOKEN),
        (Bug::SecondNotNotified, [ONE; 3], 1, WOKEN),
        (Bug::NoRefresh, [ONE; 3], 1, END),
        (Bug::NewcomerDropped, [ONE; 3], 0, ORDER),
        (Bug::CutUnsaid, [ONE, ONE, NEVER], 1, COMES),
    ] {
        let model = Fair { bug: Some(bug), ..fair(roles, faults) };
        assert_violates(&format!("{bug:?}"), model, property);
    }
    if is_full() {
        let notified = Role { grants: false, ..TWO };
        let stays = Fair { bug: Some(Bug::EntryStays), ..fair([notified, ONE, ONE], 1) };
        assert_violates("EntryStays", stays, ORDER);
    }
}
