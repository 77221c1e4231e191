//! When the next dial may begin: the pure state.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::host::random;

/// The shortest pause between the end of one connection, or of a dial, and the next dial.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The pause doubles with each dial that fails, and with each connection that has lived for a shorter
/// time than the pause before it. After a connection that has lived for longer it is the first one
/// again, and after one that has lived for [`LONGEST_PAUSE`] there is none.
#[derive(Debug)]
pub(super) struct Pace {
    backoff: Backoff,
    not_before: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), not_before: None }
    }
}

impl Pace {
    /// A dial has failed; or a connection has ended that has `lived` for so long.
    pub(super) fn ended(&mut self, lived: Duration, now: Instant) {
        if lived >= self.backoff.last().max(FIRST_PAUSE) {
            self.backoff.reset();
        }
        if lived < LONGEST_PAUSE {
            self.backoff.next();
        }
        self.not_before = Some(now + spread(self.backoff.last()));
    }

    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
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

    /// A dial that failed.
    const FAILED: Duration = Duration::ZERO;

    /// The pauses, without their spread, after connections that have lived for so long.
    fn pauses(all: impl IntoIterator<Item = Duration>) -> Vec<u128> {
        let (mut pace, now) = (Pace::default(), clock::now());
        let pause = |lived| {
            pace.ended(lived, now);
            let pause = pace.backoff.last();
            let until = pace.not_before().expect("a time") - now;
            assert!(until <= pause && until >= pause * 3 / 4, "{until:?}");
            pause.as_millis()
        };
        all.into_iter().map(pause).collect()
    }

    #[test]
    fn dials_that_fail_slow_down_to_half_a_second() {
        assert_eq!(pauses([FAILED; 7]), [25, 50, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn the_first_dial_and_one_after_a_connection_that_has_lived_are_at_once() {
        assert_eq!(Pace::default().not_before(), None);
        assert_eq!(pauses([500 * MS]), [0]);
        assert_eq!(pauses([FAILED, FAILED, 500 * MS, MS]), [25, 50, 0, 25]);
    }

    #[test]
    fn a_pause_grows_until_a_connection_has_lived_for_longer() {
        assert_eq!(pauses([MS; 5]), [25, 50, 100, 200, 400]);
        assert_eq!(pauses([MS, MS, 60 * MS, 60 * MS]), [25, 50, 25, 25]);
    }

    #[test]
    fn w28_whatever_two_connections_live_for_they_are_made_fifty_times_a_second_at_most() {
        for lived in 0..500 {
            let mut pace = Pace::default();
            let (mut now, begun) = (clock::now(), clock::now());
            for _ in 0..100 {
                pace.ended(lived * MS, now);
                now = pace.not_before().expect("a time") + lived * MS;
            }
            assert!(now - begun >= Duration::from_secs(4), "{lived} ms: {:?}", now - begun);
        }
    }

    #[test]
    fn pauses_differ() {
        let spread: Vec<_> = (0..40).map(|_| spread(LONGEST_PAUSE)).collect();
        assert!(spread.windows(2).any(|two| two[0] != two[1]));
    }
}
