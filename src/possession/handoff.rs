//! A hand-off inside the client, as it changes the hold state: another handle is inside, under the same
//! possession. And what Redis has yet to hear of that.
//!
//! 1. **No hold is valid for longer than Redis has confirmed.** A hold that was handed over is valid
//!    until the possession is, as far as that was confirmed last, and never longer than its own lease.
//! 2. **Redis hears only of what it has to**: another lease, a lower count, the client's entry in a queue. A default
//!    lease that follows a default one changes nothing. The same request says what the client has to know: that the holds
//!    before were there, the next fencing tokens, and who else waits.
//! 3. **The watchdog does not renew the hold that was handed over until its call takes it**: a call that is never
//!    polled again would keep the lock forever. Holds that nest beside it are renewed as any other.
//! 4. A streak of hand-offs is limited while other clients wait (see [`Streak::is_over`]).
//! 5. **A confirmation comes from a request that was sent after the hold ended**: it is asked for first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::config::Config;
use crate::error::Error;
use crate::lease::{Lease, Validity, valid_until};
use crate::token::TokenBlock;

use super::gap::Gap;
use super::streak::Streak;
use super::{Few, HandleId, HoldId, HoldState, NewHold, Possession};

/// A lock that is valid for a shorter time is released, and not handed off: the new hold could be lost before Redis has
/// confirmed it.
pub(crate) const MIN_HANDOFF_VALIDITY: Duration = Duration::from_millis(100);

/// For a caller that waits until Redis has said that its hold was there to its end, or that the lock is gone. Then its
/// validity says whether the hold is lost by that.
pub(crate) type Confirm = oneshot::Sender<Result<bool, Error>>;

/// The handle that is to have the lock, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipient {
    pub(crate) to: HandleId,
    pub(crate) lease: Lease,
    /// The lease in whole milliseconds.
    pub(crate) requested: Duration,
    pub(crate) needs_token: bool,
    /// Redis keeps a queue. So each hand-off has to tell it which waiter the client's entry stands for from then on.
    pub(crate) in_queue: bool,
}

/// The hold that a hand-off has made for the recipient.
pub(crate) struct PassedHold {
    pub(crate) hold: NewHold,
    /// The client's thread has to update Redis.
    pub(crate) needs_update: bool,
    /// The gap that has ended with it.
    pub(crate) gap: Option<Gap>,
    /// Another holder of this client has had it before: it is not the turn that a message has brought.
    pub(crate) from_holder: bool,
}

/// What Redis is to hear of a possession: its count and its lease from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) count: u32,
    pub(crate) lease: Duration,
    pub(crate) tokens: u32,
    /// The hold for which the lease is.
    hold: Option<HoldId>,
    /// The lock is handed to a waiter once Redis has heard of it.
    ahead: bool,
    /// The key stays with no handle inside.
    retains: bool,
    /// How many callers it confirms that their hold was there.
    pub(crate) confirms: usize,
}

impl Update {
    /// The key stays for that lease, with no handle inside.
    pub(crate) fn retaining(lease: Duration) -> Self {
        Self { count: 1, lease, retains: true, ..Self::default() }
    }

    /// For a lock that is to be handed to a waiter: the key stays for the lease of that one, and the client draws
    /// that many tokens, if the waiter needs one.
    pub(crate) fn ahead(lease: Duration, tokens: u32) -> Self {
        Self { count: 1, lease, tokens, ahead: true, ..Self::default() }
    }

    pub(crate) fn retains(&self) -> bool {
        self.retains
    }

    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead
    }
}

/// What hand-offs have made of a possession.
#[derive(Default)]
pub(super) struct HandOffState {
    pub(super) streak: Option<Streak>,
    /// The hold that the call to which the lock was handed has not taken yet.
    pub(super) unclaimed: Option<HoldId>,
    unwritten: Option<Unwritten>,
    /// Redis has heard of the lease of the next holder already.
    ahead: bool,
    /// Redis keeps a queue, which says which client's turn it is.
    in_queue: bool,
    /// Redis has yet to hear which waiter the client's entry stands for.
    entry_unsaid: bool,
    /// The callers that wait until Redis has confirmed that their hold was there to its end.
    pub(super) confirms: Vec<Confirm>,
    /// The holds before, of which no request has said since that they were there to their ends, if a caller may
    /// have yet to ask for that.
    pub(super) unconfirmed: Few<Arc<Validity>>,
    /// The client's thread is about to tell Redis what it has to hear.
    pub(super) update_queued: bool,
    pub(super) gap: Option<Gap>,
    /// How many callers waited for a confirmation before the last answer.
    pub(super) crowd: usize,
    /// The client's thread has the permit of the possession for that.
    updating: bool,
}

/// A lease of which Redis has not heard.
#[derive(Debug, Clone, Copy)]
struct Unwritten {
    hold: HoldId,
    lease: Duration,
    /// Until when the hold is valid once Redis has heard of it.
    until: Instant,
}

impl Possession {
    /// Passes the lock to another handle, if it can be: not while another request is under way that its caller needs.
    pub(crate) fn pass_to(
        &self,
        to: Recipient,
        has_permit: bool,
        confirm: Option<Confirm>,
        config: &Config,
        now: Instant,
    ) -> Option<PassedHold> {
        let mut holds = self.holds.lock();
        let may = has_permit || self.may_hand_off(&holds);
        if may { holds.pass_to(to, confirm, config, now) } else { None }
    }

    /// Whether no request is under way but one of a hand-off, which does not mind another.
    pub(super) fn may_hand_off(&self, holds: &HoldState) -> bool {
        !self.is_permit_taken() || holds.is_updating()
    }
}

impl HoldState {
    pub(super) fn handed(&mut self) -> &mut HandOffState {
        self.handed.get_or_insert_default()
    }

    /// Until when a hold would be valid that gets the lock now. `None` if a guard is left, if no other handle may
    /// have it, if the lock is lost or soon will be, if its key is to stay, or if it may have been freed already: so
    /// may one have been that Redis named as the holder after it was released, or that a renewal has not found.
    pub(crate) fn hands_off_until(&self, now: Instant) -> Option<Instant> {
        let ends = self.rare.as_ref().is_some_and(|rare| rare.ends_here);
        let frees =
            self.release_unanswered || ends || self.counted == 0 || self.retention(now).is_some();
        let gap = self.handed.as_ref().and_then(|handed| handed.gap.as_ref());
        let frees = frees || gap.is_some_and(|gap| gap.is_shut);
        if !self.live.is_empty() || self.lost || frees || self.is_of_one_handle() {
            return None;
        }
        let lost = self.given_back.iter().any(|validity| validity.check(now).is_none());
        self.until().filter(|until| !lost && now + MIN_HANDOFF_VALIDITY <= *until)
    }

    /// Whether there is a fencing token for the next handle.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.left() > 0
    }

    /// Whether the request under way is one of a hand-off.
    pub(super) fn is_updating(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.updating)
    }

    /// Redis granted the lock to this client in a message, with `tokens` if it is fenced. No handle is inside yet.
    pub(crate) fn granted_by_message(
        &mut self,
        lease: Duration,
        until: Instant,
        tokens: TokenBlock,
    ) {
        (self.counted, self.tokens) = (1, tokens);
        self.reaches(lease, until);
    }

    /// Passes the lock to another handle, if it can be. Redis confirms later that the last hold was there, for `confirm`.
    fn pass_to(
        &mut self,
        Recipient { to, lease, requested, needs_token, in_queue }: Recipient,
        confirm: Option<Confirm>,
        config: &Config,
        now: Instant,
    ) -> Option<PassedHold> {
        let until = self.hands_off_until(now)?;
        let token = if needs_token { Some(self.tokens.draw()?) } else { None };
        let (streak, from_holder) = (self.streak(now), self.had_a_hold());
        self.inside = to;
        self.token = token;
        self.goes_on_after_returned();
        if config.max_hold < Duration::MAX {
            self.rare().max_hold_from = Some(now);
        }
        let own = valid_until(now, requested);
        let hold = self.add(lease, Arc::new(Validity::new(own.min(until))));
        let default = lease == Lease::Watchdog;
        let follows = std::mem::replace(&mut self.is_default, default) && default;
        let ahead = std::mem::take(&mut self.handed().ahead);
        let known = follows || ahead;
        let same = known && u128::from(self.lease) == requested.as_millis();
        // If Redis has not heard of the lease before, this one stands for it.
        let changes = !same || self.unwritten_lease().is_some();
        if changes {
            // Redis hears of it by then.
            self.set_renewal_from(Some(now));
        }
        let handed = self.handed();
        handed.streak = Some(Streak { handoffs: streak.handoffs + 1, ..streak });
        handed.unclaimed = Some(hold.0);
        handed.in_queue = in_queue;
        handed.entry_unsaid |= in_queue && !ahead;
        handed.unwritten =
            changes.then_some(Unwritten { hold: hold.0, lease: requested, until: own });
        handed.confirms.extend(confirm);
        let needs_update = !std::mem::replace(&mut handed.update_queued, true);
        Some(PassedHold { hold, needs_update, gap: handed.gap.take(), from_holder })
    }

    /// Whether the client's thread has still to tell Redis of the lease of a live guard, or of the count.
    pub(crate) fn is_unwritten(&self) -> bool {
        let unwritten = self.unwritten_lease().is_some() || self.counted > self.live_count();
        let update_queued = self.handed.as_ref().is_some_and(|handed| handed.update_queued);
        unwritten && update_queued && !self.live.is_empty()
    }

    pub(super) fn unwritten_lease(&self) -> Option<Duration> {
        let unwritten = self.handed.as_ref()?.unwritten;
        unwritten.map(|unwritten| unwritten.lease)
    }

    /// The lease of which Redis has not heard, if its hold is live: one that has ended needs no time any more.
    pub(super) fn unwritten_of_valid(&self, now: Instant) -> Option<Duration> {
        let Unwritten { hold, lease, .. } = self.handed.as_ref()?.unwritten?;
        let mut live = self.live.iter().filter(|live| live.number == hold);
        live.any(|live| live.validity.check(now).is_some()).then_some(lease)
    }

    /// The client's thread has the permit, or not any more.
    pub(crate) fn set_updating(&mut self, updating: bool) {
        if let Some(handed) = &mut self.handed {
            handed.updating = updating;
        }
    }

    /// For how long Redis keeps the key, as far as that was confirmed last.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// For how long another client, which goes by the TTL, may have to wait if Redis hears of no other lease.
    pub(crate) fn key_left(&self, now: Instant) -> Duration {
        // With the margin that the deadlines of guards have.
        self.left(now) + Duration::from_millis(self.lease / 100 + 1)
    }

    /// Whether Redis keeps the lock for long enough to hear of the lease of its next holder, if that takes so many round
    /// trips.
    pub(crate) fn lasts_for(&self, many: u32, round_trip: Duration, now: Instant) -> bool {
        self.left(now) >= MIN_HANDOFF_VALIDITY + many * round_trip
    }

    /// What Redis has to hear now. `None` if there is nothing, or if a release is next, which says all of it: then the next
    /// hand-off asks the client's thread again. `block` is how many tokens the client draws where its waiters need some, or `None`.
    pub(crate) fn next_update(
        &mut self,
        config: &Config,
        block: Option<u32>,
        now: Instant,
    ) -> Option<Update> {
        let promised = self.promised(now, config.watchdog_timeout);
        let in_gap = self.lease_in_gap(config, now);
        let lease = promised.or(in_gap).filter(|_| !self.lost);
        let block = block.map_or(0, |block| block.max(self.tokens_for_return()));
        let (counted, left) = (self.counted, self.tokens.left());
        let count = if in_gap.is_some() { 1 } else { self.live_count() };
        let handed = self.handed.as_mut()?;
        let tokens = if left < block.div_ceil(2) { block } else { 0 };
        let says = handed.unwritten.is_some()
            || handed.entry_unsaid
            || !handed.confirms.is_empty()
            || counted > count
            || tokens > 0
            || !handed.in_queue && handed.streak.is_some_and(|streak| streak.asks(config, now));
        let Some(lease) = lease.filter(|_| says) else {
            handed.update_queued = false;
            return None;
        };
        let hold = handed.unwritten.map(|unwritten| unwritten.hold);
        let confirms = handed.confirms.len();
        handed.entry_unsaid = false;
        self.shortens(lease, lease < config.watchdog_timeout, now);
        self.asks();
        Some(Update { count, lease, tokens, hold, ahead: false, retains: false, confirms })
    }

    /// The client's thread has given up: the next hand-off asks it again.
    pub(crate) fn gives_update_up(&mut self) {
        self.handed().update_queued = false;
    }

    /// Whether that has to wait for a renewal, which would make a shorter lease longer again.
    pub(crate) fn waits_for_renewal(&self, watchdog_timeout: Duration) -> bool {
        self.renewing && self.unwritten_lease().is_some_and(|lease| lease < watchdog_timeout)
    }

    /// Redis has heard of it, by a request that was sent after `asked`; `others` clients wait, and it drew
    /// `tokens`. Returns the callers for whom that is the confirmation.
    pub(crate) fn record_update(
        &mut self,
        update: Update,
        tokens: TokenBlock,
        others: u32,
        asked: Instant,
        now: Instant,
    ) -> Vec<Confirm> {
        self.counted = self.counted.min(update.count);
        self.confirmed();
        if tokens.left() > 0 {
            self.tokens = tokens;
        }
        let until = valid_until(asked, update.lease);
        // While no handle is inside, nothing but this has set the lease since.
        let before = self.until().filter(|_| !self.live.is_empty());
        self.set_until(before.max(Some(until)));
        // A release that was sent before has been executed, or never will be.
        self.rare.iter_mut().for_each(|rare| (rare.kept_until, rare.shortening) = (None, 0));
        let confirms = self.take_confirms(update.confirms);
        let handed = self.handed();
        handed.ahead = update.ahead;
        handed.crowd = handed.confirms.len() + confirms.len();
        if update.ahead {
            self.lease = update.lease.as_millis() as u64;
            // The next holder relies on that lease, and nothing else says since when.
            self.set_renewal_from(Some(asked));
        }
        if !self.has_callers_that_wait(2) {
            // Only the last holder still waits: its release is as good as another request.
            self.stop_requests_in_gap();
        }
        let handed = self.handed();
        if let Some(streak) = &mut handed.streak {
            streak.others = Some((others, streak.handoffs, now));
        }
        let written = handed.unwritten.take_if(|unwritten| Some(unwritten.hold) == update.hold);
        if update.hold.is_none() || written.is_some() {
            if self.live.iter().any(|hold| hold.lease == Lease::Watchdog) {
                self.set_renewal_from(self.renewal_from().max(Some(asked)));
            }
            let unclaimed = self.unclaimed();
            for hold in self.live.iter() {
                let is_claimed = Some(hold.number) != unclaimed;
                match written {
                    _ if hold.lease == Lease::Watchdog && is_claimed => {
                        hold.validity.extend(until, now);
                    }
                    Some(own) if own.hold == hold.number => {
                        hold.validity.extend(own.until, now);
                    }
                    _ => {}
                }
            }
        }
        if written.is_none() {
            self.reaches_next_holder(until, now);
        }
        confirms
    }

    /// Redis keeps the lock until then by a request about the holder before. It has yet to hear of the lease of the next
    /// one, whose hold is valid for as long nevertheless.
    fn reaches_next_holder(&self, until: Instant, now: Instant) {
        let next = self.handed.as_ref().and_then(|handed| handed.unwritten);
        let of_next =
            |own: Unwritten| self.live.iter().find(|hold| hold.number == own.hold).zip(Some(own));
        if let Some((hold, own)) = next.and_then(of_next) {
            hold.validity.extend(own.until.min(until), now);
        }
    }
}
