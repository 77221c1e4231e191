//! All that was measured in one run.

use std::collections::BTreeMap;

/// What is measured more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// Of one purchase that nobody disturbs.
    RoundTrips,
    /// Seconds of the sale with one buyer.
    Alone,
    /// Seconds of the sale with many.
    Crowd,
    /// Seconds of 320 turns of a millisecond, in one process.
    Turns,
    /// And in four.
    TurnsAcross,
    /// How often a turn was tried until it was not in vain.
    Tries,
    /// Seconds from an unlock to the next holder.
    HandOff,
    /// Seconds from a holder's death to the next holder.
    Crash,
    /// Seconds from the moment a holder is stopped.
    Pause,
}

/// What became of the write of a holder that was stopped for too long.
#[derive(Clone)]
pub(crate) struct LateWrite {
    /// Whether it is in the store.
    pub(crate) stands: bool,
    /// What the store said.
    pub(crate) answer: String,
}

#[derive(Default)]
pub(crate) struct Board {
    measured: BTreeMap<(Figure, &'static str), BTreeMap<usize, f64>>,
    pub(crate) late: BTreeMap<&'static str, LateWrite>,
    /// The most that was sold of a stock of 100.
    pub(crate) sold: BTreeMap<&'static str, u64>,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
}

impl Board {
    pub(crate) fn put(&mut self, figure: Figure, name: &'static str, round: usize, value: f64) {
        self.measured.entry((figure, name)).or_default().insert(round, value);
    }

    fn rounds(&self, figure: Figure, name: &'static str) -> impl Iterator<Item = (usize, f64)> {
        let rounds = self.measured.get(&(figure, name)).into_iter().flatten();
        rounds.map(|(round, value)| (*round, *value))
    }

    /// The median of all rounds.
    pub(crate) fn value(&self, figure: Figure, name: &'static str) -> Option<f64> {
        median(self.rounds(figure, name).map(|(_, value)| value))
    }

    /// The least and the most of all rounds.
    pub(crate) fn range(&self, figure: Figure, name: &'static str) -> Option<(f64, f64)> {
        let values = || self.rounds(figure, name).map(|(_, value)| value);
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }

    /// The median of the ratios to the first one of the same round: what made one round slow made
    /// both slow.
    pub(crate) fn ratio(
        &self,
        figure: Figure,
        name: &'static str,
        first: &'static str,
    ) -> Option<f64> {
        let firsts = self.measured.get(&(figure, first))?;
        median(self.rounds(figure, name).filter_map(|(round, value)| {
            let ratio = value / firsts.get(&round)?;
            ratio.is_finite().then_some(ratio)
        }))
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
