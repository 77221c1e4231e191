//! What a test build replaces, so that the tests can explore schedules and suspensions.

#[cfg(test)]
pub(crate) use crate::tests::explore::Mutex;
#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;

/// How much time the clock adds as if the machine had been suspended: only a test adds some.
#[cfg(not(test))]
pub(crate) fn suspended() -> std::time::Duration {
    std::time::Duration::ZERO
}
#[cfg(test)]
pub(crate) use crate::tests::suspended::suspended;
