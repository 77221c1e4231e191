//! Which steps are possible.

use crate::protocol::{Bug, Protocol};
use crate::state::{Call, Client, InFlight, State, Subscription};

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
    /// The background releases what is pending.
    Release(usize),
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
    /// The client sends what it sends next, and a fault is meant to meet it (see
    /// [`Protocol::hurry`]).
    Slowly(usize),
    /// The callers' connection is cut, and the request sent again.
    Cut(usize),
    /// No answer came in time, and the connection is given up.
    GiveUp(usize),
    /// The connection of the client's own thread is cut.
    CutOwn(usize),
    GiveUpRenewal(usize),
    /// A message is lost, and no client notices.
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
            Slowly(_)
                | Cut(_)
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
                self.faults(c, client, state.faults > 0, steps);
            }
        }
        if state.key.is_some_and(|key| key.has_ttl) {
            steps.push(Step::Expire);
        }
    }

    fn certain_steps(&self, c: usize, client: &Client, steps: &mut Vec<Step>) {
        match client.in_flight {
            Some(InFlight { reply: None, .. }) => steps.push(Step::Execute(c)),
            Some(_) => steps.push(Step::Answer(c)),
            None => steps.extend(self.next_request(c, client)),
        }
        match client.renewal {
            Some(InFlight { reply: None, .. }) => steps.push(Step::ExecuteRenewal(c)),
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

    /// What an owner with nothing under way sends.
    fn next_request(&self, c: usize, client: &Client) -> Option<Step> {
        let due = client.due && self.bug != Some(Bug::NoDueTime);
        let parked = client.call == Call::Parked && (client.again || due);
        match client.call {
            _ if client.to_release => Some(Step::Release(c)),
            _ if parked || client.call == Call::Trying => Some(Step::Ask(c)),
            _ => None,
        }
    }

    fn begun_steps(&self, c: usize, client: &Client, steps: &mut Vec<Step>) {
        if self.may_call(c, client) {
            steps.push(Step::Call(c));
        }
        let watched = client.live.iter().flatten().any(|term| term.believed && term.lease.watched);
        if watched && client.renewals > 0 && client.renewal.is_none() {
            steps.push(Step::Renew(c));
        }
    }

    /// A call that has to wait for another request of its handle is as one that begins later.
    fn may_call(&self, c: usize, client: &Client) -> bool {
        let nests = self.roles[c].inner.is_some() && client.holds() < 2;
        let free = client.call == Call::None && client.in_flight.is_none();
        free && client.calls > 0 && (nests || !client.believes())
    }

    fn faults(&self, c: usize, client: &Client, left: bool, steps: &mut Vec<Step>) {
        let request = client.in_flight.is_none().then(|| self.slow_step(c, client)).flatten();
        if left && request.is_some() && !self.every_step {
            steps.push(Step::Slowly(c));
        }
        let met = client.in_flight.is_some_and(|in_flight| in_flight.slow);
        if left || met {
            if client.in_flight.is_some() {
                steps.push(Step::Cut(c));
                steps.push(Step::GiveUp(c));
            }
            if client.call != Call::None {
                steps.push(Step::Cancel(c));
            }
            steps.push(Step::Crash(c));
        }
        if left && (client.subscription == Subscription::Live || client.renewal.is_some()) {
            steps.push(Step::CutOwn(c));
        }
        if left && client.renewal.is_some() {
            steps.push(Step::GiveUpRenewal(c));
        }
        if left && client.message {
            steps.push(Step::LoseMessage(c));
        }
    }

    /// What [`Step::Slowly`] sends.
    pub(crate) fn slow_step(&self, c: usize, client: &Client) -> Option<Step> {
        let call = self.may_call(c, client).then_some(Step::Call(c));
        self.next_request(c, client).or(call)
    }
}
