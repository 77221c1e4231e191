//! What must hold in every state, and what must be reached for the check to mean something.

use super::Waiting;
use super::state::{Call, Client, Health, InFlight, Missed, Reply, Request, State, Subscription};
use crate::{Invariant, Reach, goes_on};

pub(super) const EXCLUSION: &str = "at most one client believes that it holds the lock";
pub(super) const NO_ETERNAL_KEY: &str = "no key is without a TTL";
pub(super) const COUNT: &str =
    "Redis has the possession of an idle client if a guard believes in it";
pub(super) const WOKEN: &str = "a waiter of a lock that was released is about to be woken";
pub(super) const END: &str = "at rest no client waits, no lock is held, and no release is pending";

type Possible = fn(&Waiting) -> bool;

pub(super) const INVARIANTS: &[Invariant<Waiting>] = &[
    (EXCLUSION, |_, state| state.clients.iter().filter(|client| client.believes()).count() <= 1),
    (NO_ETERNAL_KEY, |_, state| state.key.is_none_or(|key| key.has_ttl)),
    (COUNT, |_, state| (0..state.clients.len()).all(|c| counts_agree(state, c))),
    (WOKEN, |_, state| state.key.is_some() || state.clients.iter().all(is_about_to_be_woken)),
    (END, |model, state| is_settled(state) || goes_on(model, state)),
];

/// As soon as nothing of a client is on its way. A hold that was lost by the clock is in Redis until
/// its key ends, and one that is believed is always there.
fn counts_agree(state: &State, c: usize) -> bool {
    let client = &state.clients[c];
    let idle = client.is_up() && client.in_flight.is_none() && !client.to_release;
    let lost = !state.is_of(c) && !client.believes();
    !idle || client.late[0].is_some() || lost || state.is_of(c) && client.hold.is_some()
}

fn is_about_to_be_woken(client: &Client) -> bool {
    let on_its_way = client.again || client.message || client.subscription == Subscription::Asked;
    client.call != Call::Parked || on_its_way || client.missed != Missed::Nothing
}

fn is_settled(state: &State) -> bool {
    state.key.is_none() && state.clients.iter().all(|client| client.call == Call::None)
}

const ALWAYS: Possible = |_| true;
const WITH_FAULTS: Possible = |model| model.faults > 0;

/// The states without which the check would mean little, and where they can be reached.
pub(super) const REACHED: &[Reach<Waiting>] = &[
    (WITH_FAULTS, "an acquire whose reply was lost is sent again", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let acquire = in_flight.request == Request::Acquire;
            acquire && is_sent_again(in_flight) && state.is_of(c) && state.clients[c].hold.is_none()
        })
    }),
    (WITH_FAULTS, "a release whose reply was lost is sent again", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let release = in_flight.request == Request::Release;
            release && is_sent_again(in_flight) && !state.is_of(c)
        })
    }),
    (WITH_FAULTS, "an undo goes behind an acquire that was granted", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let behind = in_flight.undo && !in_flight.ahead && in_flight.reply.is_none();
            behind && state.is_of(c) && state.clients[c].hold.is_none()
        })
    }),
    (ALWAYS, "a grant comes too late to be believed", |_, state| {
        all_in_flight(state)
            .any(|(_, in_flight)| matches!(in_flight.reply, Some(Reply::Granted(t)) if !t.believed))
    }),
    (ALWAYS, "a waiter that a message woke gets the lock", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let woken = state.clients[c].call == Call::Asking { by_time: false };
            woken && matches!(in_flight.reply, Some(Reply::Granted(_)))
        })
    }),
    (WITH_FAULTS, "a waiter whose message was lost gets the lock by time", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let by_time = state.clients[c].call == Call::Asking { by_time: true };
            let lost = state.clients[c].missed == Missed::Message;
            by_time && lost && matches!(in_flight.reply, Some(Reply::Granted(_)))
        })
    }),
    (WITH_FAULTS, "a client crashes while it holds, and another gets the lock", |_, state| {
        let crashed = |client: &Client| client.health == Health::Crashed { holding: true };
        state.clients.iter().any(crashed) && state.clients.iter().any(Client::believes)
    }),
    (ALWAYS, "two wait while a third holds", |_, state| {
        let waiting = state.clients.iter().filter(|client| client.call == Call::Parked).count();
        waiting == 2 && state.clients.iter().any(Client::believes)
    }),
];

/// The requests in flight.
fn all_in_flight(state: &State) -> impl Iterator<Item = (usize, InFlight)> {
    let clients = state.clients.iter().enumerate();
    clients.filter_map(|(c, client)| client.in_flight.map(|in_flight| (c, in_flight)))
}

fn is_sent_again(in_flight: InFlight) -> bool {
    in_flight.repeated && in_flight.reply.is_none()
}
