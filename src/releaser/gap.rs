//! A lock in a [gap](crate::possession): an `unlock` leaves it there; a call takes it, or the client's thread releases it.

use std::sync::Arc;
use std::time::Instant;

use crate::clock;
use crate::handle::Handle;
use crate::handoff::Handoffs;
use crate::possession::{AcquiredHold, LeftInGap, Possession, Recipient};
use crate::protocol::Names;

use super::{BackgroundRelease, Job, Releaser};

impl Releaser {
    /// Redis has answered a request for a lock that was sent at `sent`.
    pub(crate) fn answered(&self, sent: Instant) {
        self.handoffs.answered_acquire(sent);
    }

    /// Leaves a lock in a gap whose last guard has just been given back and that no waiter can take. `None` if the
    /// caller must release it.
    pub(super) fn begin_gap(&self, possession: &Arc<Possession>) -> Option<LeftInGap> {
        let round_trip = self.handoffs.round_trip_of_gap()?;
        // The client's thread ends a gap that no call takes. It may have ended itself.
        if possession.names.is_in_order() || self.jobs.is_closed() {
            return None;
        }
        let left = possession.begin_gap(&self.handoffs.config, clock::now(), round_trip)?;
        self.update_if(left.needs_update, possession);
        if self.handoffs.waiters.has_next_waiter(&possession.names) {
            // It has parked since the caller looked for one.
            self.offer_gap_to_waiters(&possession.names);
        }
        Some(left)
    }

    /// Gives a call of that handle the lock that it asks for, if that is in a gap and no other call waits for it.
    pub(crate) fn fill_gap(
        &self,
        possession: Arc<Possession>,
        handle: &Handle,
        to: Recipient,
    ) -> Option<AcquiredHold> {
        if !self.may_fill_gap(&possession) || !self.handoffs.waiters.lets_in(&possession.names) {
            return None;
        }
        let (config, requested) = (&self.handoffs.config, to.requested);
        let handed = possession.pass_to(to, false, None, config, clock::now())?;
        possession.announce_end(handed.gap);
        handle.enter(&possession);
        self.update_if(handed.needs_update, &possession);
        Some(AcquiredHold::passed(possession, (handed.hold, handed.from_holder), requested))
    }

    /// A call has parked: hands it, or one that came before it, a lock that is in a gap.
    pub(crate) fn offer_gap_to_waiters(&self, names: &Names) {
        let possession = self.handoffs.possessions.in_gap(names);
        if let Some(possession) = possession.filter(|one| self.may_fill_gap(one)) {
            self.hand_off(&possession, None, None);
        }
    }

    /// Whether that lock is in a gap, and it is not the turn of other clients.
    fn may_fill_gap(&self, possession: &Possession) -> bool {
        let holds = possession.holds.lock();
        let others = holds.turn_of_others(&self.handoffs.config, clock::now());
        holds.is_in_gap() && others.is_none()
    }

    /// Has the client's thread release a lock that is in a gap, unless a call takes it before.
    pub(super) fn release_gap(&self, possession: &Arc<Possession>) {
        self.enqueue(Job::Release(BackgroundRelease::of_possession(possession)));
    }
}

/// For the client's thread: waits until the last holder, which has been confirmed, has had the lock released, or a call has
/// taken it. No longer than a round trip: a holder that is not polled does neither.
pub(super) async fn await_end_of_gap(handoffs: &Handoffs, possession: &Possession) {
    let gap = possession.holds.lock().end_of_gap_by_holder();
    if let Some(ended) = gap {
        let round_trip = handoffs.round_trip().min(handoffs.config.command_timeout / 4);
        let _ = clock::timeout_at(clock::now() + round_trip, ended).await;
    }
}
