//! Which of many events are worth a warning each: the pure decision.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The most events in one [`PERIOD`] that are worth a warning each.
const MAX_WARNINGS: u32 = 2;

const PERIOD: Duration = Duration::from_secs(60);

/// For events of one kind.
#[derive(Debug, Default)]
pub(super) struct WarningLimit(Mutex<Option<(Instant, u32)>>);

impl WarningLimit {
    /// Whether an event is worth a warning, and what that says at its end.
    pub(super) fn admit(&self, now: Instant) -> (bool, &'static str) {
        let mut state = self.0.lock();
        let (since, before) = state
            .filter(|(since, _)| now.saturating_duration_since(*since) < PERIOD)
            .unwrap_or((now, 0));
        *state = Some((since, (before + 1).min(MAX_WARNINGS)));
        match before {
            MAX_WARNINGS => (false, ""),
            before if before + 1 == MAX_WARNINGS => {
                (true, " (more of these within a minute are at debug)")
            }
            _ => (true, ""),
        }
    }
}

/// The least time between two warnings about what goes on.
const INTERVAL: Duration = Duration::from_secs(10);

/// For events of one kind that come again until what is wrong is put right.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<Option<(Instant, u64)>>);

impl Repeats {
    /// How many events there were since the last warning, with this one; `None` if it is not worth one.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        let (warned, before) = state.unwrap_or((now, 0));
        let is_worth_one = state.is_none() || now.saturating_duration_since(warned) >= INTERVAL;
        *state = Some(if is_worth_one { (now, 0) } else { (warned, before + 1) });
        is_worth_one.then_some(before + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_events_a_minute_are_worth_a_warning_and_the_second_says_what_follows() {
        let (limit, begun) = (WarningLimit::default(), Instant::now());
        let admitted = |second| limit.admit(begun + Duration::from_secs(second));
        for minute in [0, 60, 300] {
            assert_eq!(admitted(minute), (true, ""));
            assert!(matches!(admitted(minute + 1), (true, end) if end.contains("debug")));
            assert_eq!([admitted(minute + 1), admitted(minute + 59)], [(false, ""); 2]);
        }
    }

    #[test]
    fn what_goes_on_is_worth_a_warning_at_once_and_one_every_ten_seconds_with_their_number() {
        let (repeats, begun) = (Repeats::default(), Instant::now());
        let admitted = |tenth: u64| repeats.admit(begun + Duration::from_millis(100 * tenth));
        let warnings: Vec<_> =
            (0..250).filter_map(|tenth| Some((tenth, admitted(tenth)?))).collect();
        assert_eq!(warnings, [(0, 1), (100, 100), (200, 100)]);
        assert_eq!(admitted(10_000), Some(50));
    }
}
