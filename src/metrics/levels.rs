//! With the feature `metrics`: what the client looks up from time to time.

use std::time::Duration;

use metrics::Gauge;

use super::labels::KINDS;
use super::series::label;
use super::{Metrics, OfKinds};
use crate::clock;

/// The shortest pause between two looks of the client at its levels.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// A pause is at least this many times as long as the look before it. So the looks take at most one percent of the
/// time of the client's thread.
const PAUSE_FACTOR: u32 = 100;

/// What a client has at a moment.
pub(crate) struct Levels {
    pub(crate) held_of: OfKinds,
    pub(crate) pending_releases: usize,
    pub(crate) lost_guards: usize,
    pub(crate) oldest_wait: Duration,
    /// How many servers it is connected to, and to how many it is not.
    pub(crate) connections: [usize; 2],
}

/// What one client adds to a gauge that all clients of the process without a label share. Its drop takes that away.
struct Part {
    gauge: Gauge,
    part: f64,
}

impl Part {
    fn new(gauge: Gauge) -> Self {
        Self { gauge, part: 0.0 }
    }

    fn set(&mut self, part: usize) {
        let before = std::mem::replace(&mut self.part, part as f64);
        self.gauge.increment(self.part - before);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.gauge.decrement(self.part);
    }
}

/// What the client that looked last has. Its drop says that the client has nothing any more.
struct Last(Gauge);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.set(0.0);
    }
}

/// Looks at the levels again and again, until it is dropped.
pub(crate) async fn keep_levels(metrics: &Metrics, look: impl Fn() -> Levels) {
    let gauge = |name: &'static str, key: &'static str, value: &'static str| -> Gauge {
        let labels = metrics.labels.iter().cloned().chain(label(key, value));
        metrics::gauge!(name, labels.collect::<Vec<_>>())
    };
    let part = |name, key, value| Part::new(gauge(name, key, value));
    let mut held: [Option<Part>; KINDS] = Default::default();
    let oldest_wait = Last(gauge("redlatch_oldest_wait_seconds", "", ""));
    let mut pending_releases = part("redlatch_pending_releases", "", "");
    let mut zombie_guards = part("redlatch_zombie_guards", "", "");
    let mut connections = ["up", "dialing"].map(|one| part("redlatch_connections", "state", one));
    loop {
        let begun = clock::now();
        metrics.record_kept();
        let levels = look();
        for (at, gauge) in metrics.held_of() {
            held[at].get_or_insert_with(|| Part::new(gauge.clone())).set(levels.held_of.0[at]);
        }
        oldest_wait.0.set(levels.oldest_wait.as_secs_f64());
        pending_releases.set(levels.pending_releases);
        zombie_guards.set(levels.lost_guards);
        for (part, count) in connections.iter_mut().zip(levels.connections) {
            part.set(count);
        }
        let took = clock::now().saturating_duration_since(begun);
        clock::sleep(MIN_PAUSE.max(took * PAUSE_FACTOR)).await;
    }
}
