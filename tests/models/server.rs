//! What the server does: `lua/*.lua`, line by line in the abstract, and the end of a lease.

use crate::protocol::{Bug, Protocol};
use crate::state::{Key, Lease, Missed, Reply, Request, State, Subscription, Term};

/// A client and its handle's number.
type Owner = (usize, u8);

impl Protocol {
    /// Runs a script. `late`: its sender has given the connection up.
    pub(crate) fn execute(
        &self,
        state: &mut State,
        c: usize,
        request: Request,
        late: bool,
    ) -> Reply {
        match request {
            Request::Acquire { number, count, lease } => {
                self.acquire(state, (c, number), count, lease)
            }
            Request::Release { number, count, promise } => {
                self.release(state, (c, number), count, promise, late)
            }
            Request::Renew { number, lease } => self.renew(state, (c, number), lease),
        }
    }

    /// `lua/acquire.lua`.
    fn acquire(&self, state: &mut State, owner: Owner, count: u8, lease: Lease) -> Reply {
        let own = state.key.filter(|&key| owner_of(key) == owner);
        let nested = count > 1;
        if nested && own.is_none() {
            return Reply::Gone;
        }
        if state.key.is_some() && own.is_none() {
            return Reply::Refused;
        }
        let counted = own.map_or(0, |key| key.count);
        let count = if self.bug == Some(Bug::CountAdded) { counted + 1 } else { count };
        let has_ttl = self.bug != Some(Bug::NoExpiry);
        state.key = Some(new_key(owner, count, has_ttl));
        // What is left of an earlier hold is kept, too, if that is longer.
        let keeps_longer = own.is_some() && self.bug != Some(Bug::NestedShortens);
        expire_after(state, owner, lease, keeps_longer);
        // What is granted was asked for with the lease that the TTL has now, and before now.
        Reply::Granted(Term { lease, believed: true, covered: true })
    }

    /// `lua/release.lua`.
    fn release(
        &self,
        state: &mut State,
        owner: Owner,
        count: u8,
        promise: Option<Lease>,
        late: bool,
    ) -> Reply {
        let own = match state.key {
            Some(key) if owner_of(key) == owner || self.bug == Some(Bug::ReleaseUnchecked) => key,
            _ => return Reply::Nothing,
        };
        if let (true, Some(promise)) = (count > 0, promise) {
            if self.bug == Some(Bug::ReleaseShortens) {
                expire_after(state, owner, Lease { watched: false, long: false }, false);
            } else if late {
                // What was promised then says nothing of a hold that has come since.
                expire_after(state, owner, promise, false);
            } else {
                state.cover_all(owner);
                state.lease_changed();
            }
            state.key = Some(Key { count: own.count.min(count), ..own });
            return Reply::Released;
        }
        state.remove_key();
        for client in &mut state.clients {
            client.message |= client.subscription == Subscription::Live;
        }
        Reply::Released
    }

    /// `lua/renew.lua`.
    fn renew(&self, state: &mut State, owner: Owner, lease: Lease) -> Reply {
        if state.key.is_none() && self.bug == Some(Bug::RenewCreates) {
            state.key = Some(new_key(owner, 1, true));
        }
        if state.key.is_none_or(|key| owner_of(key) != owner) {
            return Reply::NotRenewed;
        }
        expire_after(state, owner, lease, self.bug != Some(Bug::RenewShortens));
        Reply::Renewed
    }

    /// The lease ends. The deadlines that it covers have passed by then (see [`Term`]).
    pub(crate) fn expire(&self, state: &mut State) {
        let Some(Key { client, .. }) = state.key else {
            return;
        };
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

fn owner_of(key: Key) -> Owner {
    (usize::from(key.client), key.number)
}

fn new_key((client, number): Owner, count: u8, has_ttl: bool) -> Key {
    Key { client: client as u8, number, count, has_ttl }
}

/// `PEXPIRE`, alone or only if it prolongs: covers every term that began before and is not
/// longer, and without the condition no longer one.
fn expire_after(state: &mut State, owner: Owner, lease: Lease, keeps_longer: bool) {
    for term in state.clients[owner.0].terms() {
        if term.lease.long <= lease.long {
            term.covered = true;
        } else if !keeps_longer {
            term.covered = false;
        }
    }
    state.lease_changed();
}

impl State {
    fn cover_all(&mut self, owner: Owner) {
        for term in self.clients[owner.0].terms() {
            term.covered = true;
        }
    }

    fn remove_key(&mut self) {
        if let Some(Key { client, .. }) = self.key.take() {
            for term in self.clients[usize::from(client)].terms() {
                term.covered = false;
            }
            self.lease_changed();
        }
    }
}
