//! What must hold in every state, and what must be reached for the check to mean something.

use stateright::{Model, Property};

use super::Handoff;
use super::state::{Call, Client, Exchange, Owner, Reply, Request, Sent, State};
use super::steps::Step;

pub(crate) const EXCLUSION: &str = "at most one owner of all clients has a valid hold";
pub(crate) const HOLDER: &str =
    "Redis has an owner whose hold is valid, or one ahead of it in the handoff queue";
pub(crate) const NO_ETERNAL_KEY: &str = "no key is without a TTL";
pub(crate) const NO_ORPHAN: &str = "an idle owner that has a field in Redis has a hold";
pub(crate) const NO_FALSE_LOSS: &str = "no owner whose hand-off was executed is reported lost";
pub(crate) const WOKEN: &str = "a waiter for a lock that was released is about to ask";
pub(crate) const END: &str = "at rest no owner waits, holds, is queued or has a release to send";

impl Model for Handoff {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.steps(state, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let next = self.after(last, step);
        // With a bug it may go round in circles; what it breaks is reported by a property.
        if step.is_certain() && self.bug.is_none() {
            let (before, after) = (work_left(last), work_left(&next));
            assert!(
                after < before,
                "{step:?} does not lead on ({before:?} to {after:?}): {last:#?}\n{next:#?}"
            );
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(EXCLUSION, |_, state: &State| {
                owners(state).filter(|(_, owner)| owner.relies()).count() <= 1
            }),
            Property::always(HOLDER, |_, state: &State| {
                owners(state).all(|(client, owner)| !owner.relies() || is_held(client, owner))
            }),
            Property::always(NO_ETERNAL_KEY, |_, state: &State| {
                state.key.is_none_or(|key| key.has_ttl)
            }),
            Property::always(NO_ORPHAN, |_, state: &State| {
                owners(state).all(|(client, owner)| !is_orphan(client, owner))
            }),
            Property::always(NO_FALSE_LOSS, |_, state: &State| !state.false_loss),
            Property::always(WOKEN, |_, state: &State| {
                state.key.is_some() || state.clients.iter().all(is_about_to_ask)
            }),
            Property::always(END, |model: &Self, state: &State| {
                is_settled(state) || model.goes_on(state)
            }),
        ];
        if self.bug.is_none() {
            let reached = REACHED.iter().filter(|(possible, ..)| possible(self));
            properties.extend(reached.map(|&(_, name, seen)| Property::sometimes(name, seen)));
        }
        properties
    }
}

impl Handoff {
    /// Whether something happens for certain.
    fn goes_on(&self, state: &State) -> bool {
        let mut steps = Vec::new();
        self.steps(state, &mut steps);
        steps.into_iter().any(Step::is_certain)
    }
}

fn owners(state: &State) -> impl Iterator<Item = (&Client, &Owner)> {
    state.clients.iter().flat_map(|client| client.owners.iter().map(move |owner| (client, owner)))
}

fn is_held(client: &Client, owner: &Owner) -> bool {
    let confirmed = owner.hold.is_some_and(|hold| hold.confirmed);
    let ahead = |other: &Owner| other.field && (1..=owner.queued).contains(&other.queued);
    owner.field || !confirmed && client.owners.iter().any(ahead)
}

/// A hold that was lost by the clock has its field until the key's end.
fn is_orphan(client: &Client, owner: &Owner) -> bool {
    let busy = owner.exchange.is_some() || owner.pending || owner.queued > 0 || client.is_late();
    client.up && owner.field && !busy && owner.hold.is_none()
}

fn is_about_to_ask(client: &Client) -> bool {
    let asks = client.owners.iter().any(|owner| owner.place == 1 && owner.exchange.is_some());
    client.waiting() == 0 || client.wake || asks || client.expired
}

fn is_settled(state: &State) -> bool {
    let is_done = |owner: &Owner| {
        let nothing = owner.hold.is_none() && !owner.server && !owner.freeing;
        owner.call == Call::None && owner.queued == 0 && nothing
    };
    state.key.is_none() && owners(state).all(|(_, owner)| is_done(owner))
}

/// What is left to do if no call begins and nothing fails, as a number that each certain
/// step makes smaller: first what changes the lock, then what asks for it. So whatever the order,
/// the certain steps come to an end.
pub(super) fn work_left(state: &State) -> (u32, u32) {
    let mut left = (u32::from(state.key.is_some()), 0);
    for client in state.clients.iter().filter(|client| client.up) {
        left.0 += client.owners.iter().map(lock_work).sum::<u32>() + handoff_work(client);
        left.1 += asking_work(client);
    }
    left
}

fn lock_work(owner: &Owner) -> u32 {
    let granted = |exchange: Exchange| matches!(exchange.reply, Some(Reply::Granted(_)));
    let is_granted = owner.exchange.is_some_and(granted);
    let call = match owner.call {
        Call::None | Call::Handed | Call::Dropped => 0,
        // A grant adds the key.
        Call::Waiting | Call::Asking | Call::Trying if is_granted => 38,
        Call::Waiting | Call::Asking => 40,
        Call::Trying => 44,
    };
    let hold = owner.hold.map_or(0, |hold| match hold.leaving {
        true => 0,
        false => 20 + u32::from(hold.valid),
    });
    let exchange = match owner.exchange {
        Some(Exchange { request: Request::Release, ahead, reply, .. }) => {
            5 + 2 * u32::from(ahead) - u32::from(reply.is_some())
        }
        // A grant adds the key.
        _ => 0,
    };
    let late = |late, weight| if late { weight } else { 0 };
    let late = late(owner.late_acquire, 3) + late(owner.late_release, 3);
    let late = late + 3 * u32::from(owner.late_handoff == 1);
    call + hold + 10 * u32::from(owner.pending) + exchange + late
}

fn handoff_work(client: &Client) -> u32 {
    let steps = u32::from(client.in_handoff().saturating_sub(1));
    let request = match client.sent {
        None if steps == 0 => 0,
        None => 3,
        Some(Sent { done: None, .. }) => 2,
        Some(Sent { done: Some(_), .. }) => 1,
    };
    6 * steps + request
}

fn asking_work(client: &Client) -> u32 {
    let asks = |owner: &Owner| match (owner.exchange, owner.call) {
        (Some(Exchange { request: Request::Acquire, reply, .. }), _) => {
            2 - u32::from(reply.is_some())
        }
        (None, Call::Trying) => 3,
        _ => 0,
    };
    let wakes = 4 * (u32::from(client.wake) + u32::from(client.due));
    client.owners.iter().map(asks).sum::<u32>() + wakes
}

type Possible = fn(&Handoff) -> bool;
type Seen = fn(&Handoff, &State) -> bool;

const ALWAYS: Possible = |_| true;
const WITH_FAULTS: Possible = |model| model.faults > 0;
const OF_TWO_CLIENTS: Possible =
    |model| model.roles.iter().all(|roles| roles.iter().any(|role| role.calls > 0));
const OF_THREE: Possible = Handoff::has_three;
const OF_THREE_WITH_FAULTS: Possible = |model| model.has_three() && model.faults > 0;
const OF_BOTH_LEASES: Possible = |model| {
    let both =
        |lease| model.roles.as_flattened().iter().any(|role| role.calls > 0 && role.long == lease);
    both(true) && both(false)
};

impl Handoff {
    /// Whether a client has three owners: with two, the next waiter has to wait for the queue to
    /// be empty, because the queue keeps the permits of both.
    fn has_three(&self) -> bool {
        self.roles.iter().any(|roles| roles.iter().filter(|role| role.calls > 0).count() > 2)
    }
}

/// The states without which the check would mean little, and where they can be reached.
const REACHED: &[(Possible, &str, Seen)] = &[
    (ALWAYS, "a hold is valid and not confirmed, and Redis does not have it yet", |_, state| {
        owners(state).any(|(_, owner)| owner.relies() && !owner.field)
    }),
    (ALWAYS, "a hold is not confirmed, and its guard goes", |_, state| {
        owners(state).any(|(_, owner)| owner.queued > 1 && owner.pending)
    }),
    (OF_THREE, "two steps are in one request", |_, state| {
        state.clients.iter().any(|client| client.sent.is_some_and(|sent| sent.steps > 1))
    }),
    (OF_THREE_WITH_FAULTS, "a hand-off is sent again with what has come since", |_, state| {
        state.clients.iter().any(is_sent_again_longer)
    }),
    (
        OF_THREE_WITH_FAULTS,
        "a longer hand-off goes on from the owner that Redis has",
        |_, state| {
            state.clients.iter().any(|client| {
                let goes_on = client.owners.iter().any(|owner| owner.queued == 2 && owner.field);
                is_sent_again_longer(client) && goes_on
            })
        },
    ),
    (WITH_FAULTS, "a hand-off is confirmed that was executed before", |_, state| {
        state.clients.iter().any(|client| {
            client.executed && client.sent.is_some_and(|sent| sent.done == Some(true))
        })
    }),
    (WITH_FAULTS, "a hand-off that was executed before finds the lease ended", |_, state| {
        state.clients.iter().any(|client| {
            client.executed && client.sent.is_some_and(|sent| sent.done == Some(false))
        })
    }),
    (ALWAYS, "a hand-off finds the lease ended", |_, state| {
        let sent = |client: &Client| client.sent.is_some_and(|sent| sent.done == Some(false));
        state.clients.iter().any(|client| client.unanswered == 0 && sent(client))
    }),
    (OF_BOTH_LEASES, "a hand-off makes the TTL shorter", |_, state| {
        state.clients.iter().any(|client| {
            let from = client.queued(1).is_some_and(|o| client.owners[o].long);
            let to =
                client.queued(2).is_some_and(|o| !client.owners[o].long && client.owners[o].field);
            from && to && client.owners.iter().any(|owner| owner.relies() && owner.queued == 2)
        })
    }),
    (OF_TWO_CLIENTS, "a waiter has the lock after another client's hand-offs", |_, state| {
        state.key.is_some_and(|key| key.after_run)
    }),
    (WITH_FAULTS, "a waiter is dropped with the lock in its hands", |_, state| {
        owners(state).any(|(_, owner)| owner.call == Call::Dropped)
    }),
    (OF_THREE_WITH_FAULTS, "a waiter that is dropped hands the lock off", |_, state| {
        let queued = |owner: &Owner| owner.queued > 1 && owner.freeing;
        owners(state).any(|(_, owner)| owner.call == Call::Dropped && queued(owner))
    }),
    (WITH_FAULTS, "a hand-off is given up after it was executed", |_, state| {
        owners(state).any(|(client, owner)| {
            let left = owner.pending && owner.field && owner.queued == 0;
            left && !owner.freeing && client.owners.iter().any(|from| from.pending && from.freeing)
        })
    }),
    (OF_TWO_CLIENTS, "one client waits and the other has the lock or waits, too", |_, state| {
        state.clients.iter().all(|client| client.waiting() > 0 || client.has_field())
            && state.clients.iter().any(|client| client.waiting() > 0)
    }),
];

/// The request is on its way, and is longer than what was not answered.
fn is_sent_again_longer(client: &Client) -> bool {
    let longer = |sent: Sent| sent.done.is_none() && sent.steps > client.unanswered;
    client.unanswered > 0 && client.sent.is_some_and(longer)
}
