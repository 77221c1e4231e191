//! Wakes the waiters that have waited for long, so that each of them says so.
//!
//! One timer serves all waiters of a client: a waiter behind the head has none of its own.

use std::time::Duration;

use crate::clock;

use super::{Effects, Waiters};

/// As long as a call waits by default before it says so.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long at least between two looks at all waiters, if the first one took that long. Waiters that came one after the
/// other share a look, and looks take one percent of the time at most. (The process may have stood still in one.)
fn pause_before(threshold: Duration, took: Duration) -> Duration {
    (threshold / 64).max((100 * took).min(LONGEST_PAUSE))
}

impl Waiters {
    /// Wakes each waiter once, when it has waited for `threshold`. A waiter that joins a queue later than that looks
    /// at the clock itself.
    pub(crate) async fn wake_who_waits_long(&self, threshold: Duration) {
        let mut before = clock::now();
        loop {
            let now = clock::now();
            // A call that begins later is due later than that. One that has begun, and has yet to park, is seen by the next
            // look.
            let Some(mut next) = now.checked_add(threshold) else {
                return std::future::pending().await;
            };
            let mut due = Effects::default();
            for waiter in self.queues.lock().waiters() {
                let Some(at) = waiter.since.checked_add(threshold) else { continue };
                if at > now {
                    next = next.min(at);
                } else if at > before {
                    due.wake.push(waiter.clone());
                }
            }
            let took = clock::now().saturating_duration_since(now);
            self.run(due);
            before = now;
            clock::sleep_until(next.max(now + pause_before(threshold, took))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_all_waiters_take_one_percent_of_the_time_at_most() {
        let [second, ms] = [Duration::from_secs(1), Duration::from_millis(1)];
        assert_eq!(pause_before(64 * second, ms), second);
        for threshold in [ms, 100 * ms, second] {
            assert_eq!(pause_before(threshold, ms), 100 * ms);
        }
        assert_eq!(pause_before(second, 60 * second), LONGEST_PAUSE);
    }
}
