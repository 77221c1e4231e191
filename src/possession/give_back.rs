//! How a guard gives its hold back: the first step of each `unlock` and of each drop. The releaser does what
//! [remains](Remains): it hands the lock off, or has Redis release it.

use std::time::Instant;

use super::{Hold, HoldId, HoldState};

/// How a guard gives its hold back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GiveBack {
    /// The guard gives its hold back at once.
    Now,
    /// The guard gives its hold back at once, unless it is the last reader: that one stays for others to join.
    OrStay,
    /// The guard has stayed, and gives its hold back now.
    AfterStay,
}

/// What remains when a guard gives its hold back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remains {
    /// The guard has not given its hold back: it is the last reader, and stays for others to join.
    StillHeld,
    /// Other readers of this client remain, so that Redis has nothing to hear.
    Readers,
    /// A release remains, which is pending.
    Release,
    /// Nothing remains: the possession is lost.
    Lost,
}

impl HoldState {
    /// A guard gives its hold back. The last reader stays if it `may_stay`, and another one may join it. The watchdog
    /// does not renew its lease meanwhile: an `unlock` that is never polled again keeps no writer out for ever.
    pub(crate) fn leave(&mut self, hold: HoldId, may_stay: bool, now: Instant) -> Remains {
        if may_stay && let Some(last) = self.last_of_open_share(now) {
            last.unattended = true;
            return Remains::StillHeld;
        }
        match self.give_back(hold) {
            false => Remains::Lost,
            true if self.is_shared_still(now) => Remains::Readers,
            true => Remains::Release,
        }
    }

    /// A guard gives its hold back. From here on a release is pending, unless the possession is lost:
    /// then this returns false, even if the validity of the hold is not marked yet.
    pub(crate) fn give_back(&mut self, hold: HoldId) -> bool {
        self.forget_joint_hold(hold);
        if self.lost {
            self.rare.iter_mut().for_each(|rare| rare.lost.retain(|(number, _)| *number != hold));
            return false;
        }
        if let Some(at) = self.live.iter().position(|live| live.number == hold) {
            let Hold { validity, .. } = self.live.swap_remove(at);
            // Of others that read Redis hears nothing, unless their leases differ.
            if self.counted > 0 && (self.live.is_empty() || !self.is_even()) {
                self.given_back.push(validity);
            }
        }
        true
    }
}
