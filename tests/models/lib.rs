//! The wire protocol as three models, of which every state is visited.
//!
//! The model in this folder has clients of one handle each: crashes, lost requests, replies and
//! messages, cut connections, leases that end, calls that are dropped. The model in `possession` has
//! clients of several handles, which hand the lock off inside the client, under an id that is never
//! used again; the one in `fair` has the queue of a fair lock, and grants on release. Their own pages
//! say what is in them. All that follows is about the first.
//!
//! ```sh
//! cargo test --package models -- --nocapture                      # as in every run
//! REDLATCH_MODELS=full cargo test --package models -- --nocapture # larger spaces as well
//! ```
//!
//! `state` is what there is, `server` what the scripts do, `protocol` and `client` what the clients
//! do, `steps` what may happen next, `properties` what must hold. The model follows `lua/*.lua` and
//! `src/{acquire,possession,releaser,watchdog,wait,transport}.rs` by hand: it says that what these
//! are meant to do is right, and the other tests say that they do it.
//!
//! # What is in it
//!
//! One lock and three clients with one handle each, all of which take it. One of them does more
//! (locks again, nests, is renewed), as the test's name says. Faults are counted, so many of any
//! kind in one run: the connection is cut, or goes silent, before the server has read a request or
//! before its reply arrives; the same for the connection that carries messages and renewals; a
//! message is lost, and no client notices; a call is dropped; a process dies. Leases may end at any
//! time, without being counted.
//!
//! Not in it: a Redis that loses data or is tampered with, more than one lock, more than one
//! caller of a handle (`src/wait/queue.rs` has tests of its own), errors that Redis answers.
//!
//! # Time
//!
//! There is no clock. That a guard's deadline passes before the key's TTL, which the library
//! gets by counting from before the request and by its margin, is the one assumption about time
//! (see `state::Term`); without it exclusion does not hold, which a test shows. Everything else
//! may take as long as it likes.
//!
//! # No waiter waits for ever
//!
//! An `eventually` of the checker overlooks cycles and joins, so it is not used. Instead the
//! steps are distinguished that happen for certain (what is on its way arrives or is executed, a
//! guard is given back, a lease ends, a waiter that is woken or due asks) from those that need not
//! (faults, new calls, renewals). Then two things are checked in every state. Each certain step
//! makes a number smaller (`properties::work_left`), so wherever faults and calls cease, the rest
//! is finite, whatever its order. And where no certain step is left, no client waits, no key is there
//! and no release is pending. New calls are not among the certain steps because another client's release
//! would hide that a waiter had been forgotten.
//! `WOKEN` says the same more sharply of a lock that was *released*: the waiter does not wait for
//! a time to come.
//!
//! # Completeness
//!
//! Calls, renewals and faults are numbers that only sink, so the space is finite, and the checker
//! visits all of it: how many states there are is asserted. Two things make it smaller and lose
//! nothing. Clients with the same role are interchangeable. Steps that commute with whatever comes
//! between are taken together (`Protocol::hurry`); the full form also visits spaces with each step
//! on its own, to the same result.
//!
//! # Seen red
//!
//! A check that cannot fail says nothing. [`Bug`] lists faults that the library does not have, and
//! for each of them a property is violated here. And states that must be reached to make the
//! check worth anything (`properties::REACHED`) are properties too.
//!
//! # Late requests
//!
//! Above, a request of a connection that its client has given up is gone. A server that has it
//! in a buffer runs it all the same, though the connection was reset, and behind what came over
//! another connection if that one had something to be read before. [`Late`] and the tests at the
//! end show what that breaks, and that `CLIENT KILL ID` of the old connection, ahead of the first
//! request on another, mends it, a new owner number only in part.

#![cfg(test)]

mod client;
mod fair;
mod possession;
mod properties;
mod protocol;
mod server;
mod state;
mod steps;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::properties::{COUNT, END, EXCLUSION, NO_ETERNAL_KEY, WOKEN};
use crate::protocol::{Bug, Late, Protocol, Role};
use crate::state::{Lease, State};

const WATCHED: Lease = Lease { watched: true, long: true };
const SHORT: Lease = Lease { watched: false, long: false };

const ONCE: Role = Role { calls: 1, renewals: 0, lease: WATCHED, inner: None };
/// One hold after the other, of one handle.
const TWICE: Role = Role { calls: 2, ..ONCE };
const RENEWED: Role = Role { renewals: 1, ..ONCE };
/// A short explicit lease may be nested in a default one.
const NESTING: Role = Role { inner: Some(SHORT), ..TWICE };
/// A default lease may be nested in a short explicit one.
const MIXED: Role = Role { lease: SHORT, inner: Some(WATCHED), ..TWICE };
/// A short default lease may be nested in a longer explicit one.
const LONG_OUTER: Role = Role {
    lease: Lease { watched: false, long: true },
    inner: Some(Lease { watched: true, long: false }),
    calls: 2,
    renewals: 1,
};
const EVERYTHING: Role = Role { renewals: 1, ..NESTING };

/// One client that does as `role` says, beside two that lock once.
fn protocol(role: Role, faults: u8) -> Protocol {
    let roles = [role, ONCE, ONCE];
    Protocol { roles, faults, late: Late::Never, bug: None, every_step: false }
}

/// The same, with no steps taken together.
fn every_step(role: Role, faults: u8) -> Protocol {
    Protocol { every_step: true, ..protocol(role, faults) }
}

fn with_late(late: Late, role: Role, faults: u8) -> Protocol {
    Protocol { late, ..protocol(role, faults) }
}

fn with_bug(bug: Bug, role: Role, faults: u8) -> Protocol {
    Protocol { bug: Some(bug), ..protocol(role, faults) }
}

fn is_full() -> bool {
    std::env::var("REDLATCH_MODELS").is_ok_and(|form| form == "full")
}

/// Visits all states, of which there are so many, so many steps deep at most.
fn check<M>(what: &str, model: M, states: usize, depth: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let begun = Instant::now();
    let checker = model.checker().spawn_bfs().join();
    let (unique, deepest) = (checker.unique_state_count(), checker.max_depth());
    println!(
        "{what}: {unique} states, {} transitions, depth {deepest}, {:.1} s",
        checker.state_count(),
        begun.elapsed().as_secs_f32()
    );
    checker.assert_properties();
    assert!(checker.is_done(), "{what}: not all states were visited");
    assert_eq!((unique, deepest), (states, depth), "{what}: the space has another size");
}

/// The same, in the full form only.
fn check_if_full<M>(what: &str, model: M, states: usize, depth: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    if is_full() {
        check(what, model, states, depth);
    }
}

/// No way of certain steps leads back to where it began.
fn assert_certain_steps_end<M>(model: &M, is_certain: fn(&M::Action) -> bool)
where
    M: Model,
    M::State: Clone + Debug + Hash,
    M::Action: Clone,
{
    let id = |state: &M::State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let mut ended: HashMap<u64, bool> = HashMap::new();
    let mut begins = model.init_states();
    let mut steps = Vec::new();
    while let Some(begin) = begins.pop() {
        let mut way = vec![(begin, None::<Vec<M::State>>)];
        while let Some((state, next)) = way.last_mut() {
            let this = id(state);
            if next.is_none() {
                if let Some(ended) = ended.get(&this) {
                    assert!(ended, "certain steps lead back to {state:#?}");
                    way.pop();
                    continue;
                }
                ended.insert(this, false);
                model.actions(state, &mut steps);
                let mut certain = Vec::new();
                for step in steps.drain(..) {
                    let is_certain = is_certain(&step);
                    let Some(after) = model.next_state(state, step) else { continue };
                    if is_certain { certain.push(after) } else { begins.push(after) }
                }
                *next = Some(certain);
            }
            match next.as_mut().and_then(Vec::pop) {
                Some(after) => way.push((after, None)),
                None => {
                    ended.insert(this, true);
                    way.pop();
                }
            }
        }
    }
}

/// Looks until `property` is violated.
fn assert_violates<M>(what: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let only = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = model.checker().finish_when(only).spawn_bfs().join();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{what}: never violates: {property}"));
    println!("{what} violates: {property}\n  {:?}", path.into_actions());
}

#[test]
fn three_clients_lock_once_and_two_faults_break_nothing() {
    check("once, 2 faults", protocol(ONCE, 2), 94_100, 22);
    check_if_full("once, 3 faults", protocol(ONCE, 3), 410_774, 25);
    check_if_full("once, 1 fault, every step", every_step(ONCE, 1), 85_253, 34);
    check_if_full("once, 2 faults, every step", every_step(ONCE, 2), 445_511, 40);
}

/// Within its hold or after it: what [`TWICE`] does is a part of this.
#[test]
fn a_handle_that_locks_again_keeps_count_lease_and_possessions_apart() {
    check("nesting, 1 fault", protocol(NESTING, 1), 210_713, 25);
    check_if_full("nesting and renewed, 1 fault", protocol(EVERYTHING, 1), 757_175, 27);
    check_if_full("nesting and renewed, every step", every_step(EVERYTHING, 0), 884_357, 41);
    check_if_full("twice, 2 faults", protocol(TWICE, 2), 929_458, 26);
    check_if_full("twice, 1 fault, every step", every_step(TWICE, 1), 996_900, 44);
}

#[test]
fn renewals_neither_create_nor_outlive_a_hold() {
    check("renewed, 1 fault", protocol(RENEWED, 1), 67_037, 21);
    check_if_full("renewed, 2 faults", protocol(RENEWED, 2), 446_629, 24);
}

#[test]
fn each_bug_of_the_model_violates_the_property_that_is_there_for_it() {
    for (bug, role, faults, property) in [
        (Bug::ReleaseUnchecked, ONCE, 0, EXCLUSION),
        (Bug::CountAdded, ONCE, 1, COUNT),
        (Bug::NoExpiry, ONCE, 0, NO_ETERNAL_KEY),
        (Bug::NestedShortens, NESTING, 0, EXCLUSION),
        (Bug::ReleaseShortens, NESTING, 0, EXCLUSION),
        (Bug::RenewShortens, LONG_OUTER, 0, EXCLUSION),
        (Bug::RenewCreates, RENEWED, 0, COUNT),
        (Bug::UnknownRenews, RENEWED, 1, EXCLUSION),
        (Bug::DeadlineFromReply, ONCE, 0, EXCLUSION),
        (Bug::NoSecondTry, ONCE, 0, WOKEN),
        (Bug::NoDueTime, ONCE, 1, END),
        (Bug::NoResubscription, ONCE, 1, WOKEN),
        (Bug::UndoOvertakes, ONCE, 1, COUNT),
        (Bug::NoUndo, ONCE, 1, COUNT),
    ] {
        assert_violates(&format!("{bug:?}"), with_bug(bug, role, faults), property);
    }
}

#[test]
fn exclusion_rests_on_clocks_that_agree_within_the_margin() {
    let clocks = with_bug(Bug::ClocksDiffer, ONCE, 0);
    assert_violates("a TTL that ends before the deadline", clocks, EXCLUSION);
}

#[test]
fn a_request_that_runs_after_its_connection_was_given_up_breaks_exclusion() {
    let late = |role, faults| with_late(Late::Executed, role, faults);
    // A release that was sent again, and runs a second time in the handle's next possession.
    assert_violates("a late release", late(TWICE, 1), EXCLUSION);
    // The same without a second call: a waiter's release comes, and then it gets the lock.
    assert_violates("a late undo", late(ONCE, 2), EXCLUSION);
    // An acquire that was sent again, and shortens what a nested hold has prolonged since.
    assert_violates("a late acquire under a nested hold", late(MIXED, 1), EXCLUSION);
    // An acquire that runs after its undo: an orphan until its lease ends.
    assert_violates("a late acquire", late(ONCE, 1), COUNT);
}

#[test]
fn killing_a_connection_that_was_given_up_before_the_next_request_mends_all_of_it() {
    let killed = |role, faults| with_late(Late::Killed, role, faults);
    check("killed, twice, 1 fault", killed(TWICE, 1), 143_646, 23);
    check_if_full("killed, once, 2 faults", killed(ONCE, 2), 124_921, 22);
    check_if_full("killed, nesting, 1 fault", killed(NESTING, 1), 246_309, 25);
    check_if_full("killed, mixed nesting, 1 fault", killed(MIXED, 1), 246_309, 25);
    check_if_full("killed, renewed, 1 fault", killed(RENEWED, 1), 78_067, 21);
}

#[test]
fn a_new_owner_number_after_a_request_without_an_answer_mends_only_a_part() {
    let renumbered = |role, faults| with_late(Late::NewNumber, role, faults);
    assert_violates("a late acquire of an earlier number", renumbered(TWICE, 1), COUNT);
    if is_full() {
        for (role, faults) in [(ONCE, 2), (TWICE, 1), (NESTING, 1), (MIXED, 1), (RENEWED, 1)] {
            let checker = renumbered(role, faults).checker().spawn_bfs().join();
            assert!(checker.is_done());
            let violated: Vec<_> = [EXCLUSION, NO_ETERNAL_KEY, WOKEN, END]
                .into_iter()
                .filter(|property| checker.discovery(property).is_some())
                .collect();
            assert!(violated.is_empty(), "{role:?}: {violated:?}");
        }
    }
}

/// The state is copied for every transition.
#[test]
fn a_state_is_small() {
    let size = size_of::<State>();
    assert!(size <= 512, "{size} bytes");
}
