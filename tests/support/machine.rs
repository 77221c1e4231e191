//! Which tests may run beside each other: all of them are threads of one process, on few processors.
//!
//! Most tests wait most of the time, and any number of them can do that at once. But one that keeps
//! the processors busy for seconds spoils what another one measures. So the first says that the
//! machine will be [`busy`], and the second asks for a [`quiet`] one: a busy test runs beside neither
//! kind, and those that want it quiet run beside each other.
//!
//! Busy tests wait until nobody wants it quiet. The other way round, a busy test that waits for a long
//! one to end would keep all short ones waiting, too.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many tests want it quiet, and whether one is busy.
static TESTS: Mutex<(usize, bool)> = Mutex::new((0, false));
static ENDED: Condvar = Condvar::new();

/// While it lives, no other test keeps the machine busy, and none wants it quiet.
pub(crate) struct Busy(());

/// While it lives, no test keeps the machine busy.
pub(crate) struct Quiet(());

/// For a test that uses the processors for more than a second. It waits its turn before it starts
/// anything, so this is the first line of a test.
pub(crate) fn busy() -> Busy {
    wait_while(|tests| *tests != (0, false)).1 = true;
    Busy(())
}

/// For a test whose bounds are so narrow that a busy neighbor would break them.
pub(crate) fn quiet() -> Quiet {
    wait_while(|(_, busy)| *busy).0 += 1;
    Quiet(())
}

fn wait_while(
    condition: impl Fn(&mut (usize, bool)) -> bool,
) -> MutexGuard<'static, (usize, bool)> {
    ENDED.wait_while(tests(), condition).unwrap_or_else(PoisonError::into_inner)
}

fn tests() -> MutexGuard<'static, (usize, bool)> {
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Busy {
    fn drop(&mut self) {
        tests().1 = false;
        ENDED.notify_all();
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        tests().0 -= 1;
        ENDED.notify_all();
    }
}
