//! When the client looks at the map of slots, and for how long it has looked in vain: pure.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// How long the client waits before it looks again; longer each time while a node is away, to the other one at most: the
/// nodes that are left have the new connections of all clients.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

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

/// The pauses between looks.
pub(super) struct Pace {
    pauses: Backoff,
    /// When the last pause has ended.
    ended: Instant,
}

impl Pace {
    /// Where answers may take less time, or leases end sooner, the pauses are shorter: no longer than `longest`.
    pub(super) fn new(answer_timeout: Duration, longest: Duration, now: Instant) -> Self {
        let longest = LONGEST_PAUSE.min(SHORTEST_PAUSE.max(answer_timeout / 6)).min(longest);
        Self { pauses: Backoff::new(SHORTEST_PAUSE.min(longest), longest), ended: now }
    }

    /// The client looks.
    pub(super) fn look(&mut self, now: Instant) {
        if now.saturating_duration_since(self.ended) > self.pauses.last() {
            self.pauses.reset();
        }
    }

    /// When the next look may be, now that one has ended. `all_there`: the client is connected to each node.
    pub(super) fn not_before(&mut self, all_there: bool, now: Instant) -> Instant {
        if all_there {
            self.pauses.reset();
        }
        self.ended = now + self.pauses.next();
        self.ended
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

    #[test]
    fn pauses_grow_while_looks_are_wanted_and_begin_again_after_a_rest() {
        let begun = clock::now();
        let (mut pace, mut now) = (Pace::new(3 * SECOND, SECOND, begun), begun);
        let mut pauses = |rest: Duration, all_there: bool| {
            now += rest;
            pace.look(now);
            let pause = pace.not_before(all_there, now) - now;
            now += pause;
            pause.as_millis()
        };
        assert_eq!([0; 5].map(|_| pauses(Duration::ZERO, false)), [100, 200, 400, 500, 500]);
        assert_eq!(pauses(LONGEST_PAUSE, false), 500);
        assert_eq!(pauses(2 * LONGEST_PAUSE, false), 100);
        assert_eq!(pauses(SHORTEST_PAUSE, false), 200);
        // No node is away: others want looks, while slots move, say.
        assert_eq!([0; 3].map(|_| pauses(Duration::ZERO, true)), [100; 3]);
        // With short times for answers and leases they are short.
        for (answers, longest, pause) in [
            (SECOND / 4, SECOND, SHORTEST_PAUSE),
            (SECOND, SECOND, SECOND / 6),
            (3 * SECOND, SECOND / 24, SECOND / 24),
        ] {
            let mut pace = Pace::new(answers, longest, begun);
            let pauses = (0..9).map(|_| pace.not_before(false, begun) - begun);
            assert_eq!(pauses.max(), Some(pause));
        }
    }
}
