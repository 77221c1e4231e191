//! The clock by which leases are judged: monotonic, and it goes on while the machine sleeps.
//!
//! While a machine is suspended, or a virtual one is moved, `Instant::now` stands still on Linux,
//! and Redis goes on counting: a holder that wakes up would rely on a lease that has ended. So the
//! time comes from `CLOCK_BOOTTIME` there, and from `Instant::now` elsewhere.
//!
//! 1. Every instant in this crate comes from [`now`]; another clock's has no meaning beside it. A simulated
//!    machine has a clock of its own ([`crate::host`]).
//! 2. Tokio's timers stand still in a suspension. So no sleep is longer than [`LONGEST_SLEEP`],
//!    which is how late a sleeping task notices a deadline that passed meanwhile. A task that calls
//!    [`now`] knows at once.
//! 3. **No timer ends early.** A test can pause the time of its runtime: then Tokio's timers end as soon
//!    as the runtime is idle, while Redis takes its real time. So every sleep and every timeout is made
//!    here, and goes on by the timers of another runtime if Tokio's has ended too soon, or if there is no
//!    runtime.

use std::io;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tokio::runtime::{self, Handle};
use tokio::task::JoinSet;

use crate::host;
use crate::sync::suspended;

pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The time was up.
#[derive(Debug)]
pub(crate) struct Elapsed;

impl From<Elapsed> for io::Error {
    fn from(_: Elapsed) -> Self {
        io::ErrorKind::TimedOut.into()
    }
}

pub(crate) fn now() -> Instant {
    host::now().unwrap_or_else(real_now)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn real_now() -> Instant {
    use rustix::time::{ClockId, clock_gettime};

    fn since_boot() -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        // It counts from zero upwards, so neither part can be negative.
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    static START: LazyLock<(Instant, Duration)> = LazyLock::new(|| (Instant::now(), since_boot()));
    let (start, before) = *START;
    start + since_boot().saturating_sub(before) + suspended()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn real_now() -> Instant {
    Instant::now() + suspended()
}

pub(crate) async fn sleep_until(at: Instant) {
    loop {
        let remaining = at.saturating_duration_since(now());
        if remaining.is_zero() {
            return;
        }
        sleep(remaining.min(LONGEST_SLEEP)).await;
    }
}

/// Completes at that time; without one, never.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        // Boxed, so that the many waiters without a timer stay small.
        Some(at) => Box::pin(sleep_until(at)).await,
        None => std::future::pending().await,
    }
}

/// If the machine is suspended meanwhile, this takes that much longer.
pub(crate) async fn sleep(duration: Duration) {
    if let Some(sleep) = host::sleep(duration) {
        return sleep.await;
    }
    let begun = now();
    if Handle::try_current().is_ok() {
        tokio::time::sleep(duration).await;
    }
    let rest = duration.saturating_sub(now().saturating_duration_since(begun));
    if !rest.is_zero() {
        Box::pin(sleep_elsewhere(rest)).await;
    }
}

/// A runtime with a thread of its own, whose time no test pauses, and which runs as long as the process; `None` if the
/// thread could not be started.
pub(crate) fn elsewhere() -> Option<&'static Handle> {
    static ELSEWHERE: LazyLock<Option<Handle>> = LazyLock::new(|| {
        let runtime = runtime::Builder::new_current_thread().enable_time().build().ok()?;
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("redlatch-clock".into());
        thread.spawn(move || runtime.block_on(std::future::pending::<()>())).ok()?;
        Some(handle)
    });
    ELSEWHERE.as_ref()
}

/// Sleeps by the timers of another runtime, whose time no test pauses (invariant 3).
async fn sleep_elsewhere(duration: Duration) {
    let Some(elsewhere) = elsewhere() else {
        // No thread could be started. Callers look at the clock again, and call again.
        return std::thread::sleep(duration.min(Duration::from_millis(1)));
    };
    // Its drop ends the task.
    let mut sleep = JoinSet::new();
    sleep.spawn_on(async move { tokio::time::sleep(duration).await }, elsewhere);
    sleep.join_next().await;
}

/// Waits for the future until that time at most. If the machine is suspended meanwhile, it waits for that much
/// longer.
pub(crate) async fn timeout_at<T>(
    at: Instant,
    future: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    timeout(at.saturating_duration_since(now()), future).await
}

/// Waits for the future until that time at most, or as long as it takes if there is none. If the machine is suspended
/// meanwhile, it waits for that much longer.
pub(crate) async fn by<T>(at: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match at {
        // Boxed, because a timer is large and most calls have none.
        Some(at) => Box::pin(by_or_later(at, || Duration::ZERO, future)).await,
        None => Some(future.await),
    }
}

/// Waits for the future until that time at most, and for `more` if that says so then.
pub(crate) async fn by_or_later<T>(
    at: Instant,
    more: impl FnOnce() -> Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let time_is_up = async {
        sleep(at.saturating_duration_since(now())).await;
        let more = more();
        if !more.is_zero() {
            sleep(more).await;
        }
    };
    tokio::select! {
        biased;
        value = future => Some(value),
        () = time_is_up => None,
    }
}

/// Waits for the future for that long at most. If the machine is suspended meanwhile, it waits for that much
/// longer.
pub(crate) async fn timeout<T>(
    duration: Duration,
    future: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    tokio::select! {
        biased;
        value = future => Ok(value),
        () = sleep(duration) => Err(Elapsed),
    }
}

/// Waits for an answer for that long at most; then the error is that the time was up.
pub(crate) async fn within<T, E: From<io::Error>>(
    duration: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(duration, answer).await.map_err(io::Error::from)?
}

#[cfg(test)]
mod tests;
