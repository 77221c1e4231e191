//! An instant in half of its room.

use std::num::NonZeroI64;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An [`Instant`] in half of its room, as an `Option` too: in nanoseconds after the first one of this process, counted
/// from one, or before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(NonZeroI64);

/// What stamps count from.
static FIRST: OnceLock<Instant> = OnceLock::new();

impl From<Instant> for Stamp {
    fn from(instant: Instant) -> Self {
        let first = *FIRST.get_or_init(|| instant);
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let count = match instant.checked_duration_since(first) {
            Some(after) => nanos(after).saturating_add(1),
            None => -nanos(first - instant),
        };
        Self(
            NonZeroI64::new(count)
                .expect("BUG: an instant that is neither before nor after the first one"),
        )
    }
}

impl Stamp {
    pub(crate) fn instant(self) -> Instant {
        let first = *FIRST.get().expect("BUG: a stamp before the first one");
        let nanos = |many: i64| Duration::from_nanos(many.unsigned_abs());
        match self.0.get() {
            after @ 1.. => first + nanos(after - 1),
            before => first - nanos(before),
        }
    }
}

#[cfg(test)]
mod tests;
