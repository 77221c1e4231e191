//! Which steps are possible.

use super::state::{Call, Client, GRANT, HandOff, Owner, Reply, Request, Sent, State};
use super::{Bug, Fair};
use crate::{At, those_that};

/// One step. Those of the first part happen sooner or later, those of the other parts need not.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Step {
    /// The server executes what an owner has sent last, or the acquire ahead of it.
    Execute(usize, usize),
    Answer(usize, usize),
    /// The head asks.
    Ask(usize),
    GiveBack(usize, usize),
    Release(usize, usize),
    /// The head has what the owner leaves.
    HandOff(usize, usize),
    /// The head awaits it.
    HandOffAwaited(usize),
    Take(usize, usize),
    SendHandOff(usize),
    ExecuteHandOff(usize),
    AnswerHandOff(usize),
    Subscribe(usize),
    Unsubscribe(usize),
    HearAsk(usize),
    HearAskLater(usize),
    HearGrant(usize),
    Refresh(usize),
    SendLeave(usize),
    Leave(usize),
    /// A lease ends, or a grant, of which no client is left that would give it back.
    Expire,
    /// A client that was notified does not come within the grace, and cannot.
    GraceEnds,
    /// The lock was freed before the lease or the grace ended that the head knows of.
    TimerEnds(usize),
    /// The term of an entry that no client keeps ends.
    EntryEnds(usize),

    // What users begin, and a timer of old.
    Begin(usize, usize),
    AskEarly(usize),

    // Faults. A call that is dropped is one for the count.
    /// The reply is lost, and the request sent again.
    Cut(usize, usize),
    /// The same to a release that is sent now.
    ReleaseCut(usize, usize),
    CutHandOff(usize),
    LoseAsk(usize),
    LoseAskLater(usize),
    LoseGrant(usize),
    CutMessages(usize),
    /// The same too soon for its client.
    ExpireEarly,
    /// The client hears of a grant, and it has ended as far as the client knows.
    TooLate(usize),
    /// A waiter does not take a grant before it has ended as far as the client knows.
    Untaken(usize),
    GraceEndsEarly,
    /// The client is silent for a term.
    Lapse(usize),
    Drop(usize, usize),
    Crash(usize),
}

impl crate::Step for Step {
    const BEGUN: Self = Self::Begin(0, 0);
    const FAULT: Self = Self::Cut(0, 0);
}

impl Fair {
    pub(super) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (c, client) in state.clients.iter().enumerate() {
            let ends = client.entry > 0 && !client.lapsed && !client.keeps_entry();
            steps.extend(ends.then_some(Step::EntryEnds(c)));
            if !client.up {
                steps.extend(client.subscribed.then_some(Step::Unsubscribe(c)));
                continue;
            }
            for o in 0..=GRANT {
                self.owner_steps((c, o), client, state.faults > 0, steps);
            }
            self.client_steps(c, state, steps);
            if state.faults > 0 {
                faults(c, client, steps);
            }
        }
        if let Some(key) = state.key.filter(|key| key.has_ttl) {
            if !state.clients[key.client].gives_back(key.owner) {
                steps.push(Step::Expire);
            } else if state.faults > 0 {
                steps.push(Step::ExpireEarly);
            }
        }
        if let Some(notified) = state.notified.filter(|notified| !state.clients[*notified].lapsed) {
            if !state.clients[notified].comes() {
                steps.push(Step::GraceEnds);
            } else if state.faults > 0 {
                steps.push(Step::GraceEndsEarly);
            }
        }
    }

    fn owner_steps(&self, (c, o): At, client: &Client, faults: bool, steps: &mut Vec<Step>) {
        let owner = &client.owners[o];
        match owner.in_flight {
            Some(in_flight) if in_flight.reply.is_none() => steps.push(Step::Execute(c, o)),
            Some(_) => steps.push(Step::Answer(c, o)),
            None => {}
        }
        let permit = owner.in_flight.is_none() && !client.is_in_hand_off(o);
        let idle = owner.call == Call::None && permit;
        let others_try = client.owners.iter().any(|owner| owner.call == Call::Trying);
        let holds = owner.hold.is_some_and(|hold| !hold.leaving);
        steps.extend(those_that([
            (owner.call == Call::Handed, Step::Take(c, o)),
            (idle && owner.hold.is_none() && owner.calls > 0 && !others_try, Step::Begin(c, o)),
            (holds && owner.call == Call::None && o != GRANT, Step::GiveBack(c, o)),
        ]));
        if owner.hold.is_none() || !permit {
            return;
        }
        // A grant goes on as it is, a lock when its guard has gone.
        let has = owner.hold.is_some_and(|hold| hold.valid && (hold.leaving || o == GRANT));
        let can_hand_off = has && self.can_hand_off(client);
        // With a hand-off under way the head asks, too: it awaits its permit.
        let waits = can_hand_off || client.head_calls(Call::Asking) || client.hand_off.is_some();
        let given_up = o == GRANT && !waits && self.bug != Some(Bug::UntakenGrantStays);
        let releases = owner.is_leaving() || given_up;
        steps.extend(those_that([
            (can_hand_off, Step::HandOff(c, o)),
            (can_hand_off && o == GRANT, Step::HandOffAwaited(c)),
            (releases, Step::Release(c, o)),
            (releases && faults && !self.every_step, Step::ReleaseCut(c, o)),
        ]));
    }

    /// Whether the head can take what this client has, and is the next of all clients.
    fn can_hand_off(&self, client: &Client) -> bool {
        let Some(head) = client.head().map(|head| &client.owners[head]) else { return false };
        let next = client.foreign.is_some_and(|known| {
            let in_time = head.since < known.answered || self.bug == Some(Bug::AnsweredIgnored);
            in_time && (known.oldest == 0 || head.since < known.oldest)
        });
        let free = head.call == Call::Waiting && head.in_flight.is_none() && head.hold.is_none();
        let next = next || self.bug == Some(Bug::OthersIgnored);
        free && next && client.hand_off.is_none()
    }

    fn client_steps(&self, c: usize, state: &State, steps: &mut Vec<Step>) {
        let client = &state.clients[c];
        let can_ask = client.head().is_some_and(|o| {
            let head = &client.owners[o];
            let free = head.in_flight.is_none() && head.hold.is_none() && !client.is_in_hand_off(o);
            head.call == Call::Waiting && free
        });
        if can_ask {
            steps.push(if client.due { Step::Ask(c) } else { Step::AskEarly(c) });
        }
        if let Some(HandOff { from, to, sent, .. }) = client.hand_off {
            let taken = from != GRANT || client.owners[to].call != Call::Handed;
            match sent {
                Sent::No if taken => steps.push(Step::SendHandOff(c)),
                Sent::No => {}
                Sent::OnItsWay => steps.push(Step::ExecuteHandOff(c)),
                Sent::Done(_) => steps.push(Step::AnswerHandOff(c)),
            }
        }
        match (client.subscribed, client.waiting() > 0) {
            (false, true) => steps.push(Step::Subscribe(c)),
            (true, false) => steps.push(Step::Unsubscribe(c)),
            _ => {}
        }
        steps.extend(those_that([
            (client.ask, Step::HearAsk(c)),
            (client.ask_later, Step::HearAskLater(c)),
            (client.granted || client.late, Step::HearGrant(c)),
            (client.leaving.is_some(), Step::Leave(c)),
        ]));
        // Behind the last request of the owner that has left.
        let silent = |owner: &Owner| owner.call != Call::None || owner.in_flight.is_none();
        let in_grace = state.notified.is_some_and(|notified| !state.clients[notified].lapsed);
        let finds = client.entry == 0 || state.key.is_none() || client.lapsed;
        // Once it is subscribed it asks.
        let asks = client.due || client.timer || !can_ask || !client.subscribed;
        let refreshes = client.taken && finds && !asks && self.bug != Some(Bug::NoRefresh);
        steps.extend(those_that([
            (client.leaves && client.owners.iter().all(silent), Step::SendLeave(c)),
            (client.timer && state.key.is_none() && !in_grace, Step::TimerEnds(c)),
            (refreshes, Step::Refresh(c)),
        ]));
    }
}

fn faults(c: usize, client: &Client, steps: &mut Vec<Step>) {
    for (o, owner) in client.owners.iter().enumerate() {
        if let Some(in_flight) = owner.in_flight
            && let Some(reply) = in_flight.reply
        {
            let release = matches!(in_flight.request, Request::Release { .. });
            if !release || reply != Reply::Nothing {
                steps.push(Step::Cut(c, o));
            }
        }
        if owner.call != Call::None {
            steps.push(Step::Drop(c, o));
        }
    }
    let handed = |owner: &Owner| owner.call == Call::Handed;
    let unsent = client.hand_off.is_some_and(|it| it.sent == Sent::No && it.from == GRANT);
    let answered = |hand_off: HandOff| matches!(hand_off.sent, Sent::Done(true));
    steps.extend(those_that([
        (client.hand_off.is_some_and(answered), Step::CutHandOff(c)),
        (client.ask, Step::LoseAsk(c)),
        (client.ask_later, Step::LoseAskLater(c)),
        (client.granted, Step::LoseGrant(c)),
        (client.granted, Step::TooLate(c)),
        (client.subscribed && client.waiting() > 0, Step::CutMessages(c)),
        (client.entry > 0 && !client.lapsed, Step::Lapse(c)),
        (unsent && client.owners.iter().any(handed), Step::Untaken(c)),
        (client.is_busy(), Step::Crash(c)),
    ]));
}
