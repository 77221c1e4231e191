//! The wire protocol as four models, of which every state is visited.
//!
//! - `waiting`: three clients that want a lock. They subscribe, ask, crash and are dropped, and lose
//!   requests, replies, messages and connections.
//! - `possession`: two clients of several handles, which nest holds, renew leases and hand the lock off
//!   inside the client, under an id that is never used again.
//! - `fair`: three clients in the queue of a fair lock, and grants on release.
//! - `read_write`: three clients of two handles each in the queue of a read-write lock, which read, write, and do
//!   both.
//!
//! ```sh
//! cargo test --package models -- --nocapture                      # as in every run
//! REDLATCH_MODELS=full cargo test --package models -- --nocapture # larger spaces as well
//! ```
//!
//! In each, `state` is what there is, `server` what the scripts do, `client` and the page of the model
//! what the clients do, `steps` what may happen next, `properties` what must hold. A model follows the
//! files that it names by hand: it says that what these are meant to do is right, and the other tests
//! say that they do it.
//!
//! # Time
//!
//! There is no clock. That a guard's deadline passes before the key's TTL, which the library
//! gets by counting from before the request and by its margin, is the one assumption about time;
//! without it exclusion does not hold, which a test shows. Everything else may take as long as it
//! likes.
//!
//! # No waiter waits for ever
//!
//! An `eventually` of the checker overlooks cycles and joins, so it is not used. Instead a model
//! distinguishes steps that happen for certain (what is on its way arrives or is executed, a guard is
//! given back, a lease ends, a waiter that is woken or due asks) from those that need not (faults, new
//! calls, renewals). Then two things are checked. From each state all certain steps are followed, and
//! none leads back. So wherever faults and calls cease, the rest is finite, whatever its order. And
//! where no certain step is left, no client waits, no key is there and no release is pending. New calls
//! are not among the certain steps because another client's release would hide that a waiter had been
//! forgotten. `WOKEN` says the same more sharply of a lock that was *released*: the waiter does not
//! wait for a time to come.
//!
//! # Completeness
//!
//! Calls, renewals and faults are numbers that only sink, so a space is finite, and the checker visits
//! all of it: how many states there are is asserted. Two things make it smaller and lose nothing.
//! Clients that do the same are interchangeable. Steps that commute with whatever comes between are
//! taken together (`hurry`); the full form also visits spaces with each step on its own, to the same
//! result.
//!
//! # Seen red
//!
//! A check that cannot fail says nothing. The `Bug` of a model lists faults that the library does not
//! have, and for each of them a property is violated. And states that must be reached to make the check
//! worth anything (`REACHED`) are properties, too.

#![cfg(test)]

mod fair;
mod possession;
mod read_write;
mod waiting;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

fn is_full() -> bool {
    std::env::var("REDLATCH_MODELS").is_ok_and(|form| form == "full")
}

/// One step of a model. First come those that happen for certain, then those that need not, then faults.
trait Step: Copy + Debug + PartialOrd {
    /// The least of those that need not happen, and of the faults.
    const BEGUN: Self;
    const FAULT: Self;

    /// Whether it happens sooner or later if nothing else does.
    fn is_certain(self) -> bool {
        self < Self::BEGUN
    }

    fn is_fault(self) -> bool {
        self >= Self::FAULT
    }
}

trait State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static {}

impl<S: Clone + Debug + PartialEq + Hash + Send + Sync + 'static> State for S {}

type Seen<M> = fn(&M, &<M as Model>::State) -> bool;

type Invariant<M> = (&'static str, Seen<M>);

/// A model for which something is possible, its name, and the states where it is reached.
type Reach<M> = (fn(&M) -> bool, &'static str, Seen<M>);

/// What must hold in every state and, where there is no bug and it is possible, what must be reached.
fn properties<M: Model>(
    model: &M,
    invariants: &[Invariant<M>],
    reached: &[Reach<M>],
    has_bug: bool,
) -> Vec<Property<M>> {
    let invariants = invariants.iter().map(|&(name, holds)| Property::always(name, holds));
    let possible = reached.iter().filter(|(possible, ..)| !has_bug && possible(model));
    invariants.chain(possible.map(|&(_, name, seen)| Property::sometimes(name, seen))).collect()
}

/// Whether something happens for certain.
fn goes_on<M: Model<Action: Step>>(model: &M, state: &M::State) -> bool {
    let mut steps = Vec::new();
    model.actions(state, &mut steps);
    steps.into_iter().any(|step| step.is_certain())
}

/// Those of the steps that may happen.
fn those_that<S, const N: usize>(steps: [(bool, S); N]) -> impl Iterator<Item = S> {
    steps.into_iter().filter(|(is, _)| *is).map(|(_, step)| step)
}

/// What is alike in each model. `met`: whether a fault meets a request for which it was counted beforehand.
macro_rules! model {
    ($(met: $met:path)?) => {
        type State = State;
        type Action = Step;

        fn actions(&self, state: &State, steps: &mut Vec<Step>) {
            self.steps(state, steps);
        }

        fn next_state(&self, last: &State, step: Step) -> Option<State> {
            let mut next = last.clone();
            if crate::Step::is_fault(step) $(&& !$met(&mut next, step))? {
                next.faults -= 1;
            }
            self.take(&mut next, step);
            Some(tidied(next))
        }

        fn properties(&self) -> Vec<stateright::Property<Self>> {
            crate::properties(self, INVARIANTS, REACHED, self.bug.is_some())
        }
    };
}
use model;

/// The wait queue of a client, in which some of these have a position.
macro_rules! wait_queue {
    ($client:ident, $all:ident) => {
        impl $client {
            /// The first one.
            pub(crate) fn head(&self) -> Option<usize> {
                self.$all.iter().position(|one| one.position == 1)
            }

            pub(crate) fn waiting(&self) -> u8 {
                self.$all.iter().map(|one| one.position).max().unwrap_or(0)
            }

            pub(crate) fn leave(&mut self, at: usize) {
                let left = std::mem::take(&mut self.$all[at].position);
                let behind = self.$all.iter_mut().filter(|one| left > 0 && one.position > left);
                behind.for_each(|one| one.position -= 1);
            }
        }
    };
}
use wait_queue;

/// A client, and one of its handles, owners or possessions.
type At = (usize, usize);

/// When a waiter came: how many of those that wait came before it, from one. Zero: none.
type Since = u8;

/// Of the two models with a queue of clients: so many, with so many handles each.
const CLIENTS: usize = 3;
const HANDLES: usize = 2;

/// Handles of all clients, one bit each.
type Set = u8;

fn bit(c: usize, h: usize) -> Set {
    1 << (c * HANDLES + h)
}

/// The handles of a client.
fn bits(c: usize) -> Set {
    (bit(0, HANDLES) - 1) << (c * HANDLES)
}

/// What a state with a queue of clients does alike in each model.
macro_rules! queued {
    ($state:ident, $handles:ident: $handle:ident) => {
        impl $state {
            /// The handles that are so.
            pub(crate) fn those(&self, are: impl Fn(&$handle) -> bool) -> Set {
                let clients = self.clients.iter().enumerate();
                let all = clients.flat_map(|(c, client)| {
                    client.$handles.iter().enumerate().map(move |(h, handle)| (bit(c, h), handle))
                });
                all.filter(|(_, handle)| are(handle)).fold(0, |set, (bit, _)| set | bit)
            }

            /// The clients in the queue, the first one first.
            pub(crate) fn queue(&self) -> impl Iterator<Item = usize> + use<> {
                let mut queue = [0, 1, 2].map(|c: usize| (self.clients[c].entry, c));
                queue.sort_unstable();
                queue.into_iter().filter(|(entry, _)| *entry > 0).map(|(_, c)| c)
            }

            pub(crate) fn next_since(&mut self) -> Since {
                let mut last = 0;
                self.each_since(&mut |since| last = last.max(*since));
                last + 1
            }

            /// Counts those that came from one again.
            pub(crate) fn renumber(&mut self) {
                let mut used = 0_u32;
                self.each_since(&mut |since| used |= 1 << *since);
                used &= !1;
                let rank = |since: Since| (used & ((1 << since) - 1)).count_ones() as Since + 1;
                self.each_since(&mut |since| *since = if *since == 0 { 0 } else { rank(*since) });
                for client in &mut self.clients {
                    client.each_next(&mut |next| *next = rank(*next));
                }
            }

            /// Clients that do and know the same are interchangeable.
            pub(crate) fn sort(&mut self) {
                for (a, b) in [(0, 1), (1, 2), (0, 1)] {
                    if self.clients[a] > self.clients[b] {
                        self.swap(a, b);
                    }
                }
            }
        }
    };
}
use queued;

/// Where each client is when these two have changed places.
fn swapped(a: usize, b: usize) -> impl Fn(usize) -> usize + Copy {
    move |c| match c {
        c if c == a => b,
        c if c == b => a,
        c => c,
    }
}

/// The same handles then.
fn swap_bits(set: &mut Set, swapped: impl Fn(usize) -> usize) {
    let of = |c: usize| (*set >> (c * HANDLES)) & bits(0);
    *set = (0..CLIENTS).fold(0, |all, c| all | of(c) << (swapped(c) * HANDLES));
}

/// Visits all states, and follows all certain steps from each.
fn check_all<M>(what: &str, model: M, states: usize, depth: usize)
where
    M: Model<State: State, Action: Step> + Clone + Send + Sync + 'static,
{
    check(what, model.clone(), states, depth);
    assert_certain_steps_end(&model);
}

/// Visits all states, of which there are so many, so many steps deep at most.
fn check<M>(what: &str, model: M, states: usize, depth: usize)
where
    M: Model<State: State, Action: Step> + Send + Sync + 'static,
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

/// No way of certain steps leads back to where it began.
fn assert_certain_steps_end<M: Model<State: State, Action: Step>>(model: &M) {
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
                    let Some(after) = model.next_state(state, step) else { continue };
                    if step.is_certain() { certain.push(after) } else { begins.push(after) }
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
    M: Model<State: State, Action: Step> + Send + Sync + 'static,
{
    let only = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = model.checker().finish_when(only).spawn_bfs().join();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{what}: never violates: {property}"));
    println!("{what} violates: {property}\n  {:?}", path.into_actions());
}
