//! How long a hold may be valid: the lease that a caller asks for, and the validity of a guard.
//!
//! 1. A validity counts from *before* its request was sent, minus a margin, on a monotonic clock.
//! 2. Its deadline passing *is* the loss, whether or not the client can reach Redis.
//! 3. Loss is latched: nothing makes a lost validity good again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;
use crate::error::{Error, Loss};
use crate::stamp::Stamp;

/// How long Redis keeps a lock that is not given back.
///
/// A [`Duration`] converts into a fixed lease, so `try_lock(wait, Duration::from_secs(10))` works.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use redlatch::Lease;
///
/// let ten = Duration::from_secs(10);
/// assert_eq!(Lease::from(ten), Lease::Fixed(ten));
/// assert_eq!(Lease::default(), Lease::Watchdog);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lease {
    /// The watchdog timeout of the client (30 s by default). The client renews it in the background
    /// every third of it for as long as the guard lives, or up to [`max_hold`](crate::LockClientBuilder::max_hold).
    #[default]
    Watchdog,
    /// Exactly this long, never renewed. The client rounds it up to whole milliseconds, and refuses
    /// zero and more than a hundred years.
    Fixed(Duration),
}

impl From<Duration> for Lease {
    fn from(lease: Duration) -> Self {
        Self::Fixed(lease)
    }
}

/// The longest lease that is accepted: far below where Redis refuses a TTL.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Lease {
    /// The lease in whole milliseconds, checked before any I/O.
    pub(crate) fn checked(self, watchdog_timeout: Duration) -> Result<Duration, Error> {
        match self {
            Self::Watchdog => Ok(whole_millis(watchdog_timeout)),
            Self::Fixed(lease) if lease.is_zero() => {
                Err(Error::invalid("a lease of zero would end before it began"))
            }
            Self::Fixed(lease) if lease > MAX_LEASE => {
                Err(Error::invalid("a lease may be at most 100 years"))
            }
            Self::Fixed(lease) => Ok(whole_millis(lease)),
        }
    }
}

/// Rounds up to whole milliseconds: the unit of a TTL, which zero would end at once.
pub(crate) fn whole_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000).max(1);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Until when a lease is valid whose request was sent at `sent` (invariant 1).
///
/// The margin covers clocks that run at different speeds (1 %, far more than real ones differ)
/// and the millisecond by which Redis may round a TTL down.
pub(crate) fn valid_until(sent: Instant, lease: Duration) -> Instant {
    let margin = lease / 100 + Duration::from_millis(1);
    sent + lease.saturating_sub(margin)
}

/// The time for which one guard is valid. The guard and the hold state of its owner share it.
#[derive(Debug)]
pub(crate) struct Validity(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    state: State,
    /// Made for the first task that awaits the loss.
    lost: Option<Arc<Notify>>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Valid {
        until: Stamp,
    },
    Lost {
        /// What was found out first, and since when it is so.
        loss: Loss,
        since: Stamp,
        /// Whether Redis has reported that it does not have the hold, or the client releases it under its guard.
        gone: bool,
        /// What the log does not have yet.
        unreported: Option<Loss>,
    },
}

impl State {
    /// Decides the loss by the clock: a deadline that has passed is the loss, from now on.
    fn check(&mut self, now: Instant) -> Option<Instant> {
        match *self {
            Self::Valid { until } if now < until.instant() => Some(until.instant()),
            Self::Valid { until: since } => {
                let loss = Loss::LeaseEnded;
                *self = Self::Lost { loss, since, gone: false, unreported: Some(loss) };
                None
            }
            Self::Lost { .. } => None,
        }
    }
}

impl Validity {
    pub(crate) fn new(until: Instant) -> Self {
        Self(Mutex::new(Inner { state: State::Valid { until: until.into() }, lost: None }))
    }

    /// The deadline, or `None` if the validity is lost. This call is what latches a passed deadline.
    pub(crate) fn check(&self, now: Instant) -> Option<Instant> {
        self.0.lock().state.check(now)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.check(clock::now()).is_none()
    }

    /// What became of the lock, if the validity is lost.
    pub(crate) fn loss(&self, now: Instant) -> Option<Loss> {
        let state = &mut self.0.lock().state;
        state.check(now);
        match *state {
            State::Lost { loss, .. } => Some(loss),
            State::Valid { .. } => None,
        }
    }

    /// Since when the validity is lost, if it is.
    pub(crate) fn lost_since(&self, now: Instant) -> Option<Instant> {
        let state = &mut self.0.lock().state;
        state.check(now);
        match *state {
            State::Lost { since, .. } => Some(since.instant()),
            State::Valid { .. } => None,
        }
    }

    /// Moves the deadline after a confirmed renewal or hand-off, never back. False if the validity was
    /// lost before the confirmation came (invariants 2 and 3).
    pub(crate) fn extend(&self, to: Instant, now: Instant) -> bool {
        let state = &mut self.0.lock().state;
        let Some(until) = state.check(now) else { return false };
        *state = State::Valid { until: until.max(to).into() };
        true
    }

    /// The loss, if nothing has reported it yet. From now on something has.
    pub(crate) fn unreported_loss(&self, now: Instant) -> Option<Loss> {
        let state = &mut self.0.lock().state;
        state.check(now);
        match state {
            State::Valid { .. } => None,
            State::Lost { unreported, .. } => unreported.take(),
        }
    }

    /// Redis reported that the hold is gone, or the client takes it from its guard: latches the loss, if it is the first. The caller has to
    /// [wake](Self::wake) those that await it, and to report the loss if the hold was valid, which this
    /// returns.
    pub(crate) fn lose(&self, loss: Loss, now: Instant) -> bool {
        let state = &mut self.0.lock().state;
        let valid = state.check(now).is_some();
        match state {
            State::Lost { gone, .. } => *gone = true,
            state => *state = State::Lost { loss, since: now.into(), gone: true, unreported: None },
        }
        valid
    }

    /// Wakes all tasks that await the loss.
    pub(crate) fn wake(&self) {
        let lost = self.0.lock().lost.clone();
        if let Some(lost) = lost {
            lost.notify_waiters();
        }
    }

    /// Whether the hold is [gone](Self::lose), whatever the clock says.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.0.lock().state, State::Lost { gone: true, .. })
    }

    /// Completes when the validity is lost, or, after a [wake](Self::wake), if it is not the one that counts any more.
    pub(crate) async fn lost_while(&self, counts: impl Fn() -> bool) {
        let notify = self.0.lock().lost.get_or_insert_default().clone();
        loop {
            // Made and registered before the look, so that a loss in between is not missed.
            let lost = notify.notified();
            if !counts() {
                return;
            }
            let Some(deadline) = self.check(clock::now()) else {
                return;
            };
            tokio::select! {
                biased;
                () = lost => {}
                () = clock::sleep_until(deadline) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
