//! Which tests may run beside each other: all of them are threads of one process, on few processors.
//!
//! Most tests wait most of the time, and any number of them can do that at once. But one that keeps
//! the processors busy for seconds spoils what another one measures. So the first says that the
//! machine will be [`busy`], and the second asks for a [`quiet`] one: a busy test runs beside neither
//! kind, and those that want it quiet run beside each other.
//!
//! Busy tests wait until nobody wants it quiet. The other way round, a busy test that waits for a long
//! one to end would keep all short ones waiting, too.
//!
//! Whatever else the machine does spoils measurements as well, and asks nobody. So a thread finds out how
//! late it is woken, and [`passed`] does not count that time.

use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::unpoisoned;

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
    unpoisoned(&TESTS)
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

/// How often the thread wakes, and what the machine takes to wake it when it has nothing else to do.
const PULSE: Duration = Duration::from_millis(2);
const AT_ONCE: Duration = Duration::from_millis(1);

/// When the thread was woken that late.
static LATE: LazyLock<Mutex<Vec<(Instant, Duration)>>> = LazyLock::new(|| {
    thread::spawn(|| {
        loop {
            let asleep = Instant::now();
            thread::sleep(PULSE);
            let late = asleep.elapsed().saturating_sub(PULSE);
            if late > AT_ONCE {
                unpoisoned(&LATE).push((Instant::now(), late));
            }
        }
    });
    Mutex::default()
});

/// Measures from here on, at the latest.
pub(crate) fn measure() {
    LazyLock::force(&LATE);
}

/// The time since then, without that in which the machine kept a thread waiting that was to run.
pub(crate) fn passed(since: impl Into<tokio::time::Instant>) -> Duration {
    passed_until(since, tokio::time::Instant::now())
}

/// The same for a time that ended.
pub(crate) fn passed_until(
    since: impl Into<tokio::time::Instant>,
    end: impl Into<tokio::time::Instant>,
) -> Duration {
    let late = unpoisoned(&LATE);
    without(&late, since.into().into_std(), end.into().into_std())
}

/// The time from `since` to `end`, without what of it the thread was `late`: until when, and by how much.
pub(crate) fn without(late: &[(Instant, Duration)], since: Instant, end: Instant) -> Duration {
    let meanwhile = late.iter().rev().take_while(|(until, _)| *until > since);
    let waited = meanwhile
        .map(|&(until, late)| until.min(end).saturating_duration_since(since.max(until - late)));
    (end - since).saturating_sub(waited.sum())
}
