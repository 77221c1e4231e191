//! A machine that is suspended: its timers do not notice.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// For how long this thread's tests have suspended the machine.
pub(crate) fn suspended() -> Duration {
    SUSPENDED.get()
}

pub(crate) fn suspend(duration: Duration) {
    SUSPENDED.set(SUSPENDED.get() + duration);
}
