//! What the server does: `lua/rw_{acquire,release,leave}.lua`, `lua/fair_refresh.lua` and what of
//! `lua/fair.lua` they include, in the abstract, and what ends by itself.

use super::state::{
    Acquire, Client, Field, Kind, OWNERS, READ, Reply, Request, STRAY, Says, Set, Since, State,
    Turn, bits,
};
use super::{Bug, ReadWrite};
use crate::At;

impl ReadWrite {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn execute(&self, state: &mut State, c: usize, o: usize, request: Request) -> Reply {
        match request {
            Request::Acquire(acquire) => self.acquire(state, (c, o), acquire),
            Request::Release(says) => self.release(state, (c, o), says),
        }
    }

    /// `give_turn` in `lua/fair.lua`: whose turn the lock is.
    fn turn(&self, state: &mut State, asks: Option<usize>, own: Option<usize>) -> Option<usize> {
        loop {
            let mut queue = state.queue();
            let Some(first) = queue.next() else {
                state.notified = None;
                return None;
            };
            let second = queue.next();
            let client = &mut state.clients[first];
            let alive = !client.lapsed;
            let was_notified = own.is_none() && state.notified == Some(first);
            if asks == Some(first) || was_notified && alive {
                return Some(first);
            }
            client.ask |= client.subscribed;
            let comes = client.subscribed || own == Some(first) || client.turn == Turn::Arriving;
            if alive && comes {
                state.notified = Some(first);
                if let Some(second) = second.filter(|second| asks != Some(*second)) {
                    let second = &mut state.clients[second];
                    second.ask_later |= second.subscribed;
                }
                return Some(first);
            }
            // Nothing may drop one that has said that it comes.
            let said = client.turn == Turn::Arriving && alive;
            drop_entry(client, said);
            state.notified.take_if(|notified| *notified == first);
        }
    }

    /// `enter` in `lua/fair.lua`.
    fn enter(&self, client: &mut Client, says: Says) {
        match says {
            Says::Waits { since, wants, writer } if since >= client.entry => {
                let before = client.entry == since && client.writer > 0 && writer > 0;
                client.writer = if before { client.writer.min(writer) } else { writer };
                if self.has(Bug::WriterUnwritten) {
                    client.writer = 0;
                }
                (client.entry, client.turn, client.lapsed) = (since, wants, false);
                for handle in client.handles.iter_mut().filter(|handle| handle.since > 0) {
                    if handle.since == since || handle.since == writer {
                        handle.stands = handle.waits();
                    }
                }
            }
            Says::Left(next) if client.entry < next => drop_entry(client, false),
            _ => {}
        }
    }

    /// `writer_waits` in `lua/fair.lua`: while there are readers, it is not the turn of the first client, nor
    /// of those behind it.
    fn writer_waits(&self, state: &State) -> bool {
        state.queue().next().is_some_and(|first| {
            let first = &state.clients[first];
            first.turn == Turn::Writes && !first.lapsed
        })
    }

    /// `oldest_writer` in `lua/fair.lua`: that of clients that are alive.
    fn oldest_writer(&self, state: &State, but: Option<usize>, limit: Since) -> Option<Since> {
        let others = state.clients.iter().enumerate().filter(|(c, _)| Some(*c) != but);
        let alive = others.map(|(_, client)| client).filter(|client| !client.lapsed);
        let writers = alive.map(|client| client.writer);
        writers.filter(|writer| *writer > 0 && *writer < limit).min()
    }

    /// A writer that is refused because of readers asks at once again, with their markers.
    fn acquire(&self, state: &mut State, (c, o): At, acquire: Acquire) -> Reply {
        let reply = self.acquire_once(state, (c, o), acquire);
        let writes = state.wants(c, o) == Kind::Write;
        if !writes || reply != Reply::Refused || state.mode != Some(Kind::Read) {
            return reply;
        }
        let own = (acquire.beside && o < READ).then_some((c, READ));
        let mut dead = Vec::new();
        for (c, o, field) in state.fields() {
            let is_dead = !field.lease && !self.has(Bug::DeadStay);
            let kills = self.has(Bug::AllAreDead) && own.is_none();
            if own != Some((c, o)) && (is_dead || kills) {
                dead.push((c, o));
            }
        }
        for (c, o) in dead {
            state.clients[c].fields[o] = Field::default();
        }
        if state.fields().next().is_none() {
            state.mode = None;
        }
        let reply = self.acquire_once(state, (c, o), acquire);
        let only_dead = state.mode.is_some() && state.fields().all(|(.., field)| !field.lease);
        state.kept_by_dead |= reply == Reply::Refused && only_dead;
        reply
    }

    fn acquire_once(&self, state: &mut State, (c, o): At, acquire: Acquire) -> Reply {
        let Acquire { handle, says, nested, in_turn, beside } = acquire;
        let (wants, mode) = (state.wants(c, o), state.mode);
        let other = match o {
            READ => handle,
            STRAY => STRAY,
            _ => READ,
        };
        let has = state.clients[c].fields[o].there;
        let stands = beside && o != STRAY && state.clients[c].fields[other].there;
        if !has && (nested || beside && !stands) {
            return Reply::Gone;
        }
        let alone = state.fields().count() == 1 || self.has(Bug::UpgradeAmongOthers);
        let joins = stands && mode != Some(wants) && (wants == Kind::Read || alone);
        let shares = wants == Kind::Read || self.has(Bug::WritersShare);
        let fits = mode.is_none()
            || joins
            || mode == Some(wants) && (has || shares)
            || self.has(Bug::ReaderBesideWriter) && wants == Kind::Read
            || self.has(Bug::WriterAmongReaders) && mode == Some(Kind::Read);
        let asks = !joins && (!has || in_turn);
        let waits = matches!(says, Says::Waits { .. });
        if !fits && !waits {
            return Reply::Refused;
        }
        let asking = waits && asks;
        if asking {
            self.enter(&mut state.clients[c], says);
            state.notified.take_if(|notified| *notified == c);
        }
        if !fits || asks && !self.is_its_turn(state, c, wants, asking) {
            self.pass_turn_on(state, c, asking);
            return Reply::Refused;
        }
        if asks && o != STRAY {
            self.passes(state, (c, handle), wants);
        }
        let client = &mut state.clients[c];
        if asking && wants == Kind::Read {
            self.stand_for_writer(client, says);
        } else if asking {
            drop_entry(client, false);
            state.notified = None;
        } else if waits && wants == Kind::Write {
            leave_as_waiter(client, says);
        }
        let oldest = self.let_others_go_on(state, c, wants, asks);
        state.mode = Some(if joins { Kind::Write } else { wants });
        state.clients[c].fields[o] = Field { there: true, lease: true };
        if o == READ {
            state.clients[c].stood = state.standing(Some(Kind::Write)) & state.alive();
        }
        Reply::Granted(oldest)
    }

    /// Whether no other client comes before the one that asks, for a lock that it could have.
    fn is_its_turn(&self, state: &mut State, c: usize, wants: Kind, asking: bool) -> bool {
        let free = state.mode.is_none();
        let first = if free { self.turn(state, asking.then_some(c), None) } else { None };
        if wants == Kind::Write {
            return first.is_none() || first == Some(c) && asking || self.has(Bug::TurnIgnored);
        }
        let came = if asking { state.clients[c].entry } else { Since::MAX };
        let passes = self.has(Bug::WritersIgnored);
        passes || self.oldest_writer(state, asking.then_some(c), came).is_none()
    }

    /// The entry of the client may have been that of a writer until now, for which readers of others wait.
    fn pass_turn_on(&self, state: &mut State, c: usize, asking: bool) {
        let reads = state.mode == Some(Kind::Read) && !self.has(Bug::NextCallKeepsOut);
        if asking && reads && !self.writer_waits(state) {
            self.turn(state, Some(c), None);
        }
    }

    /// `stand_for_writer` in `lua/fair.lua`.
    fn stand_for_writer(&self, client: &mut Client, says: Says) {
        if client.writer == 0 || self.has(Bug::EntryGoes) {
            return drop_entry(client, client.writer > 0);
        }
        client.entry = client.writer;
        let arriving = matches!(says, Says::Waits { wants: Turn::Arriving, .. });
        if !arriving {
            client.turn = Turn::Writes;
        }
    }

    /// One has the lock, and those behind it may come in, too, or have to hear when to ask. Returns how old the reply says
    /// that others are: the oldest writer, or the oldest waiter if it was not asked whose turn it is.
    fn let_others_go_on(&self, state: &mut State, c: usize, wants: Kind, asks: bool) -> Since {
        let Some(other) = state.queue().find(|other| *other != c) else { return 0 };
        if !asks || wants == Kind::Write {
            return state.clients[other].entry;
        }
        if self.writer_waits(state) {
            state.tell_end();
        } else if !self.has(Bug::TurnStays) {
            self.turn(state, None, None);
        }
        self.oldest_writer(state, Some(c), Since::MAX).unwrap_or(0)
    }

    fn release(&self, state: &mut State, (c, o): At, says: Says) -> Reply {
        if !state.clients[c].fields[o].there && !self.has(Bug::ReleaseUnchecked) {
            return Reply::Nothing;
        }
        state.clients[c].fields[o] = Field::default();
        let reads = o == READ;
        let is_last = state.fields().next().is_none() || self.has(Bug::ReleaseUnchecked);
        if is_last {
            state.clear();
        } else if !reads {
            state.mode = Some(Kind::Read);
        }
        self.enter(&mut state.clients[c], says);
        // It counts as alive for longer than a grace.
        state.notified = state.notified.filter(|notified| *notified != c);
        let ends = !reads && !self.has(Bug::DowngradeSilent);
        let silent = self.has(Bug::ReleaseSilent);
        if !silent && (is_last || ends && !self.writer_waits(state)) {
            self.turn(state, None, Some(c));
        }
        Reply::Released
    }

    pub(super) fn leave_queue(&self, state: &mut State, c: usize) {
        let leaving = state.clients[c].leaving.take();
        if leaving.is_none_or(|next| state.clients[c].entry >= next) {
            return;
        }
        let was_first = state.queue().next() == Some(c);
        let is_gone = state.clients[c].entry == 0;
        drop_entry(&mut state.clients[c], false);
        state.notified.take_if(|notified| *notified == c);
        // A release may have taken the entry out already, and have left other readers.
        if self.has(Bug::LeaveSilent) || is_gone && self.has(Bug::LateLeaveSilent) {
            return;
        }
        if state.mode.is_none() || state.mode == Some(Kind::Read) && !self.writer_waits(state) {
            self.turn(state, None, None);
        } else if was_first {
            state.tell_now();
        }
    }

    pub(super) fn refresh(&self, state: &mut State, c: usize) {
        state.clients[c].lapsed &= state.notified == Some(c);
    }

    /// No call may wait for the lock still that stood when one came that has it now.
    fn passes(&self, state: &mut State, (c, h): At, wants: Kind) {
        if !state.clients[c].handles[h].waits() {
            return;
        }
        let over = state.clients[c].handles[h].behind & state.alive();
        state.passed_writer |= over & state.standing(Some(Kind::Write)) != 0;
        let readers = over & state.standing(Some(Kind::Read));
        state.passed_reader |= wants == Kind::Write && readers != 0;
    }

    /// The lease of an owner ends. What is believed because of it has ended before (see
    /// [`Owner`](super::state::Owner)).
    pub(super) fn expire(&self, state: &mut State, c: usize, o: usize) {
        let client = &mut state.clients[c];
        client.fields[o].lease = false;
        if let Some(owner) = client.owners.get_mut(o) {
            owner.valid = false;
        }
        state.silent = true;
    }

    /// The client that was notified has not come.
    pub(super) fn end_grace(&self, state: &mut State) {
        if let Some(notified) = state.notified {
            state.clients[notified].lapsed = true;
        }
        state.silent = true;
    }
}

/// The entry of a client goes. `comes`: nothing may take its waiters' entries before the grace.
fn drop_entry(client: &mut Client, comes: bool) {
    (client.entry, client.writer, client.lapsed) = (0, 0, false);
    client.turn = Turn::default();
    client.handles.iter_mut().for_each(|handle| handle.stands &= comes);
}

/// It has the lock by a request that was sent before, and waits no more.
fn leave_as_waiter(client: &mut Client, says: Says) {
    if matches!(says, Says::Waits { since, .. } if client.entry <= since) {
        drop_entry(client, false);
    }
}

impl State {
    pub(crate) fn wants(&self, c: usize, o: usize) -> Kind {
        self.clients[c].kind_of(o)
    }

    /// The handles of clients that count as alive.
    pub(crate) fn alive(&self) -> Set {
        let clients = self.clients.iter().enumerate();
        let alive = clients.filter(|(_, client)| client.up && !client.lapsed);
        alive.fold(0, |all, (c, _)| all | bits(c))
    }

    /// The lock is free.
    pub(crate) fn clear(&mut self) {
        self.mode = None;
        self.clients.iter_mut().for_each(|client| client.fields = [Field::default(); OWNERS]);
    }

    /// `tell_end` in `lua/fair.lua`: the next two clients ask when a lease has ended.
    fn tell_end(&mut self) {
        for c in self.queue().take(2) {
            let client = &mut self.clients[c];
            client.ask_later |= client.subscribed;
        }
    }

    /// The same of a lease that has ended: the second of them asks when the grace of the first is over.
    fn tell_now(&mut self) {
        let mut queue = self.queue();
        if let Some(first) = queue.next() {
            self.clients[first].ask |= self.clients[first].subscribed;
        }
        if let Some(second) = queue.next() {
            self.clients[second].ask_later |= self.clients[second].subscribed;
        }
    }
}
