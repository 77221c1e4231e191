//! The clock by which leases are judged: monotonic, and it goes on while the machine sleeps.
//!
//! While a machine is suspended, or a virtual one is moved, `Instant::now` stands still on Linux,
//! and Redis goes on counting: a holder that wakes up would rely on a lease that has ended. So the
//! time comes from `CLOCK_BOOTTIME` there, and from `Instant::now` elsewhere.
//!
//! 1. Every instant in this crate comes from [`now`]; another clock's has no meaning beside it.
//! 2. Tokio's timers stand still in a suspension. So no sleep is longer than [`LONGEST_SLEEP`],
//!    which is how late a sleeping task notices a deadline that passed meanwhile. A task that calls
//!    [`now`] knows at once.

use std::time::{Duration, Instant};

use tokio::time::error::Elapsed;

use crate::sync::suspended;

const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Instant {
    use std::sync::LazyLock;

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
pub(crate) fn now() -> Instant {
    Instant::now() + suspended()
}

pub(crate) async fn sleep_until(at: Instant) {
    loop {
        let remaining = at.saturating_duration_since(now());
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining.min(LONGEST_SLEEP)).await;
    }
}

/// For requests and the like: if the machine is suspended meanwhile, this fails that much later.
pub(crate) async fn timeout_at<T>(
    at: Instant,
    future: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    tokio::time::timeout(at.saturating_duration_since(now()), future).await
}

#[cfg(test)]
mod tests;
