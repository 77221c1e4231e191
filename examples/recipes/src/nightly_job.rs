//! A job of tokio-cron-scheduler that one instance of a fleet runs, and the others leave out.

use std::time::Duration;

use redlatch::{Lease, LockClient};
use tokio_cron_scheduler::{Job, JobSchedulerError};

/// Longer than the clocks of the instances are apart, and shorter than the time between two runs.
const AT_LEAST: Duration = Duration::from_secs(600);

/// `cron` is that of every instance: `0 0 3 * * *` is at three at night, in UTC.
pub fn nightly<F: Future<Output = ()> + Send + 'static>(
    cron: &str,
    locks: LockClient,
    report: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Result<Job, JobSchedulerError> {
    Job::new_async(cron, move |_id, _scheduler| {
        let (lock, report) = (locks.lock("nightly-report"), report.clone());
        Box::pin(async move {
            let ran = lock.try_with(Duration::ZERO, Lease::Watchdog, async |guard| {
                guard.hold_at_least(AT_LEAST);
                report().await
            });
            match ran.await {
                Ok(Some(())) => println!("the report is done"),
                Ok(None) => println!("another instance makes the report, or has just made it"),
                Err(error) => eprintln!("no report from this instance: {error:#}"),
            }
        })
    })
}
