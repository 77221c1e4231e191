//! Parts of a client that a test needs and does not look at.

use std::sync::Arc;

use crate::config::Config;
use crate::handoff::Handoffs;
use crate::wait::{Limits, Waiters};
use crate::watchdog::Watchdog;

/// The hand-offs of a client that has no waiter.
pub(crate) fn handoffs(config: &Arc<Config>) -> Arc<Handoffs> {
    let (run, room, grace) = (config.max_handoff_time, config.command_timeout, config.fair_grace);
    let limits = Limits { run, room, grace };
    let waiters = Arc::new(Waiters::new(limits));
    let watchdog = Arc::new(Watchdog::new(config, &waiters));
    Arc::new(Handoffs::new(&waiters, &watchdog, config))
}
