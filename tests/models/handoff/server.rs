//! What the server does: `lua/{acquire,release,hand_off}.lua` in the abstract, and the end of a
//! lease.

use super::state::{Call, Hold, Key, Reply, Request, State};
use super::{Bug, Handoff};

impl Handoff {
    pub(super) fn execute(&self, state: &mut State, at: (usize, usize), request: Request) -> Reply {
        match request {
            Request::Acquire => self.acquire(state, at),
            Request::Release => self.release(state, at),
        }
    }

    /// `lua/acquire.lua`.
    fn acquire(&self, state: &mut State, (c, o): (usize, usize)) -> Reply {
        let owner = state.clients[c].owners[o];
        if state.key.is_some() && !owner.field {
            let client = &mut state.clients[c];
            // From here on changes count.
            (client.due, client.expired) = (false, false);
            return Reply::Refused;
        }
        let ran = state.clients.iter().enumerate().any(|(other, client)| other != c && client.ran);
        let after_run = ran && owner.call == Call::Asking;
        state.clients.iter_mut().for_each(|client| client.ran = false);
        state.clients[c].owners[o].field = true;
        // What is left of an earlier hold of the owner may be longer: it never gets shorter.
        let long = owner.long || state.key.is_some_and(|key| key.long);
        state.key = Some(Key { has_ttl: true, long, handed: false, after_run });
        expire_after(state, c, long);
        Reply::Granted(Hold {
            long: owner.long,
            valid: true,
            covered: true,
            confirmed: true,
            leaving: false,
        })
    }

    /// `lua/release.lua`, of all holds.
    fn release(&self, state: &mut State, (c, o): (usize, usize)) -> Reply {
        if !state.clients[c].owners[o].field {
            return Reply::Nothing;
        }
        let handed = state.key.is_some_and(|key| key.handed);
        remove_key(state);
        state.clients[c].ran = handed;
        for client in &mut state.clients {
            let subscribed = client.waiting() > 0 || client.lingers;
            client.wake |= subscribed && self.bug != Some(Bug::ReleaseUnpublished);
        }
        Reply::Released
    }

    /// `lua/hand_off.lua`: whether one of `owners` had the lock.
    pub(super) fn execute_handoff(
        &self,
        state: &mut State,
        c: usize,
        mut owners: Vec<usize>,
    ) -> bool {
        let Some(&last) = owners.last() else {
            return false;
        };
        if self.bug == Some(Bug::QueueReordered) {
            owners[1..].reverse();
        }
        let client = &mut state.clients[c];
        let has = owners.iter().position(|&o| client.owners[o].field);
        let has = has.filter(|&at| at == 0 || self.bug != Some(Bug::ResumesAtTheFirst));
        let long = client.owners[last].long;
        let Some(has) = has else {
            if self.bug == Some(Bug::HandoffCreates) && state.key.is_none() {
                client.owners[last].field = true;
                let key = Key { has_ttl: true, long, handed: true, after_run: false };
                state.key = Some(key);
            }
            return false;
        };
        for step in owners[has..].windows(2) {
            client.owners[step[0]].field = self.bug == Some(Bug::OldFieldStays);
            client.owners[step[1]].field = true;
        }
        let shorter = state.key.is_some_and(|key| key.long && !long);
        if shorter && self.bug != Some(Bug::OldLeaseStays) {
            let others = state.clients.iter_mut().enumerate().filter(|(other, _)| *other != c);
            for (_, client) in others {
                client.wake |= client.waiting() > 0 || client.lingers;
            }
        }
        if let Some(key) = &mut state.key {
            key.handed = true;
            key.after_run = false;
            key.has_ttl &= self.bug != Some(Bug::OldFieldFirst);
        }
        if self.bug != Some(Bug::OldLeaseStays) {
            expire_after(state, c, long);
        }
        true
    }

    /// The lease ends. The deadlines that it covers have passed by then (see [`Hold`]).
    pub(super) fn expire(&self, state: &mut State) {
        for client in state.clients.iter_mut().filter(|client| client.has_field()) {
            for hold in client.owners.iter_mut().flat_map(|owner| owner.holds_mut()) {
                hold.valid &= !hold.covered;
            }
        }
        remove_key(state);
        state.lease_changed();
        for client in &mut state.clients {
            client.expired |= client.due;
        }
    }
}

/// `PEXPIRE`: covers every hold of the client that began before and whose deadline comes as
/// early.
fn expire_after(state: &mut State, c: usize, long: bool) {
    if let Some(key) = &mut state.key {
        key.long = long;
    }
    for hold in state.clients[c].owners.iter_mut().flat_map(|owner| owner.holds_mut()) {
        hold.covered = hold.long <= long;
    }
    state.lease_changed();
}

fn remove_key(state: &mut State) {
    state.key = None;
    for client in state.clients.iter_mut().filter(|client| client.has_field()) {
        for owner in &mut client.owners {
            owner.field = false;
            owner.holds_mut().for_each(|hold| hold.covered = false);
        }
    }
}
