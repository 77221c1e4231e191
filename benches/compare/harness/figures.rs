//! What is measured, and what becomes of several measurements.

use std::collections::BTreeMap;

use super::orders::Done;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    Rate,
    Seconds,
    InUse,
    P50,
    P90,
    P99,
    Starved,
    Jain,
    JainProcesses,
    Longest,
    FarShare,
    FarLongest,
    Sent,
    Calls,
    Cpu,
    ClientCpu,
    Parked,
    Errors,
}

impl Metric {
    /// For machines.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Seconds => "seconds",
            Self::InUse => "in-use",
            Self::P50 => "p50-us",
            Self::P90 => "p90-us",
            Self::P99 => "p99-us",
            Self::Starved => "starved",
            Self::Jain => "jain",
            Self::JainProcesses => "jain-processes",
            Self::Longest => "longest-wait-ms",
            Self::FarShare => "far-share",
            Self::FarLongest => "far-longest-wait-ms",
            Self::Sent => "commands",
            Self::Calls => "calls",
            Self::Cpu => "server-cpu-us",
            Self::ClientCpu => "client-cpu-us",
            Self::Parked => "parked-commands",
            Self::Errors => "errors",
        }
    }

    /// For people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Rate => "acquisitions/s",
            Self::Seconds => "seconds",
            Self::InUse => "lock in use",
            Self::P50 => "p50, us",
            Self::P90 => "p90, us",
            Self::P99 => "p99, us",
            Self::Starved => "starved",
            Self::Jain => "Jain",
            Self::JainProcesses => "Jain of processes",
            Self::Longest => "longest wait, ms",
            Self::FarShare => "far one's turns ÷ half of all",
            Self::FarLongest => "far one's longest wait, ms",
            Self::Sent => "commands",
            Self::Calls => "calls in all",
            Self::Cpu => "server CPU, us",
            Self::ClientCpu => "client CPU, us",
            Self::Parked => "parked: commands/s",
            Self::Errors => "errors",
        }
    }

    /// Whether it says something beside the floor's; the others speak for themselves.
    pub(crate) fn is_ratio(self) -> bool {
        use Metric::{Calls, ClientCpu, Cpu, P50, P90, P99, Rate, Seconds, Sent};
        matches!(self, Rate | Seconds | P50 | P90 | P99 | Sent | Calls | Cpu | ClientCpu)
    }

    pub(crate) fn decimals(self) -> usize {
        match self {
            Self::Seconds | Self::InUse | Self::Jain | Self::JainProcesses => 3,
            Self::FarShare | Self::Sent | Self::Calls => 2,
            Self::Longest | Self::FarLongest | Self::Cpu | Self::ClientCpu | Self::Parked => 1,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    /// The floor measured beside it, where the floor is not a contestant of its own.
    pub(crate) floor: Option<f64>,
}

/// Of one contestant, in one scenario and one round.
#[derive(Clone, Default)]
pub(crate) struct Figures(pub(crate) BTreeMap<Metric, Figure>);

impl Figures {
    pub(crate) fn put(&mut self, metric: Metric, value: f64) {
        self.0.insert(metric, Figure { value, floor: None });
    }

    pub(crate) fn put_beside(&mut self, metric: Metric, value: f64, floor: f64) {
        self.0.insert(metric, Figure { value, floor: Some(floor) });
    }

    /// What the processes say together, and how many turns the server had work with.
    pub(crate) fn of_work(done: &[Done]) -> (Self, f64) {
        let mut figures = Self::default();
        let shares = || done.iter().flat_map(|done| &done.shares);
        let turns: f64 = shares().map(|share| share.turns as f64).sum();
        let seconds = done.iter().map(|done| done.elapsed.as_secs_f64()).fold(0.0, f64::max);
        let held: f64 = done.iter().map(|done| done.held.as_secs_f64()).sum();
        let longest = shares().map(|share| share.longest).max().unwrap_or_default();
        figures.put(Metric::Rate, turns / seconds);
        figures.put(Metric::Seconds, seconds);
        figures.put(Metric::InUse, held / seconds);
        figures.put(Metric::Longest, longest.as_secs_f64() * 1e3);
        figures.put(Metric::Jain, jain(shares().map(|share| share.turns as f64)));
        figures.put(Metric::JainProcesses, jain(done.iter().map(|done| done.turns() as f64)));
        figures.put(Metric::Errors, done.iter().map(|done| done.errors).sum::<u64>() as f64);
        let late = done.iter().map(|done| done.late).sum::<u64>() as f64;
        (figures, turns + late)
    }

    /// What the far one of two processes had. A fair share is the same for each process, however
    /// many tasks it has.
    pub(crate) fn put_far(&mut self, near: &Done, far: &Done) {
        let fair = (near.turns() + far.turns()) as f64 / 2.0;
        let share = if fair == 0.0 { 0.0 } else { far.turns() as f64 / fair };
        self.put(Metric::FarShare, share);
        let longest = far.shares.iter().map(|share| share.longest).max().unwrap_or_default();
        self.put(Metric::FarLongest, longest.as_secs_f64() * 1e3);
    }
}

/// One for equal shares, and one divided by their number if one has it all.
pub(crate) fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares == 0.0 { 0.0 } else { sum * sum / (count * squares) }
}

pub(crate) fn median(figures: Vec<f64>) -> f64 {
    quantile(figures, 0.5)
}

pub(crate) fn quantile(mut figures: Vec<f64>, part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().saturating_sub(1);
    figures.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}
