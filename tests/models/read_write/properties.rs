//! What must hold in every state, and what must be reached for the check to mean something.

use super::ReadWrite;
use super::state::{Call, Client, HANDLES, Kind, READ, Reply, STRAY, State};
use super::steps::Step;
use crate::{At, Invariant, Reach, goes_on};

pub(crate) const READERS: &str = "no handle reads while another one writes";
pub(crate) const WRITERS: &str = "at most one handle writes";
pub(crate) const HOLDER: &str = "a valid guard has its owner in Redis";
pub(crate) const ORPHAN: &str =
    "an owner in Redis has a client that knows of it, or a request that was late";
pub(crate) const WRITER_ORDER: &str = "no writer is passed over by one that came later";
pub(crate) const READER_ORDER: &str = "no reader is passed over by a writer that came later";
pub(crate) const WOKEN: &str = "one that could have the lock is on its way, or another client is";
pub(crate) const DEAD: &str = "readers that are dead keep no writer out that looks";
pub(crate) const RECURSION: &str = "a handle that reads or writes reads again, past all that wait";
pub(crate) const AT_ONCE: &str = "no handle that reads waits to write";
pub(crate) const ENTRY: &str = "an entry is that of a waiter, or is about to be given up";
pub(crate) const END: &str = "at rest no client waits or holds, and no owner and no entry is there";

type Possible = fn(&ReadWrite) -> bool;

pub(super) const INVARIANTS: &[Invariant<ReadWrite>] = &[
    (READERS, |_, state| {
        let writes = |(c, h): At| state.clients[c].writes(h);
        let reads = |(c, h): At| state.clients[c].reads(h);
        handles()
            .filter(|of| writes(*of))
            .all(|writer| handles().filter(|of| *of != writer).all(|other| !reads(other)))
    }),
    (WRITERS, |_, state| handles().filter(|(c, h)| state.clients[*c].writes(*h)).count() <= 1),
    (HOLDER, |_, state| {
        let held = |client: &Client, o: usize| client.owners[o].valid && client.has_guard(o);
        let there = |client: &Client, o: usize| client.fields[o].there;
        let all = |client: &Client| (0..=READ).all(|o| !held(client, o) || there(client, o));
        state.clients.iter().filter(|client| client.up).all(all)
    }),
    (ORPHAN, |_, state| {
        state.fields().all(|(c, o, _)| {
            let client = &state.clients[c];
            o == STRAY || !client.up || client.owners[o].may_be_there()
        })
    }),
    (WRITER_ORDER, |_, state| !state.passed_writer),
    (READER_ORDER, |_, state| !state.passed_reader),
    (WOKEN, |model, state| {
        let comes = |c: usize| hears(&state.clients[c]) && model.would_have_it(state, c);
        let is_forgotten = !state.silent
            && !state.clients.iter().any(is_about_to_ask)
            && (0..state.clients.len()).any(comes);
        !is_forgotten
    }),
    (DEAD, |_, state| !state.kept_by_dead),
    (RECURSION, |_, state| !state.shut_out),
    (AT_ONCE, |_, state| {
        handles().all(|(c, h)| {
            let client = &state.clients[c];
            let handle = &client.handles[h];
            !(handle.waits() && handle.wants == Kind::Write && client.reads(h))
        })
    }),
    (ENTRY, |model, state| {
        let left = |client: &Client| client.up && client.entry > 0 && !client.keeps_entry();
        model.delays || !state.clients.iter().any(left)
    }),
    (END, |model, state| is_settled(state) || goes_on(model, state)),
];

fn handles() -> impl Iterator<Item = (usize, usize)> {
    (0..super::state::CLIENTS).flat_map(|c| (0..HANDLES).map(move |h| (c, h)))
}

/// The head has its entry and would hear that it has its turn.
fn hears(client: &Client) -> bool {
    let Some(head) = client.head().map(|head| &client.handles[head]) else { return false };
    let is_its = head.call == Call::Waiting && head.stands && head.since == client.entry;
    is_its && client.up && client.subscribed && !client.lapsed
}

/// It asks, or gives something back, and so notifies others.
fn is_about_to_ask(client: &Client) -> bool {
    // Once it is subscribed it asks.
    let asks = client.waiting() > 0 && (client.ask || client.due || !client.subscribed);
    let releases = |o: usize| client.owners[o].counted && !client.has_guard(o);
    let requests = client.owners.iter().any(|owner| owner.in_flight.is_some());
    let leaves = client.leaves || client.leaving.is_some();
    client.up && (asks || requests || leaves || (0..=READ).any(releases))
}

fn is_settled(state: &State) -> bool {
    let idle = |client: &Client| {
        let calls = client.handles.iter().any(|handle| handle.call != Call::None);
        let owners = client.owners.iter().any(|owner| owner.may_be_there());
        !client.up || !calls && !owners
    };
    let left = |client: &Client| client.entry > 0 && !client.lapsed;
    state.mode.is_none() && state.clients.iter().all(|client| idle(client) && !left(client))
}

/// Whether a handle has a plan like that.
fn any(model: &ReadWrite, like: fn(&[Kind]) -> bool) -> bool {
    model.plans.iter().flatten().any(|plan| like(plan))
}

fn clients(model: &ReadWrite, like: fn(&[Kind]) -> bool) -> usize {
    let has = |plans: &&[&[Kind]; HANDLES]| plans.iter().any(|plan| like(plan));
    model.plans.iter().filter(has).count()
}

const FAULTS: Possible = |model| model.faults > 0;
const FAULTS_AND_READERS: Possible = |model| model.faults > 0 && READERS_OF_TWO(model);
const READERS_OF_TWO: Possible = |model| clients(model, |plan| plan.contains(&Kind::Read)) > 1;
const OF_BOTH: Possible =
    |model| READERS_OF_TWO(model) && clients(model, |plan| plan == [Kind::Write]) > 0;
const READERS_OF_ONE: Possible = |model| {
    model.plans.iter().any(|plans| plans.iter().all(|plan| plan.first() == Some(&Kind::Read)))
};
const UPGRADES_BESIDE_OTHERS: Possible =
    |model| READERS_OF_TWO(model) && any(model, |plan| plan == [Kind::Read, Kind::Write]);
const BOTH_SIDES: Possible =
    |model| any(model, |plan| plan.contains(&Kind::Read) && plan.contains(&Kind::Write));
const RECURS: Possible = |model| any(model, |plan| plan == [Kind::Read, Kind::Read]);
const DELAYS: Possible = |model| model.delays;

/// The states without which the check would mean little, and where they can be reached.
pub(super) const REACHED: &[Reach<ReadWrite>] = &[
    (READERS_OF_TWO, "two clients read", |_, state| {
        state.clients.iter().filter(|client| client.has_guard(READ)).count() > 1
    }),
    (READERS_OF_ONE, "two handles of a client read", |_, state| {
        state.clients.iter().any(|client| client.handles.iter().all(|handle| handle.reads > 0))
    }),
    (READERS_OF_ONE, "a reader joins without a request", |model, state| {
        let joins = |step: &Step| matches!(step, Step::Join(..));
        let mut steps = Vec::new();
        model.steps(state, &mut steps);
        steps.iter().any(joins)
    }),
    (OF_BOTH, "a reader waits for a writer that waits for another reader", |_, state| {
        let asks = |wants: Kind| state.standing(Some(wants)) != 0;
        state.mode == Some(Kind::Read) && asks(Kind::Read) && asks(Kind::Write)
    }),
    (BOTH_SIDES, "a handle reads and writes", |_, state| {
        handles().any(|(c, h)| state.clients[c].reads(h) && state.clients[c].writes(h))
    }),
    (UPGRADES_BESIDE_OTHERS, "a handle that reads is not let in to write", |_, state| {
        let refused = |client: &Client, h: usize| {
            let reply = client.owners[h].in_flight.and_then(|in_flight| in_flight.reply);
            client.reads(h) && reply == Some(Reply::Refused)
        };
        handles().any(|(c, h)| refused(&state.clients[c], h))
    }),
    (RECURS, "a handle reads twice", |_, state| {
        handles().any(|(c, h)| state.clients[c].handles[h].reads > 1)
    }),
    (FAULTS_AND_READERS, "a dead reader is there beside one that lives", |_, state| {
        let read = |lease: bool| state.fields().any(|(.., field)| field.lease == lease);
        state.mode == Some(Kind::Read) && read(true) && read(false)
    }),
    (FAULTS, "a client crashes that has the lock", |_, state| {
        state.fields().any(|(c, ..)| !state.clients[c].up)
    }),
    (DELAYS, "an owner is there of which its client knows nothing", |_, state| {
        state.fields().any(|(_, o, _)| o == STRAY)
    }),
];
