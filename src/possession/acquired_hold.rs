//! What a guard is made of, from when its call has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::events::Acquires;
use crate::lease::{Lease, Validity, valid_until};
use crate::token::FencingToken;

use super::{GiveBack, HoldId, HoldState, NewHold, Possession, Remains};

/// A hold that a call has acquired, by a request or by a hand-off.
pub(crate) struct AcquiredHold {
    pub(crate) possession: Arc<Possession>,
    pub(crate) hold: HoldId,
    pub(crate) validity: Arc<Validity>,
    /// The longest lease that the client has asked for, in milliseconds.
    lease: AtomicU64,
    /// Another holder or reader of this client has left it: Redis was not asked.
    handed_off: AtomicBool,
    /// If the lock is fenced.
    pub(crate) token: Option<FencingToken>,
}

impl AcquiredHold {
    pub(crate) fn new(
        possession: Arc<Possession>,
        (hold, validity, token): NewHold,
        lease: Duration,
    ) -> Self {
        let lease = AtomicU64::new(lease.as_millis() as u64);
        Self { possession, hold, validity, lease, handed_off: false.into(), token }
    }

    /// One that the client has passed on, `from_holder` or as a message brought it.
    pub(crate) fn passed(
        possession: Arc<Possession>,
        (hold, from_holder): (NewHold, bool),
        lease: Duration,
    ) -> Self {
        let handed_off = from_holder.into();
        Self { handed_off, ..Self::new(possession, hold, lease) }
    }

    /// Notes that the hold came without a request.
    pub(crate) fn set_handed_off(&self) {
        self.handed_off.store(true, Ordering::Relaxed);
    }

    /// Gives the hold back for its guard, unless the guard stays. In the same step `leaves_side` has its handle read no
    /// more.
    pub(crate) fn leave(&self, how: GiveBack, now: Instant, leaves_side: impl FnOnce()) -> Remains {
        let mut holds = self.possession.holds.lock();
        let remains = holds.leave(self.hold, how == GiveBack::OrStay, now);
        if remains != Remains::StillHeld {
            leaves_side();
        }
        remains
    }

    /// The client is about to ask for this lease, too.
    pub(crate) fn asks_for(&self, lease: Duration) {
        self.lease.fetch_max(lease.as_millis() as u64, Ordering::Relaxed);
    }

    /// For how long Redis may keep the lock from now on, whatever it has answered.
    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_millis(self.lease.load(Ordering::Relaxed))
    }
}

impl HoldState {
    /// The hold that the call to which the lock was handed has yet to take.
    pub(super) fn unclaimed(&self) -> Option<HoldId> {
        self.handed.as_ref()?.unclaimed
    }

    /// The call that was handed that hold, or let in with it, has it now. Its lease is `requested` from now on, as far
    /// as Redis has confirmed that: others may have been renewed meanwhile.
    pub(crate) fn takes(&mut self, hold: HoldId, requested: Duration, now: Instant) {
        let handed = self.handed.as_mut().filter(|handed| handed.unclaimed == Some(hold));
        handed.into_iter().for_each(|handed| handed.unclaimed = None);
        let until = self.until().min(Some(valid_until(now, requested)));
        let Some(live) = self.live.iter_mut().find(|live| live.number == hold) else { return };
        live.unattended = false;
        if let Some(until) = until.filter(|_| live.lease == Lease::Watchdog) {
            live.validity.extend(until, now);
        }
    }
}

impl Acquires for AcquiredHold {
    fn is_handed_off(&self) -> bool {
        self.handed_off.load(Ordering::Relaxed)
    }
}

/// Several at once take a request.
impl Acquires for Vec<AcquiredHold> {
    fn is_handed_off(&self) -> bool {
        false
    }
}
