//! How long the client's thread goes on with the undo of a first request that Redis may have yet to grant.

use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::handoff::Handoffs;

use super::BackgroundRelease;

/// For so long a server may stand still before it executes a request that it has received.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(600);

/// A server that does not answer may stand still, and grant a first request when it goes on: then the lease begins.
pub(super) struct Standstill<'a> {
    /// When the server has lost the request. `None` if there is none that it could grant.
    ends: Option<Instant>,
    /// The last try had no answer.
    pub(super) is_silent: bool,
    /// Of those that there are for undos whose lease has ended.
    place: Option<SemaphorePermit<'a>>,
    places: &'a Semaphore,
}

impl<'a> Standstill<'a> {
    pub(super) fn new(release: &BackgroundRelease, handoffs: &'a Handoffs, now: Instant) -> Self {
        let ends = release.is_first.then_some(now + LONGEST_STANDSTILL);
        Self { ends, is_silent: false, place: None, places: &handoffs.standstills }
    }

    /// Whether it may last on. Not if the client was dropped, or if there are too many undos.
    pub(super) fn may_last(&mut self, now: Instant) -> bool {
        let lasts = self.is_silent && self.ends.is_some_and(|ends| now < ends);
        if !lasts || self.places.is_closed() {
            return false;
        }
        if self.place.is_none() {
            self.place = self.places.try_acquire().ok();
        }
        self.place.is_some()
    }
}
