//! When the next dial may begin: the pure state.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::host::random;

/// The shortest pause between the end of one connection, or of a dial, and the next dial.
pub(in crate::transport) const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// The longest pause, for leases that are renewed for as long as they usually are.
pub(in crate::transport) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// There are two pauses, and the longer one counts. One doubles with each dial that fails, and is
/// over when one succeeds. The other doubles with each connection that has lived for a shorter time
/// than the pause before it, and is over when one has lived for [`LONGEST_PAUSE`].
#[derive(Debug)]
pub(in crate::transport) struct Pace {
    failures: Backoff,
    short_lives: Backoff,
    /// When the last dial failed or the last connection ended, and the pause after it.
    last: Option<(Instant, Duration)>,
}

impl Default for Pace {
    fn default() -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        Self { failures: backoff.clone(), short_lives: backoff, last: None }
    }
}

impl Pace {
    pub(in crate::transport) fn record_failure(&mut self, now: Instant) {
        self.failures.next();
        self.last = Some((now, self.pause()));
    }

    pub(in crate::transport) fn connected(&mut self) {
        self.failures.reset();
    }

    /// A connection has ended.
    pub(in crate::transport) fn record_end(&mut self, lived: Duration, now: Instant) {
        if lived >= self.short_lives.last().max(FIRST_PAUSE) {
            self.short_lives.reset();
        }
        if lived < LONGEST_PAUSE {
            self.short_lives.next();
        }
        self.last = Some((now, self.pause()));
    }

    fn pause(&self) -> Duration {
        self.failures.last().max(self.short_lives.last())
    }

    /// After a pause that is no longer than that.
    pub(in crate::transport) fn not_before(&self, longest: Duration) -> Option<Instant> {
        self.last.map(|(ended, pause)| ended + spread(pause.min(longest)))
    }
}

/// Up to a quarter less at random, so that many clients do not dial at the same times.
fn spread(pause: Duration) -> Duration {
    pause - pause / 4 * u32::from(random().to_le_bytes()[0]) / 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);

    /// The pauses, without their spread, after dials that failed, and after connections that have
    /// lived for that long.
    fn pauses(all: impl IntoIterator<Item = Option<Duration>>) -> Vec<u128> {
        let (mut pace, now) = (Pace::default(), clock::now());
        let pause = |lived| {
            match lived {
                None => pace.record_failure(now),
                Some(lived) => {
                    pace.connected();
                    pace.record_end(lived, now);
                }
            }
            let pause = pace.pause();
            let until = pace.not_before(LONGEST_PAUSE).expect("a time") - now;
            assert!(until <= pause && until >= pause * 3 / 4, "{until:?}");
            pause.as_millis()
        };
        all.into_iter().map(pause).collect()
    }

    #[test]
    fn dials_that_fail_slow_down_to_half_a_second() {
        assert_eq!(pauses([None; 7]), [25, 50, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn the_first_dial_and_one_after_a_connection_that_has_lived_are_at_once() {
        assert_eq!(Pace::default().not_before(LONGEST_PAUSE), None);
        assert_eq!(pauses([Some(500 * MS)]), [0]);
        assert_eq!(pauses([None, None, Some(500 * MS), Some(MS)]), [25, 50, 0, 25]);
    }

    #[test]
    fn a_pause_grows_until_a_connection_has_lived_for_longer() {
        assert_eq!(pauses([Some(MS); 5]), [25, 50, 100, 200, 400]);
        assert_eq!(pauses([Some(MS), Some(MS), Some(60 * MS), Some(60 * MS)]), [25, 50, 25, 25]);
    }

    /// With a watchdog timeout that is shorter than 600 ms a hundred times.
    #[test]
    fn w28_whatever_two_connections_live_for_they_are_made_fifty_times_a_second_at_most() {
        let least = [(FIRST_PAUSE, 1_875), (2 * FIRST_PAUSE, 3_750), (LONGEST_PAUSE, 4_000)];
        for (longest, least) in least {
            for lived in 0..500 {
                let mut pace = Pace::default();
                let (mut now, begun) = (clock::now(), clock::now());
                for _ in 0..100 {
                    pace.record_end(lived * MS, now);
                    now = pace.not_before(longest).expect("a time") + lived * MS;
                }
                assert!(now - begun >= least * MS, "{lived} ms: {:?}", now - begun);
            }
        }
    }

    #[test]
    fn pauses_differ() {
        let spread: Vec<_> = (0..40).map(|_| spread(LONGEST_PAUSE)).collect();
        assert!(spread.windows(2).any(|two| two[0] != two[1]));
    }
}
