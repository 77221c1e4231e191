//! What the server does: `lua/{acquire,release}.lua` in the abstract, and the end of a lease.

use super::state::{Key, Missed, Reply, Request, State, Subscription, Term};
use super::{Bug, Waiting};

impl Waiting {
    /// Runs a script.
    pub(super) fn execute(&self, state: &mut State, c: usize, request: Request) -> Reply {
        match request {
            Request::Acquire => self.acquire(state, c),
            Request::Release => self.release(state, c),
        }
    }

    fn acquire(&self, state: &mut State, c: usize) -> Reply {
        if state.key.is_some() && !state.is_of(c) {
            return Reply::Refused;
        }
        state.key = Some(Key { client: c as u8, has_ttl: self.bug != Some(Bug::NoExpiry) });
        // What is granted was asked for with the lease that the TTL has now, and before now.
        state.clients[c].terms().for_each(|term| term.covered = true);
        state.lease_changed();
        Reply::Granted(Term { believed: true, covered: true })
    }

    fn release(&self, state: &mut State, c: usize) -> Reply {
        if state.key.is_some() && (state.is_of(c) || self.bug == Some(Bug::ReleaseUnchecked)) {
            state.remove_key();
            for client in &mut state.clients {
                client.message |= client.subscription == Subscription::Live;
            }
        }
        Reply::Released
    }

    /// The lease ends. The deadlines that it covers have passed by then (see [`Term`]).
    pub(super) fn expire(&self, state: &mut State) {
        let Some(Key { client, .. }) = state.key else { return };
        for term in state.clients[usize::from(client)].terms() {
            term.believed &= !term.covered || self.bug == Some(Bug::ClocksDiffer);
        }
        state.remove_key();
        for client in &mut state.clients {
            if client.waits_for_a_change() {
                client.missed = Missed::Expiry;
            }
        }
    }
}

impl State {
    fn remove_key(&mut self) {
        if let Some(Key { client, .. }) = self.key.take() {
            for term in self.clients[usize::from(client)].terms() {
                term.covered = false;
            }
            self.lease_changed();
        }
    }
}
