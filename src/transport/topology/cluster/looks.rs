//! When the client looks at the map of slots, and for how long it has looked in vain: pure.

use std::time::{Duration, Instant};

/// For how long no node of the cluster serves requests before another cluster at the addresses of the builder counts. Far
/// longer than a failover takes.
const LONG_SILENCE: Duration = Duration::from_secs(30);

/// As much time as this a look may count for, with its pauses, however short an answer may take.
const MIN_LOOK: Duration = Duration::from_secs(1);

/// How long the client has looked for a node that serves requests, and found none.
#[derive(Default)]
pub(super) struct Silence {
    looked_for: Duration,
    /// When it has looked last.
    last: Option<Instant>,
}

impl Silence {
    /// The client is about to look again. Returns whether it has looked for long. A time without a look is none of silence:
    /// the machine may have slept.
    pub(super) fn is_long(&mut self, now: Instant, answer_timeout: Duration) -> bool {
        let since = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let longest = (3 * answer_timeout).clamp(MIN_LOOK, LONG_SILENCE / 6);
        self.looked_for += since.min(longest);
        self.last = Some(now);
        self.looked_for >= LONG_SILENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_the_time_in_which_the_client_looked_counts_as_silence() {
        let (mut silence, begun) = (Silence::default(), clock::now());
        let looks = (0..30).map(|second| silence.is_long(begun + second * SECOND, SECOND));
        assert_eq!(looks.filter(|is_long| *is_long).count(), 0);
        assert!(silence.is_long(begun + 30 * SECOND, SECOND));
        for answer_timeout in [Duration::from_millis(10), 3_600 * SECOND] {
            let mut silence = Silence::default();
            let looks = (0..30).map(|at| silence.is_long(begun + at * SECOND, answer_timeout));
            assert_eq!(looks.filter(|is_long| *is_long).count(), 0);
            assert!(silence.is_long(begun + 30 * SECOND, answer_timeout));
            // The machine sleeps for an hour.
            let mut silence = Silence::default();
            assert!(!silence.is_long(begun, answer_timeout));
            assert!(!silence.is_long(begun + 3_600 * SECOND, answer_timeout));
        }
    }
}
