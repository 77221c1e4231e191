//! One job, several instances: whoever gets the lock runs it, the others leave at once.
//!
//! Every instance of a service wakes up at the same time and wants to run the same job. Nobody
//! should queue for it: when the lock becomes free, the job of this round is done. `try_lock_now`
//! asks once and says `None` to all but one.
//!
//! `cargo run --example scheduled_job`

mod support;

use std::sync::Arc;
use std::time::Duration;

use redlatch::LockClient;
use support::{Result, Server, unique};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const INSTANCES: usize = 5;
const ROUNDS: usize = 3;

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
        all.wait().await; // the hour strikes for everybody
        let guard = lock.try_lock_now().await?;
        if guard.is_some() {
            println!("round {round}: instance {number} runs the job");
            ran.push(round);
        }
        // The job takes until everybody else has left; if they queued, this would never end.
        all.wait().await;
        if let Some(guard) = guard {
            guard.unlock().await?;
        }
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
