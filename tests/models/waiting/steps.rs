//! Which steps are possible.

use super::state::{Call, Client, InFlight, State, Subscription};
use super::{Bug, Waiting};
use crate::those_that;

/// One step. Those of the first part happen sooner or later, those of the others need not.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Step {
    /// The server executes what a client has sent last, or the acquire ahead of it.
    Execute(usize),
    /// The answer arrives.
    Answer(usize),
    Subscribe(usize),
    Message(usize),
    /// The server gets a request of a client that has crashed, or never will.
    ExecuteLate(usize),
    LoseLate(usize),
    /// The background releases what is pending.
    Release(usize),
    Ask(usize),
    /// A guard is given back.
    GiveBack(usize),
    /// A guard's deadline passes.
    Deadline(usize),
    /// The lease ends.
    Expire,

    /// What users begin.
    Call(usize),

    // Faults. A cancellation is one for the count.
    /// The client sends what it sends next, and a fault is meant to meet it (see
    /// [`Waiting::hurry`]).
    Slowly(usize),
    /// The callers' connection is cut, and the request sent again.
    Cut(usize),
    /// No answer came in time, and the connection is given up.
    GiveUp(usize),
    /// The connection of the client's own thread is cut.
    CutOwn(usize),
    /// A message is lost, and no client notices.
    LoseMessage(usize),
    Crash(usize),
    Cancel(usize),
}

impl crate::Step for Step {
    const BEGUN: Self = Self::Call(0);
    const FAULT: Self = Self::Slowly(0);
}

impl Waiting {
    /// The steps that are possible.
    pub(super) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (c, client) in state.clients.iter().enumerate() {
            if client.late[0].is_some() {
                steps.extend([Step::ExecuteLate(c), Step::LoseLate(c)]);
            }
            if client.is_up() {
                self.certain_steps(c, client, steps);
                steps.extend(client.calls.then_some(Step::Call(c)));
                self.faults(c, client, state.faults > 0, steps);
            }
        }
        steps.extend(state.key.is_some_and(|key| key.has_ttl).then_some(Step::Expire));
    }

    fn certain_steps(&self, c: usize, client: &Client, steps: &mut Vec<Step>) {
        match client.in_flight {
            Some(InFlight { reply: None, .. }) => steps.push(Step::Execute(c)),
            Some(_) => steps.push(Step::Answer(c)),
            None => steps.extend(self.next_request(c, client)),
        }
        match client.subscription {
            Subscription::Asked => steps.push(Step::Subscribe(c)),
            Subscription::Live if client.message => steps.push(Step::Message(c)),
            Subscription::Live | Subscription::Off => {}
        }
        steps.extend(those_that([
            (client.hold.is_some(), Step::GiveBack(c)),
            // It is all the same to what the client does, so it passes with the lease's end.
            (client.believes() && self.every_step, Step::Deadline(c)),
        ]));
    }

    /// What a client with nothing under way sends.
    fn next_request(&self, c: usize, client: &Client) -> Option<Step> {
        let due = client.due && self.bug != Some(Bug::NoDueTime);
        let parked = client.call == Call::Parked && (client.again || due);
        match client.call {
            _ if client.to_release => Some(Step::Release(c)),
            _ if parked || client.call == Call::Trying => Some(Step::Ask(c)),
            _ => None,
        }
    }

    fn faults(&self, c: usize, client: &Client, left: bool, steps: &mut Vec<Step>) {
        let sends = client.in_flight.is_none() && self.slow_step(c, client).is_some();
        let met = left || client.in_flight.is_some_and(|in_flight| in_flight.slow);
        steps.extend(those_that([
            (left && sends && !self.every_step, Step::Slowly(c)),
            (met && client.in_flight.is_some(), Step::Cut(c)),
            (met && client.in_flight.is_some(), Step::GiveUp(c)),
            (met && client.call != Call::None, Step::Cancel(c)),
            (met, Step::Crash(c)),
            (left && client.subscription == Subscription::Live, Step::CutOwn(c)),
            (left && client.message, Step::LoseMessage(c)),
        ]));
    }

    /// What [`Step::Slowly`] sends.
    pub(super) fn slow_step(&self, c: usize, client: &Client) -> Option<Step> {
        let call = client.calls.then_some(Step::Call(c));
        self.next_request(c, client).or(call)
    }
}
