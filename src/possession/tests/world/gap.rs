//! A lock that its last holder leaves in a gap.

use super::*;

impl World {
    /// The holder gives all back, and leaves the lock in a gap if that can be. Returns whether it has.
    pub(super) fn leave_in_gap(&mut self) -> bool {
        self.run(&Op::Claim);
        while !self.guards.is_empty() {
            self.run(&Op::GiveBack(0));
        }
        let Some(left) = self.possession.begin_gap(&self.config, self.now, Duration::ZERO) else {
            return false;
        };
        assert!(left.needs_update || self.update_queued, "no thread updates Redis");
        self.update_queued = true;
        self.awaits.push(Awaits { confirmation: left.confirmation, asked: false });
        self.gaps.push(left.ended);
        true
    }

    /// Another handle is inside, or the lock is released.
    pub(super) fn gap_ends(&mut self) {
        let gap = self.holds().take_gap();
        self.possession.announce_end(gap);
    }

    /// Those who have left the lock in a gap wait until that has ended.
    pub(super) fn check_gaps(&mut self) {
        self.gaps.retain_mut(|ended| ended.try_recv() == Err(TryRecvError::Empty));
        assert_eq!(self.holds().is_in_gap(), !self.gaps.is_empty(), "a gap has no end");
        let holder = self.guards.iter().any(|guard| guard.validity.check(self.now).is_some());
        assert!(self.gaps.is_empty() || !holder, "a handle is inside a gap");
    }
}
