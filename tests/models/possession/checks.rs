//! The spaces that are visited, and the bugs that are seen.

use std::collections::BTreeSet;

use stateright::{Checker, Model};

use super::properties::*;
use super::*;
use crate::{assert_violates, check, check_all, is_full};

const NEVER: Role = Role { calls: 0, long: false, unlocks: false, inner: None };
const LONG: Role = Role { calls: 1, long: true, ..NEVER };
const UNLOCKS: Role = Role { unlocks: true, ..LONG };
const SHORT: Role = Role { long: false, ..UNLOCKS };
const NESTS: Role = Role { calls: 2, inner: Some(true), ..SHORT };
const NESTS_SHORT: Role = Role { calls: 2, inner: Some(false), ..UNLOCKS };
const NESTS_EQUAL: Role = Role { calls: 2, inner: Some(true), ..UNLOCKS };

/// What the handles of one client do.
const NONE: [Role; HANDLES] = [NEVER; HANDLES];
const ONE: [Role; HANDLES] = [LONG, NEVER, NEVER];
const TWO: [Role; HANDLES] = [UNLOCKS, SHORT, NEVER];
const DROPPING: [Role; HANDLES] = [LONG, SHORT, NEVER];
const EQUAL: [Role; HANDLES] = [UNLOCKS, LONG, NEVER];
const THREE: [Role; HANDLES] = [LONG, SHORT, UNLOCKS];
const NESTING: [Role; HANDLES] = [NESTS, LONG, NEVER];
const NESTING_SHORT: [Role; HANDLES] = [NESTS_SHORT, SHORT, NEVER];
const NESTING_EQUAL: [Role; HANDLES] = [NESTS_EQUAL, LONG, NEVER];

fn possession(roles: [[Role; HANDLES]; 2], faults: u8) -> Possession {
    let (late, bug, renewals) = (Late::Killed, None, 0);
    let (robs, fenced, every_step) = (false, false, false);
    Possession { roles, renewals, faults, robs, late, fenced, bug, every_step }
}

fn renewed(model: Possession) -> Possession {
    Possession { renewals: 1, ..model }
}

fn robbed(model: Possession) -> Possession {
    Possession { robs: true, ..model }
}

fn fenced(model: Possession) -> Possession {
    Possession { fenced: true, ..model }
}

fn executed(model: Possession) -> Possession {
    Possession { late: Late::Executed, ..model }
}

fn closes_shorter(model: Possession) -> Possession {
    Possession { late: Late::ShorterKilled, ..model }
}

/// Visits all states. These properties are violated and no other, and the rest is as ever.
fn check_but(what: &str, model: Possession, violated: &[&'static str]) {
    let checker = model.clone().checker().spawn_bfs().join();
    println!("{what}: {} states", checker.unique_state_count());
    assert!(checker.is_done(), "{what}: not all states were visited");
    let always = |name: &&str| INVARIANTS.iter().any(|(always, _)| always == name);
    let found: BTreeSet<_> = checker.discoveries().into_keys().collect();
    let broken: BTreeSet<_> = found.iter().copied().filter(always).collect();
    assert_eq!(broken, violated.iter().copied().collect(), "{what}");
    let missed = |name: &&str| !always(name) && !found.contains(name);
    let properties = model.properties();
    let missed: Vec<_> = properties.iter().map(|p| p.name).filter(missed).collect();
    assert!(missed.is_empty(), "{what}: {missed:?}");
}

#[test]
fn two_clients_hand_off_inside_a_possession_and_a_fault_breaks_nothing() {
    check("2 and 1 handles, 1 fault", possession([TWO, ONE], 1), 17_511, 17);
    check_all("3 and 1 handles", possession([THREE, ONE], 0), 13_991, 18);
    if is_full() {
        check_all("2 and 2 handles, 1 fault", possession([TWO, TWO], 1), 159_406, 22);
        check_all("3 and 1 handles, 1 fault", possession([THREE, ONE], 1), 282_728, 21);
        check_all("2 and 1 handles, 2 faults", possession([TWO, ONE], 2), 152_279, 20);
        let every = Possession { every_step: true, ..possession([TWO, ONE], 1) };
        check_all("2 and 1 handles, every step", every, 317_391, 30);
    }
}

#[test]
fn nested_holds_and_renewals_keep_count_and_lease_of_a_possession() {
    check_all("nesting and renewed", renewed(possession([NESTING, NONE], 0)), 8_708, 19);
    check("nesting a short lease, 1 fault", possession([NESTING_SHORT, NONE], 1), 26_919, 19);
    if is_full() {
        let nesting = renewed(possession([NESTING, NONE], 1));
        check_all("nesting and renewed, 1 fault", nesting, 108_100, 22);
        check_all("nesting, and 1", possession([NESTING, ONE], 0), 15_809, 21);
        check_all("nesting, and 1, 1 fault", possession([NESTING, ONE], 1), 265_021, 24);
        check_all(
            "nesting and renewed, and 1",
            renewed(possession([NESTING, ONE], 0)),
            224_495,
            26,
        );
        let short = renewed(possession([NESTING_SHORT, ONE], 0));
        check_all("nesting a short lease and renewed, and 1", short, 291_924, 26);
        check_all("2 and 1 handles, renewed", renewed(possession([TWO, ONE], 1)), 220_949, 23);
    }
}

/// The only spaces with tokens: those tell all states apart.
#[test]
fn each_holder_has_a_larger_token() {
    check("fenced, 1 fault", fenced(possession([EQUAL, ONE], 1)), 42_519, 20);
    if is_full() {
        check_all("fenced, 3 and 1 handles", fenced(possession([THREE, ONE], 0)), 44_259, 19);
    }
}

#[test]
fn a_key_that_is_deleted_is_lost_by_all_and_confirmed_to_no_unlock() {
    check("3 handles, a deleted key", robbed(possession([THREE, NONE], 1)), 28_596, 17);
    if is_full() {
        check_all(
            "3 and 1 handles, a deleted key",
            robbed(possession([THREE, ONE], 1)),
            301_388,
            21,
        );
        let nests = renewed(robbed(possession([NESTING, NONE], 1)));
        check_all("nesting, a deleted key", nests, 118_799, 22);
    }
}

#[test]
fn each_bug_of_a_possession_violates_the_property_that_is_there_for_it() {
    for (bug, model, property) in [
        (Bug::IdTwice, executed(possession([EQUAL, ONE], 1)), EXCLUSION),
        (Bug::CountAdded, possession([NESTING_EQUAL, NONE], 1), COUNT),
        (Bug::NestedShortens, possession([NESTING_SHORT, NONE], 0), THERE),
        (Bug::ReleaseShortens, possession([NESTING_EQUAL, NONE], 0), THERE),
        (Bug::RenewCreates, renewed(possession([EQUAL, NONE], 0)), ORPHAN),
        (Bug::UnknownRenews, renewed(possession([EQUAL, NONE], 1)), THERE),
        (Bug::CountUnwritten, possession([NESTING_SHORT, NONE], 0), COUNT),
        (Bug::LongLeaseStays, possession([DROPPING, NONE], 0), LEASE),
        (Bug::ShorterUnpublished, possession([TWO, ONE], 0), WOKEN),
        (Bug::TokenTwice, fenced(possession([EQUAL, NONE], 0)), TOKENS),
        (Bug::HandedOffWhenGone, robbed(possession([TWO, NONE], 1)), LOSS),
        (Bug::OwnLeaseAtOnce, possession([THREE, ONE], 0), EXCLUSION),
        (Bug::UnderwayIgnored, possession([THREE, ONE], 0), EXCLUSION),
        (Bug::RenewalBeside, renewed(possession([NESTING, NONE], 0)), THERE),
        (Bug::ConfirmedBySentBefore, robbed(possession([THREE, NONE], 1)), TRUE_OK),
        (Bug::FreesANewerHolder, possession([TWO, ONE], 1), EXCLUSION),
        (Bug::UndoForgotten, possession([ONE, ONE], 1), ORPHAN),
        (Bug::ReleaseUnpublished, possession([ONE, ONE], 0), END),
    ] {
        assert_violates(&format!("{bug:?}"), Possession { bug: Some(bug), ..model }, property);
    }
}

#[test]
fn a_late_request_touches_no_later_possession() {
    check_but("late, 1 fault", executed(possession([EQUAL, ONE], 1)), &[ORPHAN]);
    if is_full() {
        let nested = executed(possession([NESTING_EQUAL, NONE], 1));
        check_but("late, nested", nested, &[COUNT, ORPHAN]);
        check_but("late, 2 faults", executed(possession([EQUAL, ONE], 2)), &[ORPHAN]);
        let renewed = renewed(executed(possession([EQUAL, ONE], 1)));
        check_but("late, renewed", renewed, &[ORPHAN]);
    }
}

#[test]
fn a_late_request_that_shortens_the_lease_of_its_own_possession_breaks_exclusion() {
    let late = executed(possession([THREE, NONE], 1));
    check_but("late, both leases", late, &[LEASE, ORPHAN, THERE]);
    let closes = closes_shorter(possession([THREE, NONE], 1));
    check_but("late, what shortens is closed", closes, &[LEASE, ORPHAN]);
    if is_full() {
        assert_violates("a late update", executed(possession([THREE, ONE], 1)), EXCLUSION);
        let nests = closes_shorter(possession([NESTING, NONE], 1));
        check_but("late, nested, what shortens is closed", nests, &[COUNT, LEASE, ORPHAN]);
        let closes = closes_shorter(possession([THREE, ONE], 1));
        check_but("late, 3 and 1, what shortens is closed", closes, &[LEASE, ORPHAN]);
    }
}
