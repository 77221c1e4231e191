//! How often something has happened since the client was made: cumulative counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Error;
use crate::host;
use crate::metrics::{self, Outcome};

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

/// A counter of what threads do so often that they would pass one number from core to core.
#[derive(Default)]
pub(crate) struct ThreadsCounter([Alone; 16]);

/// A counter that is alone on its cache line, and on the one that the processor reads ahead.
#[derive(Default)]
#[repr(align(128))]
struct Alone(Counter);

impl ThreadsCounter {
    pub(crate) fn add(&self, many: u64) {
        self.0[host::lane() % self.0.len()].0.add(many);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.iter().map(|one| one.0.get()).sum()
    }
}

/// What has been counted. Of calls that acquire: each counts once, under its outcome.
#[derive(Default)]
pub(crate) struct Counters {
    /// By Redis: those that came without a request are `handed_off`.
    pub(crate) granted: Counter,
    pub(crate) busy: Counter,
    pub(crate) failed: Counter,
    pub(crate) cancelled: Counter,
    /// Without a request, from another holder or reader of this client.
    pub(crate) handed_off: ThreadsCounter,
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

    /// Redis has renewed that many locks.
    pub(crate) fn has_renewed(&self, locks: usize, now: Instant) {
        if locks > 0 {
            self.renewed.add(locks as u64);
            *self.last_renewal.lock() = Some(now);
        }
    }

    pub(crate) fn last_renewal(&self) -> Option<Instant> {
        *self.last_renewal.lock()
    }
}

/// A call that acquires. Its drop is that of the call: it counts as cancelled.
pub(crate) struct Attempt<'a> {
    counters: &'a Counters,
    metrics: metrics::Attempt<'a>,
    is_over: bool,
}

/// What a call can acquire.
pub(crate) trait Acquires {
    /// Whether the hold came without a request, from another holder or reader of this client.
    fn is_handed_off(&self) -> bool;
}

impl<'a> Attempt<'a> {
    pub(super) fn new(counters: &'a Counters, metrics: metrics::Attempt<'a>) -> Self {
        Self { counters, metrics, is_over: false }
    }

    pub(crate) fn end(mut self, result: &Result<Option<impl Acquires>, Error>) {
        self.is_over = true;
        let Counters { granted, busy, failed, handed_off, .. } = self.counters;
        let outcome = match result {
            Ok(Some(acquires)) if acquires.is_handed_off() => Outcome::HandedOff,
            Ok(Some(_)) => Outcome::Granted,
            Ok(None) => Outcome::Busy,
            Err(error) => Outcome::of(error),
        };
        match outcome {
            Outcome::HandedOff => handed_off.add(1),
            Outcome::Granted => granted.add(1),
            Outcome::Busy => busy.add(1),
            _ => failed.add(1),
        }
        self.metrics.ends(outcome);
    }
}

impl Attempt<'_> {
    /// The call goes on in another way, as another attempt.
    pub(crate) fn forget(mut self) {
        self.is_over = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.counters.cancelled.add(1);
            self.metrics.ends(Outcome::Cancelled);
        }
    }
}
