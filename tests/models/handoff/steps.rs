//! Which steps are possible.

use crate::protocol::Late;

use super::state::{Call, Client, Exchange, Owner, State};
use super::{Bug, Handoff};

/// One step. Those of the first part happen sooner or later, those of the other parts need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The server executes what an owner has sent last, or the acquire ahead of it.
    Execute(usize, usize),
    Answer(usize, usize),
    /// The client sends all of its handoff queue.
    SendHandoff(usize),
    ExecuteHandoff(usize),
    AnswerHandoff(usize),
    /// The server executes what an owner has on a stale connection; that of the queue's first
    /// is the hand-off.
    ExecuteLate(usize, usize),
    LoseLate(usize),
    /// A guard goes, and the next waiter of the client has the lock if it can be handed off.
    GiveBack(usize, usize),
    /// A guard goes, and the lock is to be released although it could be handed off.
    LetGo(usize, usize),
    /// The background hands off what it was to release.
    HandOff(usize, usize),
    Release(usize, usize),
    Ask(usize, usize),
    /// A deadline passes.
    Deadline(usize, usize),
    /// The lease ends.
    Expire,
    /// A bug: see [`Bug::UnconfirmedIsRenewed`].
    Renew(usize, usize),

    // What users begin: a first try, or a place in the wait queue that lingers.
    Call(usize, usize),
    Join(usize, usize),

    // Faults. A cancellation is one for the count.
    /// An owner sends what it sends next, and a fault is meant to meet it.
    Slowly(usize, usize),
    /// The connection is cut, and the request sent again.
    Cut(usize, usize),
    /// No answer came in time, and the connection is given up.
    GiveUp(usize, usize),
    /// The same for the hand-off: it is sent again as it is, ...
    CutHandoff(usize),
    /// ... or with what has come since, ...
    GiveUpHandoff(usize),
    /// ... or for as long as its leases last, to no avail.
    AbandonHandoff(usize),
    Cancel(usize, usize),
    Crash(usize),
}

impl Step {
    /// Whether it happens sooner or later if nothing else does.
    pub(super) fn is_certain(self) -> bool {
        !self.is_fault() && !matches!(self, Self::Call(..) | Self::Join(..) | Self::Renew(..))
    }

    pub(super) fn is_fault(self) -> bool {
        use Step::*;
        matches!(
            self,
            Slowly(..)
                | Cut(..)
                | GiveUp(..)
                | CutHandoff(_)
                | GiveUpHandoff(_)
                | AbandonHandoff(_)
                | Cancel(..)
                | Crash(_)
        )
    }
}

impl Handoff {
    /// The steps that are possible.
    pub(super) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (c, client) in state.clients.iter().enumerate().filter(|(_, client)| client.up) {
            for (o, owner) in client.owners.iter().enumerate() {
                self.owner_steps((c, o), client, owner, steps);
                self.faults((c, o), client, owner, state.faults > 0, steps);
            }
            self.handoff_steps(c, client, state.faults > 0, steps);
        }
        if state.key.is_some_and(|key| key.has_ttl) {
            steps.push(Step::Expire);
        }
    }

    fn owner_steps(
        &self,
        (c, o): (usize, usize),
        client: &Client,
        owner: &Owner,
        steps: &mut Vec<Step>,
    ) {
        match owner.exchange {
            Some(Exchange { reply: None, .. }) => steps.push(Step::Execute(c, o)),
            Some(_) => steps.push(Step::Answer(c, o)),
            None => {}
        }
        let late_handoff = owner.late_handoff == 1;
        if owner.late_acquire || owner.late_release || late_handoff {
            steps.push(Step::ExecuteLate(c, o));
        }
        if owner.holds() {
            steps.push(Step::GiveBack(c, o));
            let mut given_back = *client;
            super::give_back(&mut given_back, o);
            if self.can_hand_off(&given_back, o) {
                steps.push(Step::LetGo(c, o));
            }
            if owner.relies() && self.every_step {
                steps.push(Step::Deadline(c, o));
            }
            let in_the_air = owner.hold.is_some_and(|hold| !hold.confirmed && hold.valid);
            if in_the_air && !owner.field && self.bug == Some(Bug::UnconfirmedIsRenewed) {
                steps.push(Step::Renew(c, o));
            }
        }
        if client.in_handoff() == 0 && self.can_hand_off(client, o) {
            steps.push(Step::HandOff(c, o));
        }
        steps.extend(self.next_request((c, o), client));
        let idle = owner.call == Call::None && !owner.holds();
        if idle && owner.calls > 0 {
            steps.push(Step::Call(c, o));
            if client.lingers {
                steps.push(Step::Join(c, o));
            }
        }
    }

    fn handoff_steps(&self, c: usize, client: &Client, faults: bool, steps: &mut Vec<Step>) {
        if client.is_late() {
            steps.push(Step::LoseLate(c));
        }
        match client.sent {
            None if client.in_handoff() > 1 => steps.push(Step::SendHandoff(c)),
            None => {}
            Some(sent) => {
                steps.push(match sent.done {
                    None => Step::ExecuteHandoff(c),
                    Some(_) => Step::AnswerHandoff(c),
                });
                if faults {
                    steps.push(Step::CutHandoff(c));
                    if self.every_step || client.in_handoff() > sent.steps + 1 {
                        steps.push(Step::GiveUpHandoff(c));
                    }
                    steps.push(Step::AbandonHandoff(c));
                }
            }
        }
        if faults {
            steps.push(Step::Crash(c));
        }
    }

    /// Whether an owner's exchange permit is free.
    pub(super) fn is_free(&self, owner: &Owner) -> bool {
        let queued = owner.queued > 0 && self.bug != Some(Bug::PermitsDropped);
        owner.exchange.is_none() && !queued
    }

    /// What an owner with nothing under way sends.
    pub(super) fn next_request(&self, (c, o): (usize, usize), client: &Client) -> Option<Step> {
        let owner = &client.owners[o];
        if !self.is_free(owner) {
            return None;
        }
        let looks = client.wake || client.due;
        let asks =
            owner.call == Call::Trying || owner.call == Call::Waiting && owner.place == 1 && looks;
        match owner.pending {
            true => Some(Step::Release(c, o)),
            false => asks.then_some(Step::Ask(c, o)),
        }
    }

    /// `Relay::pass`: whether what an owner has given back can go to the head of the wait queue.
    pub(super) fn can_hand_off(&self, client: &Client, o: usize) -> bool {
        let owner = &client.owners[o];
        let left = owner.hold.is_some_and(|hold| hold.leaving && hold.valid);
        if !left || !owner.pending || owner.freeing {
            return false;
        }
        let last = client.in_handoff();
        let stuck = last > 0 && owner.queued != last;
        let goes_on = self.bug == Some(Bug::StuckQueueGoesOn) && owner.queued == 0;
        let permit = if last > 0 && !stuck { true } else { self.is_free(owner) };
        let enters = permit && (!stuck || goes_on);
        let head = client.head().map(|head| &client.owners[head]);
        enters
            && head.is_some_and(|head| {
                let takes = !head.server && head.hold.is_none();
                head.call == Call::Waiting && head.queued == 0 && self.is_free(head) && takes
            })
    }

    fn faults(
        &self,
        (c, o): (usize, usize),
        client: &Client,
        owner: &Owner,
        left: bool,
        steps: &mut Vec<Step>,
    ) {
        if left && !self.every_step && self.next_request((c, o), client).is_some() {
            steps.push(Step::Slowly(c, o));
        }
        let met = owner.exchange.is_some_and(|exchange| exchange.slow);
        if !left && !met {
            return;
        }
        if owner.exchange.is_some() {
            steps.push(Step::Cut(c, o));
            steps.push(Step::GiveUp(c, o));
        }
        if !matches!(owner.call, Call::None | Call::Dropped) {
            steps.push(Step::Cancel(c, o));
        }
        if met && !left {
            steps.push(Step::Crash(c));
        }
    }

    /// The server closes the stale connections before the client sends anything.
    pub(super) fn close_stale(&self, client: &mut Client) {
        if self.late != Late::Killed {
            return;
        }
        let handoffs = client.owners.map(|owner| owner.late_handoff);
        client.close_stale();
        if self.bug == Some(Bug::HandoffNotClosed) {
            for (owner, late) in client.owners.iter_mut().zip(handoffs) {
                owner.late_handoff = late;
            }
        }
    }
}
