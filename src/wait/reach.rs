//! Whether Redis answers the requests about one lock: pure state.

use std::time::{Duration, Instant};

/// If Redis has not answered for this long, the client takes it for silent, unless an answer takes longer.
const SILENCE: Duration = Duration::from_millis(200);

/// After how long without an answer the client takes a server for silent whose answers take that long.
pub(crate) fn silence(round_trip: Duration) -> Duration {
    SILENCE.max(2 * round_trip)
}

/// What came of a request that was made then.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reached {
    Answered(Instant),
    Silent(Instant),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// Redis has answered no request since the first call came, at that time.
    Unknown(Instant),
    Answers,
    /// Redis does not answer. The outage began at that time.
    Outage(Instant),
}

impl Reach {
    /// Redis has answered a request, sent at `asked_at`. An outage that began before is over. One
    /// that began later is not, however late the answer is processed. True if that ends a silence.
    pub(super) fn record_answer(&mut self, asked_at: Instant) -> bool {
        let ends = match self {
            Self::Unknown(_) => true,
            Self::Outage(began) => *began <= asked_at,
            Self::Answers => false,
        };
        if ends {
            *self = Self::Answers;
        }
        ends
    }

    /// Redis has not answered a request that was made at `asked_at`: before there was a call in this queue, maybe.
    pub(super) fn record_silence(&mut self, asked_at: Instant) {
        if let Self::Unknown(since) = self {
            *since = asked_at.min(*since);
        }
    }

    /// Redis was out of reach. Returns whether it answered before: then the time of an outage counts from now on.
    pub(super) fn record_failure(&mut self, now: Instant) -> bool {
        let since = self.silent_since();
        *self = Self::Outage(since.unwrap_or(now));
        since.is_none()
    }

    fn silent_since(self) -> Option<Instant> {
        match self {
            Self::Unknown(since) | Self::Outage(since) => Some(since),
            Self::Answers => None,
        }
    }

    /// Since when Redis has been out of reach.
    pub(super) fn outage(self, now: Instant) -> Option<Instant> {
        self.outage_at(Duration::ZERO, now)
    }

    /// The same, of a server whose answers take that long.
    pub(super) fn outage_at(self, round_trip: Duration, now: Instant) -> Option<Instant> {
        match self {
            Self::Unknown(since) => (since + silence(round_trip) <= now).then_some(since),
            Self::Outage(began) => Some(began),
            Self::Answers => None,
        }
    }

    pub(super) fn in_outage(self, now: Instant) -> bool {
        self.outage(now).is_some()
    }

    /// Whether Redis has answered nothing to a waiter that joined at `joined`: such a call does not wait for the end
    /// of an outage.
    pub(super) fn is_silent_since(self, joined: Instant) -> bool {
        self.silent_since().is_some_and(|silent| silent <= joined)
    }

    /// Until when a waiter waits that joined at `joined`: for a `request` of its own if Redis was silent before,
    /// else for as long as an `outage` may last.
    pub(super) fn gives_up_at(
        self,
        joined: Instant,
        request: Duration,
        outage: Option<Duration>,
    ) -> Option<Instant> {
        let silent = self.silent_since()?;
        if silent <= joined { joined.checked_add(request) } else { silent.checked_add(outage?) }
    }
}
