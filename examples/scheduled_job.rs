//! One job, several instances: one of them runs it, the others leave at once.
//!
//! Every instance of a service wakes up for the same job, a few milliseconds apart: clocks and
//! schedulers differ. `try_lock_now` asks once and says `None` to all but one. But the job is done
//! before the last instance asks, so the lock has to stay for a while: `hold_at_least`. Choose it
//! longer than the instances are apart, and shorter than the time between two runs.
//!
//! `cargo run --example scheduled_job`

mod support;

use std::sync::Arc;
use std::time::Duration;

use redlatch::LockClient;
use support::{Result, Server, unique};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

const INSTANCES: usize = 5;
const ROUNDS: usize = 3;

/// How far apart the instances may be at most.
const APART: Duration = Duration::from_millis(50);

/// Far longer than that, for a machine that is busy.
const AT_LEAST: Duration = Duration::from_millis(500);

/// One instance, with a client of its own as in a process of its own. Says in which rounds it ran.
async fn instance(
    number: usize,
    url: String,
    job: String,
    all: Arc<Barrier>,
) -> Result<Vec<usize>> {
    let client = LockClient::connect(url).await?;
    let lock = client.lock(job);
    let mut ran = Vec::new();
    for round in 1..=ROUNDS {
        all.wait().await; // the hour strikes
        let late = u32::try_from((number + round) % INSTANCES)?;
        sleep(APART * late / INSTANCES as u32).await; // not for all at once
        if let Some(guard) = lock.try_lock_now().await? {
            guard.hold_at_least(AT_LEAST);
            println!("round {round}: instance {number} runs the job");
            sleep(Duration::from_millis(5)).await;
            ran.push(round);
            guard.unlock().await?;
        }
        sleep(AT_LEAST).await; // until the next round
    }
    client.close().await;
    Ok(ran)
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::from_env_or_private()?;
    let (job, all) = (unique("nightly-report"), Arc::new(Barrier::new(INSTANCES)));
    let mut instances = JoinSet::new();
    for number in 1..=INSTANCES {
        instances.spawn(instance(number, server.url().to_owned(), job.clone(), all.clone()));
    }
    let everybody = tokio::time::timeout(Duration::from_secs(20), instances.join_all()).await?;
    let mut rounds = everybody.into_iter().collect::<Result<Vec<_>>>()?.concat();
    rounds.sort_unstable();
    assert!(rounds.into_iter().eq(1..=ROUNDS), "every round must be run exactly once");
    println!("{ROUNDS} rounds, {INSTANCES} instances, one run each round");
    Ok(())
}
