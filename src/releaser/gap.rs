//! A lock that its last holder has left in a gap (see [`crate::possession`]): a call takes it, or the client's thread
//! releases it.

use std::sync::Arc;
use std::time::Duration;

use crate::handle::Handle;
use crate::possession::{AcquiredHold, Possession, Recipient};
use crate::protocol::Names;

use super::{BackgroundRelease, Job, Releaser};

impl Releaser {
    /// Gives a call of that handle the lock that it asks for, if that is in a gap and no other call waits for it.
    pub(crate) fn fill_gap(
        &self,
        possession: Arc<Possession>,
        handle: &Handle,
        to: Recipient,
    ) -> Option<AcquiredHold> {
        let (granted, settle) = self.handoffs.fill_gap(&possession, to)?;
        handle.enter(&possession);
        if settle {
            self.enqueue(Job::Settle(possession));
        }
        Some(granted)
    }

    /// Has the client's thread release a lock that is in a gap, unless a call takes it before.
    pub(super) fn end_gap(&self, possession: &Arc<Possession>) {
        let release = BackgroundRelease::new(possession.clone(), None, Duration::ZERO);
        self.enqueue(Job::Release(release));
    }

    /// A call has parked: hands a lock off that is in a gap.
    pub(crate) fn fill_gap_by_waiter(&self, names: &Names) {
        let possession = self.handoffs.possessions.in_gap(names);
        if let Some(possession) = possession.filter(|one| self.handoffs.may_fill_gap(one)) {
            self.hand_off(&possession, None, None);
        }
    }
}
