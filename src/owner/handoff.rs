//! How a hand-off inside the client changes the two hold states.
//!
//! 1. **No hold is valid on the strength of a hand-off before Redis has confirmed it.** Until then
//!    the new hold is valid no longer than the old one was.
//! 2. **The watchdog leaves an unsettled hold alone.** An unconfirmed one would be missing in
//!    Redis. With an unclaimed one, a call that is never polled again would keep the lock forever.
//! 3. A streak of hand-offs is limited while other clients wait (see [`Streak::is_over`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::lease::{Lease, Validity};

use super::{Ask, HoldId, HoldState, PendingRelease};

/// With less time left, the lock is released instead: the new hold could be lost before Redis has
/// confirmed it.
pub(crate) const LEAST: Duration = Duration::from_millis(100);

/// What the last guard of an owner leaves behind, for the next waiter.
pub(crate) struct HandoffStart {
    /// The release that the hand-off fulfills.
    pub(crate) pending: PendingRelease,
    /// How long Redis keeps the name for this client, as far as is known.
    pub(crate) until: Instant,
    pub(crate) streak: Streak,
}

/// Hand-offs in a row, during which the client has kept a name from all others.
#[derive(Debug, Clone)]
pub(crate) struct Streak {
    handoffs: u32,
    since: Instant,
    /// How many other clients wait, as Redis last reported.
    others: Arc<AtomicU32>,
}

/// How the first hold of a generation came, if by a hand-off.
pub(super) struct HandoffOrigin {
    streak: Streak,
    unconfirmed: bool,
    unclaimed: bool,
}

impl Streak {
    fn first(now: Instant) -> Self {
        Self { handoffs: 1, since: now, others: Arc::default() }
    }

    fn next(&self) -> Self {
        Self { handoffs: self.handoffs.saturating_add(1), ..self.clone() }
    }

    /// Redis reported how many other clients wait.
    pub(crate) fn note(&self, others: u32) {
        self.others.store(others, Ordering::Relaxed);
    }

    /// Whether it began less than that time ago.
    pub(crate) fn is_within(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < time
    }

    /// How many others wait, if they have waited long enough.
    fn is_over(&self, config: &Config, now: Instant) -> Option<u32> {
        let others = self.others.load(Ordering::Relaxed);
        // Not `since + max_handoff_time`: any duration may have been set.
        let kept = now.saturating_duration_since(self.since);
        let long = self.handoffs >= config.max_handoffs || kept >= config.max_handoff_time;
        (others > 0 && long).then_some(others)
    }
}

impl HoldState {
    /// Whether the lock can be handed to this owner: it has no hold and no pending release.
    pub(crate) fn can_take(&self) -> bool {
        self.counted == 0 && self.live.is_empty() && self.given_back.is_empty()
    }

    /// How many other clients wait, if it is their turn (invariant 3).
    pub(crate) fn streak_is_over(&self, config: &Config, now: Instant) -> Option<u32> {
        // Nobody can have a turn before the key goes.
        let origin = self.origin.as_ref().filter(|_| self.retention(now).is_none());
        origin.and_then(|origin| origin.streak.is_over(config, now))
    }

    /// What can be handed to the next waiter: `None` if a guard is left, if the lock is lost or
    /// soon will be, if its key is to stay, or if it may have been freed already.
    /// `awaits` says that the next owner has nothing before Redis confirms it.
    pub(crate) fn start_handoff(&self, now: Instant, awaits: bool) -> Option<HandoffStart> {
        if !self.live.is_empty() || self.freeing || self.retention(now).is_some() {
            return None;
        }
        let until = self.given_back.iter().map(|validity| validity.check(now)).min()??;
        if until < now + LEAST && !awaits {
            return None;
        }
        let streak = self.origin.as_ref().map_or_else(|| Streak::first(now), |p| p.streak.next());
        let lease = Duration::from_millis(1);
        Some(HandoffStart {
            pending: PendingRelease {
                count: 0,
                lease,
                retains: false,
                given_back: self.given_back.len(),
            },
            until,
            streak,
        })
    }

    /// The lock is being handed to this owner, as it [asked](Self::ask).
    pub(crate) fn handed(
        &mut self,
        ask: Ask,
        lease: Lease,
        validity: Arc<Validity>,
        streak: Streak,
        now: Instant,
    ) -> HoldId {
        self.origin = Some(Box::new(HandoffOrigin { streak, unconfirmed: true, unclaimed: true }));
        self.add(ask, lease, validity, now)
    }

    /// Redis confirmed the hand-off to that hold: it may be valid until then.
    pub(crate) fn confirmed(
        &mut self,
        hold: HoldId,
        validity: &Validity,
        until: Instant,
        now: Instant,
    ) {
        if let Some(origin) = self.origin.as_mut().filter(|_| hold.generation == self.generation) {
            origin.unconfirmed = false;
            validity.extend(until, now);
        }
    }

    /// The call to which the lock was handed has it now.
    pub(crate) fn claimed(&mut self) {
        if let Some(origin) = &mut self.origin {
            origin.unclaimed = false;
        }
    }

    /// Whether Redis has still to confirm that the lock was handed to this owner.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.unconfirmed) && !self.live.is_empty()
    }

    /// Whether a hand-off to this owner is unconfirmed or unclaimed (invariant 2).
    pub(super) fn is_unsettled(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.unconfirmed || origin.unclaimed)
    }
}
