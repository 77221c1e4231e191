//! What happened so far while the hand-offs of one lock were sent to Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::owner::Owner;

/// The longest pause before a request is sent again.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An owner with a pending release, and the lease that would end it.
pub(super) type PendingOwner = (Arc<Owner>, Duration);

/// The state of one flush.
#[derive(Default)]
pub(super) struct RetryState {
    /// Requests in a row that were not answered, or refused.
    pub(super) failures: u32,
    /// So many of the first hand-offs in the queue Redis may have executed.
    pub(super) unanswered: usize,
    pub(super) give_up: Option<Instant>,
    /// Redis has confirmed the last hand-offs that were sent.
    pub(super) confirmed: bool,
    /// What the caller of the flush has to release.
    pub(super) pending: Vec<PendingOwner>,
}

impl RetryState {
    /// The pause after so many failures in a row.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(25 << self.failures.min(6)).min(LONGEST_PAUSE)
    }
}
