//! How a client asks, joins, gives back and leaves.

use super::state::{
    Acquire, Call, InFlight, Kind, Late, Owner, READ, Reply, Request, STRAY, Says, Since, State,
    Turn, bits,
};
use super::steps::Step;
use super::{Bug, ReadWrite};
use crate::At;

impl ReadWrite {
    pub(super) fn take(&self, next: &mut State, step: Step) {
        match step {
            Step::Execute(c, o) => {
                self.execute_next(next, (c, o));
                self.answer_at_once(next, (c, o));
            }
            Step::Answer(c, o) => self.answer(next, (c, o)),
            Step::Ask(c) => self.ask(next, c),
            Step::AskEarly(c) => {
                let asks = next.clients[c].head().map(|head| next.clients[c].owner_of(head));
                self.ask(next, c);
                if let Some(o) = asks.filter(|_| !self.every_step) {
                    self.answer(next, (c, o));
                }
            }
            Step::GiveBack(c, o, h) => give_back(next, (c, o, h)),
            Step::Release(c, o) => {
                self.send_release(next, (c, o));
                self.answer_at_once(next, (c, o));
            }
            Step::ReleaseCut(c, o) => {
                self.send_release(next, (c, o));
                self.fail(next, Step::Cut(c, o));
            }
            Step::Begin(c, h) => self.begin(next, (c, h)),
            Step::Join(c, h) => self.join_readers(next, (c, h)),
            Step::Subscribe(c) => (next.clients[c].subscribed, next.clients[c].due) = (true, true),
            Step::Unsubscribe(c) => next.clients[c].subscribed = false,
            Step::HearAsk(c) => (next.clients[c].ask, next.clients[c].due) = (false, true),
            Step::HearAskLater(c) => {
                let client = &mut next.clients[c];
                (client.ask_later, client.timer) = (false, true);
            }
            Step::TimerEnds(c) => (next.clients[c].timer, next.clients[c].due) = (false, true),
            Step::Refresh(c) => {
                self.refresh(next, c);
                let free = next.mode.is_none();
                let client = &mut next.clients[c];
                client.due |= free || client.entry == 0;
            }
            Step::SendLeave(c) => {
                let last = next.next_since();
                let client = &mut next.clients[c];
                let first = client.head().map_or(last, |head| client.handles[head].since);
                (client.leaves, client.leaving) = (false, (!client.taken).then_some(first));
            }
            Step::Leave(c) => self.leave_queue(next, c),
            Step::Expire(c, o) | Step::ExpireEarly(c, o) => self.expire(next, c, o),
            Step::HashEnds => next.clear(),
            Step::EntryEnds(c) => (next.clients[c].lapsed, next.silent) = (true, true),
            Step::GraceEnds | Step::GraceEndsEarly => self.end_grace(next),
            Step::ExecuteLate(c) => self.execute_late(next, c),
            step => self.fail(next, step),
        }
    }

    /// A call begins. It joins the wait queue, unless its handle reads or writes already.
    fn begin(&self, state: &mut State, (c, h): At) {
        let (since, standing) = (state.next_since(), state.standing(None));
        let client = &mut state.clients[c];
        let Some((wants, plan)) = client.handles[h].plan.split_first() else { return };
        (client.handles[h].plan, client.handles[h].wants) = (plan, *wants);
        let (reads, writes) = (client.reads(h), client.writes(h));
        let inside = match wants {
            Kind::Read => reads || writes,
            Kind::Write => reads && self.bug != Some(Bug::UpgradeWaits),
        };
        if inside {
            return self.ask_inside(state, (c, h));
        }
        let (position, first_writer) = (client.waiting() + 1, client.first_writer().is_none());
        let handle = &mut client.handles[h];
        (handle.call, handle.position, handle.since) = (Call::Waiting, position, since);
        handle.behind = standing & !bits(c);
        client.due |= position == 1 || *wants == Kind::Write && first_writer && client.taken;
    }

    /// To read again, beside its own writer or, to write, beside its own reader: at once, or not at all.
    fn ask_inside(&self, state: &mut State, (c, h): At) {
        let client = &mut state.clients[c];
        let wants = client.handles[h].wants;
        let others_read = client.handles.iter().enumerate().any(|(o, it)| o != h && it.reads > 0);
        if wants == Kind::Write && others_read {
            // It would wait for itself.
            return client.handles[h].call_ends();
        }
        client.handles[h].call = Call::Inside;
        let nested = wants == Kind::Read && client.owners[READ].counted;
        if !nested {
            client.beside = Some(h);
        }
        let beside = client.beside == Some(h);
        let in_turn = nested && self.bug == Some(Bug::RecursionInTurn);
        let says = Says::Nothing;
        let request = Acquire { handle: h, says, nested, in_turn, beside };
        self.send(
            state,
            (c, if wants == Kind::Read { READ } else { h }),
            Request::Acquire(request),
        );
    }

    /// A call that reads has the lock without a request.
    fn join_readers(&self, state: &mut State, (c, h): At) {
        let client = &state.clients[c];
        // Of those of other clients, none that stood when Redis said that none waits.
        let stood = client.stood & state.standing(Some(Kind::Write)) & state.alive();
        state.passed_writer |= stood & !bits(c) != 0;
        let handle = &mut state.clients[c].handles[h];
        handle.plan = &handle.plan[1..];
        handle.reads += 1;
    }

    fn ask(&self, state: &mut State, c: usize) {
        let Some(head) = state.clients[c].head() else { return };
        let says = says(state, c);
        let client = &mut state.clients[c];
        (client.due, client.timer, client.taken) = (false, false, true);
        client.handles[head].call = Call::Asking;
        let o = client.owner_of(head);
        let nested = o == READ && client.owners[READ].counted;
        let acquire = Acquire { handle: head, says, nested, in_turn: nested, beside: false };
        self.send(state, (c, o), Request::Acquire(acquire));
    }

    fn send(&self, state: &mut State, (c, o): At, request: Request) {
        state.clients[c].owners[o].in_flight = Some(InFlight { request, reply: None });
        if !self.every_step {
            self.execute_next(state, (c, o));
        }
    }

    fn send_release(&self, state: &mut State, (c, o): At) {
        let says = says(state, c);
        self.send(state, (c, o), Request::Release(says));
    }

    /// The answer to a release changes nothing but that the owner is free, or its client asks.
    fn answer_at_once(&self, state: &mut State, (c, o): At) {
        let is_release = state.clients[c].owners[o].in_flight.is_some_and(|in_flight| {
            matches!(in_flight.request, Request::Release(_)) && in_flight.reply.is_some()
        });
        if is_release && !self.every_step {
            self.answer(state, (c, o));
        }
    }

    fn execute_next(&self, state: &mut State, (c, o): At) {
        let Some(InFlight { request, .. }) = state.clients[c].owners[o].in_flight else { return };
        let reply = self.execute(state, c, o, request);
        if let Request::Acquire(Acquire { handle, .. }) = request {
            let client = &state.clients[c];
            let inside = o == READ && client.handles[handle].call == Call::Inside;
            let stands_on = |o: usize| client.owners[o].valid && client.fields[o].there;
            let recurs = inside && (stands_on(READ) || client.writes(handle) && stands_on(handle));
            state.shut_out |= recurs && reply == Reply::Refused;
        }
        if let Some(in_flight) = &mut state.clients[c].owners[o].in_flight {
            in_flight.reply = Some(reply);
        }
    }

    /// A copy of a request comes behind all that was sent since.
    fn execute_late(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        let Some(Late { mut owner, request }) = client.late.take() else { return };
        if owner != STRAY && client.up && !client.owners[owner].may_be_there() {
            // It was refused, and the next request is about another possession.
            (client.stray, owner) = (client.kind_of(owner), STRAY);
        }
        self.execute(state, c, owner, Request::Acquire(request));
        // The entry that it may have brought is that of no waiter.
        state.silent = true;
    }

    fn answer(&self, state: &mut State, (c, o): At) {
        let Some(in_flight) = state.clients[c].owners[o].in_flight.take() else { return };
        let Some(reply) = in_flight.reply else { return };
        let acquire = match in_flight.request {
            Request::Acquire(acquire) => acquire,
            Request::Release(_) => return self.released(state, (c, o), reply),
        };
        let h = acquire.handle;
        let client = &mut state.clients[c];
        let handle = &client.handles[h];
        let is_awaited =
            matches!(handle.call, Call::Asking | Call::Inside) && client.owner_of(h) == o;
        match reply {
            Reply::Granted(oldest) => self.granted(state, (c, o), acquire, is_awaited, oldest),
            Reply::Gone => {
                let lost = match (o, acquire.nested) {
                    (READ, false) => h,
                    _ => READ,
                };
                client.owners[lost].valid = false;
                client.due = true;
                refused(state, (c, h), is_awaited);
            }
            _ => {
                if client.fields[o].there && !client.owners[o].counted {
                    // A copy came after the one that was refused: no later request is about it.
                    client.stray = client.kind_of(o);
                    client.fields[STRAY] = std::mem::take(&mut client.fields[o]);
                }
                refused(state, (c, h), is_awaited);
            }
        }
    }

    fn granted(
        &self,
        state: &mut State,
        (c, o): At,
        acquire: Acquire,
        is_awaited: bool,
        oldest: Since,
    ) {
        let h = acquire.handle;
        let client = &mut state.clients[c];
        let (field, was_there) = (client.fields[o], client.has_guard(o));
        let owner = &mut client.owners[o];
        let undoes = is_awaited || was_there || self.bug != Some(Bug::UndoForgotten);
        owner.counted |= undoes;
        owner.valid = field.lease && (owner.valid || !was_there) && (is_awaited || was_there);
        if !is_awaited {
            return;
        }
        let asked = client.handles[h].call == Call::Asking;
        client.handles[h].call_ends();
        match o {
            READ => client.handles[h].reads += 1,
            _ => client.handles[h].writes = true,
        }
        // The reply to one that reads already says nothing of others.
        if o == READ && (asked || !acquire.nested) {
            client.open = oldest == 0 || self.bug == Some(Bug::ShareUnasked);
        }
        if !asked {
            return;
        }
        client.leave(h);
        let writer_said = matches!(acquire.says, Says::Waits { writer: 1.., .. });
        (client.taken, client.due) = (o == READ && writer_said, true);
        if o == READ {
            self.let_readers_in(state, c, oldest);
        }
        let client = &mut state.clients[c];
        client.leaves |= client.waiting() == 0 && std::mem::take(&mut client.taken);
    }

    /// Those come in, too, that stand directly behind it and before all writers of other clients.
    fn let_readers_in(&self, state: &mut State, c: usize, oldest: Since) {
        while let Some(h) = state.clients[c].head() {
            let client = &state.clients[c];
            let handle = &client.handles[h];
            let is_next = oldest == 0 || handle.since < oldest || self.bug == Some(Bug::AllLetIn);
            if handle.wants == Kind::Write || !is_next || !client.can_join(h) {
                return;
            }
            let over = handle.behind & client.stood & state.standing(Some(Kind::Write));
            state.passed_writer |= over & state.alive() != 0;
            let client = &mut state.clients[c];
            client.leave(h);
            client.handles[h].call_ends();
            client.handles[h].reads += 1;
        }
    }

    fn released(&self, state: &mut State, (c, o): At, reply: Reply) {
        let client = &mut state.clients[c];
        client.owners[o] = Owner::default();
        client.due |= reply == Reply::Nothing;
        let is_late = |late: &&mut Late| late.owner == o;
        if let Some(late) = client.late.as_mut().filter(is_late) {
            // It is about a possession that has ended.
            late.owner = STRAY;
            client.stray = client.kind_of(o);
        }
    }

    /// A fault happens.
    fn fail(&self, state: &mut State, step: Step) {
        match step {
            Step::Cut(c, o) => {
                if let Some(in_flight) = &mut state.clients[c].owners[o].in_flight {
                    in_flight.reply = None;
                }
            }
            Step::Delay(c, o) => {
                let client = &mut state.clients[c];
                if let Some(Request::Acquire(request)) =
                    client.owners[o].in_flight.map(|in_flight| in_flight.request)
                {
                    client.late = Some(Late { owner: o, request });
                }
            }
            Step::LoseAsk(c) => (state.clients[c].ask, state.silent) = (false, true),
            Step::LoseAskLater(c) => (state.clients[c].ask_later, state.silent) = (false, true),
            Step::CutMessages(c) => {
                let client = &mut state.clients[c];
                (client.subscribed, client.ask, client.ask_later) = (false, false, false);
                client.handles.iter_mut().for_each(|handle| handle.stands = false);
                client.due |= client.taken;
                state.silent = true;
            }
            Step::Lapse(c) => (state.clients[c].lapsed, state.silent) = (true, true),
            Step::Drop(c, h) => self.drop_call(state, (c, h)),
            Step::Crash(c) => (state.clients[c].up, state.silent) = (false, true),
            step => unreachable!("{step:?} is no fault"),
        }
    }

    /// A call that waits is dropped. What its request is granted is given back.
    fn drop_call(&self, state: &mut State, (c, h): At) {
        let client = &mut state.clients[c];
        let was_head = client.handles[h].position == 1;
        let was_first_writer = client.first_writer() == Some(h);
        client.leave(h);
        client.handles[h].call_ends();
        client.due |= was_head || was_first_writer && client.taken;
        if client.waiting() == 0 && std::mem::take(&mut client.taken) {
            client.leaves = self.bug != Some(Bug::LeaveForgotten);
        }
    }
}

impl super::state::Client {
    /// The owner for which a call of that handle asks.
    pub(crate) fn owner_of(&self, h: usize) -> usize {
        if self.handles[h].wants == Kind::Read { READ } else { h }
    }

    pub(crate) fn kind_of(&self, o: usize) -> Kind {
        match o {
            READ => Kind::Read,
            STRAY => self.stray,
            _ => Kind::Write,
        }
    }
}

fn refused(state: &mut State, (c, h): At, is_awaited: bool) {
    let client = &mut state.clients[c];
    match client.handles[h].call {
        Call::Asking if is_awaited => {
            client.handles[h].call = Call::Waiting;
            client.timer = true;
        }
        Call::Inside if is_awaited => client.handles[h].call_ends(),
        _ => {}
    }
}

/// A guard goes. From the last one on nothing relies on its owner.
fn give_back(state: &mut State, (c, o, h): (usize, usize, usize)) {
    let client = &mut state.clients[c];
    match o {
        READ => client.handles[h].reads -= 1,
        _ => client.handles[h].writes = false,
    }
    client.owners[o].valid &= client.has_guard(o);
}

/// What a request says of the client's entry.
fn says(state: &mut State, c: usize) -> Says {
    let next = state.next_since();
    let client = &mut state.clients[c];
    let Some(head) = client.head() else {
        client.taken = false;
        return Says::Left(next);
    };
    client.taken = true;
    let wants = match client.handles[head].wants {
        _ if !client.subscribed => Turn::Arriving,
        Kind::Read => Turn::Reads,
        Kind::Write => Turn::Writes,
    };
    let writer = client.first_writer().map_or(0, |writer| client.handles[writer].since);
    Says::Waits { since: client.handles[head].since, wants, writer }
}
