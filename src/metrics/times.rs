//! With the feature `metrics`: histograms to which the tasks of several threads record at the same moment.
//!
//! A record of a common recorder takes four times as long where two threads make it at once, and a hand-off inside a client
//! makes two: they were a tenth of its time. So a thread that records often keeps a few times back, and records them together.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metrics::Histogram;
use parking_lot::Mutex;

/// A time that comes at least this long after the one before it is recorded at once.
const BURST_GAP: Duration = Duration::from_millis(1);

/// The most times that one buffer keeps back.
const MAX_KEPT: usize = 16;

/// How many buffers a histogram has. The threads share them.
const BUFFERS: usize = 4;

/// A histogram, and what has yet to be recorded.
pub(super) struct Times {
    histogram: Histogram,
    buffers: [Buffer; BUFFERS],
}

/// A buffer of times, in a cache line of its own: while there are few threads, each has one for itself.
#[repr(align(128))]
#[derive(Default)]
struct Buffer(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// When the last record was.
    last: Option<Instant>,
    times: [Duration; MAX_KEPT],
    many: usize,
}

/// The histograms of one client.
#[derive(Default)]
pub(super) struct AllTimes(Mutex<Vec<Arc<Times>>>);

impl AllTimes {
    pub(super) fn make(&self, histogram: Histogram) -> Arc<Times> {
        let times = Arc::new(Times { histogram, buffers: array::from_fn(|_| Buffer::default()) });
        self.0.lock().push(times.clone());
        times
    }

    /// Records all that threads have kept back.
    pub(super) fn record_kept(&self) {
        // In a forked child another thread may have the mutexes for ever.
        let all = self.0.try_lock().map(|all| all.clone());
        for times in all.unwrap_or_default() {
            for buffer in &times.buffers {
                let Some((kept, many)) = buffer.0.try_lock().map(|mut kept| kept.take()) else {
                    continue;
                };
                times.record_all(&kept[..many]);
            }
        }
    }
}

impl Drop for AllTimes {
    fn drop(&mut self) {
        self.record_kept();
    }
}

impl Times {
    pub(super) fn record(&self, time: Duration, now: Instant) {
        let buffer = BUFFER.with(|buffer| *buffer);
        let full = self.buffers[buffer].0.lock().add(time, now);
        if let Some((times, many)) = full {
            self.record_all(&times[..many]);
        }
    }

    /// Under no mutex: the recorder is the user's.
    fn record_all(&self, times: &[Duration]) {
        times.iter().for_each(|time| self.histogram.record(*time));
    }
}

impl Kept {
    /// Returns what is to be recorded now.
    fn add(&mut self, time: Duration, now: Instant) -> Option<([Duration; MAX_KEPT], usize)> {
        self.times[self.many] = time;
        self.many += 1;
        let last = self.last.replace(now);
        let is_often = last.is_some_and(|last| now.saturating_duration_since(last) < BURST_GAP);
        (!is_often || self.many == MAX_KEPT).then(|| self.take())
    }

    fn take(&mut self) -> ([Duration; MAX_KEPT], usize) {
        (self.times, std::mem::take(&mut self.many))
    }
}

thread_local! {
    static BUFFER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % BUFFERS
    };
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[test]
    fn a_thread_that_records_often_keeps_a_few_times_back() {
        let recorder = DebuggingRecorder::new();
        let recorded = recorder.snapshotter();
        let all = AllTimes::default();
        let histogram = metrics::with_local_recorder(&recorder, || metrics::histogram!("times"));
        let times = all.make(histogram);
        // Those since the last look.
        let new = || -> Vec<f64> {
            let mut all = recorded.snapshot().into_vec().into_iter();
            match all.next() {
                Some((.., DebugValue::Histogram(times))) => {
                    times.into_iter().map(|time| time.into_inner()).collect()
                }
                other => panic!("{other:?}"),
            }
        };
        let begun = Instant::now();
        let record = |seconds: u64, at| times.record(Duration::from_secs(seconds), at);
        record(0, begun);
        assert_eq!(new(), [0.0], "the first is recorded at once");
        (1..=15).for_each(|time| record(time, begun));
        assert!(new().is_empty(), "{MAX_KEPT} are kept back, but the last");
        record(16, begun);
        assert_eq!(new(), (1..=16).map(f64::from).collect::<Vec<_>>());
        record(17, begun);
        record(18, begun + BURST_GAP);
        assert_eq!(new(), [17.0, 18.0], "one that comes later takes them with it");
        record(19, begun + BURST_GAP);
        all.record_kept();
        assert_eq!(new(), [19.0]);
        all.record_kept();
        assert!(new().is_empty());
    }
}
