//! What the server does: `lua/{acquire,release,update,renew}.lua` in the abstract, and the end of a
//! lease.

use super::state::{Deadline, InFlight, Kind, Reply, Request, State};
use super::{BLOCK, Bug, Possession};
use crate::At;

impl Possession {
    pub(super) fn execute(&self, state: &mut State, (c, s): At, request: Request) -> Reply {
        let Request { kind, count, long } = request;
        let has = state.key() == Some((c, s));
        let creates = match kind {
            Kind::Acquire => count == 1,
            kind => kind == Kind::Renew && self.bug == Some(Bug::RenewCreates),
        };
        let is_free = creates && state.key().is_none();
        if !has && !is_free {
            if kind == Kind::Acquire && count == 1 {
                state.clients[c].knows_long = state.long;
            }
            return Reply::Gone;
        }
        let slot = &mut state.clients[c].slots[s];
        match kind {
            Kind::Acquire if self.bug == Some(Bug::CountAdded) => slot.redis += 1,
            Kind::Acquire => slot.redis = count,
            Kind::Release if count == 0 => {
                self.free(state, (c, s));
                return Reply::Done(Deadline::default(), 0);
            }
            Kind::Update if self.bug == Some(Bug::CountUnwritten) => {}
            Kind::Release | Kind::Update => slot.redis = slot.redis.min(count),
            Kind::Renew => slot.redis = slot.redis.max(1),
        }
        let shortens = kind == Kind::Acquire && self.bug == Some(Bug::NestedShortens);
        let keeps_longer = has && matches!(kind, Kind::Acquire | Kind::Renew) && !shortens;
        self.expire_after(state, (c, s), long, keeps_longer);
        let mut token = 0;
        let draws = kind == Kind::Update || kind == Kind::Acquire && count == 1;
        if self.fenced && draws {
            token = state.drawn + 1;
            state.drawn += BLOCK;
        }
        Reply::Done(Deadline::of(long), token)
    }

    /// The key goes. The release is published, or a waiter's own time comes.
    fn free(&self, state: &mut State, (c, s): At) {
        let slot = &mut state.clients[c].slots[s];
        slot.redis = 0;
        slot.deadlines().for_each(|until| until.covered = false);
        state.long = false;
        for client in &mut state.clients {
            client.knows_long = false;
            client.wake |= self.bug != Some(Bug::ReleaseUnpublished);
        }
    }

    /// `PEXPIRE`, alone or only if it prolongs: covers every deadline that began before and is not
    /// longer, and without the condition no longer one.
    fn expire_after(&self, state: &mut State, (c, s): At, long: bool, keeps_longer: bool) {
        let shorter = state.long && !long && !keeps_longer;
        state.long = long || keeps_longer && state.long;
        for until in state.clients[c].slots[s].deadlines() {
            if until.long <= long {
                until.covered = true;
            } else if !keeps_longer {
                until.covered = false;
            }
        }
        if shorter {
            for (other, client) in state.clients.iter_mut().enumerate() {
                // This client knows without a message.
                let hears = other == c || self.bug != Some(Bug::ShorterUnpublished);
                client.wake |= hears && client.knows_long;
                client.knows_long &= !hears;
            }
        }
    }

    /// The lease ends. The deadlines that it covers have passed by then (see [`Deadline`]).
    pub(super) fn expire(&self, state: &mut State) {
        if let Some((c, s)) = state.key() {
            let deadlines = state.clients[c].slots[s].deadlines();
            deadlines.for_each(|until| until.valid &= !until.covered);
            self.free(state, (c, s));
        }
    }

    /// Somebody deletes the key.
    pub(super) fn rob(&self, state: &mut State) {
        if let Some((c, s)) = state.key() {
            state.clients[c].slots[s].robbed = true;
            self.free(state, (c, s));
        }
    }

    /// The server gets what came on a stale connection.
    pub(super) fn execute_late(&self, state: &mut State, (c, s): At, late: usize) {
        let slot = &mut state.clients[c].slots[s];
        if let Some(request) = slot.late[late].take() {
            slot.late.sort();
            self.execute(state, (c, s), request);
        }
    }

    /// The server executes what a possession has sent last, or the acquire ahead of it.
    pub(super) fn execute_next(&self, state: &mut State, (c, s): At) {
        let Some(in_flight) = &mut state.clients[c].slots[s].in_flight else { return };
        if let Some(ahead) = in_flight.ahead.take() {
            self.execute(state, (c, s), ahead);
            return;
        }
        let request = in_flight.request;
        let reply = self.execute(state, (c, s), request);
        if let Some(in_flight) = &mut state.clients[c].slots[s].in_flight {
            in_flight.reply = Some(reply);
        }
    }

    pub(super) fn execute_renewal(&self, state: &mut State, (c, s): At) {
        if let Some(renewal) = state.clients[c].slots[s].renewal {
            let reply = self.execute(state, (c, s), renewal.request);
            state.clients[c].slots[s].renewal = Some(InFlight { reply: Some(reply), ..renewal });
        }
    }
}
