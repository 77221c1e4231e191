//! When the client sends the first hand-offs of a chain.
//!
//! Tasks that hold a lock for next to no time hand it off faster than the client begins a request. If that
//! request confirmed only the first of their hand-offs, all others would wait for its answer, and every
//! turn took two round trips. So the client lets a chain grow first, as long as it grows, for a small part
//! of a round trip.

use std::time::{Duration, Instant};

use crate::clock;
use crate::possession::Possession;
use crate::sync::Mutex;

use super::Handoffs;

/// The client waits for one part in so many of a round trip at most.
const PARTS: u32 = 8;

/// So many are enough for a request.
const ENOUGH: usize = 128;

/// A chain rests if it has not grown while the client's thread looked for other work so often.
const LOOKS: u32 = 16;

/// What the last request for hand-offs took; zero if there was none.
#[derive(Default)]
pub(super) struct Trip(Mutex<Duration>);

impl Trip {
    /// Redis has answered a request that was sent then.
    pub(super) fn ended(&self, sent: Instant) {
        *self.0.lock() = clock::now().saturating_duration_since(sent);
    }
}

impl Handoffs {
    /// Waits until callers that await a confirmation come more slowly than a request confirms them.
    pub(super) async fn gather(&self, possession: &Possession) {
        let until = clock::now() + *self.trip.0.lock() / PARTS;
        let length = || possession.holds.lock().confirms();
        until_it_rests(length, until).await;
    }
}

async fn until_it_rests(length: impl Fn() -> usize, until: Instant) {
    let (mut before, mut looks) = (0, 0);
    while looks < LOOKS && before < ENOUGH && clock::now() < until {
        let now = length();
        looks = if now > before { 0 } else { looks + 1 };
        before = now;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The length of a chain that grows to `most`, by one in so many looks, when the wait for it is over.
    async fn gathered(most: usize, looks: u32, time: Duration) -> usize {
        let chain = Cell::new(1);
        let grows = async {
            while chain.get() < most {
                for _ in 0..looks {
                    tokio::task::yield_now().await;
                }
                chain.set(chain.get() + 1);
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = until_it_rests(|| chain.get(), clock::now() + time) => {}
            () = grows => {}
        }
        chain.get()
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn a_chain_that_grows_is_waited_for_until_it_rests() {
        assert_eq!(gathered(60, 1, HOUR).await, 60);
        assert_eq!(gathered(60, LOOKS / 2, HOUR).await, 60);
        assert!(gathered(60, 2 * LOOKS, HOUR).await < 3, "it rests, for all that is known");
    }

    #[tokio::test]
    async fn a_chain_is_waited_for_no_longer_than_is_enough_or_the_time_is_over() {
        assert!((ENOUGH..ENOUGH + 3).contains(&gathered(10_000, 1, HOUR).await));
        assert_eq!(gathered(60, 1, Duration::ZERO).await, 1);
    }
}
