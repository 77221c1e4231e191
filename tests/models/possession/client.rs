//! How a client asks, hands off, gives back, and takes an answer or the lack of one.

use super::state::{
    Call, Client, Deadline, Hold, InFlight, Kind, Reply, Request, SLOTS, Slot, State,
};
use super::{BLOCK, Bug, Late, Possession};
use crate::At;

impl Possession {
    /// The head of the wait queue asks, for a possession of its own. Returns its slot.
    pub(super) fn ask(&self, client: &mut Client, h: usize) -> usize {
        let ended = |slot: &Slot| slot.over && slot.live() == 0 && slot.in_flight.is_none();
        let again = |slot: &Slot| self.bug == Some(Bug::IdTwice) && ended(slot);
        let again = client.slots.iter().position(again);
        let fresh = client.slots.iter().position(|slot| *slot == Slot::default());
        let s = again.or(fresh).expect("BUG: more possessions than slots");
        let long = client.handles[h].role.long;
        let Slot { redis, late, .. } = client.slots[s];
        let inside = h as u8;
        let fresh = Slot { redis, late, inside, counted: 1, asked: long, ..Slot::default() };
        client.slots[s] = Slot { first: long, ..fresh };
        client.handles[h].call = Call::Asking;
        client.wake = false;
        self.send(client, s, Request { kind: Kind::Acquire, count: 1, long });
        s
    }

    pub(super) fn nest(&self, client: &mut Client, s: usize) {
        let slot = &mut client.slots[s];
        let handle = &mut client.handles[usize::from(slot.inside)];
        let long = handle.role.inner == Some(true);
        (handle.call, slot.unclaimed) = (Call::Asking, false);
        handle.calls -= 1;
        slot.counted = slot.live() + 1;
        let count = slot.counted;
        self.send(client, s, Request { kind: Kind::Acquire, count, long });
    }

    /// What the client has to say of a possession whose permit is free.
    pub(super) fn next_request(&self, client: &Client, slot: &Slot) -> Option<Request> {
        let (count, tokens) = (slot.kept(), self.fenced && slot.tokens.1 == 0);
        let updates = slot.unwritten || slot.awaits.is_some() || tokens && client.waiting() > 0;
        let says = slot.is_pending() || count > 0 && slot.handed && updates;
        let stays = |hold: &Hold| hold.until.valid && hold.long;
        let shortens = self.bug == Some(Bug::ReleaseShortens);
        let long = slot.holds.iter().flatten().any(stays) && !shortens;
        let kind = if count > 0 && slot.handed { Kind::Update } else { Kind::Release };
        let request = Request { kind, count, long };
        let beside = request.may_shorten() && slot.renewal.is_some();
        let waits = beside && self.bug != Some(Bug::RenewalBeside);
        (says && !slot.over && slot.in_flight.is_none() && !waits).then_some(request)
    }

    pub(super) fn send(&self, client: &mut Client, s: usize, request: Request) {
        self.close_stale(client);
        let slot = &mut client.slots[s];
        let mut in_flight = InFlight::new(request);
        if request.kind != Kind::Acquire {
            in_flight.confirms = slot.awaits.take();
            slot.asked = request.long;
            if self.bug != Some(Bug::UnderwayIgnored) {
                // Whether or not Redis has heard of a shorter lease.
                slot.until.long &= request.long;
            }
            slot.release_unanswered |= request.count == 0;
        }
        slot.in_flight = Some(in_flight);
    }

    /// The server closes the stale connections before the client sends anything.
    pub(super) fn close_stale(&self, client: &mut Client) {
        for slot in &mut client.slots {
            let closed = |request: Request| match self.late {
                Late::Executed => false,
                Late::Killed => true,
                Late::ShorterKilled => request.may_shorten(),
            };
            slot.late.iter_mut().for_each(|late| *late = late.filter(|request| !closed(*request)));
            slot.late.sort();
        }
    }

    pub(super) fn renew(&self, client: &mut Client, s: usize) {
        self.close_stale(client);
        client.renewals -= 1;
        let slot = &mut client.slots[s];
        slot.unclaimed = false;
        let request = Request { kind: Kind::Renew, count: 0, long: true };
        slot.renewal = Some(InFlight::new(request));
    }

    /// The answer to a possession's request arrives.
    pub(super) fn answer(&self, state: &mut State, (c, s): At) {
        let client = &mut state.clients[c];
        let slot = &mut client.slots[s];
        let Some(InFlight { request, reply: Some(reply), current, confirms, .. }) =
            slot.in_flight.take()
        else {
            return;
        };
        let (h, Request { kind, count, long }) = (usize::from(slot.inside), request);
        match reply {
            Reply::Done(until, token) if kind == Kind::Acquire => {
                slot.counted = if slot.over { 0 } else { count };
                slot.until = slot.until.or(until);
                slot.asked |= long;
                let free = slot.holds.iter_mut().find(|hold| hold.is_none());
                *free.expect("BUG: more than two holds") = Some(Hold { long, until });
                if count == 1 && self.fenced {
                    slot.tokens = (token, BLOCK);
                }
                client.call_ends(h);
                if count == 1 {
                    self.enters(state, (c, s));
                }
            }
            Reply::Gone if kind == Kind::Acquire => {
                slot.lose();
                if count > 1 {
                    // It asks again, for a possession of its own.
                    client.join(h);
                }
                client.handles[h].call = Call::Waiting;
            }
            // A release that was sent before may be why it is gone: neither `Ok` nor `Lost` is known.
            Reply::Gone => {
                slot.lose();
                client.wake = true;
            }
            Reply::Done(until, token) => {
                let mut confirms = vec![confirms];
                if self.bug == Some(Bug::ConfirmedBySentBefore) {
                    confirms.push(slot.awaits.take());
                }
                state.false_ok |= confirms.contains(&Some(false));
                slot.counted = slot.counted.min(count);
                if count == 0 {
                    slot.lose();
                }
                if slot.over {
                    return;
                }
                slot.until = slot.until.or(until);
                if kind == Kind::Update && self.fenced {
                    slot.tokens = (token, BLOCK);
                }
                if kind == Kind::Update && current {
                    slot.unwritten = false;
                    slot.extend(until);
                }
            }
        }
    }

    pub(super) fn answer_renewal(&self, client: &mut Client, s: usize) {
        let slot = &mut client.slots[s];
        let reply = slot.renewal.take().and_then(|renewal| renewal.reply);
        match reply {
            Some(Reply::Done(until, _)) if !slot.over => {
                slot.until = slot.until.or(until);
                slot.asked = true;
                let watched = |hold: &&mut Hold| hold.long && hold.until.valid;
                let watched = slot.holds.iter_mut().flatten().filter(watched);
                watched.for_each(|hold| hold.until = hold.until.or(until));
            }
            Some(Reply::Gone) if slot.live() > 0 => {
                slot.lose();
                client.wake = true;
            }
            _ => {}
        }
    }

    /// A guard goes, and the next waiter of the client has the lock if it can be handed off.
    pub(super) fn give_back(&self, state: &mut State, (c, s): At, i: usize) {
        let client = &mut state.clients[c];
        let slot = &mut client.slots[s];
        let Some(hold) = slot.holds[i].take() else { return };
        slot.holds.sort_by_key(Option::is_none);
        let unlocks = client.handles[usize::from(slot.inside)].role.unlocks;
        slot.unclaimed = false;
        if !hold.until.valid {
            slot.until.valid = false;
        } else if unlocks {
            slot.awaits = Some(slot.awaits != Some(false) && slot.redis > 0);
        }
    }

    pub(super) fn can_hand_off(&self, client: &Client, slot: &Slot) -> bool {
        let permit = match slot.in_flight {
            None => !slot.release_unanswered,
            Some(in_flight) => in_flight.request.kind == Kind::Update,
        };
        let releases = slot.release_unanswered && self.bug == Some(Bug::FreesANewerHolder);
        let there = slot.counted > 0 && slot.until.valid;
        let gone = slot.over && self.bug == Some(Bug::HandedOffWhenGone);
        let token = !self.fenced || slot.tokens.1 > 0;
        client.waits() && slot.live() == 0 && (gone || there && (permit || releases)) && token
    }

    /// The head of the wait queue has the lock at once, in the same possession.
    pub(super) fn hand_off(&self, state: &mut State, (c, s): At) {
        let client = &mut state.clients[c];
        let Some(head) = client.head() else { return };
        client.call_ends(head);
        client.wake = false;
        let slot = &mut client.slots[s];
        let long = client.handles[head].role.long;
        let until = match self.bug {
            Some(Bug::OwnLeaseAtOnce) => Deadline { long, valid: true, covered: false },
            Some(Bug::HandedOffWhenGone) => Deadline { valid: true, ..slot.until },
            _ => slot.until.at_most(long),
        };
        slot.holds[0] = Some(Hold { long, until });
        (slot.inside, slot.unclaimed, slot.handed) = (head as u8, true, true);
        // A default lease that follows a default one changes nothing.
        let follows = long && slot.first && slot.asked;
        slot.unwritten = !follows && self.bug != Some(Bug::LongLeaseStays);
        slot.first = long;
        slot.in_flight.iter_mut().for_each(|in_flight| in_flight.current = false);
        self.enters(state, (c, s));
    }

    /// A handle is inside: it has the next token of the block.
    fn enters(&self, state: &mut State, (c, s): At) {
        let slot = &mut state.clients[c].slots[s];
        if !self.fenced {
            return;
        }
        let (token, left) = slot.tokens;
        if self.bug != Some(Bug::TokenTwice) {
            slot.tokens = (token + 1, left - 1);
        }
        if slot.is_valid() && !slot.robbed {
            state.token_again |= token <= state.token;
            state.token = token;
        }
    }

    /// What the server has not read yet goes with the connection, or comes late.
    fn make_stale(&self, slot: &mut Slot) {
        if let Some(InFlight { request, ahead, reply, .. }) = slot.in_flight {
            let request = Some(request).filter(|_| reply.is_none());
            [ahead, request].into_iter().flatten().for_each(|request| slot.add_late(request));
        }
    }

    /// The connection is cut, and the request sent again. An acquire that was ahead is not.
    pub(super) fn cut(&self, client: &mut Client, s: usize) {
        self.make_stale(&mut client.slots[s]);
        if let Some(in_flight) = &mut client.slots[s].in_flight {
            (in_flight.ahead, in_flight.reply) = (None, None);
        }
        self.close_stale(client);
    }

    /// No answer in time: the caller that waits for it gets an error, or asks again from the wait queue. What
    /// the server may have executed stays pending.
    pub(super) fn give_up(&self, client: &mut Client, s: usize) {
        self.make_stale(&mut client.slots[s]);
        let slot = &mut client.slots[s];
        let request = slot.in_flight.take().map(|in_flight| in_flight.request);
        let Some(Request { kind: Kind::Acquire, count, .. }) = request else { return };
        let h = usize::from(slot.inside);
        client.handles[h].call = if count > 1 { Call::None } else { Call::Waiting };
        client.wake |= count == 1;
        if self.bug == Some(Bug::UndoForgotten) {
            client.slots[s].counted = 0;
        }
    }

    pub(super) fn give_up_renewal(&self, client: &mut Client, s: usize) {
        let slot = &mut client.slots[s];
        let unanswered = slot.renewal.take();
        if let Some(InFlight { request, reply: None, .. }) = unanswered {
            slot.add_late(request);
        }
        if self.bug == Some(Bug::UnknownRenews) {
            // The deadlines have moved, and the TTL has not.
            slot.deadlines().for_each(|until| until.covered = false);
        }
    }

    /// A call is dropped. What it has sent is undone behind it, on the same connection.
    pub(super) fn cancel(&self, client: &mut Client, h: usize) {
        let asks = |slot: &Slot| {
            let acquires = |in_flight: InFlight| in_flight.request.kind == Kind::Acquire;
            usize::from(slot.inside) == h && slot.in_flight.is_some_and(acquires)
        };
        let asking = client.slots.iter().position(asks);
        if let Some(s) = asking
            && let Some(InFlight { request, reply, .. }) = client.slots[s].in_flight.take()
        {
            let ahead = Some(request).filter(|_| reply.is_none());
            match self.next_request(client, &client.slots[s]) {
                Some(undo) => {
                    self.send(client, s, undo);
                    let in_flight =
                        client.slots[s].in_flight.map(|undo| InFlight { ahead, ..undo });
                    client.slots[s].in_flight = in_flight;
                }
                // The possession is known to be gone. The acquire is on its way all the same.
                None => ahead.into_iter().for_each(|request| client.slots[s].add_late(request)),
            }
            client.wake |= request.count == 1;
        }
        client.call_ends(h);
    }

    /// What is in the sockets may still arrive.
    pub(super) fn crash(&self, client: &mut Client) {
        let mut after = Client::default();
        for s in 0..SLOTS {
            let slot = &mut client.slots[s];
            self.make_stale(slot);
            self.give_up_renewal(client, s);
            let Slot { redis, late, .. } = client.slots[s];
            after.slots[s] = Slot { redis, late, ..Slot::default() };
        }
        *client = after;
    }
}

impl Slot {
    /// Redis has heard of the holder: it is valid for as long as its own lease says.
    fn extend(&mut self, until: Deadline) {
        for hold in self.holds.iter_mut().flatten().filter(|hold| hold.until.valid) {
            hold.until = hold.until.or(until.at_most(hold.long));
        }
    }
}
