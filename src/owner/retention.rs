//! For how long the key of a lock stays after its last release: pure state.

use std::time::{Duration, Instant};

use crate::lease::whole_millis;

use super::{HoldId, HoldState, Owner};

impl HoldState {
    /// The last release of this generation leaves the key until then, or later if another guard
    /// asked for that.
    pub(crate) fn hold_until(&mut self, hold: HoldId, until: Instant) {
        if hold.generation != self.generation {
            return;
        }
        let held_until = &mut self.rare().held_until;
        *held_until = (*held_until).max(Some(until));
    }

    /// If a server has missed the last release of this generation: that left the key until `until()`.
    pub(crate) fn hold_again_until(&mut self, until: impl FnOnce() -> Option<Instant>) {
        if self.rare.is_some() && self.rare().release_missed {
            let held_until = &mut self.rare().held_until;
            *held_until = (*held_until).max(until());
        }
    }

    /// For how long the key stays from now on, if its time is not over.
    pub(super) fn retention(&self, now: Instant) -> Option<Duration> {
        let rare = self.rare.as_deref().filter(|rare| rare.generation == self.generation)?;
        let until = rare.held_until.filter(|until| *until > now)?;
        Some(whole_millis(until - now))
    }
}

impl Owner {
    /// The owner that has the key of a lock that stays after its last release: one that no handle is.
    /// So the handle that released the lock waits like every other. Each handle has its own: a release
    /// that is sent again finds what it left, and never what another handle left.
    pub(crate) fn retainer(&self) -> String {
        let (client, number) = self.id.rsplit_once(':').unwrap_or_default();
        format!("{client}:-{number}")
    }
}
