//! How a client sends, hands off, and takes an answer or the lack of one.

use crate::protocol::Late;

use super::state::{Call, Client, Exchange, Hold, OWNERS, Owner, Reply, Request, Sent, State};
use super::steps::Step;
use super::{Bug, Handoff, give_back};

impl Handoff {
    /// An owner sends its release, or asks for the lock.
    pub(super) fn send(&self, client: &mut Client, o: usize) {
        self.close_stale(client);
        let owner = &mut client.owners[o];
        let request = if owner.pending { Request::Release } else { Request::Acquire };
        owner.exchange = Some(Exchange { request, ahead: false, reply: None, slow: false });
        if request == Request::Release {
            (owner.pending, owner.freeing) = (false, true);
            return;
        }
        owner.server = true;
        if owner.call == Call::Waiting {
            owner.call = Call::Asking;
            (client.wake, client.due, client.expired) = (false, false, false);
        }
    }

    pub(super) fn execute_next(&self, state: &mut State, (c, o): (usize, usize)) {
        let Some(exchange) = &mut state.clients[c].owners[o].exchange else {
            return;
        };
        if std::mem::take(&mut exchange.ahead) {
            self.execute(state, (c, o), Request::Acquire);
            return;
        }
        let request = exchange.request;
        let reply = self.execute(state, (c, o), request);
        if let Some(exchange) = &mut state.clients[c].owners[o].exchange {
            exchange.reply = Some(reply);
        }
    }

    /// The answer to an owner's exchange arrives.
    pub(super) fn answer(&self, client: &mut Client, o: usize) {
        let others = client.waiting();
        let owner = &mut client.owners[o];
        let Some(Exchange { reply: Some(reply), .. }) = owner.exchange.take() else {
            return;
        };
        match reply {
            Reply::Granted(hold) => {
                owner.hold = Some(hold);
                owner.freeing = false;
                if owner.call == Call::Asking {
                    client.leave(o);
                    client.lingers = true;
                }
                client.owners[o].call = Call::None;
            }
            Reply::Refused => {
                (owner.server, owner.freeing) = (false, false);
                owner.hold = owner.hold.filter(|hold| !hold.leaving);
                if owner.call == Call::Trying {
                    // A waiter that subscribes asks once more.
                    client.wake |= others == 0 && !client.lingers;
                    client.join(o);
                }
                client.owners[o].call = Call::Waiting;
            }
            // Whether an earlier sending released it matters to what the caller hears, not to
            // what the owner holds.
            Reply::Released | Reply::Nothing => {
                owner.released();
                client.wake |= others == 0 && client.lingers;
            }
        }
    }

    /// `Relay::pass`: the lock goes to the head of the wait queue, which has it at once.
    pub(super) fn hand_off(&self, client: &mut Client, o: usize) {
        let Some(head) = client.head() else {
            return;
        };
        let old = client.owners[o].hold.unwrap_or_default();
        client.leave(head);
        (client.wake, client.due, client.expired, client.lingers) = (false, false, false, true);
        let from = &mut client.owners[o];
        (from.freeing, from.pending) = (true, false);
        if client.in_handoff() == 0 {
            client.owners[o].queued = 1;
        }
        let place = client.in_handoff() + 1;
        let to = &mut client.owners[head];
        (to.queued, to.server, to.call) = (place, true, Call::Handed);
        let own = self.bug == Some(Bug::UnconfirmedIsValid);
        to.hold = Some(Hold {
            long: to.long && (old.long || own),
            valid: true,
            covered: old.covered && !own,
            confirmed: false,
            leaving: false,
        });
    }

    /// `Relay::hear`, if there was an answer.
    pub(super) fn answer_handoff(&self, state: &mut State, c: usize) {
        let long = state.key.is_some_and(|key| key.long);
        let client = &mut state.clients[c];
        let Some(Sent { steps, done: Some(done) }) = client.sent.take() else {
            return;
        };
        let unsure = client.unanswered > 0 && self.bug != Some(Bug::ResendForgotten);
        if !done {
            state.false_loss |= client.executed && !unsure;
            for owner in client.owners.iter_mut().filter(|owner| owner.queued > 0) {
                owner.queued = 0;
                owner.gone();
            }
            client.wake = true;
            return;
        }
        for owner in client.owners.iter_mut().filter(|owner| owner.queued > 0) {
            match owner.queued - 1 {
                before if before < steps => {
                    owner.queued = 0;
                    owner.released();
                }
                last if last == steps => {
                    owner.queued = 1;
                    confirm(owner, long && self.bug != Some(Bug::OldLeaseStays));
                }
                _ => owner.queued -= steps,
            }
        }
        if client.in_handoff() == 1 {
            client.owners.iter_mut().for_each(|owner| owner.queued = 0);
        }
        (client.unanswered, client.executed) = (0, false);
    }

    /// A fault happens.
    pub(super) fn fail(&self, next: &mut State, step: Step) {
        match step {
            Step::Cut(c, o) => {
                let client = &mut next.clients[c];
                self.make_stale(client, o);
                if let Some(exchange) = &mut client.owners[o].exchange {
                    (exchange.ahead, exchange.reply) = (false, None);
                }
                self.close_stale(client);
            }
            Step::GiveUp(c, o) => self.give_up(&mut next.clients[c], o),
            Step::CutHandoff(c) => {
                self.make_handoff_stale(&mut next.clients[c]);
                if let Some(sent) = &mut next.clients[c].sent {
                    sent.done = None;
                }
                self.close_stale(&mut next.clients[c]);
            }
            Step::GiveUpHandoff(c) => {
                self.make_handoff_stale(&mut next.clients[c]);
                next.clients[c].sent = None;
            }
            Step::AbandonHandoff(c) => self.abandon(&mut next.clients[c]),
            Step::Cancel(c, o) => self.cancel(&mut next.clients[c], o),
            Step::Crash(c) => crash(&mut next.clients[c]),
            step => unreachable!("{step:?} is no fault"),
        }
    }

    /// What the server has not read yet goes with the connection, or comes late.
    fn make_stale(&self, client: &mut Client, o: usize) {
        let owner = &mut client.owners[o];
        let Some(exchange) = owner.exchange.filter(|_| self.late != Late::Never) else {
            return;
        };
        let unread = exchange.reply.is_none();
        owner.late_acquire |= exchange.ahead || unread && exchange.request == Request::Acquire;
        owner.late_release |= unread && exchange.request == Request::Release;
    }

    fn make_handoff_stale(&self, client: &mut Client) {
        let Some(Sent { steps, done }) = client.sent else {
            return;
        };
        client.unanswered = client.unanswered.max(steps);
        client.executed |= done == Some(true);
        if done.is_none() && self.late != Late::Never {
            for owner in &mut client.owners {
                owner.late_handoff = if owner.queued > steps + 1 { 0 } else { owner.queued };
            }
        }
    }

    /// No answer in time: the caller gets an error, or the waiter asks again. What the server may
    /// have executed is undone on another connection.
    fn give_up(&self, client: &mut Client, o: usize) {
        self.make_stale(client, o);
        let owner = &mut client.owners[o];
        owner.exchange = None;
        owner.pending = owner.owes();
        match owner.call {
            Call::Trying => owner.call = Call::None,
            Call::Asking => {
                owner.call = Call::Waiting;
                client.wake = true;
            }
            _ => {}
        }
    }

    /// `Relay::given_up`: no answer for so long that the lease of every step has ended.
    fn abandon(&self, client: &mut Client) {
        self.make_handoff_stale(client);
        client.sent = None;
        for owner in client.owners.iter_mut().filter(|owner| owner.queued > 0) {
            owner.queued = 0;
            owner.holds_mut().for_each(|hold| hold.valid = false);
            owner.pending = owner.owes() && self.bug != Some(Bug::GivenUpForgotten);
        }
    }

    /// A call's future is dropped.
    fn cancel(&self, client: &mut Client, o: usize) {
        let owner = &mut client.owners[o];
        if owner.call == Call::Handed {
            if self.bug == Some(Bug::DeclinedForgotten) {
                (owner.call, owner.hold) = (Call::None, None);
                return;
            }
            give_back(client, o);
            client.owners[o].call = Call::Dropped;
            if self.can_hand_off(client, o) {
                self.hand_off(client, o);
            }
            return;
        }
        let asks = owner.call == Call::Asking;
        owner.call = Call::None;
        if let Some(exchange) = &mut owner.exchange
            && exchange.request == Request::Acquire
        {
            // The undo goes behind what it undoes, on the same connection.
            let ahead = exchange.reply.is_none();
            *exchange = Exchange { request: Request::Release, ahead, reply: None, slow: false };
            owner.freeing = true;
        }
        client.leave(o);
        client.wake |= asks;
    }

    /// The server gets what came on a stale connection.
    pub(super) fn execute_late(&self, state: &mut State, (c, o): (usize, usize)) {
        let owner = &mut state.clients[c].owners[o];
        if std::mem::take(&mut owner.late_acquire) {
            self.execute(state, (c, o), Request::Acquire);
        } else if std::mem::take(&mut owner.late_release) {
            self.execute(state, (c, o), Request::Release);
        } else {
            let client = &mut state.clients[c];
            let place = |place| client.owners.iter().position(|owner| owner.late_handoff == place);
            let owners = (1..=OWNERS as u8).filter_map(place).collect();
            client.owners.iter_mut().for_each(|owner| owner.late_handoff = 0);
            let done = self.execute_handoff(state, c, owners);
            let client = &mut state.clients[c];
            client.executed |= done && client.unanswered > 0;
        }
    }
}

/// `Account::confirmed`: it is valid as long as its own lease says.
fn confirm(owner: &mut Owner, long: bool) {
    let Owner { long: own, field, .. } = *owner;
    if let Some(hold) = owner.hold.as_mut().filter(|hold| hold.valid) {
        hold.confirmed = true;
        hold.long = own;
        hold.covered = field && long >= own;
    }
}

/// The server has executed what was under way, or never does: when the client crashed is the
/// same to all others.
fn crash(client: &mut Client) {
    let fields = client.owners.map(|owner| owner.field);
    client.owners = fields.map(|field| Owner { field, ..Owner::default() });
    *client = Client {
        up: false,
        owners: client.owners,
        sent: None,
        unanswered: 0,
        executed: false,
        wake: false,
        due: false,
        lingers: false,
        expired: false,
        ran: client.ran,
        bits: client.bits,
    };
}
