//! What a hand-over inside the client does to the two accounts.
//!
//! 1. **Nobody is believed on the strength of a hand-over before it is confirmed.** Until then the
//!    new hold is believed no longer than the old one was.
//! 2. **The watchdog leaves a hold alone that is still in the air**: not confirmed, it would be
//!    found missing in Redis; not claimed, a call that is never polled again would keep the lock
//!    for ever.
//! 3. A run of hand-overs is bounded while other clients wait (see [`Run::is_over`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::lease::{Lease, Term};

use super::{Account, Ask, HoldId, Owed};

/// With less time left a lock is released instead: the new hold could be lost before Redis has
/// confirmed it.
const LEAST: Duration = Duration::from_millis(100);

/// What the last guard of an owner leaves behind, for the next in line.
pub(crate) struct Passing {
    /// What the hand-over pays.
    pub(crate) owed: Owed,
    /// How long Redis keeps the name for this client, as far as is known.
    pub(crate) until: Instant,
    pub(crate) run: Run,
}

/// Hand-overs in a row, for which the client has kept a name from all others.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    passes: u32,
    since: Instant,
    /// How many other clients wait, as Redis last said.
    others: Arc<AtomicU32>,
}

/// How the first hold of a tenure came, if by a hand-over.
pub(super) struct Passed {
    run: Run,
    unconfirmed: bool,
    unclaimed: bool,
}

impl Run {
    fn first(now: Instant) -> Self {
        Self { passes: 1, since: now, others: Arc::default() }
    }

    fn next(&self) -> Self {
        Self { passes: self.passes.saturating_add(1), ..self.clone() }
    }

    /// Redis said how many other clients wait.
    pub(crate) fn note(&self, others: u32) {
        self.others.store(others, Ordering::Relaxed);
    }

    /// How many others wait, if they have waited long enough.
    fn is_over(&self, config: &Config, now: Instant) -> Option<u32> {
        let others = self.others.load(Ordering::Relaxed);
        // Not `since + hand_over_time`: any duration may have been set.
        let kept = now.saturating_duration_since(self.since);
        let long = self.passes >= config.hand_overs || kept >= config.hand_over_time;
        (others > 0 && long).then_some(others)
    }
}

impl Account {
    /// Whether the lock can be handed to this owner: it holds nothing and owes nothing.
    pub(crate) fn can_take(&self) -> bool {
        self.server == 0 && self.live.is_empty() && self.leaving.is_empty()
    }

    /// How many other clients wait, if it is their turn (invariant 3).
    pub(crate) fn run_is_over(&self, config: &Config, now: Instant) -> Option<u32> {
        self.passed.as_ref().and_then(|passed| passed.run.is_over(config, now))
    }

    /// What can be handed to the next in line: `None` if a guard is left, if the lock is lost or
    /// soon will be, or if it may have been freed already.
    pub(crate) fn passing(&self, now: Instant) -> Option<Passing> {
        if !self.live.is_empty() || self.freeing {
            return None;
        }
        let until = self.leaving.iter().map(|term| term.until(now)).min()??;
        if until < now + LEAST {
            return None;
        }
        let run = self.passed.as_ref().map_or_else(|| Run::first(now), |p| p.run.next());
        let lease = Duration::from_millis(1);
        Some(Passing { owed: Owed { count: 0, lease, leaving: self.leaving.len() }, until, run })
    }

    /// The lock is being handed to this owner, as it [asked](Self::ask).
    pub(crate) fn handed(
        &mut self,
        ask: Ask,
        lease: Lease,
        term: Arc<Term>,
        run: Run,
        now: Instant,
    ) -> HoldId {
        self.passed = Some(Box::new(Passed { run, unconfirmed: true, unclaimed: true }));
        self.add(ask, lease, term, now)
    }

    /// Redis confirmed the hand-over to that hold: it may be believed until then.
    pub(crate) fn confirmed(&mut self, hold: HoldId, term: &Term, until: Instant, now: Instant) {
        if let Some(passed) = self.passed.as_mut().filter(|_| hold.tenure == self.tenure) {
            passed.unconfirmed = false;
            term.extend(until, now);
        }
    }

    /// The call that the lock was handed to has it now.
    pub(crate) fn claimed(&mut self) {
        if let Some(passed) = &mut self.passed {
            passed.unclaimed = false;
        }
    }

    /// Whether the watchdog has to be told of this owner, and from when its period counts.
    pub(crate) fn start_watching(&mut self) -> Option<Instant> {
        let watches = self.live.iter().any(|hold| hold.lease == Lease::Watchdog);
        if !watches || self.in_the_air() || std::mem::replace(&mut self.watched, true) {
            return None;
        }
        self.renewed_at
    }

    /// Whether Redis has still to confirm that the lock was handed to this owner.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.passed.as_ref().is_some_and(|passed| passed.unconfirmed) && !self.live.is_empty()
    }

    /// Whether a hand-over to this owner is neither confirmed nor claimed yet (invariant 2).
    pub(super) fn in_the_air(&self) -> bool {
        self.passed.as_ref().is_some_and(|passed| passed.unconfirmed || passed.unclaimed)
    }
}
