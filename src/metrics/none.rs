//! Without the feature `metrics`: empty.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::error::{Error, Loss};
use crate::kind::Kind;

use super::{End, Operation, Outcome, Warning};

#[derive(Debug, Default)]
pub(crate) struct Metrics;

#[derive(Debug, Clone, Default)]
pub(crate) struct Series(());

/// What the user's function makes of names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grouping(());

/// How many locks of each kind.
#[derive(Debug, Default)]
pub(crate) struct OfKinds;

pub(crate) struct Attempt<'a>(PhantomData<&'a ()>);

pub(crate) struct Timing;

pub(crate) struct Waits;

impl Metrics {
    pub(crate) fn new(_client: &str, _: &Grouping) -> Self {
        Self
    }

    pub(crate) fn series_of(&self, _name: &str, _kind: Kind) -> (Series, Option<&'static str>) {
        (Series::default(), None)
    }

    pub(crate) fn asks(&self, _: Operation) -> Timing {
        Timing
    }

    pub(crate) fn record_answer(&self, _: Timing, _counts: bool, _error: Option<&Error>) {}

    pub(crate) fn renewed(&self, _until: Instant, _now: Instant) {}

    pub(crate) fn warns(&self, _: Warning) {}

    pub(crate) fn record_kept(&self) {}

    pub(crate) fn reconnected(&self) {}
}

impl Timing {
    pub(crate) fn begins(&mut self, _: impl FnOnce() -> Instant) {}
}

impl Series {
    pub(crate) fn attempt(&self, _: Option<Kind>) -> Attempt<'_> {
        Attempt(PhantomData)
    }

    pub(crate) fn waits(&self, _: Option<Kind>) -> Waits {
        Waits
    }

    pub(crate) fn lost(&self, _writes: bool, _: Loss) {}

    pub(crate) fn held(&self, _: Kind, _: impl FnOnce() -> (End, Duration, Instant)) {}
}

impl OfKinds {
    pub(crate) fn count(&mut self, _: &Series, _writes: bool) {}
}

impl Attempt<'_> {
    pub(crate) fn ends(&self, _: Outcome) {}
}
