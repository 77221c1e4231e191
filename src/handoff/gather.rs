//! When the client sends the first hand-offs of a streak to Redis.
//!
//! Tasks that hold a lock for next to no time hand it off faster than the client begins a request. If that
//! request confirmed only the first of their hand-offs, all others would wait for its answer, and every
//! turn would take two round trips. So the client first lets the streak grow, for a small part of a round trip, and
//! stops waiting as soon as no more callers come.

use std::time::{Duration, Instant};

use crate::clock;
use crate::possession::Possession;
use crate::sync::Mutex;

use super::Handoffs;

/// The client waits for at most one part in this many of a round trip.
const ROUND_TRIP_DIVISOR: u32 = 8;

/// This many callers are enough for one request.
const ENOUGH_CALLERS: usize = 128;

/// A streak has stopped growing if no caller came while the client's thread looked for other work this many times.
const LOOKS_WITHOUT_GROWTH: u32 = 16;

/// How long Redis took to answer the last request about hand-offs; zero if there was none.
#[derive(Default)]
pub(super) struct RoundTrip(Mutex<Duration>);

impl RoundTrip {
    /// Redis has just answered a request that was sent at `sent`.
    pub(super) fn ended(&self, sent: Instant) {
        *self.0.lock() = clock::now().saturating_duration_since(sent);
    }
}

impl Handoffs {
    /// Waits until callers that await a confirmation come more slowly than a request confirms them.
    pub(super) async fn gather(&self, possession: &Possession) {
        let until = clock::now() + *self.round_trip.0.lock() / ROUND_TRIP_DIVISOR;
        let callers = || possession.holds.lock().confirms();
        until_no_more_come(callers, until).await;
    }
}

async fn until_no_more_come(callers: impl Fn() -> usize, until: Instant) {
    let (mut before, mut looks) = (0, 0);
    while looks < LOOKS_WITHOUT_GROWTH && before < ENOUGH_CALLERS && clock::now() < until {
        let now = callers();
        looks = if now > before { 0 } else { looks + 1 };
        before = now;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How many callers there are when the wait is over, if there can be `most`, and one comes every `looks` looks.
    async fn gathered(most: usize, looks: u32, time: Duration) -> usize {
        let callers = Cell::new(1);
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
            () = until_no_more_come(|| callers.get(), clock::now() + time) => {}
            () = grows => {}
        }
        callers.get()
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn a_streak_that_grows_is_waited_for_until_no_more_callers_come() {
        assert_eq!(gathered(60, 1, HOUR).await, 60);
        assert_eq!(gathered(60, LOOKS_WITHOUT_GROWTH / 2, HOUR).await, 60);
        assert!(
            gathered(60, 2 * LOOKS_WITHOUT_GROWTH, HOUR).await < 3,
            "no more come, for all that is known"
        );
    }

    #[tokio::test]
    async fn a_streak_is_waited_for_no_longer_than_until_there_are_enough_or_the_time_is_over() {
        assert!((ENOUGH_CALLERS..ENOUGH_CALLERS + 3).contains(&gathered(10_000, 1, HOUR).await));
        assert_eq!(gathered(60, 1, Duration::ZERO).await, 1);
    }
}
