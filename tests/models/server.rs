//! What the server does: `lua/*.lua`, line by line in the abstract, and the end of a lease.

use crate::protocol::{Bug, Protocol};
use crate::state::{Key, Lease, Owner, Reply, Request, State, Subscription, Term, Untold};

impl Protocol {
    /// Runs a script. `late`: its sender has given the connection up.
    pub(crate) fn execute(&self, state: &mut State, request: Request, late: bool) -> Reply {
        match request {
            Request::Acquire { owner, count, lease } => self.acquire(state, owner, count, lease),
            Request::Release { owner, count, promise } => {
                self.release(state, owner, count, promise, late)
            }
            Request::Renew { owner, lease } => self.renew(state, owner, lease),
        }
    }

    /// `lua/acquire.lua`.
    fn acquire(&self, state: &mut State, owner: Owner, count: u8, lease: Lease) -> Reply {
        let own = state.key.filter(|key| key.owner == owner);
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
        state.key = Some(Key { owner, count, has_ttl });
        let keeps_longer = nested && self.bug != Some(Bug::NestedShortens);
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
            Some(key) if key.owner == owner || self.bug == Some(Bug::ReleaseUnchecked) => key,
            _ => return Reply::Nothing,
        };
        if let (true, Some(promise)) = (count > 0, promise) {
            if late || self.bug == Some(Bug::ReleaseShortens) {
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
            let subscribed =
                matches!(client.subscription, Subscription::Answered | Subscription::Live);
            if client.is_up() && subscribed {
                client.message = true;
            }
        }
        Reply::Released
    }

    /// `lua/renew.lua`.
    fn renew(&self, state: &mut State, owner: Owner, lease: Lease) -> Reply {
        if state.key.is_none() && self.bug == Some(Bug::RenewCreates) {
            state.key = Some(Key { owner, count: 1, has_ttl: true });
        }
        if state.key.is_none_or(|key| key.owner != owner) {
            return Reply::NotRenewed;
        }
        expire_after(state, owner, lease, self.bug != Some(Bug::RenewShortens));
        Reply::Renewed
    }

    /// Whether the lease may end now: not before the deadlines that it covers (see [`Term`]).
    pub(crate) fn may_expire(&self, state: &State) -> bool {
        state.key.is_some_and(|key| {
            let holder = &state.clients[usize::from(key.owner.client)];
            let mut live = holder.live.iter().flatten();
            let in_time = !live.any(|term| term.believed && term.covered);
            key.has_ttl && (in_time || self.bug == Some(Bug::ClocksDiffer))
        })
    }

    pub(crate) fn expire(&self, state: &mut State) {
        let Some(Key { owner, .. }) = state.key else {
            return;
        };
        // A grant that is still on its way comes too late to be believed.
        for term in state.clients[usize::from(owner.client)].terms() {
            let guard_keeps_it = self.bug == Some(Bug::ClocksDiffer);
            term.believed &= !term.covered || guard_keeps_it;
        }
        state.remove_key();
        for client in &mut state.clients {
            if client.is_up() && client.waits_for_a_change() {
                client.untold = Untold::Expired;
            }
        }
    }
}

/// `PEXPIRE`, alone or only if it prolongs: covers every term that began before and is not
/// longer, and without the condition no longer one.
fn expire_after(state: &mut State, owner: Owner, lease: Lease, keeps_longer: bool) {
    for term in state.clients[usize::from(owner.client)].terms() {
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
        for term in self.clients[usize::from(owner.client)].terms() {
            term.covered = true;
        }
    }

    fn remove_key(&mut self) {
        if let Some(Key { owner, .. }) = self.key.take() {
            for term in self.clients[usize::from(owner.client)].terms() {
                term.covered = false;
            }
            self.lease_changed();
        }
    }
}
