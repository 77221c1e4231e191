//! The release that Redis has yet to confirm: pure state.

use std::time::{Duration, Instant};

use crate::lease::{Lease, valid_until, whole_millis};
use crate::token::{Drawn, TokenBlock};

use super::{Hold, HoldState};

/// A release that Redis has not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingRelease {
    pub(crate) count: u32,
    /// The longest lease that is promised to a remaining hold, or for how long the key stays.
    pub(crate) lease: Duration,
    /// No hold remains, and the key stays all the same.
    pub(crate) retains: bool,
    /// If the lock has fencing tokens.
    pub(crate) drawn: Option<Drawn>,
    /// The lease is shorter than the default one.
    shortens: bool,
}

impl HoldState {
    /// The pending release, if there is one.
    pub(crate) fn pending(
        &self,
        now: Instant,
        watchdog_timeout: Duration,
    ) -> Option<PendingRelease> {
        if self.is_shared_still(now) {
            return None;
        }
        let promised = self.promised(now, watchdog_timeout);
        let lease = promised;
        // Guards that are all lost keep nothing in Redis.
        let count = if lease.is_some() { self.live_count() } else { 0 };
        let retention = if lease.is_none() { self.retention(now) } else { None };
        let lease = lease.or(retention).unwrap_or(Duration::from_millis(1));
        // A request may have been under way when a reader joined, and never answered. Only this release tells Redis of
        // that reader.
        let is_unsure = self.shared.is_some() && (self.is_shortening() || self.has_unanswered());
        let shortens = self.keeps_too_long(promised, now) || is_unsure && count > 0;
        (self.counted > count || shortens).then_some(PendingRelease {
            count,
            lease,
            retains: retention.is_some(),
            drawn: Drawn::of(self.token, self.tokens),
            shortens: count > 0 && lease < watchdog_timeout,
        })
    }

    /// Whether the pending release has to wait for a renewal that is under way, which would make the lease that it leaves
    /// longer again.
    pub(crate) fn release_waits_for_renewal(
        &self,
        now: Instant,
        watchdog_timeout: Duration,
    ) -> bool {
        let leaves_less = |pending: PendingRelease| {
            pending.shortens || pending.retains && pending.lease < watchdog_timeout
        };
        self.renewing && self.pending(now, watchdog_timeout).is_some_and(leaves_less)
    }

    /// Whether Redis may have the lock, and the client has yet to hear that it has not: until it has given that up.
    pub(super) fn awaits_release(&self) -> bool {
        self.may_have_pending() && !self.rare.as_ref().is_some_and(|rare| rare.given_up)
    }

    /// Whether a release has begun that Redis has not confirmed. A guard whose lease has run out begins none, and a first
    /// request that is under way is none as long as nothing undoes it.
    pub(super) fn release_has_begun(&self, is_permit_taken: bool) -> bool {
        let undoes = self.rare.as_ref().is_some_and(|rare| rare.undoes);
        let is_left = self.live.is_empty() && !is_permit_taken;
        !self.given_back.is_empty() || undoes || is_left
    }

    /// The release is pending, whether or not any guard has given its hold back.
    pub(crate) fn undoes(&mut self) {
        if self.given_back.is_empty() {
            self.rare().undoes = true;
        }
    }

    /// Whether Redis counts more holds than there are: that a lease is longer than it must be is no reason here.
    pub(crate) fn counts_too_many(&self, now: Instant) -> bool {
        let count = if self.holding(now) { self.live_count() } else { 0 };
        !self.is_shared_still(now) && self.counted > count
    }

    /// The longest lease that is promised to a live guard from now on.
    pub(super) fn promised(&self, now: Instant, watchdog_timeout: Duration) -> Option<Duration> {
        let ends = self.is_renewed_no_more();
        let of_hold = |hold: &Hold| {
            let until = hold.validity.check(now)?;
            Some(match hold.lease {
                // Its deadline may be later, if it was extended: with the margin for that time.
                Lease::Watchdog => {
                    let left = until - now;
                    let left = whole_millis(left + left / 99 + Duration::from_millis(1));
                    let renewed = !ends && !self.is_unattended(hold);
                    if renewed { watchdog_timeout.max(left) } else { left }
                }
                // Without the margin that its deadline has: Redis has to keep the requested lease,
                // and every guard's deadline stays ahead of the key's.
                Lease::Fixed(requested) => {
                    let margin = requested - (valid_until(now, requested) - now);
                    whole_millis(until - now + margin)
                }
            })
        };
        let longest = self.live.iter().filter_map(of_hold).max()?;
        Some(longest.max(self.unwritten_of_valid(now).unwrap_or_default()))
    }

    /// Whether no guard is left, and nothing but a release is to be done.
    pub(crate) fn only_needs_release(&self) -> bool {
        self.may_have_pending() && !self.has_holds() && !self.is_in_gap()
    }

    /// The pending release is about to be sent. Returns whether an earlier request may already have
    /// freed the lock.
    pub(crate) fn release_sent(&mut self, pending: PendingRelease, now: Instant) -> bool {
        self.asks();
        let before = self.release_unanswered;
        self.release_unanswered |= pending.count == 0;
        self.undoes();
        if pending.count > 0 {
            if self.is_of_one_handle() {
                self.rare().kept_until = self.kept_until();
            }
            self.shortens(pending.lease, pending.shortens, now);
        }
        if pending.shortens {
            self.rare().shortening += 1;
        }
        before && pending.count == 0
    }

    /// Redis has nothing to hear of the holds that were given back: the readers that are left need the same.
    pub(crate) fn nothing_is_pending(&mut self) {
        self.rare.iter_mut().for_each(|rare| rare.undoes = false);
        if self.shared.is_some() && !self.has_unanswered() {
            self.given_back.clear();
        }
    }

    /// Whether Redis may yet execute a request that sets a shorter lease than a renewal does.
    pub(super) fn is_shortening(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.shortening > 0)
    }

    /// The request was not executed, so it cannot have freed anything.
    pub(crate) fn release_not_executed(&mut self, pending: PendingRelease, sent_before: bool) {
        self.release_unanswered &= sent_before;
        if pending.shortens {
            let rare = self.rare();
            rare.shortening = rare.shortening.saturating_sub(1);
        }
        self.forget_asked();
    }

    /// Redis has executed the pending release.
    pub(crate) fn release_confirmed(&mut self, pending: PendingRelease) {
        self.counted = self.counted.min(pending.count);
        self.release_unanswered = false;
        self.rare.iter_mut().for_each(|rare| {
            (rare.kept_until, rare.shortening) = (None, 0);
            (rare.given_up, rare.undoes) = (false, false);
        });
        if pending.count == 0 {
            // It is given to no holder any more.
            self.tokens = TokenBlock::default();
        }
        self.confirmed();
    }
}
