//! The queue of a fair lock as a model, of which every state is visited: three clients with a waiter
//! each or two, entries, grants on release under an owner that no handle is, and what hands them on.
//!
//! It follows `lua/fair.lua`, `lua/fair_{acquire,release,leave,refresh,update}.lua`, `src/acquire.rs`,
//! `src/releaser/granted.rs`, `src/wait/{entry,entries}.rs` and `src/protocol/grant.rs`.
//!
//! # What is in it
//!
//! One lock. A call tries once, joins the wait queue of its client, subscribes and asks. An entry is
//! the age of the client's oldest waiter. A release frees the lock and grants it to the first client
//! with a subscriber, by a message or in its own reply; the client hands the grant to its head at
//! once or after a confirmation, or gives it back. A client that cannot be granted the lock is notified,
//! and asks. Faults are counted: the reply of an acquire, a release or a hand-off is lost, and the
//! request sent again; a message is lost, or all with their connection; a grant, a lease, a grace or
//! a term ends too soon; a call is dropped; a client crashes.
//!
//! # What is not
//!
//! - What the other models have: nested holds, renewals, late requests of stale connections, and a
//!   hand-off before the one before it is confirmed.
//! - Calls that do not wait, `fair_turn`, plain locks of the same name, a queue that Redis loses.
//! - Two first tries of one client at the same time.
//!
//! # Time
//!
//! A grant, a lease and a grace end by a step: for certain if no client is left that would give the
//! lock back or come for it, as a fault before that. The one assumption is at
//! [`state::Hold`]: what a client believes of a grant has ended when the grant ends in Redis. So a
//! grant that is late is not believed. [`Bug::BelievedFromArrival`] and [`Bug::OwnLeaseAtOnce`] show
//! that exclusion rests on that.
//!
//! # Order
//!
//! A waiter *stands* once it has asked for its entry, and is subscribed or has said from the wait queue
//! that it comes. One whose connection for messages is cut stands no longer until it has said so. A waiter that came when
//! another one stood must not have the lock while that one stands and is alive. A waiter stands
//! no longer, until it asks again, if a script drops its client (no subscriber, term or grace over),
//! or if a grant ends that it did not take. A waiter that is in the wait queue again, because it took
//! what was handed to it too late, comes anew.
//!
//! `WOKEN` says that a lock that was *released*, or granted and not taken, is on its way to a client
//! without a time to come.

mod checks;
mod client;
mod properties;
mod server;
mod state;
mod steps;

use stateright::Model;

use properties::{INVARIANTS, REACHED};
use state::{Call, Client, Owner, State};
use steps::Step;

/// A fault that the library does not have: each shows that the check would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A client believes a grant from when it hears of it.
    BelievedFromArrival,
    /// A waiter believes a grant for its own lease before Redis has confirmed the hand-off.
    OwnLeaseAtOnce,
    /// A release does not look whose lock it is.
    ReleaseUnchecked,
    /// A grant has no TTL.
    GrantStays,
    /// A grant that no waiter can take is not released.
    UntakenGrantStays,
    /// A grant is not undone if no client has heard of it.
    UnheardGrantStays,
    /// A client takes a grant of which a refusal says although it has heard of it.
    GrantTwice,
    /// A request that is sent again does not say how old the waiter is.
    AgeForgotten,
    /// A waiter has the entry of an older one that has left.
    EntryStays,
    /// A client that hands a grant off, and has asked meanwhile, keeps its entry.
    HandOffKeepsEntry,
    /// A client hands off to its own waiter, though older ones wait in others.
    OthersIgnored,
    /// The same to one that came after Redis said who waits in others.
    AnsweredIgnored,
    /// A release notifies no client.
    ReleaseSilent,
    /// A client that leaves the queue does not pass its turn on.
    LeaveSilent,
    /// The second is not notified when the grace of the first ends.
    SecondNotNotified,
    /// A client whose last waiter has left keeps its entry.
    LeaveForgotten,
    /// A client does not look after its entry.
    NoRefresh,
    /// A script drops a client that is not subscribed, though it has said that it comes.
    NewcomerDropped,
    /// A client whose connection for messages is cut says nothing before it is subscribed again.
    CutUnsaid,
}

/// How often each handle of a client locks, and whether Redis can grant the lock to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) calls: [u8; state::HANDLES],
    pub(crate) grants: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Fair {
    pub(crate) roles: [Role; state::CLIENTS],
    pub(crate) faults: u8,
    pub(crate) bug: Option<Bug>,
    /// Takes no two steps as one.
    pub(crate) every_step: bool,
}

impl Model for Fair {
    crate::model!();

    fn init_states(&self) -> Vec<State> {
        let clients = self.roles.map(|role| {
            let [first, second] = role.calls.map(|calls| Owner { calls, ..Owner::default() });
            let owners = [first, second, Owner::default()];
            Client { up: true, grants: role.grants, owners, ..Client::default() }
        });
        vec![tidied(State { clients, faults: self.faults, ..State::default() })]
    }
}

/// Clears what makes no difference any more, and sorts what is interchangeable.
fn tidied(mut state: State) -> State {
    for (c, client) in state.clients.iter_mut().enumerate() {
        client.lapsed &= client.entry > 0;
        client.is_new &= client.entry > 0;
        if !client.up {
            let Client { grants, entry, is_new, lapsed, subscribed, .. } = *client;
            *client = Client { grants, entry, is_new, lapsed, subscribed, ..Client::default() };
            if let Some(key) = state.key.as_mut().filter(|key| key.client == c) {
                (key.owner, key.oldest) = (0, 0);
            }
            continue;
        }
        let hand_off = client.hand_off;
        for (o, owner) in client.owners[..state::HANDLES].iter_mut().enumerate() {
            owner.stands &= owner.waits();
            let under_way = owner.in_flight.is_some() || owner.call != Call::None;
            let handed = hand_off.is_some_and(|hand_off| hand_off.from == o || hand_off.to == o);
            let has = state.key.is_some_and(|key| (key.client, key.owner) == (c, o));
            if !under_way && !handed && !has {
                // It is lost: a release would find nothing.
                owner.hold = owner.hold.filter(|hold| hold.valid);
            }
            if owner.call == Call::None {
                owner.since = 0;
                owner.behind = 0;
            }
        }
        if client.waiting() == 0 {
            (client.due, client.timer) = (false, false);
            if !client.subscribed {
                (client.taken, client.clock) = (false, false);
            }
        }
        client.timer &= !client.due;
        if state.key.is_none_or(|key| key.client != c) && client.owners[state::GRANT].hold.is_none()
        {
            client.foreign = None;
        }
    }
    state.forget_others();
    state.renumber();
    state.sort();
    state
}
