//! The hand-off inside a client as a model, of which every state is visited: two clients with
//! two or three owners each, unconfirmed holders, the handoff queue, hand-offs that are sent
//! again, late requests of stale connections, leases that get shorter.
//!
//! It follows `lua/{acquire,release,hand_off}.lua`, `src/handoff.rs`, `src/handoff/queue.rs`,
//! `src/holds/handoff.rs`, `src/releaser.rs`, `src/releaser/passage.rs` and what of
//! `src/waiters/board.rs` decides who gets the lock next.
//!
//! # What is in it
//!
//! One lock. Each owner takes it a few times, with its own lease, long or short. When a guard
//! goes, the client hands the lock off to the head of its wait queue, or releases it although it
//! could (other clients have waited for too long, or too little of the lease is left). The
//! new holder is valid no longer than the old one was until Redis has confirmed it, and may hand
//! off before that. The handoff queue goes to Redis one request at a time; a request without an
//! answer is sent again, as it was (by the connection) or with what has come since (by the
//! queue's task), until that gives up and leaves its releases to the owners. Faults are counted:
//! a request is cut off before or after its execution, sent again or given up; a waiter is
//! dropped, whatever it is about, with the lock in its hands too; a client crashes. A lease may
//! end at any time.
//!
//! # What is not
//!
//! - What the other model has: nested holds, renewals of confirmed holds (which change nothing
//!   here), the way to a subscription, messages that are under way or lost. A waiter is
//!   subscribed at once here, and a message arrives when it is published.
//! - A call of an owner whose last guard is lost and still there.
//! - A key that an operator deletes, fenced locks (whose next holder waits for its token), more
//!   than one caller of an owner, errors that Redis answers.
//! - Cuts of a connection that carries several requests: each request meets its own fault.
//! - How late a waiter asks: the model has no clock. When a hand-off makes the TTL shorter, the other
//!   clients are told, here as there; when a lease ends, a waiter's own time comes.
//!
//! # Late requests
//!
//! The library closes a stale connection on the server before it sends anything else
//! ([`Late::Killed`]); a request that is cut and sent again at once was therefore executed before
//! the cut, or never. [`Late::Executed`] and [`Bug::HandoffNotClosed`] show what happens without.
//!
//! # The certain steps end
//!
//! As in the other model: each makes a number smaller ([`properties::work_left`]), which is
//! asserted at every transition.
//!
//! # Steps taken together
//!
//! An acquire or a release that meets no fault is sent, executed and answered in one step: what
//! other owners do in between they could do before. A deadline passes when the lease ends and not
//! before: it only keeps an owner from a hand-off, and an owner may release instead at any time.
//! The full form also visits spaces with each step on its own, to the same result.

mod checks;
mod client;
mod properties;
mod server;
mod state;
mod steps;

use crate::protocol::Late;
use state::{Call, Client, OWNERS, Owner, Sent, State};
use steps::Step;

/// A fault that the library does not have: each shows that the check would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A hold that is not confirmed is valid for its own lease.
    UnconfirmedIsValid,
    /// The steps of a queue are sent in another order.
    QueueReordered,
    /// The script goes on from the first owner only.
    ResumesAtTheFirst,
    /// The script creates the key when it finds none.
    HandoffCreates,
    /// The script leaves the old owner's field.
    OldFieldStays,
    /// The script removes the old owner's field before it adds the new one's.
    OldFieldFirst,
    /// The script leaves the TTL as it is.
    OldLeaseStays,
    /// The handoff queue does not keep the permits.
    PermitsDropped,
    /// The queue goes on with an owner that is not its last.
    StuckQueueGoesOn,
    /// The client forgets that an earlier sending was not answered.
    ResendForgotten,
    /// The lock stays with a waiter that was dropped.
    DeclinedForgotten,
    /// A hand-off that is abandoned leaves no releases.
    GivenUpForgotten,
    /// The watchdog renews a hold that is not confirmed, and reports it lost because Redis does
    /// not have it yet.
    UnconfirmedIsRenewed,
    /// The stale connection of a hand-off is not closed.
    HandoffNotClosed,
    /// A release publishes nothing.
    ReleaseUnpublished,
}

/// What an owner does: so many calls, with a long or a short lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) calls: u8,
    pub(crate) long: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Handoff {
    pub(crate) roles: [[Role; OWNERS]; 2],
    pub(crate) faults: u8,
    pub(crate) late: Late,
    pub(crate) bug: Option<Bug>,
    /// Takes no two steps as one.
    pub(crate) every_step: bool,
}

impl Handoff {
    fn initial(&self) -> State {
        let clients = self.roles.map(|roles| Client {
            up: true,
            owners: roles.map(|role| Owner {
                long: role.long,
                calls: role.calls,
                ..Owner::default()
            }),
            sent: None,
            unanswered: 0,
            executed: false,
            wake: false,
            due: false,
            lingers: false,
            expired: false,
            ran: false,
            bits: Default::default(),
        });
        let mut state = State { key: None, clients, faults: self.faults, false_loss: false };
        tidy(&mut state);
        state
    }

    /// The state after `step`.
    fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        if step.is_fault() && !take_counted(&mut next, step) {
            next.faults -= 1;
        }
        self.take(&mut next, step);
        tidy(&mut next);
        next
    }

    fn take(&self, next: &mut State, step: Step) {
        match step {
            Step::Execute(c, o) => self.execute_next(next, (c, o)),
            Step::Answer(c, o) => self.answer(&mut next.clients[c], o),
            Step::SendHandoff(c) => {
                self.close_stale(&mut next.clients[c]);
                let steps = next.clients[c].in_handoff() - 1;
                next.clients[c].sent = Some(Sent { steps, done: None });
            }
            Step::ExecuteHandoff(c) => {
                let client = &next.clients[c];
                let steps = client.sent.map_or(0, |sent| sent.steps);
                let owners = (1..=steps + 1).filter_map(|place| client.queued(place)).collect();
                let done = self.execute_handoff(next, c, owners);
                next.clients[c].sent = Some(Sent { steps, done: Some(done) });
            }
            Step::AnswerHandoff(c) => self.answer_handoff(next, c),
            Step::ExecuteLate(c, o) => self.execute_late(next, (c, o)),
            Step::LoseLate(c) => next.clients[c].close_stale(),
            Step::GiveBack(c, o) => {
                give_back(&mut next.clients[c], o);
                if self.can_hand_off(&next.clients[c], o) {
                    self.hand_off(&mut next.clients[c], o);
                }
            }
            Step::LetGo(c, o) => give_back(&mut next.clients[c], o),
            Step::HandOff(c, o) => self.hand_off(&mut next.clients[c], o),
            Step::Release(c, o) | Step::Ask(c, o) => {
                self.send(&mut next.clients[c], o);
                if !self.every_step {
                    self.execute_next(next, (c, o));
                    self.answer(&mut next.clients[c], o);
                }
            }
            Step::Slowly(c, o) => {
                self.send(&mut next.clients[c], o);
                if let Some(exchange) = &mut next.clients[c].owners[o].exchange {
                    exchange.slow = true;
                }
            }
            Step::Deadline(c, o) => {
                next.clients[c].owners[o].holds_mut().for_each(|hold| hold.valid = false);
            }
            Step::Expire => self.expire(next),
            Step::Renew(c, o) => {
                // Redis does not have it: `Owner::renewal_refused`, while the permit is taken.
                next.clients[c].owners[o].hold = None;
            }
            Step::Call(c, o) => {
                let client = &mut next.clients[c];
                client.owners[o].calls -= 1;
                if client.waiting() > 0 {
                    client.join(o);
                } else {
                    client.lingers = false;
                    client.owners[o].call = Call::Trying;
                }
            }
            Step::Join(c, o) => {
                next.clients[c].owners[o].calls -= 1;
                next.clients[c].join(o);
            }
            step => self.fail(next, step),
        }
    }
}

/// The guard of a hold goes.
fn give_back(client: &mut Client, o: usize) {
    let owner = &mut client.owners[o];
    owner.call = Call::None;
    let server = owner.server;
    if let Some(hold) = &mut owner.hold {
        hold.leaving = true;
    }
    owner.hold = owner.hold.filter(|_| server);
    owner.pending = owner.owes();
}

/// Whether a fault meets a request for which it was counted beforehand.
fn take_counted(state: &mut State, step: Step) -> bool {
    let met = |owner: &mut Owner| {
        let exchange = owner.exchange.as_mut();
        exchange.is_some_and(|exchange| std::mem::take(&mut exchange.slow))
    };
    match step {
        Step::Cut(c, o) | Step::GiveUp(c, o) | Step::Cancel(c, o) => {
            met(&mut state.clients[c].owners[o])
        }
        Step::Crash(c) => state.clients[c].owners.iter_mut().any(met),
        _ => false,
    }
}

/// Clears what makes no difference any more, and sorts what is interchangeable.
fn tidy(state: &mut State) {
    for client in &mut state.clients {
        if !client.up {
            // Which of its owners has the lock makes no difference.
            let field = client.has_field();
            client.owners = <[Owner; OWNERS]>::default();
            client.owners[OWNERS - 1].field = field;
        }
        for owner in &mut client.owners {
            owner.pending &= owner.owes();
            if let Some(hold) = &mut owner.hold {
                hold.valid &= !(hold.leaving && owner.freeing);
                hold.covered &= hold.valid;
                hold.long &= hold.valid;
                hold.confirmed &= hold.valid;
            } else if matches!(owner.call, Call::Handed | Call::Dropped) {
                owner.call = Call::None;
            }
        }
        if client.in_handoff() == 0 {
            (client.unanswered, client.executed) = (0, false);
        }
        let ends = |owner: &Owner| owner.calls == 0 && owner.call != Call::Trying;
        client.lingers &= client.waiting() == 0 && !client.owners.iter().all(ends);
        client.wake &= client.waiting() > 0 || client.lingers;
        client.due &= !client.wake && (client.waiting() > 0 || client.lingers);
        client.expired &= client.due;
    }
    let key = state.key;
    for client in &mut state.clients {
        client.ran &= key.is_none();
        client.sort();
    }
    if state.clients[0].bits > state.clients[1].bits {
        state.clients.swap(0, 1);
    }
}
