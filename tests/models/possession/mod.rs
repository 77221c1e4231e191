//! The possession as a model, of which every state is visited: two clients with two or three handles
//! each, which share one name and hand it off inside the client.
//!
//! It follows `lua/{acquire,release,update,renew}.lua`, `src/possession`, `src/handoff`,
//! `src/releaser` and what of `src/wait` decides who gets the lock next.
//!
//! # What is in it
//!
//! One lock. A possession is one unbroken time in which a client has it, under an id that is drawn for
//! its first acquire and never used again. Its handles take the lock with a long lease (the default one,
//! which the watchdog renews) or with a short one, nested holds included, and drop their guards or await
//! `unlock`. When the last guard of a handle goes, the head of the client's wait queue has the lock, in
//! the same possession, or the client releases it although it could hand it off (other clients have
//! waited for too long, or too little of the lease is left). Redis hears of a hand-off from `update`,
//! and only of another lease or for an `unlock`. One request of a possession is under way at a time,
//! beside a renewal.
//!
//! Faults are counted: a request is cut off before or after its execution, sent again or given up; a
//! waiter is dropped, with the lock in its hands too; a client crashes; the key is deleted. A lease may
//! end at any time.
//!
//! # What is not
//!
//! - What the model of waiting has: the way to a subscription, and messages that are under way or lost.
//! - Errors that Redis answers, a server that loses data (a deleted key is the nearest to it), replicas,
//!   the queue of a fair lock, `hold_at_least`, `extend`, more than one caller of a handle.
//! - How late a waiter asks: there is no clock. It is checked that no waiter of any client goes by a
//!   longer lease than the key has.
//! - An `update` that the client gives up for good. Here it sends another as long as there is something
//!   to say. It is idempotent (of the tokens that it draws twice, the first are thrown away), so one that
//!   was sent before and one that was not are the same request.
//! - What an `unlock` hears that is neither `Ok` nor `Lost`: that of a request which was given up, and of
//!   a release that was sent again and finds nothing.
//!
//! # Late requests
//!
//! As the server closes a client's stale connections before the client sends anything else
//! ([`Late::Killed`]), nothing late of it is executed behind anything newer. Without that
//! ([`Late::Executed`]) no late request touches a later possession, in any space. It touches its own:
//!
//! - An acquire that runs after its undo leaves an orphan, which ends with its lease: `ORPHAN` is
//!   violated.
//! - A first acquire that runs behind a nested one sets the count down, and a nested one that runs
//!   behind its release sets it up: `COUNT` is violated. The release that frees does not go by it.
//! - A renewal or an acquire makes a shorter lease long again: `LEASE` is violated.
//! - An `update`, or the release of a nested hold, sets a short lease again, behind one that has set a
//!   long lease for a newer hold. The key ends before that hold does: `THERE` and `EXCLUSION` are
//!   violated.
//!
//! So with long leases alone only `ORPHAN` is violated (and `COUNT`, if holds are nested). And where
//! the server closes only the connections of requests that may shorten a lease
//! ([`Late::ShorterKilled`]), `THERE` and `EXCLUSION` hold whatever the leases are.
//!
//! # What exclusion rests on
//!
//! Beside the one assumption about time (see [`Deadline`]):
//!
//! - While a shorter lease is under way, the possession is valid for that one only, though Redis has
//!   confirmed a longer one ([`Bug::UnderwayIgnored`]).
//! - A renewal and a request that may shorten the lease are never under way at the same time, because
//!   their answers do not say which was executed last ([`Bug::RenewalBeside`]). That goes for a
//!   `update` and for the release of a nested hold.
//! - An answer that was granted before the loss was found, and arrives after that, makes no valid hold.
//!
//! # Steps taken together
//!
//! A first acquire, or a release of everything, that meets no fault is sent, executed and answered in one
//! step: what others do in between they could do before. A deadline passes when the lease ends and not
//! before, but under a nested hold: it only keeps a possession from a hand-off, and a client may release
//! instead at any time. The full form also visits a space with each step on its own.

mod checks;
mod client;
mod properties;
mod server;
mod state;
mod steps;

use stateright::Model;

use crate::{At, Step as _};
use properties::{INVARIANTS, REACHED};
use state::{Call, Client, Deadline, HANDLES, Handle, Kind, LATE, Slot, State};
use steps::Step;

/// The tokens of one block.
pub(crate) const BLOCK: u8 = 2;

/// A fault that the library does not have: each shows that the check would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A new possession has the id of one that has ended.
    IdTwice,
    /// The acquire adds one hold instead of reaching a count.
    CountAdded,
    /// A nested acquire sets its own lease, also a shorter one.
    NestedShortens,
    /// A release that leaves a hold sets a shorter lease than that hold's.
    ReleaseShortens,
    /// A renewal creates the key.
    RenewCreates,
    /// A renewal without an answer is taken for one that was executed.
    UnknownRenews,
    /// The script `update` leaves the count as it is.
    CountUnwritten,
    /// A holder with another lease leaves the key with that of the one before.
    LongLeaseStays,
    /// The lease got shorter, and the script publishes nothing.
    ShorterUnpublished,
    /// A hand-off leaves its token in the block.
    TokenTwice,
    /// The lock is handed off although the possession is known to be gone.
    HandedOffWhenGone,
    /// A hold that was handed over is valid for its own lease at once.
    OwnLeaseAtOnce,
    /// It is valid for what was confirmed last, although a shorter lease is under way.
    UnderwayIgnored,
    /// A renewal and a request that sets a shorter lease are under way at the same time.
    RenewalBeside,
    /// An answer confirms unlocks that came after its request was sent.
    ConfirmedBySentBefore,
    /// The lock is handed off while a release of everything is under way.
    FreesANewerHolder,
    /// An acquire that was given up is not undone.
    UndoForgotten,
    /// A release publishes nothing.
    ReleaseUnpublished,
}

/// What happens to a request that the server has not read when its connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// It may be executed at any time.
    Executed,
    /// The same, but the next request has the old connection killed before.
    Killed,
    /// It has it killed only if the old request may shorten a lease.
    ShorterKilled,
}

/// What a handle does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Role {
    pub(crate) calls: u8,
    pub(crate) long: bool,
    /// It awaits `unlock`, or drops its guards.
    pub(crate) unlocks: bool,
    /// A call may be nested, with a long lease or a short one.
    pub(crate) inner: Option<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Possession {
    pub(crate) roles: [[Role; HANDLES]; 2],
    /// Of each client.
    pub(crate) renewals: u8,
    pub(crate) faults: u8,
    /// Whether a key may be deleted.
    pub(crate) robs: bool,
    pub(crate) late: Late,
    pub(crate) fenced: bool,
    pub(crate) bug: Option<Bug>,
    /// Takes no two steps as one.
    pub(crate) every_step: bool,
}

impl Model for Possession {
    crate::model!(met: take_counted);

    fn init_states(&self) -> Vec<State> {
        let handle = |role: Role| Handle { role, calls: role.calls, ..Handle::default() };
        let clients = self.roles.map(|roles| Client {
            up: true,
            handles: roles.map(handle),
            renewals: self.renewals,
            ..Client::default()
        });
        vec![tidied(State { clients, faults: self.faults, ..State::default() })]
    }
}

impl Possession {
    fn take(&self, next: &mut State, step: Step) {
        match step {
            Step::Ask(c) | Step::AskSlowly(c) => {
                if let Some(head) = next.clients[c].head() {
                    let s = self.ask(&mut next.clients[c], head);
                    self.hurry(next, (c, s), step);
                }
            }
            Step::Send(c, s) | Step::SendSlowly(c, s) => {
                let client = &mut next.clients[c];
                if let Some(request) = self.next_request(client, &client.slots[s]) {
                    self.send(client, s, request);
                    self.hurry(next, (c, s), step);
                }
            }
            Step::Execute(c, s) => self.execute_next(next, (c, s)),
            Step::Answer(c, s) => self.answer(next, (c, s)),
            Step::ExecuteRenewal(c, s) => self.execute_renewal(next, (c, s)),
            Step::AnswerRenewal(c, s) => self.answer_renewal(&mut next.clients[c], s),
            Step::ExecuteLate(c, s, late) => self.execute_late(next, (c, s), late),
            Step::LetGo(c, s, i) => self.give_back(next, (c, s), i),
            Step::GiveBack(c, s, i) => {
                self.give_back(next, (c, s), i);
                self.hand_on(next, (c, s));
            }
            Step::Decline(c, s) => {
                let awaits = next.clients[c].slots[s].awaits;
                self.give_back(next, (c, s), 0);
                next.clients[c].slots[s].awaits = awaits;
                self.hand_on(next, (c, s));
            }
            Step::HandOff(c, s) => self.hand_off(next, (c, s)),
            Step::Deadline(c, s, i) => {
                let hold = next.clients[c].slots[s].holds[i].as_mut();
                hold.into_iter().for_each(|hold| hold.until.valid = false);
            }
            Step::Expire => self.expire(next),
            Step::Rob => self.rob(next),
            Step::Call(c, h) => {
                next.clients[c].handles[h].calls -= 1;
                next.clients[c].join(h);
            }
            Step::Nest(c, s) => self.nest(&mut next.clients[c], s),
            Step::Renew(c, s) => self.renew(&mut next.clients[c], s),
            Step::Cut(c, s) => self.cut(&mut next.clients[c], s),
            Step::GiveUp(c, s) => self.give_up(&mut next.clients[c], s),
            Step::GiveUpRenewal(c, s) => self.give_up_renewal(&mut next.clients[c], s),
            Step::Cancel(c, h) => self.cancel(&mut next.clients[c], h),
            Step::Crash(c) => self.crash(&mut next.clients[c]),
        }
    }

    fn hand_on(&self, state: &mut State, (c, s): At) {
        if self.can_hand_off(&state.clients[c], &state.clients[c].slots[s]) {
            self.hand_off(state, (c, s));
        }
    }

    /// Takes a first acquire, or a release of everything, that meets no fault as one step: what
    /// others do in between they could do before.
    fn hurry(&self, state: &mut State, (c, s): At, step: Step) {
        let Some(in_flight) = &mut state.clients[c].slots[s].in_flight else { return };
        in_flight.slow = step.is_fault();
        let one = match in_flight.request.kind {
            Kind::Acquire => true,
            kind => kind == Kind::Release && in_flight.request.count == 0,
        };
        if one && !in_flight.slow && !self.every_step {
            self.execute_next(state, (c, s));
            self.answer(state, (c, s));
        }
    }
}

/// Whether a fault meets a request for which it was counted beforehand.
fn take_counted(state: &mut State, step: Step) -> bool {
    let met = |slot: &mut Slot| {
        let in_flight = slot.in_flight.as_mut();
        in_flight.is_some_and(|in_flight| std::mem::take(&mut in_flight.slow))
    };
    match step {
        Step::Cut(c, s) | Step::GiveUp(c, s) => met(&mut state.clients[c].slots[s]),
        Step::Cancel(c, h) => {
            let of_handle = |slot: &&mut Slot| usize::from(slot.inside) == h;
            state.clients[c].slots.iter_mut().filter(of_handle).any(met)
        }
        Step::Crash(c) => state.clients[c].slots.iter_mut().any(met),
        _ => false,
    }
}

/// Clears what makes no difference any more, and sorts what is interchangeable.
fn tidied(mut state: State) -> State {
    for client in &mut state.clients {
        for slot in &mut client.slots {
            for until in slot.deadlines().filter(|until| !until.valid) {
                *until = Deadline::default();
            }
            let ends = slot.counted == 0 && slot.live() == 0 && slot.in_flight.is_none();
            if ends {
                let Slot { redis, late, renewal, .. } = *slot;
                let nothing = redis == 0 && renewal.is_none() && late == [None; LATE];
                *slot = Slot { redis, late, renewal, over: !nothing, ..Slot::default() };
            }
        }
        client.slots.sort();
        let waits = client.waiting() > 0;
        client.wake &= waits;
        client.knows_long &= waits;
        let idle = |handle: &Handle| handle.calls == 0 && handle.call == Call::None;
        let live = client.slots.iter().any(|slot| slot.live() > 0);
        if !live && client.handles.iter().all(idle) {
            client.renewals = 0;
        }
    }
    state.clients.sort();
    state
}
