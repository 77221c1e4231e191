use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use redlatch::LockClient;
use redlatch_recipes::nightly_job::nightly;
use tokio_cron_scheduler::JobScheduler;

use crate::street::until;
use crate::support::Server;

/// Once a day, so many seconds from now, in UTC.
fn once_in(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let at = (now + Duration::from_secs(seconds)).as_secs() % 86_400;
    format!("{} {} {} * * *", at % 60, at / 60 % 60, at / 3600)
}

#[tokio::test]
async fn one_instance_makes_the_report_and_those_whose_clocks_are_late_do_not() {
    let redis = Server::private().expect("a Redis");
    let reports = Arc::new(AtomicUsize::new(0));
    let mut fleet = Vec::new();
    for late in 0..3 {
        let locks = LockClient::connect(redis.url()).await.expect("a client");
        let reports = reports.clone();
        let report = move || {
            let reports = reports.clone();
            async move { _ = reports.fetch_add(1, Ordering::SeqCst) }
        };
        let scheduler = JobScheduler::new().await.expect("a scheduler");
        let job = nightly(&once_in(3 + late), locks.clone(), report).expect("a job");
        scheduler.add(job).await.expect("a schedule");
        scheduler.start().await.expect("a start");
        fleet.push((locks, scheduler));
    }
    let asked = |locks: &LockClient| locks.stats().acquired + locks.stats().busy;
    until("all have asked", async || fleet.iter().all(|(locks, _)| asked(locks) == 1)).await;
    assert_eq!(reports.load(Ordering::SeqCst), 1);
}
