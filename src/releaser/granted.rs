//! A lock that Redis has granted to this client, because it had its turn: hands it to the first waiter.
//!
//! 1. **The owner that Redis names in a grant is a possession** of this client, and its client's thread hands
//!    it off. So no more is believed than a hand-off believes: the waiter's hold is valid no longer than
//!    the grant, until Redis has heard of the lease of the waiter.
//! 2. **Redis hears of that only when the waiter has taken the lock.** A call that is never polled again
//!    costs the other clients no more than the grace. (Where too little of the grace is left for that, or the
//!    waiter needs a token and none came with the grant, Redis hears of the lease first, and then the waiter has
//!    the lock.)
//! 3. What no waiter can take is released at once, and the next client has its turn.
//! 4. **A grant is passed on once.** A message, several refusals and the answer to a client that leaves the queue can be
//!    about the same one, and only the first of them counts: [`KnownGrants`] knows a grant for as long as Redis keeps one that no call takes. A call that takes it may
//!    keep the lock for longer, so the registry knows it while its possession lives and while its key stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::QUEUE_TERM;
use crate::handoff::{HandedOff, Handoffs};
use crate::host::HashMap;
use crate::lease::valid_until;
use crate::possession::{MIN_HANDOFF_VALIDITY, Possession, Update};
use crate::protocol::{Call, Grant};
use crate::sweep::Sweep;
use crate::transport::Router;
use crate::wait::Waiter;

use super::{BackgroundRelease, Job};

/// The grants of which the client has heard and that may not have ended: a message and several answers can be
/// about the same one, and only the first of them counts. None lasts longer than the longest grace.
#[derive(Default)]
pub(super) struct KnownGrants {
    ends: HashMap<String, Instant>,
    sweep: Sweep,
}

impl KnownGrants {
    pub(super) fn is_new(&mut self, grant: &Grant, now: Instant) -> bool {
        if self.sweep.is_due(self.ends.len()) {
            self.sweep.sweep(&mut self.ends, |_, end| *end > now);
        }
        let known = format!("{} {}", grant.owner, grant.names.key());
        // As long again for an answer that is late.
        self.ends.insert(known, now + 2 * QUEUE_TERM).is_none_or(|end| end <= now)
    }
}

/// Returns the jobs that are left to do.
pub(super) async fn pass_on(grant: Grant, router: &Router, handoffs: &Handoffs) -> Vec<Job> {
    let Grant { names, owner, lease, until, foreign, tokens } = grant;
    let waiters = &handoffs.waiters;
    waiters.record_foreign(&names, foreign);
    let names = waiters.names_of(names);
    let Some(possession) = handoffs.possessions.register_grant(names, &owner) else {
        return Vec::new();
    };
    let names = &possession.names;
    let believed = until.unwrap_or_else(clock::now);
    possession.holds.lock().granted_by_message(lease, believed, tokens);
    // The client's thread has to see to a hand-off to a waiter that left as it got the lock.
    let mut updates = false;
    let release = |updates| jobs_of_release(&possession, lease, updates);
    let Some(until) = until else { return release(updates) };
    loop {
        let progress = waiters.progress();
        let now = clock::now();
        if now >= until {
            // The grant came too late, and the client's entry went with it. By the server's clock the grant may not
            // have ended yet.
            waiters.ask_now(names);
            return release(updates);
        }
        // If the grant took so long to come here, Redis may hear of the waiter as late. So it hears first; also
        // if the grace is too short for a hand-off without that, or the waiter needs a token that is not there.
        let has_tokens = possession.holds.lock().has_tokens();
        let tokens = if has_tokens { 0 } else { waiters.tokens_wanted(names, &handoffs.config) };
        let first = tokens > 0 || until < now + MIN_HANDOFF_VALIDITY.max(2 * lease / 3);
        if first && let Some(lease) = waiters.next_lease(names) {
            let ahead = Update::ahead(lease, tokens);
            if !hears_ahead(ahead, router, handoffs, &possession, now).await {
                waiters.ask_now(names);
                return release(updates);
            }
        }
        match handoffs.hand_off(&possession, None, None) {
            Some(HandedOff { declined: Some(granted), needs_update, .. }) => {
                updates |= needs_update;
                possession.holds.lock().give_back(granted.hold);
            }
            Some(HandedOff { waiter, needs_update, .. }) => {
                if first || taken(handoffs, &waiter, until).await {
                    return vec![Job::Update(possession)];
                }
                // The waiter may have asked meanwhile.
                let mut jobs = release(updates | needs_update);
                jobs.push(Job::LeaveQueue(names.clone(), Some(possession.clone())));
                return jobs;
            }
            None if waiters.head_asks(names) => {
                // Redis refuses that head: another owner has the lock.
                let _ = clock::timeout_at(until, progress).await;
            }
            None => return release(updates),
        }
    }
}

/// The jobs that give a grant back, and see to a hand-off before if the client's thread has to.
fn jobs_of_release(possession: &Arc<Possession>, lease: Duration, updates: bool) -> Vec<Job> {
    let mut jobs = vec![Job::Release(BackgroundRelease::new(possession.clone(), None, lease))];
    jobs.extend(updates.then(|| Job::Update(possession.clone())));
    jobs
}

/// Has Redis hear of the waiter before that has the lock. False if it may not have heard.
async fn hears_ahead(
    ahead: Update,
    router: &Router,
    handoffs: &Handoffs,
    possession: &Arc<Possession>,
    now: Instant,
) -> bool {
    let mut call = Call::new(router, now + handoffs.config.command_timeout);
    let _permit = possession.permit().await;
    // Whether or not there is an answer: a release is tried for as long.
    let kept_until = valid_until(clock::now(), ahead.lease);
    let before = possession.holds.lock().may_be_kept_until(kept_until);
    match handoffs.send_update(&mut call, possession, ahead).await {
        Ok(Ok(updated)) => {
            handoffs.record_update(possession, ahead, updated, now);
            true
        }
        // It was answered.
        Ok(Err(_)) => false,
        Err(error) => {
            if error.is_in_doubt() {
                call.abandon();
            } else {
                possession.holds.lock().is_kept_as(before);
            }
            false
        }
    }
}

/// Waits until the waiter has taken the lock, or left. False if the grant ends before.
async fn taken(handoffs: &Handoffs, waiter: &Waiter, until: Instant) -> bool {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::Names;
    use crate::token::TokenBlock;

    #[test]
    fn a_grant_counts_once_for_as_long_as_any_can_last() {
        let (mut known, now) = (KnownGrants::default(), clock::now());
        let grant = |owner: &str, lease| {
            let (names, lease) = (Names::new("", "lock"), Duration::from_secs(lease));
            let tokens = TokenBlock::default();
            Grant { names, owner: owner.into(), lease, until: None, foreign: None, tokens }
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
