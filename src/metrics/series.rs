//! With the feature `metrics`: what a client counts of each lock, by its kind and group.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Label};

use super::labels::{KINDS, kind};
use super::times::{AllTimes, Times};
use super::{End, Outcome};
use crate::clock;
use crate::error::Loss;
use crate::kind::Kind;
use crate::process::Process;

/// The handles of the names of one group.
#[derive(Default)]
pub(super) struct Group {
    labels: Vec<Label>,
    times: Arc<AllTimes>,
    acquires: [[OnceLock<Arc<Times>>; Outcome::TEXTS.len()]; KINDS],
    holds: [[OnceLock<Arc<Times>>; End::TEXTS.len()]; KINDS],
    losses: [[OnceLock<Counter>; End::TEXTS.len()]; KINDS],
    waiting: [OnceLock<Gauge>; KINDS],
    /// A call that is dropped in a forked child records nothing: the recorder may be locked there for ever.
    process: Process,
}

/// The group of one name, and the kind of its lock.
#[derive(Clone, Default)]
pub(crate) struct Series {
    pub(super) group: Arc<Group>,
    pub(super) kind: Option<Kind>,
}

/// How many locks of each kind.
#[derive(Debug, Default)]
pub(crate) struct OfKinds(pub(super) [usize; KINDS]);

/// A call that acquires.
pub(crate) struct Attempt<'a> {
    group: &'a Group,
    kind: Option<Kind>,
    begun: Instant,
}

/// A call that waits.
pub(crate) struct Waits {
    gauge: Gauge,
    process: Process,
}

impl Group {
    pub(super) fn new(labels: Vec<Label>, times: Arc<AllTimes>) -> Self {
        Self { labels, times, ..Self::default() }
    }

    fn labels(&self, kind: &'static str, more: impl Iterator<Item = Label>) -> Vec<Label> {
        self.labels.iter().cloned().chain(label("kind", kind)).chain(more).collect()
    }
}

impl Group {
    /// Makes the series of a kind that are zero as long as nothing happens.
    pub(super) fn begins(&self, of: Kind) {
        if self.waiting[kind(Some(of)).0].get().is_none() {
            self.waiting(Some(of)).increment(0.0);
            for cause in [Loss::LeaseEnded, Loss::KeyGone, Loss::TakenOver, Loss::Closed] {
                self.losses(Some(of), cause).increment(0);
            }
        }
    }

    fn waiting(&self, of: Option<Kind>) -> &Gauge {
        let (at, of) = kind(of);
        self.waiting[at]
            .get_or_init(|| metrics::gauge!("redlatch_waiting", self.labels(of, None.into_iter())))
    }

    fn losses(&self, of: Option<Kind>, loss: Loss) -> &Counter {
        let ((at, of), cause) = (kind(of), End::from(loss));
        self.losses[at][cause as usize].get_or_init(|| {
            let labels = self.labels(of, label("cause", cause.text()));
            metrics::counter!("redlatch_losses_total", labels)
        })
    }
}

impl Series {
    pub(crate) fn attempt(&self, kind: Option<Kind>) -> Attempt<'_> {
        Attempt { group: &self.group, kind, begun: clock::now() }
    }

    /// A call waits until the result is dropped.
    pub(crate) fn waits(&self, of: Option<Kind>) -> Waits {
        let gauge = self.group.waiting(of).clone();
        gauge.increment(1.0);
        Waits { gauge, process: self.group.process.clone() }
    }

    /// A lock is lost, as the client has just found out.
    pub(crate) fn lost(&self, writes: bool, loss: Loss) {
        self.group.losses(self.kind_of(writes), loss).increment(1);
    }

    /// A hold has ended. `how` says in what way, after which time, and when.
    pub(crate) fn held(&self, of: Kind, how: impl FnOnce() -> (End, Duration, Instant)) {
        let (at, of) = kind(Some(of));
        let (end, time, now) = how();
        let times = self.group.holds[at][end as usize].get_or_init(|| {
            let labels = self.group.labels(of, label("end", end.text()));
            self.group.times.make(metrics::histogram!("redlatch_hold_duration_seconds", labels))
        });
        times.record(time, now);
    }

    /// The kind of the lock: of a read-write lock, of one of its sides.
    fn kind_of(&self, writes: bool) -> Option<Kind> {
        self.kind.map(|kind| if writes { kind } else { kind.beside().unwrap_or(kind) })
    }
}

impl OfKinds {
    /// A lock of that series.
    pub(crate) fn count(&mut self, series: &Series, writes: bool) {
        self.0[kind(series.kind_of(writes)).0] += 1;
    }
}

impl Attempt<'_> {
    pub(crate) fn ends(&self, outcome: Outcome) {
        if !self.group.process.is_this_one() {
            return;
        }
        let (at, of) = kind(self.kind);
        let times = self.group.acquires[at][outcome as usize].get_or_init(|| {
            let labels = self.group.labels(of, label("outcome", outcome.text()));
            self.group.times.make(metrics::histogram!("redlatch_acquire_duration_seconds", labels))
        });
        let now = clock::now();
        times.record(now.saturating_duration_since(self.begun), now);
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if self.process.is_this_one() {
            self.gauge.decrement(1.0);
        }
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Series").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A label, unless it would be empty.
pub(super) fn label(name: &'static str, value: &str) -> impl Iterator<Item = Label> {
    (!value.is_empty()).then(|| Label::new(name, value.to_owned())).into_iter()
}
