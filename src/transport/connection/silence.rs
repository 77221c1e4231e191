//! What the answers on a connection say about it: whether its server is silent, and how far away it
//! is.
//!
//! 1. **A connection is silent when its oldest unanswered request has been under way on it for as
//!    long as an answer may take.** That a deadline passes says less: the caller may have spent its
//!    time waiting for this connection, or for another request of its handle. In a crowd there is
//!    always such a request. If it cost the connection, the next one would go the same way, each
//!    after another dial, and the outage would never end.
//! 2. So a request that had less time fails alone. Its connection stays, and its undo goes behind
//!    it there. It counts as unanswered until one behind it is answered, and so does not hide that
//!    the server is silent, however little time each request has.
//! 3. A request that has less time left than a round trip takes is not sent. But half of the time
//!    for an answer is always enough, because what was measured last may be too long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Connection;
use crate::clock;

pub(super) struct Silence {
    /// When the oldest unanswered request was sent, if one has failed for that.
    since: Mutex<Option<Instant>>,
    /// Microseconds.
    round_trip: AtomicU64,
    /// Whether the next answer is of interest: usually all that it has to check.
    listens: AtomicBool,
}

impl Silence {
    pub(super) fn new(round_trip: Duration) -> Self {
        let (since, listens) = Default::default();
        Self { since, round_trip: micros(round_trip).into(), listens }
    }

    /// A round trip has taken that long, or the server took its time.
    pub(super) fn at_most(&self, round_trip: Duration) {
        self.round_trip.fetch_min(micros(round_trip), Ordering::Relaxed);
    }

    /// A request that was sent then has been answered, and so has each that was sent before.
    fn record_answer(&self, sent: Instant, now: Instant) {
        let mut since = self.since.lock();
        since.take_if(|since| *since <= sent);
        self.listens.store(since.is_some(), Ordering::Relaxed);
        let round_trip = micros(now.saturating_duration_since(sent));
        self.round_trip.store(round_trip, Ordering::Relaxed);
    }

    /// A request that was sent then has not been answered by its deadline. An answer may take
    /// `answer_timeout`.
    fn record_timeout(&self, sent: Instant, now: Instant, answer_timeout: Duration) -> bool {
        let mut since = self.since.lock();
        // Nothing has failed for longer than that since then: its answer came, late.
        let recent =
            since.filter(|since| sent.saturating_duration_since(*since) < 2 * answer_timeout);
        let first = recent.map_or(sent, |since| since.min(sent));
        *since = Some(first);
        self.listens.store(true, Ordering::Relaxed);
        // A request is sent a little later than its time begins.
        now.saturating_duration_since(first) >= answer_timeout - answer_timeout / 8
    }

    fn is_too_late(&self, left: Duration, answer_timeout: Duration) -> bool {
        let round_trip = Duration::from_micros(self.round_trip.load(Ordering::Relaxed));
        let too_late = left < round_trip.min(answer_timeout / 2);
        if too_late {
            self.listens.store(true, Ordering::Relaxed);
        }
        too_late || left.is_zero()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Connection {
    /// The server has answered a request that was sent then.
    pub(in crate::transport) fn record_answer(&self, sent: Instant) {
        let silence = &self.shared.silence;
        if silence.listens.load(Ordering::Relaxed) {
            silence.record_answer(sent, clock::now());
        }
    }

    /// A request that was sent then has not been answered by its deadline. Returns whether the
    /// connection is silent, if an answer may take `answer_timeout`.
    pub(in crate::transport) fn is_silent(&self, sent: Instant, answer_timeout: Duration) -> bool {
        self.shared.silence.record_timeout(sent, clock::now(), answer_timeout)
    }

    /// How long a round trip took that was measured last.
    pub(in crate::transport) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.shared.silence.round_trip.load(Ordering::Relaxed))
    }

    /// Whether no answer can come in the time that is left.
    pub(in crate::transport) fn is_too_late(
        &self,
        left: Duration,
        answer_timeout: Duration,
    ) -> bool {
        self.shared.silence.is_too_late(left, answer_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_request_with_little_time_left_shows_no_silence_and_one_with_all_of_it_does() {
        let begun = clock::now();
        let at = |millis| begun + ms(millis);
        for (sent, deadline, silent) in [(250, 300, false), (100, 300, false), (1, 300, true)] {
            let silence = Silence::new(ms(120));
            assert_eq!(
                silence.record_timeout(at(sent), at(deadline), ANSWER_TIMEOUT),
                silent,
                "{sent}"
            );
        }
    }

    #[test]
    fn requests_that_have_little_time_each_show_silence_together() {
        let (silence, begun) = (Silence::new(ms(120)), clock::now());
        let at = |millis| begun + ms(millis);
        let silent: Vec<_> = (0..6)
            .map(|nth| 50 * nth)
            .map(|sent| silence.record_timeout(at(sent), at(sent + 50), ANSWER_TIMEOUT))
            .collect();
        assert_eq!(silent, [false, false, false, false, false, true]);
    }

    #[test]
    fn a_request_that_failed_long_ago_says_nothing_of_now() {
        let (silence, begun) = (Silence::new(ms(120)), clock::now());
        let at = |millis| begun + ms(millis);
        assert!(!silence.record_timeout(at(0), at(50), ANSWER_TIMEOUT));
        assert!(!silence.record_timeout(at(600), at(650), ANSWER_TIMEOUT));
        assert!(silence.record_timeout(at(850), at(900), ANSWER_TIMEOUT));
    }

    #[test]
    fn an_answer_ends_the_silence_of_what_was_sent_before_it_and_of_nothing_else() {
        let begun = clock::now();
        let at = |millis| begun + ms(millis);
        for (answered, silent) in [(9, true), (10, false), (200, false)] {
            let silence = Silence::new(ms(120));
            assert!(!silence.record_timeout(at(10), at(60), ANSWER_TIMEOUT));
            silence.record_answer(at(answered), at(250));
            assert_eq!(
                silence.record_timeout(at(290), at(340), ANSWER_TIMEOUT),
                silent,
                "{answered}"
            );
        }
    }

    #[test]
    fn a_request_is_too_late_within_a_round_trip_but_never_with_half_of_its_time() {
        let (silence, begun) = (Silence::new(ms(0)), clock::now());
        assert!(
            !silence.is_too_late(ms(1), ANSWER_TIMEOUT)
                && silence.is_too_late(ms(0), ANSWER_TIMEOUT)
        );
        let silence = Silence::new(ms(400));
        assert!(
            !silence.is_too_late(ms(150), ANSWER_TIMEOUT)
                && silence.is_too_late(ms(149), ANSWER_TIMEOUT)
        );
        silence.at_most(ms(120));
        silence.at_most(ms(130));
        assert!(
            !silence.is_too_late(ms(120), ANSWER_TIMEOUT)
                && silence.is_too_late(ms(119), ANSWER_TIMEOUT)
        );
        // The next answer is measured.
        assert!(silence.listens.load(Ordering::Relaxed));
        silence.record_answer(begun, begun + ms(20));
        assert!(!silence.is_too_late(ms(20), ANSWER_TIMEOUT));
        assert!(!silence.listens.load(Ordering::Relaxed));
    }
}
