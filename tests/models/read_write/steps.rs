//! Which steps are possible.

use super::state::{Call, Client, Field, HANDLES, Kind, READ, Reply, Request, STRAY, State};
use super::{Bug, ReadWrite};
use crate::{At, those_that};

/// One step. Those of the first part happen sooner or later, those of the other parts need not.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Step {
    /// The server executes what an owner has sent.
    Execute(usize, usize),
    Answer(usize, usize),
    /// The head asks.
    Ask(usize),
    /// A guard of that owner, and of that handle.
    GiveBack(usize, usize, usize),
    Release(usize, usize),
    Subscribe(usize),
    Unsubscribe(usize),
    HearAsk(usize),
    HearAskLater(usize),
    /// What the head waits for is over.
    TimerEnds(usize),
    Refresh(usize),
    SendLeave(usize),
    Leave(usize),
    /// The lease of an owner ends that no client gives back.
    Expire(usize, usize),
    /// All leases in the hash have ended, and so has its TTL.
    HashEnds,
    /// A client that was notified does not come within the grace, and cannot.
    GraceEnds,
    /// The term of an entry that no client keeps ends.
    EntryEnds(usize),

    // What users begin, a timer of old, and a request that may never come.
    Begin(usize, usize),
    /// A call that reads joins the readers of its client.
    Join(usize, usize),
    AskEarly(usize),
    ExecuteLate(usize),

    // Faults. A call that is dropped is one for the count.
    /// The reply is lost, and the request sent again.
    Cut(usize, usize),
    /// The same to a release that is sent now.
    ReleaseCut(usize, usize),
    /// The request was sent twice, and is executed once more at any time.
    Delay(usize, usize),
    LoseAsk(usize),
    LoseAskLater(usize),
    CutMessages(usize),
    /// A lease ends too soon for its client.
    ExpireEarly(usize, usize),
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

impl ReadWrite {
    pub(super) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (c, client) in state.clients.iter().enumerate() {
            let ends = client.entry > 0 && !client.lapsed && !client.keeps_entry();
            steps.extend(ends.then_some(Step::EntryEnds(c)));
            steps.extend(client.late.map(|_| Step::ExecuteLate(c)));
            if !client.up {
                steps.extend(client.subscribed.then_some(Step::Unsubscribe(c)));
                continue;
            }
            for o in 0..=READ {
                owner_steps((c, o), client, state.faults > 0 && !self.every_step, steps);
            }
            for h in 0..HANDLES {
                call_steps((c, h), client, steps);
            }
            self.client_steps(c, state, steps);
            if state.faults > 0 {
                self.faults(c, client, steps);
            }
        }
        self.endings(state, steps);
    }

    /// What ends by itself.
    fn endings(&self, state: &State, steps: &mut Vec<Step>) {
        for (c, o, _) in state.fields().filter(|(.., field)| field.lease) {
            let client = &state.clients[c];
            let given_back = client.up && o != STRAY && client.owners[o].may_be_there();
            let stays = self.bug == Some(Bug::MarkerStays) && state.wants(c, o) == Kind::Read;
            match given_back {
                false if !stays => steps.push(Step::Expire(c, o)),
                true if state.faults > 0 => steps.push(Step::ExpireEarly(c, o)),
                _ => {}
            }
        }
        let ends = state.mode.is_some() && state.fields().all(|(.., field)| !field.lease);
        steps.extend(ends.then_some(Step::HashEnds));
        if let Some(notified) = state.notified.filter(|notified| !state.clients[*notified].lapsed) {
            if !state.clients[notified].comes() {
                steps.push(Step::GraceEnds);
            } else if state.faults > 0 {
                steps.push(Step::GraceEndsEarly);
            }
        }
    }

    /// Whether the head may ask.
    pub(super) fn can_ask(&self, client: &Client) -> bool {
        let Some(head) = client.head().filter(|head| client.handles[*head].call == Call::Waiting)
        else {
            return false;
        };
        let o = client.owner_of(head);
        let owner = &client.owners[o];
        // A release that is pending goes first, and what was lost ends with its guards.
        let nests = o == READ && owner.valid && client.has_guard(READ);
        client.up && client.has_permit(o) && (!owner.counted || nests)
    }

    /// Whether the head would have the lock if it asked.
    pub(super) fn would_have_it(&self, state: &State, c: usize) -> bool {
        if !self.can_ask(&state.clients[c]) {
            return false;
        }
        let o = state.clients[c].owner_of(state.clients[c].head().unwrap_or(0));
        let mut asked = state.clone();
        self.take(&mut asked, Step::Ask(c));
        if self.every_step {
            self.take(&mut asked, Step::Execute(c, o));
        }
        let in_flight = asked.clients[c].owners[o].in_flight;
        matches!(in_flight.and_then(|it| it.reply), Some(Reply::Granted(_)))
    }

    fn client_steps(&self, c: usize, state: &State, steps: &mut Vec<Step>) {
        let client = &state.clients[c];
        let can_ask = self.can_ask(client);
        if can_ask {
            steps.push(if client.due { Step::Ask(c) } else { Step::AskEarly(c) });
        }
        match (client.subscribed, client.waiting() > 0) {
            // The first one that was refused, and parks.
            (false, true) if client.taken && !client.due => steps.push(Step::Subscribe(c)),
            (true, false) => steps.push(Step::Unsubscribe(c)),
            _ => {}
        }
        steps.extend(those_that([
            (client.ask, Step::HearAsk(c)),
            (client.ask_later, Step::HearAskLater(c)),
            (client.leaving.is_some(), Step::Leave(c)),
        ]));
        // Behind the last request of the call that has left.
        let silent = client.owners.iter().all(|owner| owner.in_flight.is_none());
        let finds = client.entry == 0 || state.mode.is_none() || client.lapsed;
        // Once it is subscribed it asks.
        let asks = client.due || client.timer || !can_ask || !client.subscribed;
        steps.extend(those_that([
            (client.leaves && silent, Step::SendLeave(c)),
            (client.timer && self.would_have_it(state, c), Step::TimerEnds(c)),
            (client.taken && finds && !asks, Step::Refresh(c)),
        ]));
    }

    fn faults(&self, c: usize, client: &Client, steps: &mut Vec<Step>) {
        for (o, owner) in client.owners.iter().enumerate() {
            let Some(in_flight) = owner.in_flight.filter(|it| it.reply.is_some()) else { continue };
            steps.push(Step::Cut(c, o));
            let acquires = matches!(in_flight.request, Request::Acquire(_));
            let is_one = client.late.is_none() && !client.fields[STRAY].there;
            steps.extend((acquires && is_one && self.delays).then_some(Step::Delay(c, o)));
        }
        let calls = (0..HANDLES).filter(|h| client.handles[*h].call != Call::None);
        steps.extend(calls.map(|h| Step::Drop(c, h)));
        let has = |field: &Field| field.there;
        steps.extend(those_that([
            (client.ask, Step::LoseAsk(c)),
            (client.ask_later, Step::LoseAskLater(c)),
            (client.subscribed && client.waiting() > 0, Step::CutMessages(c)),
            (client.entry > 0 && !client.lapsed, Step::Lapse(c)),
            (client.entry > 0 || client.fields.iter().any(has), Step::Crash(c)),
        ]));
    }
}

fn owner_steps((c, o): At, client: &Client, faults: bool, steps: &mut Vec<Step>) {
    let owner = &client.owners[o];
    match owner.in_flight {
        Some(in_flight) if in_flight.reply.is_none() => steps.push(Step::Execute(c, o)),
        Some(_) => steps.push(Step::Answer(c, o)),
        None => {}
    }
    for (h, handle) in client.handles.iter().enumerate() {
        let has = if o == READ { handle.reads > 0 } else { h == o && handle.writes };
        steps.extend((has && handle.call == Call::None).then_some(Step::GiveBack(c, o, h)));
    }
    let releases = owner.counted && !client.has_guard(o) && client.has_permit(o);
    let cut = releases && faults;
    steps.extend(those_that([(releases, Step::Release(c, o)), (cut, Step::ReleaseCut(c, o))]));
}

/// Which calls may begin.
fn call_steps((c, h): At, client: &Client, steps: &mut Vec<Step>) {
    let handle = &client.handles[h];
    let Some(wants) = handle.plan.first().filter(|_| handle.call == Call::None) else { return };
    let (reads, writes) = (client.reads(h), client.writes(h));
    let is_lost = handle.reads > 0 && !reads || handle.writes && !writes;
    let inside = reads || writes;
    // What is outside the queue waits for the permits that it needs.
    let can_read = client.has_permit(READ) && (!client.owners[READ].counted || reads);
    let can_write = client.has_permit(READ) && !client.owners[h].may_be_there();
    let begins = match wants {
        Kind::Read => !inside || can_read,
        Kind::Write => !writes && (!inside || can_write),
    };
    // Any other has to be the only one that waits.
    let alone = *wants == Kind::Read && client.open && client.waiting() == 0;
    let joins = !inside && alone && client.can_join(h);
    steps.extend(those_that([(begins && !is_lost, Step::Begin(c, h)), (joins, Step::Join(c, h))]));
}
