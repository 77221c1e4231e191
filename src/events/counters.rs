//! How often something has happened since the client was made: cumulative counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Error;

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, many: u64) {
        self.0.fetch_add(many, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What has been counted. Of calls that acquire: each counts once, under its outcome.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) acquired: Counter,
    pub(crate) busy: Counter,
    pub(crate) failed: Counter,
    pub(crate) cancelled: Counter,
    /// Of those that acquired: without a request, from another holder or reader of this client.
    pub(crate) handed_off: Counter,
    /// Calls that were not answered at once, and for how long they waited, in microseconds.
    pub(crate) waited: Counter,
    wait_micros: Counter,
    pub(crate) losses: Counter,
    pub(crate) renewed: Counter,
    pub(crate) renewals_failed: Counter,
    last_renewal: Mutex<Option<Instant>>,
}

impl Counters {
    pub(crate) fn wait_time(&self) -> Duration {
        Duration::from_micros(self.wait_micros.get())
    }

    /// A call has waited for that long.
    pub(crate) fn has_waited(&self, time: Duration) {
        self.waited.add(1);
        self.wait_micros.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Redis has renewed so many locks.
    pub(crate) fn has_renewed(&self, locks: usize, now: Instant) {
        if locks > 0 {
            self.renewed.add(locks as u64);
            *self.last_renewal.lock() = Some(now);
        }
    }

    pub(crate) fn last_renewal(&self) -> Option<Instant> {
        *self.last_renewal.lock()
    }

    /// A call that acquires begins. It does not hand its future in here: a parked call would have that twice.
    pub(crate) fn attempt(&self) -> Attempt<'_> {
        Attempt { counters: self, is_over: false }
    }
}

/// A call that acquires. Its drop is that of the call: it counts as cancelled.
pub(crate) struct Attempt<'a> {
    counters: &'a Counters,
    is_over: bool,
}

impl Attempt<'_> {
    pub(crate) fn end<G>(mut self, result: &Result<Option<G>, Error>) {
        self.is_over = true;
        let Counters { acquired, busy, failed, .. } = self.counters;
        let outcome = match result {
            Ok(Some(_)) => acquired,
            Ok(None) => busy,
            Err(_) => failed,
        };
        outcome.add(1);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.counters.cancelled.add(1);
        }
    }
}
