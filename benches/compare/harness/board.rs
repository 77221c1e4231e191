//! All that was measured in one run.

use std::collections::BTreeMap;

use super::figures::{Figure, Figures, Metric, median};
use super::scenarios::Scenario;

pub(crate) struct Board {
    /// In the order in which they are told; the first one is the floor.
    pub(crate) contestants: Vec<&'static str>,
    measured: BTreeMap<(Scenario, &'static str), BTreeMap<usize, Figures>>,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
}

impl Board {
    pub(crate) fn new(contestants: Vec<&'static str>) -> Self {
        Self { contestants, measured: BTreeMap::new(), failures: Vec::new() }
    }

    pub(crate) fn put(
        &mut self,
        scenario: Scenario,
        contestant: &'static str,
        round: usize,
        figures: Figures,
    ) {
        self.measured.entry((scenario, contestant)).or_default().insert(round, figures);
    }

    fn figure(
        &self,
        scenario: Scenario,
        name: &'static str,
        round: usize,
        metric: Metric,
    ) -> Option<Figure> {
        self.measured.get(&(scenario, name))?.get(&round)?.0.get(&metric).copied()
    }

    fn rounds(&self, scenario: Scenario, name: &'static str) -> impl Iterator<Item = usize> {
        self.measured.get(&(scenario, name)).into_iter().flat_map(|rounds| rounds.keys().copied())
    }

    /// The median of all rounds.
    pub(crate) fn value(
        &self,
        scenario: Scenario,
        name: &'static str,
        metric: Metric,
    ) -> Option<f64> {
        let values = self.rounds(scenario, name);
        let values = values.filter_map(|round| self.figure(scenario, name, round, metric));
        let values: Vec<_> = values.map(|figure| figure.value).collect();
        (!values.is_empty()).then(|| median(values))
    }

    /// The median of the ratios to the floor of the same round: what made one round slow made its
    /// floor slow.
    pub(crate) fn ratio(
        &self,
        scenario: Scenario,
        name: &'static str,
        metric: Metric,
    ) -> Option<f64> {
        let ratios = self.rounds(scenario, name).filter_map(|round| {
            let figure = self.figure(scenario, name, round, metric)?;
            let beside = || Some(self.figure(scenario, self.contestants[0], round, metric)?.value);
            Some(figure.value / figure.floor.or_else(beside)?)
        });
        let ratios: Vec<_> = ratios.filter(|ratio| ratio.is_finite()).collect();
        (metric.is_ratio() && !ratios.is_empty()).then(|| median(ratios))
    }

    /// redlatch's ratio divided by that of whoever is best among those that are neither it nor the
    /// floor.
    pub(crate) fn beside_the_best(&self, scenario: Scenario, metric: Metric) -> Option<f64> {
        let (ours, others) = self.contestants.get(1..)?.split_first()?;
        let ratios = others.iter().filter_map(|name| self.ratio(scenario, name, metric));
        let best =
            if metric == Metric::Rate { ratios.reduce(f64::max) } else { ratios.reduce(f64::min) };
        Some(self.ratio(scenario, ours, metric)? / best?)
    }
}
