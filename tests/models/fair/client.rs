//! How a client asks, hears, hands off and leaves.

use super::state::{
    Call, Client, Elsewhere, Exchange, GRANT, HandOff, Hold, Owner, Reply, Request, Sent, State,
    bit,
};
use super::steps::Step;
use super::{Bug, Fair};

const VALID: Hold = Hold { valid: true, leaving: false };

impl Fair {
    pub(super) fn take(&self, next: &mut State, step: Step) {
        match step {
            Step::Execute(c, o) => {
                self.execute_next(next, (c, o));
                self.answer_at_once(next, (c, o));
            }
            Step::Answer(c, o) => self.answer(next, (c, o)),
            Step::Ask(c) => self.ask(next, c),
            Step::AskEarly(c) => {
                let head = next.clients[c].head();
                self.ask(next, c);
                if let Some(head) = head.filter(|_| !self.every_step) {
                    self.answer(next, (c, head));
                }
            }
            Step::GiveBack(c, o) => {
                let owner = &mut next.clients[c].owners[o];
                owner.hold = owner.hold.map(|hold| Hold { leaving: true, ..hold });
            }
            Step::Release(c, o) => {
                self.send_release(next, (c, o));
                self.answer_at_once(next, (c, o));
            }
            Step::ReleaseCut(c, o) => {
                self.send_release(next, (c, o));
                self.fail(next, Step::Cut(c, o));
            }
            Step::HandOff(c, o) => {
                let client = &mut next.clients[c];
                let Some(to) = client.head() else { return };
                client.leave(to);
                (client.taken, client.moves, client.due, client.timer) =
                    (false, true, false, false);
                self.hand(next, (c, o), to, Call::Handed);
                next.clients[c].owners[to].hold = Some(VALID);
                self.believes(next, (c, to));
            }
            Step::HandOffAwaited(c) => {
                let Some(to) = next.clients[c].head() else { return };
                next.clients[c].due = false;
                self.hand(next, (c, GRANT), to, Call::Awaiting);
            }
            Step::Take(c, o) => {
                let client = &mut next.clients[c];
                if client.owners[o].relies() {
                    client.owners[o].wait_ends(Call::None);
                } else {
                    client.owners[o].hold = None;
                    client.join(o);
                }
            }
            Step::SendHandOff(c) => {
                if let Some(hand_off) = &mut next.clients[c].hand_off {
                    hand_off.sent = Sent::OnItsWay;
                }
                if !self.every_step {
                    self.hand_off(next, c);
                }
            }
            Step::ExecuteHandOff(c) => self.hand_off(next, c),
            Step::AnswerHandOff(c) => self.answer_hand_off(next, c),
            Step::Begin(c, o) => self.begin(next, (c, o)),
            Step::Subscribe(c) => (next.clients[c].subscribed, next.clients[c].due) = (true, true),
            Step::Unsubscribe(c) => next.clients[c].subscribed = false,
            Step::HearAsk(c) => {
                let client = &mut next.clients[c];
                (client.ask, client.due) = (false, true);
            }
            Step::HearAskLater(c) => {
                let over = next.key.is_none();
                let client = &mut next.clients[c];
                (client.ask_later, client.timer) = (false, true);
                client.due |= over;
            }
            Step::HearGrant(c) => self.hear_grant(next, c),
            Step::Refresh(c) => {
                self.refresh(next, c);
                let free = next.key.is_none();
                let client = &mut next.clients[c];
                client.clock = true;
                client.due |= free || client.place == 0;
            }
            Step::SendLeave(c) => {
                let client = &mut next.clients[c];
                (client.leaves, client.leaving) = (false, !client.taken);
            }
            Step::Leave(c) => {
                self.leave_queue(next, c);
                let client = &mut next.clients[c];
                (client.leaving, client.due) = (false, client.due || client.taken);
                // Another waiter has come meanwhile, and asks again within a round trip.
                client.owners.iter_mut().for_each(|owner| owner.stands = false);
            }
            Step::Expire => self.expire(next),
            Step::ExpireEarly => {
                next.overdue = true;
                self.expire(next);
            }
            Step::TimerEnds(c) => (next.clients[c].timer, next.clients[c].due) = (false, true),
            Step::PlaceEnds(c) => next.clients[c].lapsed = true,
            Step::GraceEnds | Step::GraceEndsEarly => self.end_grace(next),
            step => self.fail(next, step),
        }
    }

    /// A call begins, and tries at once or joins the wait queue.
    fn begin(&self, state: &mut State, (c, o): (usize, usize)) {
        let (since, standing) = (state.next_since(), state.standing());
        let client = &mut state.clients[c];
        let queued = client.subscribed || client.waiting() > 0;
        let others = standing & !(bit(c, 0) | bit(c, 1));
        let owner = &mut client.owners[o];
        (owner.since, owner.calls, owner.behind) = (since, owner.calls - 1, others);
        if queued {
            client.join(o);
            return;
        }
        owner.call = Call::Trying;
        self.send(state, (c, o), Request::Acquire { since, moves: false });
    }

    fn ask(&self, state: &mut State, c: usize) {
        let Some(head) = state.clients[c].head() else { return };
        let again = if self.bug == Some(Bug::AgeForgotten) { state.next_since() } else { 0 };
        let client = &mut state.clients[c];
        (client.due, client.taken) = (false, true);
        let owner = &mut client.owners[head];
        owner.call = Call::Asking;
        let since = owner.since.max(again);
        let moves = client.moves;
        self.send(state, (c, head), Request::Acquire { since, moves });
    }

    fn send(&self, state: &mut State, (c, o): (usize, usize), request: Request) {
        state.clients[c].owners[o].exchange = Some(Exchange { ahead: 0, request, reply: None });
        if !self.every_step {
            self.execute_next(state, (c, o));
        }
    }

    fn send_release(&self, state: &mut State, (c, o): (usize, usize)) {
        let brings = brings_place(&mut state.clients[c]);
        // The next grant has an owner of its own.
        let leaving = Hold { valid: false, leaving: true };
        state.clients[c].owners[o].hold = if o == GRANT { None } else { Some(leaving) };
        self.send(state, (c, o), Request::Release { brings });
    }

    /// The answer to a release changes nothing but that the owner is free, or its client asks.
    fn answer_at_once(&self, state: &mut State, (c, o): (usize, usize)) {
        let answered = state.clients[c].owners[o].exchange.is_some_and(|exchange| {
            let release = matches!(exchange.request, Request::Release { .. });
            release && matches!(exchange.reply, Some(Reply::Released | Reply::Nothing))
        });
        if answered && !self.every_step {
            self.answer(state, (c, o));
        }
    }

    fn execute_next(&self, state: &mut State, (c, o): (usize, usize)) {
        let Some(exchange) = &mut state.clients[c].owners[o].exchange else { return };
        let ahead = std::mem::take(&mut exchange.ahead);
        if ahead > 0 {
            self.execute(state, c, o, Request::Acquire { since: ahead, moves: false });
            return;
        }
        let request = exchange.request;
        let reply = self.execute(state, c, o, request);
        if let Some(exchange) = &mut state.clients[c].owners[o].exchange {
            exchange.reply = Some(reply);
        }
    }

    fn answer(&self, state: &mut State, (c, o): (usize, usize)) {
        let Some(exchange) = state.clients[c].owners[o].exchange.take() else { return };
        let (held, has) = (state.key.is_some() || state.told.is_some(), state.has(c, o));
        let ours = state.key.is_some_and(|key| key.client == c);
        let tries = state.clients[c].owners[o].call == Call::Trying;
        match (exchange.request, exchange.reply) {
            (Request::Acquire { .. }, Some(Reply::Granted)) => {
                heard(state, c);
                let client = &mut state.clients[c];
                client.owners[o].hold = Some(Hold { valid: has, leaving: false });
                if !tries {
                    client.leave(o);
                    (client.taken, client.moves, client.due) = (false, false, true);
                }
                self.believes(state, (c, o));
                state.clients[c].owners[o].wait_ends(Call::None);
            }
            (Request::Acquire { .. }, _) => {
                if ours {
                    heard(state, c);
                }
                let client = &mut state.clients[c];
                if tries {
                    client.join(o);
                    client.taken = true;
                } else {
                    client.owners[o].call = Call::Waiting;
                    (client.moves, client.clock) = (false, true);
                }
                client.timer = held;
                client.due |= !held;
            }
            (Request::Release { .. }, reply) => {
                let client = &mut state.clients[c];
                if o != GRANT {
                    client.owners[o].hold = None;
                }
                client.due |= reply == Some(Reply::Nothing);
                if reply == Some(Reply::Granted) {
                    client.owners[GRANT].hold = Some(VALID);
                    heard(state, c);
                }
            }
        }
    }

    fn hear_grant(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        client.granted = false;
        let known = client.clock && client.waiting() > 0 || std::mem::take(&mut client.late);
        client.owners[GRANT].hold = Some(Hold { valid: known, leaving: !known });
        if known {
            heard(state, c);
        }
    }

    /// The lock goes to the head, and the hand-off to Redis.
    fn hand(&self, state: &mut State, (c, from): (usize, usize), to: usize, call: Call) {
        let client = &mut state.clients[c];
        client.owners[from].hold = None;
        client.owners[to].call = call;
        client.hand_off = Some(HandOff { from, to, sent: Sent::No });
    }

    fn answer_hand_off(&self, state: &mut State, c: usize) {
        let Some(HandOff { to, sent, .. }) = state.clients[c].hand_off.take() else { return };
        let done = sent == Sent::Done(true);
        if done {
            heard(state, c);
        }
        let has = state.has(c, to);
        let client = &mut state.clients[c];
        let awaits = client.owners[to].call == Call::Awaiting;
        match (done, awaits) {
            (true, true) => {
                client.leave(to);
                (client.taken, client.moves, client.due) = (false, false, true);
                client.owners[to].hold = Some(Hold { valid: has, leaving: false });
                self.believes(state, (c, to));
                state.clients[c].owners[to].wait_ends(Call::None);
            }
            (true, false) => {
                client.due |= !client.taken;
                if client.owners[to].hold.is_none() {
                    // The waiter that awaited it has left.
                    client.owners[to].hold = Some(Hold { valid: has, leaving: true });
                }
            }
            (false, true) => (client.owners[to].call, client.due) = (Call::Waiting, true),
            (false, false) => {
                let owner = &mut client.owners[to];
                let gone = |hold: &Hold| !hold.leaving;
                owner.hold = owner.hold.filter(gone).map(|hold| Hold { valid: false, ..hold });
                client.due = true;
            }
        }
    }

    /// A waiter has the lock: nobody that stood when it came, when Redis or its client decided, and
    /// stands now may wait for it still.
    fn believes(&self, state: &mut State, (c, o): (usize, usize)) {
        let mut over = state.clients[c].owners[o].behind & state.standing();
        for (c, client) in state.clients.iter().enumerate() {
            if !client.up || !client.subscribed || client.lapsed {
                over &= !(bit(c, 0) | bit(c, 1));
            }
        }
        state.passed_over |= over != 0 && state.clients[c].owners[o].relies();
    }

    /// A fault happens.
    fn fail(&self, state: &mut State, step: Step) {
        match step {
            Step::Cut(c, o) => {
                if let Some(exchange) = &mut state.clients[c].owners[o].exchange {
                    let release = matches!(exchange.request, Request::Release { .. });
                    state.grant_lost |= release && exchange.reply == Some(Reply::Granted);
                    // The owner of a grant that is released has none again.
                    exchange.reply = if o == GRANT { Some(Reply::Nothing) } else { None };
                }
            }
            Step::CutHandOff(c) => {
                if let Some(hand_off) = &mut state.clients[c].hand_off {
                    hand_off.sent = Sent::OnItsWay;
                }
            }
            Step::LoseAsk(c) => (state.clients[c].ask, state.untold) = (false, true),
            Step::LoseAskLater(c) => (state.clients[c].ask_later, state.untold) = (false, true),
            Step::LoseGrant(c) => (state.clients[c].granted, state.grant_lost) = (false, true),
            Step::TooLate(c) => {
                state.grant_lost = true;
                let client = &mut state.clients[c];
                (client.granted, client.due) = (false, true);
            }
            Step::Untaken(c) => {
                state.overdue = true;
                let client = &mut state.clients[c];
                let Some(HandOff { to, .. }) = client.hand_off.take() else { return };
                client.owners[to].hold = Some(Hold { valid: false, leaving: false });
                client.owners[GRANT].hold = Some(Hold { valid: false, leaving: true });
            }
            Step::CutMessages(c) => {
                let client = &mut state.clients[c];
                state.grant_lost |= client.granted;
                (client.subscribed, client.clock) = (false, false);
                (client.ask, client.ask_later, client.granted) = (false, false, false);
            }
            Step::Lapse(c) => state.clients[c].lapsed = true,
            Step::Drop(c, o) => self.drop_call(state, (c, o)),
            Step::Crash(c) => {
                state.untold = true;
                state.grant_lost |= state.has(c, GRANT);
                state.clients[c].up = false;
            }
            step => unreachable!("{step:?} is no fault"),
        }
    }

    fn drop_call(&self, state: &mut State, (c, o): (usize, usize)) {
        let client = &mut state.clients[c];
        let (call, was_head) = (client.owners[o].call, client.owners[o].seat == 1);
        client.owners[o].wait_ends(Call::None);
        if call == Call::Handed {
            let hold = client.owners[o].hold.filter(|hold| hold.valid);
            client.owners[o].hold = hold.map(|hold| Hold { leaving: true, ..hold });
            return;
        }
        client.leave(o);
        let forgotten = self.bug == Some(Bug::LeaveForgotten);
        if call == Call::Trying {
            (client.leaves, client.moves) = (!forgotten, true);
        }
        client.moves |= was_head;
        client.due |= was_head && call != Call::Waiting;
        if client.waiting() == 0 && std::mem::take(&mut client.taken) {
            client.leaves = !forgotten;
        }
        if let Some(exchange) = client.owners[o].exchange
            && let Request::Acquire { since, .. } = exchange.request
        {
            // The undo goes behind what it undoes, on the same connection.
            let ahead = if exchange.reply.is_none() { since } else { 0 };
            let request = Request::Release { brings: brings_place(client) };
            client.owners[o].hold = Some(Hold { valid: false, leaving: true });
            client.owners[o].exchange = Some(Exchange { ahead, request, reply: None });
        }
    }
}

/// A release brings the place of the first waiter.
fn brings_place(client: &mut Client) -> u8 {
    let Some(head) = client.head() else { return 0 };
    client.taken = true;
    client.owners[head].since
}

/// The client has the lock, and Redis said who waits in others.
fn heard(state: &mut State, c: usize) {
    let answered = state.next_since();
    let Some(key) = state.key.filter(|key| key.client == c) else { return };
    let client = &mut state.clients[c];
    client.elsewhere = Some(Elsewhere { oldest: key.oldest, answered });
    // Whoever came between the answer and now came within a round trip.
    client.owners.iter_mut().for_each(|owner: &mut Owner| owner.behind &= key.stood);
}
