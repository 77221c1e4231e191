//! To wait for a lock, as a model of which every state is visited: three clients of one handle, each of
//! which locks once.
//!
//! It follows `lua/{acquire,release}.lua`, `src/acquire.rs`, `src/wait`, `src/releaser.rs` and
//! `src/transport/subscriptions.rs`.
//!
//! # What is in it
//!
//! One lock. A call tries once, subscribes and asks again, and is then silent until a message comes or
//! the lease could have ended. Faults are counted, so many of any kind in one run: the connection is
//! cut, or goes silent, before the server has read a request or before its reply arrives; the
//! connection that carries messages is cut; a message is lost, and no client notices; a call is
//! dropped; a process dies. Leases may end at any time, without being counted.
//!
//! # What is not
//!
//! - What the model of the possession has: hand-offs, nested holds, renewals, leases of several
//!   lengths, a second call of a handle, and requests of a stale connection that are late. Here they
//!   are gone with the connection, and late only if the process has died.
//! - A Redis that loses data or is tampered with, errors that Redis answers, more than one lock, more
//!   than one waiter of a client (`src/wait/queue.rs` has tests of its own).

mod checks;
mod client;
mod properties;
mod server;
mod state;
mod steps;

use stateright::Model;

use client::{crash, release_pending};
use properties::{INVARIANTS, REACHED};
use state::{Call, Client, InFlight, Key, Missed, Reply, State, Subscription};
use steps::Step;

/// A fault that the library does not have: each shows that the check would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The release deletes whatever is there.
    ReleaseUnchecked,
    /// The acquire sets no TTL.
    NoExpiry,
    /// A deadline counts from the reply.
    DeadlineFromReply,
    /// Having subscribed, a waiter does not ask again.
    NoSecondTry,
    /// A waiter goes by messages alone.
    NoDueTime,
    /// After a cut a waiter does not subscribe again.
    NoResubscription,
    /// An undo is sent on another connection than what it undoes.
    UndoOvertakes,
    /// An acquire that was dropped is not undone.
    NoUndo,
    /// Not of the library: a server on which a lease ends before the holder's clock says so.
    ClocksDiffer,
}

#[derive(Clone, Debug)]
struct Waiting {
    faults: u8,
    bug: Option<Bug>,
    /// Takes no two steps as one.
    every_step: bool,
}

impl Model for Waiting {
    crate::model!(met: take_counted);

    fn init_states(&self) -> Vec<State> {
        vec![State { key: None, clients: [Client::new(true); 3], faults: self.faults }]
    }
}

impl Waiting {
    fn take(&self, next: &mut State, step: Step) {
        self.take_alone(next, step);
        if !self.every_step {
            self.hurry(next, step);
        }
    }

    fn take_alone(&self, next: &mut State, step: Step) {
        match step {
            Step::Slowly(c) => {
                if let Some(step) = self.slow_step(c, &next.clients[c]) {
                    self.take_alone(next, step);
                }
                next.clients[c].in_flight.iter_mut().for_each(|in_flight| in_flight.slow = true);
            }
            Step::Execute(c) => self.execute_next(next, c),
            Step::ExecuteLate(c) => {
                if let Some(request) = next.clients[c].pop_late() {
                    self.execute(next, c, request);
                }
            }
            Step::LoseLate(c) => _ = next.clients[c].pop_late(),
            Step::Expire => self.expire(next),
            Step::Answer(c) => self.answer(&mut next.clients[c]),
            Step::Subscribe(c) => {
                next.clients[c].subscription = Subscription::Live;
                next.clients[c].again |= self.bug != Some(Bug::NoSecondTry);
            }
            Step::Message(c) => (next.clients[c].message, next.clients[c].again) = (false, true),
            Step::Release(c) => release_pending(&mut next.clients[c]),
            Step::Ask(c) => self.ask(&mut next.clients[c]),
            Step::GiveBack(c) => {
                let client = &mut next.clients[c];
                client.hold = None;
                client.to_release = client.is_pending();
            }
            Step::Deadline(c) => {
                next.clients[c].hold.iter_mut().for_each(|term| term.believed = false);
            }
            Step::Call(c) => {
                let client = &mut next.clients[c];
                (client.calls, client.call) = (false, Call::Trying);
                self.ask(client);
            }
            Step::Cut(c) => self.cut(&mut next.clients[c]),
            Step::GiveUp(c) => self.give_up(&mut next.clients[c]),
            Step::CutOwn(c) => self.cut_own(&mut next.clients[c]),
            Step::LoseMessage(c) => {
                (next.clients[c].message, next.clients[c].missed) = (false, Missed::Message);
            }
            Step::Crash(c) => crash(&mut next.clients[c]),
            Step::Cancel(c) => self.cancel(&mut next.clients[c]),
        }
    }

    /// Takes at once what could as well come later. A request that no fault meets is executed when it
    /// is sent, and its answer taken if that matters to no other client: whatever else happened
    /// between these could happen before. A fault that meets a request is counted beforehand, by
    /// [`Step::Slowly`].
    fn hurry(&self, state: &mut State, step: Step) {
        if let Step::Ask(c) | Step::Call(c) | Step::Release(c) = step {
            self.execute_next(state, c);
        }
        let no_fault_comes = state.faults == 0;
        for client in &mut state.clients {
            if let Some(InFlight { reply: Some(reply), slow: false, .. }) = client.in_flight
                && matches!(reply, Reply::Refused | Reply::Released)
            {
                self.answer(client);
            }
            if client.message && no_fault_comes {
                (client.message, client.again) = (false, true);
            }
        }
    }

    /// The server executes the next request on a client's connection.
    fn execute_next(&self, state: &mut State, c: usize) {
        let Some(in_flight) = &mut state.clients[c].in_flight else { return };
        if std::mem::take(&mut in_flight.ahead) {
            self.execute(state, c, state::Request::Acquire);
            return;
        }
        let request = in_flight.request;
        let reply = self.execute(state, c, request);
        let client = &mut state.clients[c];
        if reply == Reply::Refused {
            // From here on changes count.
            (client.due, client.missed) = Default::default();
        }
        client.in_flight.iter_mut().for_each(|in_flight| in_flight.reply = Some(reply));
    }
}

/// Whether a fault meets a request for which it was counted beforehand.
fn take_counted(state: &mut State, step: Step) -> bool {
    let (Step::Cut(c) | Step::GiveUp(c) | Step::Cancel(c) | Step::Crash(c)) = step else {
        return false;
    };
    let in_flight = state.clients[c].in_flight.as_mut();
    in_flight.is_some_and(|in_flight| std::mem::take(&mut in_flight.slow))
}

/// Clears what makes no difference any more. And clients differ by name alone, so all orders of them
/// are one state.
fn tidied(mut state: State) -> State {
    for client in &mut state.clients {
        client.terms().for_each(|term| term.covered &= term.believed);
        client.to_release &= client.is_pending();
        if client.again {
            (client.due, client.missed) = Default::default();
        }
    }
    for (a, b) in [(0, 1), (1, 2), (0, 1)] {
        if state.clients[a] > state.clients[b] {
            state.clients.swap(a, b);
            if let Some(Key { client, .. }) = &mut state.key {
                *client = crate::swapped(a, b)(usize::from(*client)) as u8;
            }
        }
    }
    state
}
