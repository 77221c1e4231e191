//! For how long a client keeps a name from others by hand-offs: pure state.

use std::time::{Duration, Instant};

use crate::config::Config;

use super::HoldState;

/// Hand-offs in a row, during which the client has kept a name from all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streak {
    /// More than 32 bits: where tasks always wait and no other client does, a streak goes on for days.
    pub(super) handoffs: u64,
    pub(super) since: Instant,
    /// How many other clients wait, as Redis reported last: at which hand-off, and when.
    pub(super) others: Option<(u32, u64, Instant)>,
}

impl Streak {
    pub(super) fn first(now: Instant) -> Self {
        Self { handoffs: 0, since: now, others: None }
    }

    /// Whether the streak began less than that time ago.
    pub(crate) fn is_within(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < time
    }

    /// How many others wait, if they have waited long enough.
    pub(super) fn is_over(&self, config: &Config, now: Instant) -> Option<u32> {
        let (others, ..) = self.others?;
        // Not `since + max_handoff_time`: any duration may have been set.
        let kept = now.saturating_duration_since(self.since);
        let long =
            self.handoffs >= u64::from(config.max_handoffs) || kept >= config.max_handoff_time;
        (others > 0 && long).then_some(others)
    }

    /// Whether it is time for the client to ask how many others wait: half a streak after the last answer, and not
    /// twice for one hand-off.
    pub(super) fn asks(&self, config: &Config, now: Instant) -> bool {
        let (handoffs, since) =
            self.others.map_or((0, self.since), |(_, handoffs, at)| (handoffs, at));
        let handoffs = self.handoffs - handoffs;
        let long = now.saturating_duration_since(since) >= config.max_handoff_time / 2;
        handoffs > 0 && (long || handoffs >= u64::from(config.max_handoffs.div_ceil(2)))
    }
}

impl HoldState {
    /// How many other clients wait, if it is their turn.
    pub(crate) fn turn_of_others(&self, config: &Config, now: Instant) -> Option<u32> {
        // Another client has a turn only when the key has gone.
        let handed = self.handed.as_ref().filter(|_| self.retention(now).is_none());
        handed.and_then(|handed| handed.streak?.is_over(config, now))
    }

    /// The streak that the next hand-off goes on with.
    pub(crate) fn streak(&self, now: Instant) -> Streak {
        let streak = self.handed.as_ref().and_then(|handed| handed.streak);
        streak.unwrap_or_else(|| Streak::first(now))
    }
}
