//! Which tests may run beside each other: all of them are threads of one process, on few processors.
//!
//! Most tests wait most of the time, and any number of them can do that at once. But one that keeps
//! the processors busy for seconds spoils what another one measures. So the first says that the
//! machine will be [`busy`], and the second asks for a [`quiet`] one: a busy test runs beside neither
//! kind, and those that want it quiet run beside each other.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// While it lives, no other test keeps the machine busy, and none wants it quiet.
pub(crate) struct Busy {
    _alone: RwLockWriteGuard<'static, ()>,
}

/// While it lives, no test keeps the machine busy.
pub(crate) struct Quiet {
    _together: RwLockReadGuard<'static, ()>,
}

/// For a test that uses the processors for more than a second. It waits its turn before it starts
/// anything, so this is the first line of a test.
pub(crate) fn busy() -> Busy {
    // One that failed before has done no harm to the machine.
    Busy { _alone: MACHINE.write().unwrap_or_else(PoisonError::into_inner) }
}

/// For a test whose bounds are so narrow that a busy neighbor would break them.
pub(crate) fn quiet() -> Quiet {
    Quiet { _together: MACHINE.read().unwrap_or_else(PoisonError::into_inner) }
}
