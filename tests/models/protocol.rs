//! What the clients do: `src/{acquire,holds,releaser,watchdog,waiters,connection}.rs` in the
//! abstract, and what can go wrong.

use crate::state::{
    Call, Client, Exchange, Health, Key, Lease, Reply, Request, State, Subscription, Untold,
};

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

/// One step. Those of the first part happen sooner or later, those of the others need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The server executes what a client has sent last, or the acquire ahead of it.
    Execute(usize),
    /// The answer arrives.
    Answer(usize),
    ExecuteRenewal(usize),
    AnswerRenewal(usize),
    Subscribe(usize),
    Message(usize),
    /// The server gets a request of a connection that was given up, or never will.
    ExecuteLate(usize),
    LoseLate(usize),
    /// The background pays what is owed.
    Pay(usize),
    Ask(usize),
    /// A guard is given back.
    GiveBack(usize, usize),
    /// A guard's deadline passes.
    Deadline(usize, usize),
    /// The lease ends.
    Expire,

    /// What users and the watchdog begin.
    Call(usize),
    Renew(usize),

    // Faults. A cancellation is one for the count.
    /// The callers' connection is cut, and the request sent again.
    Cut(usize),
    /// No answer came in time, and the connection is given up.
    GiveUp(usize),
    /// The connection of the client's own thread is cut.
    CutOwn(usize),
    GiveUpRenewal(usize),
    /// A message is lost and nobody notices.
    LoseMessage(usize),
    Crash(usize),
    Cancel(usize),
}

impl Step {
    /// Whether it happens sooner or later if nothing else does.
    pub(crate) fn is_certain(self) -> bool {
        !self.is_fault() && !matches!(self, Self::Call(_) | Self::Renew(_))
    }

    pub(crate) fn is_fault(self) -> bool {
        use Step::*;
        matches!(
            self,
            Cut(_)
                | GiveUp(_)
                | CutOwn(_)
                | GiveUpRenewal(_)
                | LoseMessage(_)
                | Crash(_)
                | Cancel(_)
        )
    }
}

impl Protocol {
    pub(crate) fn initial(&self) -> State {
        let clients = self.roles.map(|role| Client::new(role.calls, role.renewals));
        State { key: None, clients, faults: self.faults }
    }

    /// The steps that are possible.
    pub(crate) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (c, client) in state.clients.iter().enumerate() {
            if client.late[0].is_some() {
                steps.push(Step::ExecuteLate(c));
                steps.push(Step::LoseLate(c));
            }
            if client.is_up() {
                self.certain_steps(c, client, steps);
                self.begun_steps(c, client, steps);
                if state.faults > 0 {
                    faults(c, client, steps);
                }
            }
        }
        if state.key.is_some_and(|key| key.has_ttl) {
            steps.push(Step::Expire);
        }
    }

    fn certain_steps(&self, c: usize, client: &Client, steps: &mut Vec<Step>) {
        match client.exchange {
            Some(Exchange { reply: None, .. }) => steps.push(Step::Execute(c)),
            Some(_) => steps.push(Step::Answer(c)),
            None if client.debt => steps.push(Step::Pay(c)),
            None => {
                let due = client.due && self.bug != Some(Bug::NoDueTime);
                let parked = client.call == Call::Parked && (client.again || due);
                if client.call == Call::Trying || parked {
                    steps.push(Step::Ask(c));
                }
            }
        }
        match client.renewal {
            Some(Exchange { reply: None, .. }) => steps.push(Step::ExecuteRenewal(c)),
            Some(_) => steps.push(Step::AnswerRenewal(c)),
            None => {}
        }
        match client.subscription {
            Subscription::Asked => steps.push(Step::Subscribe(c)),
            Subscription::Live if client.message => steps.push(Step::Message(c)),
            Subscription::Live | Subscription::Off => {}
        }
        for (i, term) in client.live.iter().enumerate() {
            if let Some(term) = term {
                steps.push(Step::GiveBack(c, i));
                // If it is all the same to what the client does, it passes with the lease's end.
                if term.believed && (client.calls > 0 || client.holds() > 1 || self.every_step) {
                    steps.push(Step::Deadline(c, i));
                }
            }
        }
    }

    fn begun_steps(&self, c: usize, client: &Client, steps: &mut Vec<Step>) {
        let role = &self.roles[c];
        let room = !client.believes() || (role.inner.is_some() && client.holds() < 2);
        // One that has to wait for another exchange of its handle is as one that begins later.
        if client.call == Call::None && client.calls > 0 && client.exchange.is_none() && room {
            steps.push(Step::Call(c));
        }
        let watched = client.live.iter().flatten().any(|term| term.believed && term.lease.watched);
        if watched && client.renewals > 0 && client.renewal.is_none() {
            steps.push(Step::Renew(c));
        }
    }

    /// The state after `step`.
    pub(crate) fn after(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        next.faults -= u8::from(step.is_fault());
        match step {
            Step::Execute(c) => self.execute_next(&mut next, c),
            Step::ExecuteRenewal(c) => {
                if let Some(Exchange { request, .. }) = next.clients[c].renewal {
                    let reply = self.execute(&mut next, c, request, false);
                    set_reply(&mut next.clients[c].renewal, reply);
                }
            }
            Step::ExecuteLate(c) => {
                if let Some(request) = next.clients[c].pop_late() {
                    self.execute(&mut next, c, request, true);
                }
            }
            Step::Expire => self.expire(&mut next),
            Step::Answer(c) => self.answer(&mut next.clients[c]),
            Step::AnswerRenewal(c) => {
                let client = &mut next.clients[c];
                let reply = client.renewal.take().and_then(|renewal| renewal.reply);
                let about_it = std::mem::take(&mut client.same_tenure) && client.holds() > 0;
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
            Step::Pay(c) => pay(&mut next.clients[c], None),
            Step::Ask(c) => self.ask(&self.roles[c], &mut next.clients[c]),
            Step::GiveBack(c, i) => {
                let client = &mut next.clients[c];
                client.live[i] = None;
                client.live.sort_by_key(Option::is_none);
                client.debt = client.owed().is_some();
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
                client.debt = client.owed().is_some();
                if !client.debt {
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
                client.same_tenure = true;
                let number = client.number;
                client.renewal = Some(sent(Request::Renew { number, lease }));
            }
            Step::Cut(c) => self.cut(&mut next.clients[c]),
            Step::GiveUp(c) => self.give_up(&mut next.clients[c]),
            Step::CutOwn(c) => self.cut_own(&mut next.clients[c]),
            Step::GiveUpRenewal(c) => {
                let client = &mut next.clients[c];
                if let Some(Exchange { request, reply: None, .. }) = client.renewal.take()
                    && self.late != Late::Never
                {
                    client.add_late(request);
                }
                client.same_tenure = false;
                if self.bug == Some(Bug::UnknownRenews) {
                    // The deadline has moved, and the TTL has not.
                    let watched = client.live.iter_mut().flatten().filter(|t| t.lease.watched);
                    watched.for_each(|term| term.covered = false);
                }
            }
            Step::LoseMessage(c) => {
                next.clients[c].message = false;
                next.clients[c].untold = Untold::MessageLost;
            }
            Step::Crash(c) => crash(&mut next.clients[c]),
            Step::Cancel(c) => self.cancel(&mut next.clients[c]),
        }
        if !self.every_step {
            self.hurry(&mut next, step);
        }
        for client in &mut next.clients {
            // What makes no difference any more makes no other state.
            client.terms().for_each(|term| term.covered &= term.believed);
            client.debt &= client.owed().is_some();
            if client.again {
                client.due = false;
                client.untold = Untold::No;
            }
            if client.calls == 0 && client.call == Call::None && client.holds() == 0 {
                client.renewals = 0;
            }
        }
        self.sort(&mut next);
        next
    }

    /// Takes steps at once that could as well come later: whatever came between would lead to
    /// the same, or could come before.
    fn hurry(&self, state: &mut State, step: Step) {
        let no_fault_comes = state.faults == 0;
        if let (true, Step::Ask(c) | Step::Call(c) | Step::Pay(c)) = (no_fault_comes, step)
            && let Some(Exchange { request, .. }) = state.clients[c].exchange
            // A request for which it matters when it was made.
            && !matches!(request, Request::Acquire { count: 2.., .. } | Request::Release { count: 1.., .. })
        {
            self.execute_next(state, c);
        }
        for client in &mut state.clients {
            let told = client.exchange.and_then(|exchange| exchange.reply);
            let to_the_server_it_was_nothing = told == Some(Reply::Refused);
            let released = matches!(told, Some(Reply::Nothing | Reply::Released));
            if to_the_server_it_was_nothing || (released && no_fault_comes) {
                self.answer(client);
            }
            // What it prolongs is prolonged on the server.
            if client.renewal.is_some_and(|renewal| renewal.reply == Some(Reply::Renewed)) {
                client.renewal = None;
                client.same_tenure = false;
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
        let Some(exchange) = &mut state.clients[c].exchange else {
            return;
        };
        if let Some(ahead) = exchange.ahead.take() {
            self.execute(state, c, ahead, false);
            return;
        }
        let request = exchange.request;
        let reply = self.execute(state, c, request, false);
        let client = &mut state.clients[c];
        if reply == Reply::Refused {
            // From here on changes count.
            client.due = false;
            client.untold = Untold::No;
        }
        set_reply(&mut client.exchange, reply);
    }

    /// `Attempt::try_once`, up to the request.
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
                client.same_tenure = false;
                if self.late == Late::NewNumber && std::mem::take(&mut client.unanswered) {
                    client.number += 1;
                }
                (1, role.lease)
            }
        };
        client.server = client.server.max(count);
        let number = client.number;
        client.exchange = Some(sent(Request::Acquire { number, count, lease }));
    }
}

/// `releaser::pay`, up to the request, behind `ahead` if that is what it undoes.
pub(crate) fn pay(client: &mut Client, ahead: Option<Request>) {
    client.debt = false;
    let Some((count, promise)) = client.owed() else {
        return;
    };
    let request = Request::Release { number: client.number, count, promise };
    let repeated = client.freeing && count == 0;
    client.freeing |= count == 0;
    client.exchange = Some(Exchange { ahead, repeated, ..sent(request) });
}

fn sent(request: Request) -> Exchange {
    Exchange { ahead: None, request, reply: None, repeated: false, undo: false }
}

fn set_reply(exchange: &mut Option<Exchange>, reply: Reply) {
    if let Some(exchange) = exchange {
        exchange.reply = Some(reply);
    }
}

fn faults(c: usize, client: &Client, steps: &mut Vec<Step>) {
    steps.push(Step::Crash(c));
    if client.exchange.is_some() {
        steps.push(Step::Cut(c));
        steps.push(Step::GiveUp(c));
    }
    if client.call != Call::None {
        steps.push(Step::Cancel(c));
    }
    if client.subscription == Subscription::Live || client.renewal.is_some() {
        steps.push(Step::CutOwn(c));
    }
    if client.renewal.is_some() {
        steps.push(Step::GiveUpRenewal(c));
    }
    if client.message {
        steps.push(Step::LoseMessage(c));
    }
}

fn crash(client: &mut Client) {
    let mut after = Client::new(0, 0);
    after.health = Health::Crashed { holding: client.believes() };
    // What is in the sockets may still arrive.
    for exchange in [client.exchange, client.renewal].into_iter().flatten() {
        let request = Some(exchange.request).filter(|_| exchange.reply.is_none());
        [exchange.ahead, request].into_iter().flatten().for_each(|r| after.add_late(r));
    }
    client.late.into_iter().flatten().for_each(|request| after.add_late(request));
    *client = after;
}
