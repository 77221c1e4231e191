//! What must hold in every state, and what must be reached for the check to mean something.

use stateright::{Model, Property};

use crate::protocol::Protocol;
use crate::state::{Call, Client, Health, InFlight, Missed, Reply, Request, State, Subscription};
use crate::steps::Step;

pub(crate) const EXCLUSION: &str = "at most one client believes that it holds the lock";
pub(crate) const NO_ETERNAL_KEY: &str = "no key is without a TTL";
pub(crate) const COUNT: &str = "what Redis counts for an idle owner is its live guards";
pub(crate) const WOKEN: &str = "a waiter of a lock that was released is about to be woken";
pub(crate) const END: &str = "at rest no client waits, no lock is held, and no release is pending";

impl Model for Protocol {
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
        // A fault of the library may go round in circles; a property shows what it breaks.
        if step.is_certain() && self.bug.is_none() {
            let (before, after) = (work_left(last), work_left(&next));
            assert!(
                after < before,
                "{step:?} does not lead on ({before:?} to {after:?}): {last:?}\n{next:?}"
            );
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(EXCLUSION, |_, state: &State| {
                state.clients.iter().filter(|client| client.believes()).count() <= 1
            }),
            Property::always(NO_ETERNAL_KEY, |_, state: &State| {
                state.key.is_none_or(|key| key.has_ttl)
            }),
            Property::always(COUNT, |_, state: &State| {
                (0..state.clients.len()).all(|c| counts_agree(state, c))
            }),
            Property::always(WOKEN, |_, state: &State| {
                state.key.is_some() || state.clients.iter().all(is_about_to_be_woken)
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

impl Protocol {
    /// Whether something happens for certain.
    fn goes_on(&self, state: &State) -> bool {
        let mut steps = Vec::new();
        self.steps(state, &mut steps);
        steps.into_iter().any(Step::is_certain)
    }
}

/// As soon as nothing of an owner is on its way. A hold that was lost by the clock is counted
/// until its key ends, and one that is believed is always there.
fn counts_agree(state: &State, c: usize) -> bool {
    let client = &state.clients[c];
    let idle = client.is_up() && client.in_flight.is_none() && !client.to_release;
    let count = state.count_of(c);
    let lost = count == 0 && !client.believes();
    !idle || client.late[0].is_some() || count == client.holds() || lost
}

fn is_about_to_be_woken(client: &Client) -> bool {
    let on_its_way = client.again || client.message || client.subscription == Subscription::Asked;
    client.call != Call::Parked || on_its_way || client.missed != Missed::Nothing
}

fn is_settled(state: &State) -> bool {
    state.key.is_none() && state.clients.iter().all(|client| client.call == Call::None)
}

/// What is left to do if no user begins anything and nothing fails, as a number that each certain
/// step makes smaller: first what changes the lock, then what asks for it. So whatever the order,
/// the certain steps come to an end.
fn work_left(state: &State) -> (u32, u32) {
    let mut left = (u32::from(state.key.is_some()), 0);
    for client in &state.clients {
        let late = client.late.iter().flatten().count() as u32;
        left.0 += lock_work(client) + 3 * late;
        left.1 += asking_work(client);
    }
    left
}

fn lock_work(client: &Client) -> u32 {
    let call = match client.call {
        Call::None => 0,
        Call::Parked | Call::Asking { .. } => 30,
        Call::Trying => 32,
    };
    let holds: u32 = client.live.iter().flatten().map(|t| 8 + 7 * u32::from(t.believed)).sum();
    let renewal = client.renewal.map_or(0, |renewal| 3 - 2 * u32::from(renewal.reply.is_some()));
    let pending = |server| 6 * u32::from(Client { server, ..*client }.pending().is_some());
    let (count, reply) = match client.in_flight {
        Some(InFlight { request: Request::Acquire { count, .. }, reply, .. }) => (count, reply),
        _ => (0, None),
    };
    let may_nest = client.call == Call::Trying && client.in_flight.is_none() && client.holds() > 0;
    let nested = 2 * u32::from(count > 1 || may_nest);
    let in_flight = match client.in_flight {
        None => pending(client.server),
        Some(InFlight { request: Request::Release { count, .. }, reply, ahead, .. }) => {
            let behind = pending(client.server.min(count));
            behind + 5 - u32::from(reply.is_some()) + 2 * u32::from(ahead.is_some())
        }
        // What comes of it is less than the call was.
        Some(_) => 0,
    };
    // A grant adds the key, and a nested hold that finds nothing is asked for again.
    let granted = matches!(reply, Some(Reply::Granted(_)));
    call + holds + renewal + in_flight + nested - 2 * u32::from(granted)
}

fn asking_work(client: &Client) -> u32 {
    let in_flight = match (client.in_flight, client.call) {
        (Some(InFlight { request: Request::Acquire { .. }, reply, .. }), _) => {
            2 - u32::from(reply.is_some())
        }
        (None, Call::Trying) => 3,
        _ => 0,
    };
    let subscription = match client.subscription {
        Subscription::Off | Subscription::Live => 0,
        Subscription::Asked => 10,
    };
    let flag = |flag, weight| if flag { weight } else { 0 };
    let wakes = flag(client.again, 4) + flag(client.due, 4) + flag(client.message, 5);
    in_flight + subscription + wakes
}

type Possible = fn(&Protocol) -> bool;
type Seen = fn(&Protocol, &State) -> bool;

const ALWAYS: Possible = |_| true;
const WITH_FAULTS: Possible = |model| model.faults > 0;
const WITH_NESTING: Possible = |model| model.roles.iter().any(|role| role.inner.is_some());
const WITH_RENEWALS: Possible = |model| model.roles.iter().any(|role| role.renewals > 0);

/// The states without which the check would mean little, and where they can be reached.
const REACHED: &[(Possible, &str, Seen)] = &[
    (WITH_NESTING, "a hold is nested", |_, state| {
        let both = |client: &Client| client.live.iter().flatten().filter(|t| t.believed).count();
        state.clients.iter().any(|client| both(client) == 2)
    }),
    (WITH_NESTING, "a nested hold finds the outer one gone", |_, state| {
        all_in_flight(state).any(|(_, in_flight)| in_flight.reply == Some(Reply::Gone))
    }),
    (WITH_FAULTS, "an acquire whose reply was lost is sent again", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let acquire = matches!(in_flight.request, Request::Acquire { .. });
            acquire && is_sent_again(in_flight) && state.count_of(c) > state.clients[c].holds()
        })
    }),
    (WITH_FAULTS, "a release whose reply was lost is sent again", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let release = matches!(in_flight.request, Request::Release { count: 0, .. });
            release && is_sent_again(in_flight) && state.count_of(c) == 0
        })
    }),
    (WITH_FAULTS, "an undo goes behind an acquire that was granted", |_, state| {
        all_in_flight(state).any(|(c, in_flight)| {
            let behind = in_flight.undo && in_flight.ahead.is_none() && in_flight.reply.is_none();
            behind && state.count_of(c) > state.clients[c].holds()
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
    (WITH_RENEWALS, "a renewal finds the lock lost", |_, state| {
        state.clients.iter().any(|client| {
            let reply = client.renewal.and_then(|renewal| renewal.reply);
            client.same_possession && client.holds() > 0 && reply == Some(Reply::NotRenewed)
        })
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
