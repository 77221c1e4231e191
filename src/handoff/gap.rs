//! A lock that is in a [gap](crate::possession): how it begins, and what ends it.

use std::sync::Arc;

use crate::clock;
use crate::possession::{AcquiredHold, LeftInGap, Possession, Recipient};

use super::Handoffs;

impl Handoffs {
    /// Leaves a lock in a gap whose last guard has just been given back and that no waiter can take. `None` if the
    /// caller must release it.
    pub(crate) fn begin_gap(&self, possession: &Arc<Possession>) -> Option<LeftInGap> {
        let (now, round_trip) = (clock::now(), self.round_trip.last());
        // The caller may wait for an answer that is on its way, another one, and that of the release.
        let is_far = round_trip > self.config.command_timeout / 4;
        if is_far || possession.names.is_in_order() {
            return None;
        }
        possession.begin_gap(&self.config, now, now + round_trip)
    }

    /// Whether that lock is in a gap, and it is not the turn of other clients.
    pub(crate) fn may_fill_gap(&self, possession: &Possession) -> bool {
        let holds = possession.holds.lock();
        holds.is_in_gap() && holds.turn_of_others(&self.config, clock::now()).is_none()
    }

    /// Gives a call that lock, if it is in a gap and no other call waits for it. Returns whether the client's thread has to
    /// settle the possession.
    pub(crate) fn fill_gap(
        &self,
        possession: &Arc<Possession>,
        to: Recipient,
    ) -> Option<(AcquiredHold, bool)> {
        if !self.may_fill_gap(possession) || !self.waiters.lets_in(&possession.names) {
            return None;
        }
        let handed = possession.hand_off(to, false, None, &self.config, clock::now())?;
        possession.end_gap(handed.gap);
        Some((AcquiredHold::new(possession.clone(), handed.hold, to.requested), handed.settle))
    }

    /// The last holder has heard of its confirmation, and sees to the end of the gap: not if it is not polled. So the
    /// client's thread waits no longer than a round trip for that.
    pub(crate) async fn await_end_of_gap(&self, possession: &Possession) {
        let gap = possession.holds.lock().gap_to_end();
        if let Some(ended) = gap {
            let _ = clock::timeout_at(clock::now() + self.round_trip.last(), ended).await;
        }
    }
}
