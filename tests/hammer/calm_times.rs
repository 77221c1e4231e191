//! When locks ought to work smoothly: outside of what the nemesis did, and its settling, and
//! outside of long pauses in which the machine did not run somebody.

use crate::history::Fault;
use crate::prelude::*;

/// The times that are not calm: sorted, apart.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    windows: Vec<(u64, u64)>,
}

impl Calm {
    /// For everybody.
    pub(crate) fn of(history: &History) -> Self {
        Self::with(history, |_| true)
    }

    /// For everybody, where these faults count alone.
    pub(crate) fn with(history: &History, counts: impl Fn(&Fault) -> bool) -> Self {
        let faults = history.faults.iter().filter(|fault| counts(fault));
        let loud = faults.filter_map(|f| f.settle.map(|settle| (f.t0, f.t1 + settle)));
        let gaps = history.processes.iter().flat_map(|process| &process.gaps);
        let gaps = long(gaps.chain(&history.gaps), history.bounds.pause);
        Self::without(loud.chain(gaps))
    }

    /// For each process, and where it was not run alone.
    pub(crate) fn of_pauses(history: &History) -> Vec<Self> {
        let processes = history.processes.iter();
        processes.map(|process| Self::without(process.gaps.iter().copied())).collect()
    }

    /// For each process: others' troubles are not its own.
    pub(crate) fn of_each(history: &History) -> Vec<Self> {
        let of = |number: usize| {
            let loud = history.faults_of(number).map(|(t0, t1, settle)| (t0, t1 + settle));
            let gaps = history.processes[number].gaps.iter().chain(&history.gaps);
            Self::without(loud.chain(long(gaps, history.bounds.pause)))
        };
        (0..history.processes.len()).map(of).collect()
    }

    /// The same, and neither in those.
    pub(crate) fn and(&self, windows: impl Iterator<Item = (u64, u64)>) -> Self {
        Self::without(self.windows.iter().copied().chain(windows))
    }

    pub(crate) fn without(windows: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut all: Vec<(u64, u64)> = windows.collect();
        all.sort_unstable();
        let mut windows: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match windows.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => windows.push((from, to)),
            }
        }
        Self { windows }
    }

    /// The longest calm stretch between two times: its beginning and its end.
    pub(crate) fn longest(&self, from: u64, to: u64) -> (u64, u64) {
        let mut best = (from, from);
        let mut begin = from;
        let first = self.windows.partition_point(|window| window.1 <= from);
        let later = self.windows[first..].iter().take_while(|window| window.0 < to);
        for (start, end) in later.chain([&(to, to)]) {
            if start.saturating_sub(begin) > best.1 - best.0 {
                best = (begin, *start);
            }
            begin = begin.max(*end);
        }
        best
    }

    /// The first moment at which it has been calm for so long at a stretch since `from`.
    pub(crate) fn after(&self, from: u64, stretch: u64) -> u64 {
        let mut begin = from;
        let first = self.windows.partition_point(|window| window.1 <= from);
        for (start, end) in &self.windows[first..] {
            if start.saturating_sub(begin) >= stretch {
                break;
            }
            begin = begin.max(*end);
        }
        begin.saturating_add(stretch)
    }

    /// How much of the time between the two was not calm: none if the second one came first.
    pub(crate) fn disturbed(&self, from: u64, to: u64) -> u64 {
        let first = self.windows.partition_point(|window| window.1 <= from);
        let within = self.windows[first..].iter().take_while(|window| window.0 < to);
        within.map(|(start, end)| end.min(&to).saturating_sub(*start.max(&from))).sum()
    }
}

fn long<'a>(
    gaps: impl Iterator<Item = &'a (u64, u64)>,
    pause: u64,
) -> impl Iterator<Item = (u64, u64)> {
    gaps.copied().filter(move |(from, to)| to - from >= pause)
}

pub(crate) fn windows_are_joined_and_cut() {
    let calm = Calm::without([(50, 60), (10, 20), (15, 30)].into_iter());
    assert_eq!(calm.longest(0, 100), (60, 100));
    assert_eq!(calm.longest(0, 55), (30, 50));
    assert_eq!(calm.longest(12, 18), (12, 12));
    assert_eq!(calm.longest(31, 49), (31, 49));
    assert_eq!([calm.after(0, 10), calm.after(5, 10), calm.after(31, 30)], [10, 40, 90]);
    assert_eq!(calm.disturbed(0, 100), 30);
    assert_eq!(calm.disturbed(12, 55), 23);
    assert_eq!(calm.disturbed(31, 49), 0);
    assert_eq!(calm.disturbed(58, 52), 0);
}
