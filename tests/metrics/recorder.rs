//! What one thread has recorded.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// What stands there of one series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Counter(u64),
    Gauge(f64),
    Histogram(Vec<f64>),
}

/// Records what happens in this thread, for as long as it lives.
pub(crate) struct Recorder {
    recorder: &'static DebuggingRecorder,
    _guard: metrics::LocalRecorderGuard<'static>,
}

impl Recorder {
    /// Before the client is made, which keeps what it registers.
    pub(crate) fn install() -> Self {
        let recorder: &'static DebuggingRecorder = Box::leak(Box::default());
        Self { recorder, _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// All series, as `name{label=value,...}` with sorted labels. It sets all of them back to nothing.
    pub(crate) fn all(&self) -> BTreeMap<String, Value> {
        let snapshot = self.recorder.snapshotter().snapshot().into_vec().into_iter();
        let one = |(key, _, _, value): (metrics_util::CompositeKey, _, _, DebugValue)| {
            let mut labels: Vec<String> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            labels.sort();
            let value = match value {
                DebugValue::Counter(count) => Value::Counter(count),
                DebugValue::Gauge(level) => Value::Gauge(level.into_inner()),
                DebugValue::Histogram(times) => {
                    Value::Histogram(times.into_iter().map(|time| time.into_inner()).collect())
                }
            };
            (format!("{}{{{}}}", key.key().name(), labels.join(",")), value)
        };
        snapshot.map(one).collect()
    }

    /// The series of one name, by their labels. It sets those of all names back to nothing.
    pub(crate) fn of(&self, name: &str) -> BTreeMap<String, Value> {
        let labels = |(series, value): (String, Value)| {
            let labels = series.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
            Some((labels.to_owned(), value))
        };
        self.all().into_iter().filter_map(labels).collect()
    }

    /// What was recorded in each series of a histogram, in whole milliseconds.
    pub(crate) fn millis(&self, name: &str) -> BTreeMap<String, Vec<u64>> {
        let millis = |(labels, value)| match value {
            Value::Histogram(times) => {
                let times = times.into_iter().map(|time| (time * 1_000.0).round() as u64);
                (labels, times.collect())
            }
            other => panic!("{name} is no histogram: {other:?}"),
        };
        let mut all: BTreeMap<_, Vec<_>> = self.of(name).into_iter().map(millis).collect();
        all.retain(|_, times| !times.is_empty());
        all
    }
}

/// A map of labels to what was recorded there.
pub(crate) fn expected<V: Clone>(all: &[(&str, V)]) -> BTreeMap<String, V> {
    all.iter().map(|(labels, value)| ((*labels).to_owned(), value.clone())).collect()
}
