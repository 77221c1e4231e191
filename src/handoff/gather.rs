//! How long the client's thread lets hand-offs gather before it updates Redis.
//!
//! Tasks that hold a lock for next to no time hand it off faster than the client begins a request. If that
//! request confirmed only the first of their hand-offs, all others would wait for its answer, and every
//! turn would take two round trips. So the client first lets the streak grow, for a small part of a round trip, and
//! stops waiting as soon as no more callers come. It waits longer for those that the last answer has confirmed: if they
//! come back, they share the request. And it stops at once when all of them have left the lock again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clock;
use crate::possession::{Crowd, Possession};

use super::Handoffs;

/// The client waits for at most one part in this many of a round trip.
const ROUND_TRIP_DIVISOR: u32 = 8;

/// A streak has stopped growing if no caller came while the client's thread looked for other work this many times.
const LOOKS_WITHOUT_GROWTH: u32 = 16;

/// The client's thread looks this many times while callers are away that the last answer has confirmed: another thread
/// has to wake them first.
const LOOKS_FOR_RETURN: u32 = 256;

/// How many nanoseconds Redis took to answer the last request about hand-offs, or less if a request for a lock took less
/// since: else one answer that was late would keep the client from hand-offs, and so from asking again. `u64::MAX` if there
/// was none.
pub(super) struct RoundTrip(AtomicU64);

impl Default for RoundTrip {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl RoundTrip {
    /// Redis has just answered a request that was sent at `sent`.
    pub(super) fn ended(&self, sent: Instant) {
        self.0.store(nanos_since(sent), Ordering::Relaxed);
    }

    /// Redis has just answered a request for a lock that was sent at `sent`.
    fn is_at_most(&self, sent: Instant) {
        let took = nanos_since(sent);
        if took < self.0.load(Ordering::Relaxed) {
            self.0.store(took, Ordering::Relaxed);
        }
    }

    fn last(&self) -> Option<Duration> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos < u64::MAX).then(|| Duration::from_nanos(nanos))
    }
}

fn nanos_since(sent: Instant) -> u64 {
    let took = clock::now().saturating_duration_since(sent).as_nanos();
    u64::try_from(took).unwrap_or(u64::MAX)
}

impl Handoffs {
    /// Redis has answered a request for a lock that was sent at `sent`: it is no further than that.
    pub(crate) fn answered_acquire(&self, sent: Instant) {
        self.round_trip.is_at_most(sent);
    }

    /// How far Redis is, as its last answers say; zero if there was none.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip.last().unwrap_or_default()
    }

    /// The same, if there was one and it is near enough for a gap: the last holder waits for up to three answers, in the
    /// time of one command. They are that which is on its way, another one, and that of the release.
    pub(crate) fn round_trip_of_gap(&self) -> Option<Duration> {
        self.round_trip.last().filter(|last| *last <= self.config.command_timeout / 4)
    }

    /// Lets hand-offs collect for a moment, so that one request confirms many.
    pub(super) async fn gather(&self, possession: &Possession) {
        let until = clock::now() + self.round_trip() / ROUND_TRIP_DIVISOR;
        until_no_more_come(|| possession.holds.lock().crowd(), until).await;
    }
}

async fn until_no_more_come(crowd: impl Fn() -> Crowd, until: Instant) {
    let (mut before, mut looks) = (0, 0);
    while clock::now() < until {
        let Crowd { waiting, away, is_in_gap } = crowd();
        let is_all = is_in_gap && away == 0;
        let most = if away > 0 { LOOKS_FOR_RETURN } else { LOOKS_WITHOUT_GROWTH };
        looks = if waiting > before { 0 } else { looks + 1 };
        if is_all || looks > most {
            return;
        }
        before = waiting;
        // They may need the processor on which this thread runs.
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How many callers there are when the wait is over, and how often it looked, if one comes every `looks` looks until
    /// there are `most`, of which so many were there before the last answer.
    async fn gathered(most: usize, looks: u32, before: usize, time: Duration) -> (usize, u32) {
        let (callers, looked) = (Cell::new(1), Cell::new(0));
        let crowd = || {
            looked.set(looked.get() + 1);
            let waiting = callers.get();
            let away = before.saturating_sub(waiting);
            Crowd { waiting, away, is_in_gap: waiting == most }
        };
        let grows = async {
            while callers.get() < most {
                for _ in 0..looks {
                    tokio::task::yield_now().await;
                }
                callers.set(callers.get() + 1);
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = until_no_more_come(crowd, clock::now() + time) => {}
            () = grows => {}
        }
        (callers.get(), looked.get())
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn a_streak_that_grows_is_waited_for_until_no_more_callers_come() {
        for (most, looks) in [(60, 1), (60, LOOKS_WITHOUT_GROWTH / 2), (10_000, 1)] {
            assert_eq!(gathered(most, looks, 0, HOUR).await.0, most);
        }
        let (came, _) = gathered(60, 2 * LOOKS_WITHOUT_GROWTH, 0, HOUR).await;
        assert!(came < 3, "no more come, for all that is known");
    }

    #[tokio::test]
    async fn a_streak_is_waited_for_no_longer_than_until_all_have_left_or_the_time_is_over() {
        assert_eq!(gathered(1, 1, 0, HOUR).await, (1, 1));
        assert_eq!(gathered(60, 1, 0, Duration::ZERO).await, (1, 0));
    }

    #[tokio::test]
    async fn callers_that_may_come_back_are_waited_for_longer() {
        let (came, _) = gathered(60, 2 * LOOKS_WITHOUT_GROWTH, 60, HOUR).await;
        assert_eq!(came, 60);
        let (came, looked) = gathered(60, u32::MAX, 60, HOUR).await;
        assert_eq!(came, 1);
        assert!((LOOKS_FOR_RETURN..LOOKS_FOR_RETURN + 3).contains(&looked), "{looked}");
    }
}
