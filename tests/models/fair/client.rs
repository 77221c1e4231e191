//! How a client asks, hears, hands off and leaves.

use super::state::{
    Call, Entry, GRANT, HandOff, Hold, InFlight, OldestForeignWaiter, Owner, Reply, Request, Sent,
    State, bits,
};
use super::steps::Step;
use super::{Bug, Fair};
use crate::At;

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
                (client.taken, client.due, client.timer) = (false, false, false);
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
                    // It is behind those that are there.
                    let since = next.next_since();
                    next.clients[c].owners[o].since = since;
                }
            }
            Step::SendHandOff(c) => {
                let entry = entry(next, c);
                if let Some(hand_off) = &mut next.clients[c].hand_off {
                    (hand_off.entry, hand_off.sent) = (entry, Sent::OnItsWay);
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
            Step::HearAsk(c) => (next.clients[c].ask, next.clients[c].due) = (false, true),
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
                client.due |= free || client.entry == 0;
            }
            Step::SendLeave(c) => {
                let last = next.next_since();
                let client = &mut next.clients[c];
                let others = client.taken || client.owners.iter().any(|o| o.call == Call::Trying);
                let waits = client.owners.iter().filter(|owner| owner.position > 0);
                let first = waits.map(|owner| owner.since).min().unwrap_or(last);
                (client.leaves, client.leaving) = (false, (!others).then_some(first));
            }
            Step::Leave(c) => self.leave_queue(next, c),
            Step::Expire | Step::ExpireEarly => self.expire(next),
            Step::TimerEnds(c) => (next.clients[c].timer, next.clients[c].due) = (false, true),
            Step::EntryEnds(c) => next.clients[c].lapsed = true,
            Step::GraceEnds | Step::GraceEndsEarly => self.end_grace(next),
            step => self.fail(next, step),
        }
    }

    /// A call begins, and tries at once or joins the wait queue.
    fn begin(&self, state: &mut State, (c, o): At) {
        let (since, standing) = (state.next_since(), state.standing());
        let client = &mut state.clients[c];
        let queued = client.subscribed || client.waiting() > 0;
        let others = standing & !bits(c);
        let owner = &mut client.owners[o];
        (owner.since, owner.calls, owner.behind) = (since, owner.calls - 1, others);
        if queued {
            client.join(o);
            return;
        }
        owner.call = Call::Trying;
        self.send(state, (c, o), Request::Acquire { since, new: true });
    }

    fn ask(&self, state: &mut State, c: usize) {
        let Some(head) = state.clients[c].head() else { return };
        let again = if self.bug == Some(Bug::AgeForgotten) { state.next_since() } else { 0 };
        let client = &mut state.clients[c];
        (client.due, client.taken) = (false, true);
        let owner = &mut client.owners[head];
        owner.call = Call::Asking;
        let since = owner.since.max(again);
        let new = !client.subscribed;
        self.send(state, (c, head), Request::Acquire { since, new });
    }

    fn send(&self, state: &mut State, (c, o): At, request: Request) {
        state.clients[c].owners[o].in_flight = Some(InFlight { ahead: 0, request, reply: None });
        if !self.every_step {
            self.execute_next(state, (c, o));
        }
    }

    fn send_release(&self, state: &mut State, (c, o): At) {
        let entry = entry(state, c);
        // The next grant has an owner of its own.
        let leaving = Hold { valid: false, leaving: true };
        state.clients[c].owners[o].hold = if o == GRANT { None } else { Some(leaving) };
        self.send(state, (c, o), Request::Release { entry });
    }

    /// The answer to a release changes nothing but that the owner is free, or its client asks.
    fn answer_at_once(&self, state: &mut State, (c, o): At) {
        let answered = state.clients[c].owners[o].in_flight.is_some_and(|in_flight| {
            let release = matches!(in_flight.request, Request::Release { .. });
            release && matches!(in_flight.reply, Some(Reply::Released | Reply::Nothing))
        });
        if answered && !self.every_step {
            self.answer(state, (c, o));
        }
    }

    fn execute_next(&self, state: &mut State, (c, o): At) {
        let Some(in_flight) = &mut state.clients[c].owners[o].in_flight else { return };
        let ahead = std::mem::take(&mut in_flight.ahead);
        if ahead > 0 {
            let subscribed = state.clients[c].subscribed;
            self.execute(state, c, o, Request::Acquire { since: ahead, new: !subscribed });
            return;
        }
        let request = in_flight.request;
        let reply = self.execute(state, c, o, request);
        if let Some(in_flight) = &mut state.clients[c].owners[o].in_flight {
            in_flight.reply = Some(reply);
        }
    }

    fn answer(&self, state: &mut State, (c, o): At) {
        let Some(in_flight) = state.clients[c].owners[o].in_flight.take() else { return };
        let (held, has) = (state.key.is_some() || state.notified.is_some(), state.has(c, o));
        let ours = state.key.is_some_and(|key| key.client == c);
        let has_grant = state.has(c, GRANT);
        let tries = state.clients[c].owners[o].call == Call::Trying;
        match (in_flight.request, in_flight.reply) {
            (Request::Acquire { .. }, Some(Reply::Granted)) => {
                heard(state, c);
                let client = &mut state.clients[c];
                client.owners[o].hold = Some(Hold { valid: has, leaving: false });
                if !tries {
                    client.leave(o);
                    (client.taken, client.due) = (false, true);
                }
                self.believes(state, (c, o));
                state.clients[c].owners[o].wait_ends(Call::None);
            }
            (Request::Acquire { .. }, reply) => {
                let is_known = state.clients[c].heard && self.bug != Some(Bug::GrantTwice);
                let unheard = has_grant && !tries && !is_known;
                if reply == Some(Reply::OwnGrant) && unheard {
                    let client = &mut state.clients[c];
                    (client.granted, client.heard) = (false, true);
                    client.owners[GRANT].hold = Some(Hold { valid: true, leaving: false });
                }
                if ours {
                    heard(state, c);
                }
                let client = &mut state.clients[c];
                if tries {
                    client.join(o);
                    client.taken = true;
                } else {
                    client.owners[o].call = Call::Waiting;
                    client.clock = true;
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
            }
        }
    }

    fn hear_grant(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        (client.granted, client.heard) = (false, true);
        let known = client.clock && client.waiting() > 0 || std::mem::take(&mut client.late);
        client.owners[GRANT].hold = Some(Hold { valid: known, leaving: !known });
        if known {
            heard(state, c);
        }
    }

    /// The lock goes to the head, and the hand-off to Redis.
    fn hand(&self, state: &mut State, (c, from): At, to: usize, call: Call) {
        let client = &mut state.clients[c];
        client.owners[from].hold = None;
        client.owners[to].call = call;
        client.hand_off = Some(HandOff { from, to, entry: Entry::Left(0), sent: Sent::No });
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
                client.due |= !client.taken;
                // The next one, whose entry came with the hand-off, may have left meanwhile.
                client.leaves |= client.waiting() == 0 && std::mem::take(&mut client.taken);
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
            (false, true) => {
                // Its entry may be there still.
                (client.owners[to].call, client.due, client.taken) = (Call::Waiting, true, true);
            }
            (false, false) => {
                let owner = &mut client.owners[to];
                let gone = |hold: &Hold| !hold.leaving;
                owner.hold = owner.hold.filter(gone).map(|hold| Hold { valid: false, ..hold });
                (client.due, client.leaves) = (true, true);
            }
        }
    }

    /// A waiter has the lock: no other one that stood when it came, when Redis or its client decided, and
    /// stands now may wait for it still.
    fn believes(&self, state: &mut State, (c, o): At) {
        let mut over = state.clients[c].owners[o].behind & state.standing();
        for (c, client) in state.clients.iter().enumerate() {
            if !client.up || client.lapsed {
                over &= !bits(c);
            }
        }
        state.passed_over |= over != 0 && state.clients[c].owners[o].relies();
    }

    /// A fault happens.
    fn fail(&self, state: &mut State, step: Step) {
        match step {
            Step::Cut(c, o) => {
                if let Some(in_flight) = &mut state.clients[c].owners[o].in_flight {
                    // The owner of a grant that is released has none again.
                    in_flight.reply = if o == GRANT { Some(Reply::Nothing) } else { None };
                }
            }
            Step::CutHandOff(c) => {
                if let Some(hand_off) = &mut state.clients[c].hand_off {
                    hand_off.sent = Sent::OnItsWay;
                }
            }
            Step::LoseAsk(c) => (state.clients[c].ask, state.message_lost) = (false, true),
            Step::LoseAskLater(c) => {
                (state.clients[c].ask_later, state.message_lost) = (false, true)
            }
            Step::LoseGrant(c) => (state.clients[c].granted, state.grant_lost) = (false, true),
            Step::TooLate(c) => {
                let client = &mut state.clients[c];
                (client.granted, client.heard, client.due) = (false, true, true);
                client.owners[GRANT].hold = Some(Hold { valid: false, leaving: true });
            }
            Step::Untaken(c) => {
                let client = &mut state.clients[c];
                let Some(HandOff { to, .. }) = client.hand_off.take() else { return };
                client.leaves = true;
                client.owners[to].hold = Some(Hold { valid: false, leaving: false });
                client.owners[GRANT].hold = Some(Hold { valid: false, leaving: true });
            }
            Step::CutMessages(c) => {
                let client = &mut state.clients[c];
                state.grant_lost |= client.granted;
                (client.subscribed, client.clock) = (false, false);
                client.owners.iter_mut().for_each(|owner| owner.stands = false);
                client.due |= client.taken && self.bug != Some(Bug::CutUnsaid);
                (client.ask, client.ask_later, client.granted) = (false, false, false);
            }
            Step::Lapse(c) => state.clients[c].lapsed = true,
            Step::Drop(c, o) => self.drop_call(state, (c, o)),
            Step::Crash(c) => {
                state.message_lost = true;
                state.grant_lost |= state.has(c, GRANT);
                state.clients[c].up = false;
            }
            step => unreachable!("{step:?} is no fault"),
        }
    }

    fn drop_call(&self, state: &mut State, (c, o): At) {
        let client = &mut state.clients[c];
        let (call, was_head) = (client.owners[o].call, client.owners[o].position == 1);
        client.owners[o].wait_ends(Call::None);
        if call == Call::Handed {
            let hold = client.owners[o].hold.filter(|hold| hold.valid);
            client.owners[o].hold = hold.map(|hold| Hold { leaving: true, ..hold });
            return;
        }
        client.leave(o);
        let forgotten = self.bug == Some(Bug::LeaveForgotten);
        if call == Call::Trying {
            client.leaves = !forgotten;
        }
        client.due |= was_head && call != Call::Waiting;
        if client.waiting() == 0 && std::mem::take(&mut client.taken) {
            client.leaves = !forgotten;
        }
        if let Some(in_flight) = client.owners[o].in_flight
            && let Request::Acquire { since, .. } = in_flight.request
        {
            // The undo goes behind what it undoes, on the same connection.
            let ahead = if in_flight.reply.is_none() { since } else { 0 };
            let request = Request::Release { entry: entry(state, c) };
            let client = &mut state.clients[c];
            client.owners[o].hold = Some(Hold { valid: false, leaving: true });
            client.owners[o].in_flight = Some(InFlight { ahead, request, reply: None });
        }
    }
}

/// What a request says of the client's entry.
fn entry(state: &mut State, c: usize) -> Entry {
    let next = state.next_since();
    let client = &mut state.clients[c];
    let Some(oldest) = client.oldest() else {
        client.taken = false;
        return Entry::Left(next);
    };
    let in_queue = client.owners[oldest].position > 0;
    client.taken |= in_queue;
    Entry::Of(client.owners[oldest].since, !in_queue || !client.subscribed)
}

/// The client has the lock, and Redis said who waits in others.
fn heard(state: &mut State, c: usize) {
    let answered = state.next_since();
    let Some(key) = state.key.filter(|key| key.client == c) else { return };
    let client = &mut state.clients[c];
    client.foreign = Some(OldestForeignWaiter { oldest: key.oldest, answered });
    // A waiter that came between the answer and now came within a round trip.
    client.owners.iter_mut().for_each(|owner: &mut Owner| owner.behind &= key.stood);
}
