//! Pauses between tries, each twice as long as the one before: pure.

use std::time::Duration;

/// The longest pause between two tries in the background.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to wait before the next try of what has failed.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    last: Duration,
}

impl Backoff {
    /// A backoff whose pauses grow from `first` to `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, last: Duration::ZERO }
    }

    /// For what the client's thread tries again.
    pub(crate) const fn in_background() -> Self {
        Self::new(Duration::from_millis(50), LONGEST_PAUSE)
    }

    /// The pause before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        self.last = (2 * self.last).clamp(self.first, self.longest);
        self.last
    }

    /// The pause before the last try; zero before the first pause, and after a reset.
    pub(crate) fn last(&self) -> Duration {
        self.last
    }

    /// The next pause is the first one again.
    pub(crate) fn reset(&mut self) {
        self.last = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));
        assert_eq!(backoff.last(), Duration::ZERO);
        let pauses: Vec<_> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 200, 200]);
        assert_eq!(backoff.last().as_millis(), 200);
        backoff.reset();
        assert_eq!((backoff.last().as_millis(), backoff.next().as_millis()), (0, 10));
    }
}
