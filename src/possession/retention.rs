//! For how long the key of a lock stays after its last release: pure state.

use std::time::{Duration, Instant};

use crate::lease::whole_millis;

use super::{HoldId, HoldState};

impl HoldState {
    /// The last release leaves the key until then, or later if another guard
    /// asked for that.
    pub(crate) fn hold_until(&mut self, hold: HoldId, until: Instant) {
        if self.live_with(hold) == 0 {
            return;
        }
        let retained_until = &mut self.rare().retained_until;
        *retained_until = (*retained_until).max(Some(until));
    }

    /// A server has missed the last release, which left the key until then, if it did.
    pub(super) fn releases_again(&mut self, retained_until: Option<Instant>) {
        let rare = self.rare();
        (rare.ends_here, rare.given_up) = (true, false);
        rare.retained_until = rare.retained_until.max(retained_until);
    }

    /// For how long the key stays from now on, if its time is not over.
    pub(crate) fn retention(&self, now: Instant) -> Option<Duration> {
        let until = self.rare.as_deref()?.retained_until.filter(|until| *until > now)?;
        Some(whole_millis(until - now))
    }

    /// Whether Redis has no hold of this possession, as far as is known.
    pub(super) fn is_idle(&self) -> bool {
        self.counted == 0 && self.live.is_empty() && self.given_back.is_empty()
    }
}
