//! Parts of a client that a test needs and does not look at.

use std::sync::Arc;

use crate::config::Config;
use crate::handoff::Handoffs;
use crate::loss::Losses;
use crate::wait::{QueueLimits, TurnLimits, Waiters};

pub(crate) fn losses(waiters: Arc<Waiters>) -> Arc<Losses> {
    Arc::new(Losses { events: Arc::default(), waiters })
}

/// The hand-offs of a client that has no waiter.
pub(crate) fn handoffs(config: &Arc<Config>) -> Arc<Handoffs> {
    let (keep, request) = (config.max_handoff_time, config.command_timeout);
    let turns = TurnLimits { keep, yield_time: request };
    let limits = QueueLimits { turns, grace: config.fair_grace, request };
    let losses = losses(Arc::new(Waiters::new(limits)));
    Arc::new(Handoffs::new(losses, Arc::default(), Arc::default(), config.clone()))
}
