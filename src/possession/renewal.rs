//! What the watchdog asks of a hold state, and what a confirmed renewal changes: pure state.

use std::time::{Duration, Instant};

use crate::lease::{Lease, valid_until};
use crate::stamp::Stamp;

use super::{HandleId, Hold, HoldId, HoldState, Rare};

/// What the watchdog finds when it checks a possession.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Ask Redis now; the lease in force is valid until then, and was made shorter `shortened` times before.
    Due { until: Instant, shortened: u32 },
    /// Not before that instant.
    NotBefore(Instant),
    /// Nothing to renew; the next hold with a default lease has to register again.
    Idle {
        /// Holds ran out, unrenewed, and nothing has reported that yet.
        ran_out: bool,
    },
    /// The possession has been held for so long that the watchdog renews nothing any more. It is valid until then.
    Over { until: Instant },
}

impl HoldState {
    /// The holds whose leases the watchdog renews. With one that no call has taken yet, a call that is never polled
    /// again would keep the lock forever.
    pub(super) fn watched(&self) -> impl Iterator<Item = &Hold> {
        let unclaimed = self.unclaimed();
        let is_watched = move |hold: &&Hold| {
            hold.lease == Lease::Watchdog && !hold.unattended && Some(hold.number) != unclaimed
        };
        self.live.iter().filter(is_watched)
    }

    /// From when the period of that handle's watched leases counts; `None` if the watchdog has nothing to do.
    pub(crate) fn watched_since(&mut self, handle: HandleId) -> Option<Instant> {
        self.look_at_joint_holds(false);
        if self.watched().next().is_some() && self.inside == handle {
            debug_assert!(self.renewal_from.is_some(), "BUG: nothing would renew this lease");
            self.renewal_from()
        } else {
            None
        }
    }

    /// The watchdog checks that handle, which it renews for no longer than `max_hold`.
    pub(crate) fn renewal(
        &mut self,
        handle: HandleId,
        now: Instant,
        period: Duration,
        max_hold: Duration,
    ) -> Renewal {
        self.look_at_joint_holds(self.inside == handle);
        let valid = self.watched().filter_map(|hold| hold.validity.check(now)).min();
        match (valid, self.renewal_from()) {
            _ if self.inside != handle => Renewal::Idle { ran_out: false },
            (Some(until), Some(at)) if self.is_renewed_for(max_hold, at, now) => {
                let rare = self.rare();
                rare.over = rare.max_hold_from;
                Renewal::Over { until }
            }
            // It is for all holds: of the handle before, maybe, from which the lock was handed off.
            (Some(_), Some(_)) if self.renewing => Renewal::NotBefore(now + period / 8),
            // The request under way may make the lease shorter when it arrives.
            (Some(_), Some(_)) if self.is_updating() && self.unwritten_lease().is_some() => {
                Renewal::NotBefore(now + period)
            }
            (Some(_), Some(_)) if self.is_shortening() => Renewal::NotBefore(now + period / 8),
            (Some(until), Some(at)) if at + period <= now => {
                self.renewing = true;
                Renewal::Due { until, shortened: self.shortened() }
            }
            (Some(_), Some(at)) => Renewal::NotBefore(at + period),
            _ => {
                // Each of them, because a guard that is dropped reports its own.
                let unreported =
                    |any, hold: &Hold| any | hold.validity.unreported_loss(now).is_some();
                let ran_out = self.watched().fold(false, unreported);
                Renewal::Idle { ran_out }
            }
        }
    }

    /// Whether a lease of the handle inside, which the watchdog renews, was first requested at least `max_hold` ago. If
    /// this is the first question, that request counts as of `at`.
    fn is_renewed_for(&mut self, max_hold: Duration, at: Instant, now: Instant) -> bool {
        // Not `from + max_hold`: any duration may have been set.
        max_hold < Duration::MAX && {
            let from = *self.rare().max_hold_from.get_or_insert(at);
            now.saturating_duration_since(from) >= max_hold
        }
    }

    /// Whether the watchdog has renewed it for as long as it may, and lets its lease end.
    pub(super) fn is_renewed_no_more(&self) -> bool {
        let over = self.rare.as_ref().filter(|rare| rare.over.is_some());
        over.is_some_and(|rare| rare.over == rare.max_hold_from)
    }

    /// A reader has come by a request that was sent then: the watchdog renews it for as long as any other, however long
    /// others have read. Not if it `recurs`: for its handle the time has begun before.
    pub(crate) fn renews_reader_from(&mut self, sent: Instant, lease: Lease, recurs: bool) {
        if self.shared.is_some() && lease == Lease::Watchdog && !recurs {
            let from = |rare: &mut Box<Rare>| rare.max_hold_from = rare.max_hold_from.map(|_| sent);
            self.rare.iter_mut().for_each(from);
        }
    }

    /// The lease of a valid hold from now on: the default one, or what is left of its own.
    pub(crate) fn lease_left(&self, hold: HoldId, now: Instant) -> Option<Lease> {
        let live = self.live.iter().find(|live| live.number == hold)?;
        let until = live.validity.check(now)?;
        Some(match live.lease {
            Lease::Watchdog => Lease::Watchdog,
            Lease::Fixed(_) => Lease::Fixed(until - now),
        })
    }

    /// Redis confirmed that one hold has `lease` from `sent` on. False if it was lost by then.
    pub(crate) fn extended(
        &mut self,
        hold: HoldId,
        lease: Duration,
        sent: Instant,
        now: Instant,
    ) -> bool {
        let until = valid_until(sent, lease);
        self.reaches(lease, until);
        let live = self.live.iter_mut().find(|live| live.number == hold);
        let Some(live) = live else { return false };
        let Some(before) = live.validity.check(now) else { return false };
        if until > before && live.lease != Lease::Watchdog {
            // The margin of its deadline is that of this lease from now on.
            live.lease = Lease::Fixed(lease);
        }
        let extended = live.validity.extend(until, now);
        self.note_lease(Lease::Fixed(lease));
        extended
    }

    /// A renewal is over.
    pub(crate) fn renewal_ends(&mut self) {
        self.renewing = false;
    }

    /// Redis confirmed a renewal that was sent at `sent`. False if it came too late, or if Redis was asked for a shorter
    /// lease since the renewal was due, when it had been shortened `shortened` times: then the answer says nothing. No clock tells
    /// which of two requests Redis executed first, if they were sent on two connections.
    pub(crate) fn renewed(
        &mut self,
        shortened: u32,
        sent: Instant,
        lease: Duration,
        now: Instant,
    ) -> bool {
        self.renewing = false;
        if self.shortened() != shortened {
            return false;
        }
        self.set_renewal_from(self.renewal_from().max(Some(sent)));
        let until = valid_until(sent, lease);
        self.reaches(lease, until);
        self.look_at_joint_holds(false);
        let mut in_time = true;
        for hold in self.watched() {
            in_time &= hold.validity.extend(until, now);
        }
        in_time
    }

    pub(super) fn until(&self) -> Option<Instant> {
        self.until.map(Stamp::instant)
    }

    pub(super) fn set_until(&mut self, until: Option<Instant>) {
        self.until = until.map(Stamp::from);
    }

    pub(super) fn renewal_from(&self) -> Option<Instant> {
        self.renewal_from.map(Stamp::instant)
    }

    pub(super) fn set_renewal_from(&mut self, at: Option<Instant>) {
        self.renewal_from = at.map(Stamp::from);
    }

    pub(super) fn shortened(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.shortened)
    }
}
