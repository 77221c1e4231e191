//! What the server does: `lua/fair.lua`, `lua/fair_{acquire,release,leave,refresh,update}.lua` in the
//! abstract, and what ends by itself.

use super::state::{Call, Client, Entry, GRANT, Key, Reply, Request, Sent, Since, State};
use super::{Bug, Fair};
use crate::At;

impl Fair {
    pub(super) fn execute(&self, state: &mut State, c: usize, o: usize, request: Request) -> Reply {
        match request {
            Request::Acquire { since, new } => self.acquire(state, (c, o), since, new),
            Request::Release { entry } => self.release(state, (c, o), entry),
        }
    }

    /// `give_turn` in `lua/fair.lua`: whose turn the free lock is.
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
            if asks == Some(first) || state.notified == Some(first) && alive {
                return Some(first);
            }
            let grants = alive && client.grants && !client.is_new && own != Some(first);
            client.ask |= client.subscribed && !grants;
            let unheard = self.bug == Some(Bug::UnheardGrantStays) && grants;
            let comes = client.is_new && self.bug != Some(Bug::NewcomerDropped);
            if alive && (own == Some(first) || client.subscribed || comes || unheard) {
                if grants {
                    client.granted |= client.subscribed;
                    client.entry = 0;
                    state.notified = None;
                    self.set_key(state, first, GRANT);
                } else {
                    state.notified = Some(first);
                }
                if let Some(second) = second.filter(|second| asks != Some(*second)) {
                    let second = &mut state.clients[second];
                    second.ask_later |=
                        second.subscribed && self.bug != Some(Bug::SecondNotNotified);
                }
                return Some(first);
            }
            drop_entry(state, first);
        }
    }

    /// `enter` in `lua/fair.lua`.
    fn entry(&self, client: &mut Client, entry: Entry) {
        match entry {
            Entry::Of(since, new) if since >= client.entry => {
                let stays = self.bug == Some(Bug::EntryStays) && client.entry > 0;
                client.entry = if stays { client.entry.min(since) } else { since };
                (client.lapsed, client.is_new) = (false, new);
                for owner in client.owners.iter_mut().filter(|owner| owner.since == since) {
                    // One in its first try may be passed by the next waiter of its client.
                    owner.stands = client.subscribed || new && owner.position > 0;
                }
            }
            Entry::Left(next) if client.entry < next => client.entry = 0,
            _ => {}
        }
    }

    fn acquire(&self, state: &mut State, (c, o): At, since: Since, new: bool) -> Reply {
        let mine = state.key.filter(|key| (key.client, key.owner) == (c, o));
        if mine.is_none() {
            self.entry(&mut state.clients[c], Entry::Of(since, new));
            state.notified.take_if(|notified| *notified == c);
            if let Some(key) = state.key {
                if key.client == c {
                    self.set_key(state, c, key.owner);
                    if key.owner == GRANT {
                        return Reply::OwnGrant;
                    }
                }
                return Reply::Refused;
            }
            if self.turn(state, Some(c), None) != Some(c) {
                return Reply::Refused;
            }
        }
        let client = &mut state.clients[c];
        if mine.is_none() || client.entry <= since {
            client.entry = 0;
        }
        client.owners[o].stands = false;
        state.notified = None;
        self.set_key(state, c, o);
        // It was decided when the first one of two requests was executed.
        if let Some((key, mine)) = state.key.as_mut().zip(mine) {
            key.stood = mine.stood;
        }
        Reply::Granted
    }

    fn release(&self, state: &mut State, (c, o): At, entry: Entry) -> Reply {
        if !state.has(c, o) && self.bug != Some(Bug::ReleaseUnchecked) {
            return Reply::Nothing;
        }
        state.key = None;
        state.grant_lost = false;
        self.entry(&mut state.clients[c], entry);
        state.notified = None;
        if self.bug != Some(Bug::ReleaseSilent) {
            self.turn(state, None, Some(c));
        }
        Reply::Released
    }

    pub(super) fn leave_queue(&self, state: &mut State, c: usize) {
        let leaving = state.clients[c].leaving.take();
        if leaving.is_none_or(|next| state.clients[c].entry >= next) {
            return;
        }
        let had = std::mem::take(&mut state.clients[c].entry) > 0;
        state.notified.take_if(|notified| *notified == c);
        if had && state.key.is_none() && self.bug != Some(Bug::LeaveSilent) {
            self.turn(state, None, None);
        }
    }

    pub(super) fn refresh(&self, state: &mut State, c: usize) {
        state.clients[c].lapsed &= state.notified == Some(c);
    }

    /// `lua/fair_update.lua`, after which the client's entry is that of its next waiter.
    pub(super) fn hand_off(&self, state: &mut State, c: usize) {
        let Some(mut hand_off) = state.clients[c].hand_off else { return };
        let has = state.has(c, hand_off.from) || state.has(c, hand_off.to);
        hand_off.sent = Sent::Done(has);
        state.clients[c].hand_off = Some(hand_off);
        if has {
            if self.bug != Some(Bug::HandOffKeepsEntry) {
                self.entry(&mut state.clients[c], hand_off.entry);
            }
            let timers = state.clients.map(|client| client.timer);
            self.set_key(state, c, hand_off.to);
            for (client, timer) in state.clients.iter_mut().zip(timers) {
                client.timer = timer;
            }
        }
    }

    /// The key has an owner, and a TTL of which no waiter knows.
    fn set_key(&self, state: &mut State, client: usize, owner: usize) {
        let first = state.queue().find(|c| *c != client);
        let oldest = first.map_or(0, |first| state.clients[first].entry);
        let has_ttl = owner != GRANT || self.bug != Some(Bug::GrantStays);
        let stood = state.standing();
        let same = state.key.is_some_and(|key| (key.client, key.owner) == (client, owner));
        state.key = Some(Key { client, owner, has_ttl, oldest, stood });
        if !same {
            (state.grant_lost, state.message_lost) = (false, false);
            state.clients[client].heard = false;
            state.clients.iter_mut().for_each(|client| client.timer = false);
        }
    }

    /// A lease or a grant ends. What is believed because of it has ended before (see
    /// [`Hold`](super::state::Hold)), and what is on its way finds nothing.
    pub(super) fn expire(&self, state: &mut State) {
        let Some(key) = state.key.take() else { return };
        state.grant_lost = false;
        let client = &mut state.clients[key.client];
        let unconfirmed = client.hand_off.map(|hand_off| hand_off.to);
        for (o, owner) in client.owners.iter_mut().enumerate() {
            let own_lease = self.bug == Some(Bug::OwnLeaseAtOnce) && unconfirmed == Some(o);
            if let Some(hold) = owner.hold.as_mut().filter(|_| !own_lease) {
                hold.valid = false;
            }
            if key.owner == GRANT {
                owner.stands &= client.entry > 0;
                if let Some(in_flight) = &mut owner.in_flight
                    && matches!(in_flight.request, Request::Release { .. })
                    && o == GRANT
                    && in_flight.reply.is_none()
                {
                    in_flight.reply = Some(Reply::Nothing);
                }
            }
        }
        // It publishes nothing.
        state.message_lost |= key.owner != GRANT;
        if key.owner == GRANT {
            let late = std::mem::take(&mut client.granted);
            client.due |= client.owners[GRANT].hold.take().is_some();
            if self.bug == Some(Bug::BelievedFromArrival) {
                client.late = late;
            } else {
                client.ask |= late;
            }
            match &mut client.hand_off {
                Some(hand_off) if client.owners[hand_off.to].call == Call::Handed => {
                    // The grant is to be released: that finds nothing, and the head asks.
                    (client.hand_off, client.due, client.leaves) = (None, true, true);
                }
                Some(hand_off) => hand_off.sent = Sent::Done(false),
                None => {}
            }
        }
        state.timers_end();
    }

    /// The client that was notified has not come.
    pub(super) fn end_grace(&self, state: &mut State) {
        if let Some(notified) = state.notified {
            state.clients[notified].lapsed = true;
        }
        state.timers_end();
    }
}

/// The script drops a client: it may be dead.
fn drop_entry(state: &mut State, c: usize) {
    let client = &mut state.clients[c];
    // Nothing may drop one that has said that it comes.
    let comes = client.is_new && !client.lapsed;
    (client.entry, client.lapsed) = (0, false);
    client.owners.iter_mut().for_each(|owner| owner.stands &= comes);
    state.notified.take_if(|notified| *notified == c);
}

impl State {
    fn timers_end(&mut self) {
        for client in &mut self.clients {
            client.due |= std::mem::take(&mut client.timer);
        }
    }
}
