//! With the feature `metrics`: what a client counts that is about no one lock.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use metrics::{Counter, Gauge, Histogram, Label, Unit};

use super::groups::{Grouping, Groups};
use super::labels::{self, KIND_TEXTS, KINDS};
use super::series::{Group, Series, label};
use super::times::AllTimes;
use super::{Operation, Outcome, Warning};
use crate::clock;
use crate::error::Error;
use crate::kind::Kind;

/// What is the same for all names of a client.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(super) labels: Vec<Label>,
    pub(super) times: Arc<AllTimes>,
    /// The group of all names, if the client has no groups.
    group: Arc<Group>,
    groups: Option<Groups>,
    commands: [[OnceLock<Histogram>; Outcome::TEXTS.len() + 1]; Operation::TEXTS.len()],
    renewal_margin: OnceLock<Histogram>,
    warnings: [OnceLock<Counter>; Warning::TEXTS.len()],
    held: [OnceLock<Gauge>; KINDS],
    reconnects: OnceLock<Counter>,
}

/// What a request asks, and since when.
pub(crate) struct Timing {
    operation: Operation,
    begun: Option<Instant>,
}

impl Timing {
    /// The request waits from here on, unless it has waited before.
    pub(crate) fn begins(&mut self, now: impl FnOnce() -> Instant) {
        self.begun.get_or_insert_with(now);
    }
}

impl Metrics {
    /// `client` is a label of all series, unless it is empty.
    pub(crate) fn new(client: &str, grouping: &Grouping) -> Self {
        describe();
        let labels: Vec<_> = label("client", client).collect();
        let times = Arc::<AllTimes>::default();
        let group = Group::new(labels.clone(), times.clone()).into();
        let metrics = Self { labels, times, group, groups: grouping.groups(), ..Self::default() };
        metrics.reconnects().increment(0);
        metrics
    }

    /// The series in which a lock of that name and kind counts, and what is worth a warning.
    pub(crate) fn series_of(&self, name: &str, kind: Kind) -> (Series, Option<&'static str>) {
        let (group, trouble) = match &self.groups {
            None => (self.group.clone(), None),
            Some(groups) => groups.of(name, |name| {
                let labels = self.labels.iter().cloned().chain(label("group", name));
                Group::new(labels.collect(), self.times.clone())
            }),
        };
        for kind in [kind].into_iter().chain(kind.beside()) {
            group.begins(kind);
            self.held(labels::kind(Some(kind)).0);
        }
        (Series { group, kind: Some(kind) }, trouble)
    }

    /// How many locks the client has of the kind at that place.
    fn held(&self, at: usize) -> &Gauge {
        self.held[at].get_or_init(|| {
            let labels = self.labels.iter().cloned().chain(label("kind", KIND_TEXTS[at]));
            metrics::gauge!("redlatch_held", labels.collect::<Vec<_>>())
        })
    }

    /// Each kind of which there was a handle, by its place.
    pub(super) fn held_of(&self) -> impl Iterator<Item = (usize, &Gauge)> {
        self.held.iter().enumerate().filter_map(|(at, gauge)| Some((at, gauge.get()?)))
    }

    pub(crate) fn asks(&self, operation: Operation) -> Timing {
        Timing { operation, begun: None }
    }

    /// A request has its answer, whose time is recorded. Of those that share a command, each error counts, and the
    /// success of one.
    pub(crate) fn record_answer(&self, asked: Timing, counts: bool, error: Option<&Error>) {
        let Timing { operation, begun } = asked;
        let Some(begun) = begun.filter(|_| counts || error.is_some()) else { return };
        let failed = error.map(Outcome::of);
        let at = failed.map_or(Outcome::TEXTS.len(), |failed| failed as usize);
        let error_type = failed.map_or("", Outcome::text);
        let histogram = self.commands[operation as usize][at].get_or_init(|| {
            let labels = self.labels.iter().cloned().chain(label("operation", operation.text()));
            let labels = labels.chain(label("error_type", error_type));
            metrics::histogram!("redlatch_command_duration_seconds", labels.collect::<Vec<_>>())
        });
        histogram.record(clock::now().saturating_duration_since(begun));
    }

    /// Redis has confirmed a renewal of a lease that would have ended at `until`.
    pub(crate) fn renewed(&self, until: Instant, now: Instant) {
        let histogram = self.renewal_margin.get_or_init(|| {
            metrics::histogram!("redlatch_renewal_margin_seconds", self.labels.clone())
        });
        histogram.record(until.saturating_duration_since(now));
    }

    pub(crate) fn warns(&self, warning: Warning) {
        let counter = self.warnings[warning as usize].get_or_init(|| {
            let labels = self.labels.iter().cloned().chain(label("reason", warning.text()));
            metrics::counter!("redlatch_usage_warnings_total", labels.collect::<Vec<_>>())
        });
        counter.increment(1);
    }

    /// Records what threads have kept back.
    pub(crate) fn record_kept(&self) {
        self.times.record_kept();
    }

    /// A connection that broke was made again.
    pub(crate) fn reconnected(&self) {
        self.reconnects().increment(1);
    }

    fn reconnects(&self) -> &Counter {
        self.reconnects
            .get_or_init(|| metrics::counter!("redlatch_reconnects_total", self.labels.clone()))
    }
}

fn describe() {
    macro_rules! describe {
        ($($what:ident $name:literal $unit:ident $text:literal)*) => {
            $(metrics::$what!($name, Unit::$unit, $text);)*
        };
    }
    describe! {
        describe_histogram "redlatch_acquire_duration_seconds" Seconds
            "How long calls took that acquire a lock, whatever became of them"
        describe_histogram "redlatch_hold_duration_seconds" Seconds
            "How long guards lived, until they were unlocked or dropped"
        describe_counter "redlatch_losses_total" Count
            "Locks that were lost, when the client found it out"
        describe_histogram "redlatch_command_duration_seconds" Seconds
            "How long requests to Redis took"
        describe_histogram "redlatch_renewal_margin_seconds" Seconds
            "How long leases had left when Redis confirmed their renewals"
        describe_gauge "redlatch_waiting" Count
            "Calls that wait for a lock"
        describe_gauge "redlatch_held" Count
            "Locks that the client has"
        describe_gauge "redlatch_oldest_wait_seconds" Seconds
            "For how long the oldest of the waiting calls has waited"
        describe_gauge "redlatch_pending_releases" Count
            "Releases that Redis has yet to confirm"
        describe_gauge "redlatch_zombie_guards" Count
            "Guards that are lost and were not dropped: code that may go on without its lock"
        describe_gauge "redlatch_connections" Count
            "Servers that the client is connected to, and those that it connects to"
        describe_counter "redlatch_reconnects_total" Count
            "Connections that were made again"
        describe_counter "redlatch_usage_warnings_total" Count
            "What the client warned of, and its user can change"
    }
}
