//! The time of a network: that of Tokio, or a little later.
//!
//! Where time is paused and no way takes any, a thousand requests can be answered before Tokio's time goes
//! on. But a server carries out one request after the other, and the client relies on that: it tells two
//! grants apart by the microsecond in which they began. So each request takes some time, and the clocks of
//! all machines and servers show it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

pub(super) struct Time {
    pub(super) begun: Instant,
    /// When the last request was carried out: nanoseconds after the beginning.
    latest: AtomicU64,
}

/// How long a server takes for a request.
const REQUEST: u64 = 1_000;

impl Time {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), latest: AtomicU64::new(0) }
    }

    /// The time, if it is `now` by Tokio's.
    pub(super) fn at(&self, now: Instant) -> Instant {
        now.max(self.begun + Duration::from_nanos(self.latest.load(Ordering::Relaxed)))
    }

    /// A request is carried out that came then. Returns when it has been.
    pub(super) fn passes(&self, now: Instant) -> Instant {
        let since = self.at(now).saturating_duration_since(self.begun).as_nanos() as u64 + REQUEST;
        self.latest.store(since, Ordering::Relaxed);
        self.begun + Duration::from_nanos(since)
    }
}
