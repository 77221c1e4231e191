//! What must hold in every state, and what must be reached for the check to mean something.

use super::Fair;
use super::state::{Call, Client, GRANT, Owner, Sent, State};
use crate::{Invariant, Reach, goes_on};

pub(crate) const EXCLUSION: &str =
    "at most one waiter of all clients believes that it has the lock";
pub(crate) const HOLDER: &str = "a believed hold is of the client that has the lock in Redis";
pub(crate) const ORDER: &str = "no waiter is passed over by one that came later";
pub(crate) const NO_ETERNAL_KEY: &str = "no key is without a TTL";
pub(crate) const GRANT_GOES_ON: &str = "a grant is on its way to a waiter, or back";
pub(crate) const WOKEN: &str = "a free lock for which a client waits is on its way to a client";
pub(crate) const ENTRY: &str = "an entry is that of a waiter, or is about to be given up";
pub(crate) const COMES: &str = "a client that cannot hear has said that it comes, or is about to";
pub(crate) const END: &str = "at rest no client waits or holds, and no key and no entry is there";

type Possible = fn(&Fair) -> bool;

pub(super) const INVARIANTS: &[Invariant<Fair>] = &[
    (EXCLUSION, |_, state| owners(state).filter(|(_, owner)| owner.relies()).count() <= 1),
    (HOLDER, |_, state| {
        let has = |c: usize| state.key.is_some_and(|key| key.client == c);
        owners(state).all(|(c, owner)| !owner.relies() || has(c))
    }),
    (ORDER, |_, state| !state.passed_over),
    (NO_ETERNAL_KEY, |_, state| state.key.is_none_or(|key| key.has_ttl)),
    (GRANT_GOES_ON, |_, state| {
        let granted = state.key.filter(|key| key.owner == GRANT && !state.grant_lost);
        granted.is_none_or(|key| state.clients[key.client].has_grant())
    }),
    (WOKEN, |_, state| {
        let free = state.key.is_none() && state.notified.is_none() && !state.message_lost;
        !free || !state.clients.iter().any(hears) || state.clients.iter().any(is_about_to_ask)
    }),
    (ENTRY, |_, state| {
        let left = |client: &Client| client.up && client.entry > 0 && !client.keeps_entry();
        !state.clients.iter().any(left)
    }),
    // A release that was sent before the cut may arrive later, and say that the client hears.
    (COMES, |model, state| {
        let goes_on = |client: &Client| client.due || client.hand_off.is_some();
        model.every_step || state.clients.iter().all(|c| !is_unsaid(c) || goes_on(c))
    }),
    (END, |model, state| is_settled(state) || goes_on(model, state)),
];

fn owners(state: &State) -> impl Iterator<Item = (usize, &Owner)> {
    let clients = state.clients.iter().enumerate();
    clients.flat_map(|(c, client)| client.owners.iter().map(move |owner| (c, owner)))
}

/// A waiter has its entry and would hear that it has its turn.
fn hears(client: &Client) -> bool {
    let stands = client.owners.iter().any(|owner| owner.stands && owner.call == Call::Waiting);
    stands && client.up && client.subscribed && client.entry > 0 && !client.lapsed
}

/// Redis has the entry of the head, and counts on a subscription that is no more.
fn is_unsaid(client: &Client) -> bool {
    let head = client.head().map(|head| &client.owners[head]);
    let is_its = head.is_some_and(|o| o.call == Call::Waiting && o.since == client.entry);
    is_its && client.up && client.taken && !client.subscribed && !client.is_new
}

fn is_about_to_ask(client: &Client) -> bool {
    let hears = client.ask || client.ask_later || client.due;
    let asks = client.head_calls(Call::Asking) || client.leaves || client.leaving.is_some();
    client.up && (hears || asks)
}

fn is_settled(state: &State) -> bool {
    let is_done = |owner: &Owner| owner.call == Call::None && owner.hold.is_none();
    let left = |client: &Client| client.entry > 0 && !client.lapsed;
    let empty = state.key.is_none() && !state.clients.iter().any(left);
    empty && owners(state).all(|(_, owner)| is_done(owner))
}

const ALWAYS: Possible = |_| true;
const WITH_FAULTS: Possible = |model| model.faults > 0;
const WITH_TWO: Possible = |model| model.roles.iter().any(|role| role.calls[1] > 0);
const WITH_NOTIFIED: Possible = |model| model.roles.iter().any(|role| !role.grants);
const OF_THREE: Possible = |model| model.roles.iter().all(|role| role.calls[0] > 0);
const OF_THREE_WITH_FAULTS: Possible = |model| model.faults > 0 && OF_THREE(model);

/// The states without which the check would mean little, and where they can be reached.
pub(super) const REACHED: &[Reach<Fair>] = &[
    (ALWAYS, "a waiter has a grant that Redis has not made its lease", |_, state| {
        let granted = state.key.is_some_and(|key| key.owner == GRANT);
        granted && owners(state).any(|(_, owner)| owner.relies() && owner.call == Call::None)
    }),
    (ALWAYS, "a waiter awaits that", |_, state| {
        owners(state).any(|(_, owner)| owner.call == Call::Awaiting)
    }),
    (ALWAYS, "a grant is heard of by a client that cannot know how old it is", |_, state| {
        state.clients.iter().any(|client| client.owners[GRANT].is_leaving())
    }),
    (ALWAYS, "a grant comes while the head asks, or waits for it", |_, state| {
        let granted = |client: &Client| client.granted || client.owners[GRANT].hold.is_some();
        state.clients.iter().any(|client| granted(client) && client.head_calls(Call::Asking))
    }),
    (ALWAYS, "a client that has just come has its turn", |_, state| {
        state.notified.is_some_and(|notified| state.clients[notified].is_new)
    }),
    (WITH_TWO, "a hold is handed off inside a client", |_, state| {
        let inside = |client: &Client| client.hand_off.is_some_and(|it| it.from != GRANT);
        state.clients.iter().any(inside)
    }),
    (OF_THREE, "two clients have an entry, and the second is to ask later", |_, state| {
        state.queue().nth(1).is_some() && state.clients.iter().any(|client| client.ask_later)
    }),
    (WITH_NOTIFIED, "a client has its turn, and the lock is free", |_, state| {
        state.notified.is_some() && state.key.is_none()
    }),
    (OF_THREE_WITH_FAULTS, "a client is alive, and its entry is gone", |_, state| {
        state.clients.iter().any(|client| {
            let lost = client.taken && client.entry == 0 && client.head_calls(Call::Waiting);
            lost && state.key.is_some_and(|key| !std::ptr::eq(&state.clients[key.client], client))
        })
    }),
    (WITH_FAULTS, "a grant has ended when the hand-off comes to Redis", |_, state| {
        let lost = |client: &Client| client.hand_off.is_some_and(|it| it.sent == Sent::Done(false));
        state.clients.iter().any(lost)
    }),
    (WITH_FAULTS, "a waiter takes what it was handed too late", |_, state| {
        owners(state).any(|(_, owner)| owner.call == Call::Handed && !owner.relies())
    }),
    (WITH_FAULTS, "a waiter is dropped with the lock in its hands", |_, state| {
        let dropped =
            |client: &Client| client.hand_off.is_some_and(|it| client.owners[it.to].is_leaving());
        state.clients.iter().any(dropped)
    }),
    (WITH_FAULTS, "a client crashes that has the lock", |_, state| {
        state.key.is_some_and(|key| !state.clients[key.client].up)
    }),
];
