//! What the clients do: `src/{acquire,possession,releaser,watchdog,wait,transport}.rs` in the
//! abstract, and what can go wrong.

use crate::state::{
    Call, Client, Health, InFlight, Key, Lease, Missed, Reply, Request, State, Subscription,
};
use crate::steps::Step;

pub(crate) const CLIENTS: usize = 3;

/// A fault that the library does not have: each shows that the check would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The release deletes whatever is there.
    ReleaseUnchecked,
    /// The acquire adds one hold instead of reaching a count.
    CountAdded,
    /// The acquire sets no TTL.
    NoExpiry,
    /// A nested acquire sets its own lease, also a shorter one.
    NestedShortens,
    /// A release that leaves a hold sets the lease of the hold that goes.
    ReleaseShortens,
    /// A renewal sets its lease, also a shorter one.
    RenewShortens,
    /// A renewal creates the key.
    RenewCreates,
    /// A renewal without an answer is taken for one that was executed.
    UnknownRenews,
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
    /// An acquire that was given up is not undone.
    NoUndo,
    /// Not of the library: a server on which a lease ends before the holder's clock says so.
    ClocksDiffer,
}

/// What happens to a request that the server has not read when its connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// It is gone with the connection.
    Never,
    /// It may be executed at any time.
    Executed,
    /// The same, but the next request has the old connection killed before.
    Killed,
    /// The same, but the next first hold is asked for under a new owner number.
    NewNumber,
}

/// What one client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// Calls: as the lock is held by the client itself then or not, one is nested or not.
    pub(crate) calls: u8,
    pub(crate) renewals: u8,
    pub(crate) lease: Lease,
    /// The lease of a nested call.
    pub(crate) inner: Option<Lease>,
}

#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    pub(crate) roles: [Role; CLIENTS],
    pub(crate) faults: u8,
    pub(crate) late: Late,
    pub(crate) bug: Option<Bug>,
    /// Takes no two steps as one.
    pub(crate) every_step: bool,
}

impl Protocol {
    pub(crate) fn initial(&self) -> State {
        let clients = self.roles.map(|role| Client::new(role.calls, role.renewals));
        State { key: None, clients, faults: self.faults }
    }

    /// The state after `step`.
    pub(crate) fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        if step.is_fault() && !take_counted(&mut next, step) {
            next.faults -= 1;
        }
        self.take(&mut next, step);
        if !self.every_step {
            self.hurry(&mut next, step);
        }
        self.tidy(&mut next);
        next
    }

    fn take(&self, next: &mut State, step: Step) {
        match step {
            Step::Slowly(c) => {
                if let Some(step) = self.slow_step(c, &next.clients[c]) {
                    self.take(next, step);
                }
                if let Some(in_flight) = &mut next.clients[c].in_flight {
                    in_flight.slow = true;
                }
            }
            Step::Execute(c) => self.execute_next(next, c),
            Step::ExecuteRenewal(c) => {
                if let Some(InFlight { request, .. }) = next.clients[c].renewal {
                    let reply = self.execute(next, c, request, false);
                    set_reply(&mut next.clients[c].renewal, reply);
                }
            }
            Step::ExecuteLate(c) => {
                if let Some(request) = next.clients[c].pop_late() {
                    self.execute(next, c, request, true);
                }
            }
            Step::Expire => self.expire(next),
            Step::Answer(c) => self.answer(&mut next.clients[c]),
            Step::AnswerRenewal(c) => {
                let client = &mut next.clients[c];
                let reply = client.renewal.take().and_then(|renewal| renewal.reply);
                let about_it = std::mem::take(&mut client.same_possession) && client.holds() > 0;
                if reply == Some(Reply::NotRenewed) && about_it {
                    client.gone();
                }
            }
            Step::Subscribe(c) => {
                next.clients[c].subscription = Subscription::Live;
                next.clients[c].again |= self.bug != Some(Bug::NoSecondTry);
            }
            Step::Message(c) => {
                next.clients[c].message = false;
                next.clients[c].again = true;
            }
            Step::LoseLate(c) => {
                next.clients[c].pop_late();
            }
            Step::Release(c) => release_pending(&mut next.clients[c], None),
            Step::Ask(c) => self.ask(&self.roles[c], &mut next.clients[c]),
            Step::GiveBack(c, i) => {
                let client = &mut next.clients[c];
                client.live[i] = None;
                client.live.sort_by_key(Option::is_none);
                client.to_release = client.pending().is_some();
            }
            Step::Deadline(c, i) => {
                if let Some(term) = &mut next.clients[c].live[i] {
                    term.believed = false;
                }
            }
            Step::Call(c) => {
                let client = &mut next.clients[c];
                client.calls -= 1;
                client.call = Call::Trying;
                // An earlier hold's release comes before a new hold.
                client.to_release = client.pending().is_some();
                if !client.to_release {
                    self.ask(&self.roles[c], client);
                }
            }
            Step::Renew(c) => {
                let role = &self.roles[c];
                let lease = [Some(role.lease), role.inner].into_iter().flatten();
                let lease = lease.into_iter().find(|lease| lease.watched);
                let lease = lease.expect("BUG: a renewal of what is not watched");
                let client = &mut next.clients[c];
                client.renewals -= 1;
                client.same_possession = true;
                let number = client.number;
                client.renewal = Some(sent(Request::Renew { number, lease }));
            }
            Step::Cut(c) => self.cut(&mut next.clients[c]),
            Step::GiveUp(c) => self.give_up(&mut next.clients[c]),
            Step::CutOwn(c) => self.cut_own(&mut next.clients[c]),
            Step::GiveUpRenewal(c) => {
                let client = &mut next.clients[c];
                if let Some(InFlight { request, reply: None, .. }) = client.renewal.take()
                    && self.late != Late::Never
                {
                    client.add_late(request);
                }
                client.same_possession = false;
                if self.bug == Some(Bug::UnknownRenews) {
                    // The deadline has moved, and the TTL has not.
                    let watched = client.live.iter_mut().flatten().filter(|t| t.lease.watched);
                    watched.for_each(|term| term.covered = false);
                }
            }
            Step::LoseMessage(c) => {
                next.clients[c].message = false;
                next.clients[c].missed = Missed::Message;
            }
            Step::Crash(c) => crash(&mut next.clients[c]),
            Step::Cancel(c) => self.cancel(&mut next.clients[c]),
        }
    }

    /// What makes no difference any more makes no other state.
    fn tidy(&self, state: &mut State) {
        for client in &mut state.clients {
            client.terms().for_each(|term| term.covered &= term.believed);
            client.to_release &= client.pending().is_some();
            if client.again {
                client.due = false;
                client.missed = Missed::Nothing;
            }
            if client.calls == 0 && client.call == Call::None && client.holds() == 0 {
                client.renewals = 0;
            }
        }
        self.sort(state);
    }

    /// Takes at once what could as well come later. A request that no fault meets, of which it
    /// makes no difference when it was made, is executed when it is sent, and its answer taken if
    /// that matters to no other client: whatever else happened between these could happen before.
    /// A fault that meets a request is counted beforehand, by [`Step::Slowly`].
    fn hurry(&self, state: &mut State, step: Step) {
        if let Step::Ask(c) | Step::Call(c) | Step::Release(c) = step
            && let Some(InFlight { request, .. }) = state.clients[c].in_flight
            && matches!(
                request,
                Request::Acquire { count: 1, .. } | Request::Release { count: 0, .. }
            )
        {
            self.execute_next(state, c);
        }
        let no_fault_comes = state.faults == 0;
        for client in &mut state.clients {
            if let Some(InFlight { reply: Some(reply), slow: false, .. }) = client.in_flight
                && matches!(reply, Reply::Refused | Reply::Nothing | Reply::Released)
            {
                self.answer(client);
            }
            // What it prolongs is prolonged on the server.
            if client.renewal.is_some_and(|renewal| renewal.reply == Some(Reply::Renewed)) {
                client.renewal = None;
                client.same_possession = false;
            }
            if client.message && no_fault_comes {
                client.message = false;
                client.again = true;
            }
        }
    }

    /// Clients with one role differ by name alone, so all orders of them are one state.
    fn sort(&self, state: &mut State) {
        for (a, b) in [(0, 1), (1, 2), (0, 1)] {
            if self.roles[a] == self.roles[b] && state.clients[a] > state.clients[b] {
                state.clients.swap(a, b);
                if let Some(Key { client, .. }) = &mut state.key {
                    *client = match usize::from(*client) {
                        c if c == a => b as u8,
                        c if c == b => a as u8,
                        _ => *client,
                    };
                }
            }
        }
    }

    /// The server executes the next request on a client's connection.
    fn execute_next(&self, state: &mut State, c: usize) {
        if self.late == Late::Killed {
            // The first thing on a new connection was to kill the old one.
            state.clients[c].kill_late();
        }
        let Some(in_flight) = &mut state.clients[c].in_flight else {
            return;
        };
        if let Some(ahead) = in_flight.ahead.take() {
            self.execute(state, c, ahead, false);
            return;
        }
        let request = in_flight.request;
        let reply = self.execute(state, c, request, false);
        let client = &mut state.clients[c];
        if reply == Reply::Refused {
            // From here on changes count.
            client.due = false;
            client.missed = Missed::Nothing;
        }
        set_reply(&mut client.in_flight, reply);
    }

    /// `Acquisition::try_once` (`src/acquire/ask.rs`), up to the request.
    fn ask(&self, role: &Role, client: &mut Client) {
        client.call = match client.call {
            Call::Parked => Call::Asking { by_time: !client.again },
            call => call,
        };
        client.again = false;
        client.due = false;
        let (count, lease) = match role.inner {
            Some(inner) if client.believes() => (client.holds() + 1, inner),
            _ => {
                client.live = [None; 2];
                client.same_possession = false;
                if self.late == Late::NewNumber && std::mem::take(&mut client.unanswered) {
                    client.number += 1;
                }
                (1, role.lease)
            }
        };
        client.server = client.server.max(count);
        let number = client.number;
        client.in_flight = Some(sent(Request::Acquire { number, count, lease }));
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

/// `release_in_background` (`src/releaser.rs`), up to the request, behind `ahead` if that is what it
/// undoes.
pub(crate) fn release_pending(client: &mut Client, ahead: Option<Request>) {
    client.to_release = false;
    let Some((count, promise)) = client.pending() else {
        return;
    };
    let request = Request::Release { number: client.number, count, promise };
    let repeated = client.freeing && count == 0;
    client.freeing |= count == 0;
    client.in_flight = Some(InFlight { ahead, repeated, ..sent(request) });
}

fn sent(request: Request) -> InFlight {
    InFlight { ahead: None, request, reply: None, repeated: false, undo: false, slow: false }
}

fn set_reply(in_flight: &mut Option<InFlight>, reply: Reply) {
    if let Some(in_flight) = in_flight {
        in_flight.reply = Some(reply);
    }
}

fn crash(client: &mut Client) {
    let mut after = Client::new(0, 0);
    after.health = Health::Crashed { holding: client.believes() };
    // What is in the sockets may still arrive.
    for in_flight in [client.in_flight, client.renewal].into_iter().flatten() {
        let request = Some(in_flight.request).filter(|_| in_flight.reply.is_none());
        [in_flight.ahead, request].into_iter().flatten().for_each(|r| after.add_late(r));
    }
    client.late.into_iter().flatten().for_each(|request| after.add_late(request));
    *client = after;
}
