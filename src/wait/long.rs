//! Wakes the waiters that have waited for long, so that each of them says so.
//!
//! One timer serves all waiters of a client: a waiter behind the head has none of its own.

use std::time::Duration;

use crate::clock;

use super::{Effects, Waiters};

impl Waiters {
    /// Wakes each waiter once, when it has waited for `threshold`. A waiter that joins a queue later than that looks
    /// at the clock itself.
    pub(crate) async fn wake_who_waits_long(&self, threshold: Duration) {
        // Waiters that came one after the other share a look.
        let pause = threshold / 64;
        let mut before = clock::now();
        loop {
            let now = clock::now();
            // A waiter that comes later is due later than that.
            let Some(mut next) = now.checked_add(threshold) else {
                return std::future::pending().await;
            };
            let mut due = Effects::default();
            for waiter in self.queues.lock().waiters() {
                let Some(at) = waiter.since.checked_add(threshold) else { continue };
                if at > now {
                    next = next.min(at.max(now + pause));
                } else if at > before {
                    due.wake.push(waiter.clone());
                }
            }
            self.run(due);
            before = now;
            clock::sleep_until(next).await;
        }
    }
}
