//! What must hold in every state, and what must be reached for the check to mean something.

use super::state::{Call, Client, HANDLES, InFlight, Kind, Reply, Request, Slot, State};
use super::{Late, Possession, Role};
use crate::{Invariant, Reach, goes_on};

pub(crate) const EXCLUSION: &str = "at most one possession has a valid hold";
pub(crate) const THERE: &str = "a hold is valid only while the key has its possession";
pub(crate) const LOSS: &str = "a loss that was found reaches all holders";
pub(crate) const COUNT: &str = "Redis counts the live guards, as soon as nothing is under way";
pub(crate) const LEASE: &str =
    "the key has no longer lease than a hold, as soon as nothing is under way";
pub(crate) const ORPHAN: &str = "a possession in Redis has a hold, or a request that ends it";
pub(crate) const TOKENS: &str = "each holder has a larger token than those before it";
pub(crate) const TRUE_OK: &str = "an unlock that says Ok had the lock to its end";
pub(crate) const WOKEN: &str = "no waiter waits for a longer lease, or a key that is gone";
pub(crate) const END: &str =
    "at rest no call waits, and no key, hold, request or confirmation is left";

type Possible = fn(&Possession) -> bool;

pub(super) const INVARIANTS: &[Invariant<Possession>] = &[
    (EXCLUSION, |_, state| {
        slots(state).filter(|slot| slot.is_valid() && !slot.robbed).count() <= 1
    }),
    (THERE, |_, state| slots(state).all(|slot| !slot.is_valid() || slot.redis > 0 || slot.robbed)),
    (LOSS, |_, state| {
        let ended = |slot: &Slot| !slot.is_valid() && slot.awaits.is_none();
        slots(state).all(|slot| !slot.over || ended(slot))
    }),
    (COUNT, |model, state| {
        let counts = |slot: &Slot| slot.redis == slot.live();
        settled(model, state).all(|slot| !slot.is_valid() || slot.redis == 0 || counts(slot))
    }),
    (LEASE, |model, state| {
        let asks = |slot: &Slot| slot.holds.iter().flatten().any(|hold| hold.long);
        settled(model, state).all(|slot| slot.redis == 0 || !state.long || asks(slot))
    }),
    (ORPHAN, |_, state| {
        let up = state.clients.iter().filter(|client| client.up);
        let owned = |slot: &Slot| slot.live() > 0 || slot.counted > 0 || slot.in_flight.is_some();
        up.flat_map(|client| &client.slots).all(|slot| slot.redis == 0 || owned(slot))
    }),
    (TOKENS, |_, state| !state.token_again),
    (TRUE_OK, |_, state| !state.false_ok),
    (WOKEN, |_, state| {
        state.clients.iter().all(|client| match state.key() {
            _ if client.wake || !client.waits() => true,
            Some(_) => state.long || !client.knows_long,
            // Its own possession was lost, which it has yet to find.
            None => client.slots.iter().any(|slot| slot.live() > 0 || slot.counted > 0),
        })
    }),
    (END, |model, state| is_settled(state) || goes_on(model, state)),
];

fn slots(state: &State) -> impl Iterator<Item = &Slot> {
    state.clients.iter().flat_map(|client| &client.slots)
}

/// The possessions of which the client has nothing to say.
fn settled<'a>(model: &'a Possession, state: &'a State) -> impl Iterator<Item = &'a Slot> {
    let up = state.clients.iter().filter(|client| client.up);
    up.flat_map(move |client| {
        client.slots.iter().filter(move |slot| {
            let quiet = slot.in_flight.is_none() && slot.renewal.is_none();
            quiet && slot.live() > 0 && model.next_request(client, slot).is_none()
        })
    })
}

fn is_settled(state: &State) -> bool {
    let done = |slot: &Slot| {
        let requests = slot.in_flight.is_none() && slot.renewal.is_none() && slot.awaits.is_none();
        slot.redis == 0 && slot.live() == 0 && slot.counted == 0 && requests
    };
    let calls = |client: &Client| client.handles.iter().any(|handle| handle.call != Call::None);
    slots(state).all(done) && !state.clients.iter().any(calls)
}

const WITH_FAULTS: Possible = |model| model.faults > 0;
// A fenced lock is not handed on before the update has brought the next tokens.
const OF_THREE: Possible =
    |model| !model.fenced && model.has(|roles| roles.iter().all(|role| role.calls > 0));
const OF_EQUAL: Possible =
    |model| model.has(|roles| roles.iter().filter(|role| role.calls > 0 && role.long).count() > 1);
const NESTED: Possible = |model| model.has(|roles| roles.iter().any(|role| role.inner.is_some()));
const NESTED_WITH_FAULTS: Possible = |model| NESTED(model) && WITH_FAULTS(model);
const RENEWED: Possible = |model| model.renewals > 0;
const LATE: Possible = |model| model.late != Late::Killed && model.faults > 0;

impl Possession {
    fn has(&self, what: fn(&[Role; HANDLES]) -> bool) -> bool {
        self.roles.iter().any(what)
    }
}

fn all_in_flight(state: &State) -> impl Iterator<Item = (&Slot, InFlight)> {
    slots(state).filter_map(|slot| slot.in_flight.map(|in_flight| (slot, in_flight)))
}

fn finds_gone(state: &State, kind: Kind, nested: bool) -> bool {
    all_in_flight(state).any(|(_, InFlight { request, reply, .. })| {
        reply == Some(Reply::Gone) && request.kind == kind && (request.count > 1) == nested
    })
}

/// The states without which the check would mean little, and where they can be reached.
pub(super) const REACHED: &[Reach<Possession>] = &[
    (OF_EQUAL, "a lock was handed off, and nothing is to be written", |_, state| {
        slots(state).any(|slot| slot.unclaimed && !slot.unwritten && slot.awaits.is_none())
    }),
    (OF_THREE, "the lock is handed on while an update is under way", |_, state| {
        let on = |in_flight: InFlight| in_flight.request.kind == Kind::Update && !in_flight.current;
        all_in_flight(state).any(|(slot, in_flight)| on(in_flight) && slot.is_valid())
    }),
    (OF_THREE, "a request confirms an unlock, and another one awaits the next", |_, state| {
        all_in_flight(state)
            .any(|(slot, in_flight)| in_flight.confirms.is_some() && slot.awaits.is_some())
    }),
    (OF_THREE, "an update makes the lease shorter", |_, state| {
        all_in_flight(state).any(|(_, InFlight { request, reply, .. })| {
            let short = matches!(reply, Some(Reply::Done(until, _)) if until.covered);
            request.kind == Kind::Update && request.may_shorten() && short
        })
    }),
    (OF_THREE, "an update finds that the possession is gone", |_, state| {
        finds_gone(state, Kind::Update, false)
    }),
    (NESTED, "a nested acquire finds that the possession is gone", |_, state| {
        finds_gone(state, Kind::Acquire, true)
    }),
    (NESTED, "a nested hold stands in a possession that was handed off", |_, state| {
        slots(state).any(|slot| slot.handed && slot.live() == 2 && slot.is_valid())
    }),
    (NESTED_WITH_FAULTS, "the undo of a nested acquire goes behind it", |_, state| {
        let nested = |ahead: Option<Request>| ahead.is_some_and(|ahead| ahead.count > 1);
        all_in_flight(state).any(|(slot, in_flight)| nested(in_flight.ahead) && slot.is_valid())
    }),
    (RENEWED, "a renewal finds that the possession is gone", |_, state| {
        let gone = |slot: &Slot| slot.renewal.is_some_and(|r| r.reply == Some(Reply::Gone));
        slots(state).any(|slot| slot.live() > 0 && gone(slot))
    }),
    (WITH_FAULTS, "the release that frees confirms an unlock", |_, state| {
        let frees =
            |in_flight: InFlight| in_flight.request.count == 0 && in_flight.confirms.is_some();
        all_in_flight(state).any(|(_, in_flight)| frees(in_flight))
    }),
    (WITH_FAULTS, "a client has to do with two possessions", |_, state| {
        let two = |client: &Client| client.slots.iter().filter(|slot| slot.counted > 0).count() > 1;
        state.clients.iter().any(two)
    }),
    (WITH_FAULTS, "a client crashes with the lock", |_, state| {
        let crashed = state.clients.iter().filter(|client| !client.up);
        crashed.flat_map(|client| &client.slots).any(|slot| slot.redis > 0)
    }),
    (LATE, "a request of an ended possession comes while another has the lock", |_, state| {
        let holds = |client: &Client| client.slots.iter().any(Slot::is_valid);
        let late = |slot: &Slot| slot.over && slot.late.iter().any(Option::is_some);
        state.clients.iter().any(|client| holds(client) && client.slots.iter().any(late))
    }),
];
