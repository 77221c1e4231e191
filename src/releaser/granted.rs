//! A lock that Redis has granted to this client, because it had its turn: hands it to the first waiter.
//!
//! 1. **The client's thread does that, by a hand-off** from the owner of the grant, which no handle is.
//!    So no more is believed than a hand-off believes: the waiter's hold is valid no longer than the
//!    grant, until Redis has confirmed the hand-off with the lease of the waiter.
//! 2. **The grant becomes the lease of the waiter only when the waiter has taken it.** A call that is
//!    never polled again costs the other clients no more than the grace. (Where too little of the grace
//!    is left for that, or the lock is fenced, the waiter has it when Redis has confirmed it, for its lease.)
//! 3. What no waiter can take is released at once, and the next client has its turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::QUEUE_TERM;
use crate::handoff::Handoffs;
use crate::host::HashMap;
use crate::lease::{Lease, Validity};
use crate::owner::{Kind, LEAST, Owner};
use crate::protocol::Grant;

use super::hand_off::until_taken;
use super::{BackgroundRelease, Job};

/// The grants of which the client has heard and that may not have ended: a message and several refusals can be
/// about the same one, and only the first of them counts. None lasts longer than the longest grace.
#[derive(Default)]
pub(super) struct KnownGrants {
    ends: HashMap<String, Instant>,
    sweep_at: usize,
}

impl KnownGrants {
    pub(super) fn is_new(&mut self, grant: &Grant, now: Instant) -> bool {
        if self.ends.len() >= self.sweep_at {
            self.ends.retain(|_, end| *end > now);
            self.sweep_at = 2 * self.ends.len() + 16;
        }
        let known = format!("{} {}", grant.owner, grant.names.key());
        // As long again for an answer that is late.
        self.ends.insert(known, now + 2 * QUEUE_TERM).is_none_or(|end| end <= now)
    }
}

/// Returns the jobs that are left to do.
pub(super) async fn pass_on(grant: Grant, handoffs: &Handoffs) -> Vec<Job> {
    let Grant { names, owner, lease, until, elsewhere } = grant;
    let waiters = &handoffs.waiters;
    waiters.heard(&names, elsewhere);
    let owner = Arc::new(Owner::new(Kind::Fair, names, owner));
    let release = |owner| vec![Job::Release(BackgroundRelease::new(owner, None, lease))];
    has(&owner, lease, until.unwrap_or_else(clock::now));
    let Some(until) = until else { return release(owner) };
    loop {
        let progress = waiters.progress();
        let now = clock::now();
        if now >= until {
            // It came too late, and the place went with it. By the server's clock it may not have ended yet.
            waiters.asks_for_place(&owner.names);
            return release(owner);
        }
        // If the grant took so long to come here, the confirmation may take as long. So the waiter has
        // the lock only after it; also if the grace is too short for a hand-off without it.
        let awaits = until < now + LEAST.max(2 * lease / 3);
        let mut permit = None;
        if let Some(handed_off) = handoffs.hand_off_by(&owner, &mut permit, false, awaits) {
            let mut jobs = Vec::new();
            until_taken(handoffs, &owner, handed_off, |job| jobs.push(job));
            if !awaits && !taken(handoffs, &owner, until).await {
                let pending = handoffs.give_up_unsent(&owner.names).into_iter();
                let release = |(owner, lease)| BackgroundRelease::new(owner, None, lease);
                let mut jobs: Vec<Job> =
                    pending.map(|pending| Job::Release(release(pending))).collect();
                // The waiter may have asked meanwhile.
                jobs.push(Job::Leave(owner));
                return jobs;
            }
            return jobs;
        }
        drop(permit);
        if !waiters.head_asks(&owner.names) {
            return release(owner);
        }
        // Redis refuses that head: another owner has the lock.
        let _ = clock::timeout_at(until, progress).await;
    }
}

/// Waits until the waiter has taken the lock, or left. False if the grant ends before.
async fn taken(handoffs: &Handoffs, owner: &Owner, until: Instant) -> bool {
    let Some(waiter) = handoffs.first_unsent(&owner.names) else { return true };
    loop {
        let progress = handoffs.waiters.progress();
        if !waiter.has_yet_to_take() {
            return true;
        }
        if clock::timeout_at(until, progress).await.is_err() {
            return false;
        }
    }
}

/// The owner has had the lock, and gives it back.
fn has(owner: &Owner, lease: Duration, until: Instant) {
    let mut holds = owner.holds.lock();
    let now = clock::now();
    let ask = holds.ask(now);
    let hold = holds.granted(ask, Lease::Fixed(lease), Arc::new(Validity::new(until)), now);
    holds.give_back(hold);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Names;

    #[test]
    fn a_grant_counts_once_for_as_long_as_any_can_last() {
        let (mut known, now) = (KnownGrants::default(), clock::now());
        let grant = |owner: &str, lease| {
            let (names, lease) = (Names::new("", "lock"), Duration::from_secs(lease));
            Grant { names, owner: owner.into(), lease, until: None, elsewhere: None }
        };
        let mut is_new =
            |grant: &Grant, after| known.is_new(grant, now + Duration::from_secs(after));
        assert!(is_new(&grant("a:-1", 10), 0) && is_new(&grant("a:-2", 10), 0));
        // A refusal says how long it lasts from then on: that is less.
        assert!(!is_new(&grant("a:-1", 1), 8) && !is_new(&grant("a:-1", 1), 27));
        for other in 3..100 {
            assert!(is_new(&grant(&format!("a:-{other}"), 1), 60));
        }
        assert!(known.ends.len() < 120, "{}", known.ends.len());
    }
}
