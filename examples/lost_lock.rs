//! Losing the lock: somebody removes the key under its holder, and the work stops.
//!
//! No lock with a lease can promise that it is never lost: an operator deletes the key, Redis fails
//! over to a replica that has not seen it, the machine sleeps for longer than the lease. What a
//! holder can do is to stop when it happens. `run_until_lost` runs the work and drops it at that
//! moment. The watchdog notices at its next renewal, a third of the watchdog timeout away at most.
//!
//! `cargo run --example lost_lock`

mod support;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redlatch::{ErrorKind, LockClient};
use support::{Result, Server, unique};
use tokio::time::sleep;

/// Far less than the default of 30 s, so that this is over soon.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::from_env_or_private()?;
    let builder = LockClient::builder().watchdog_timeout(WATCHDOG_TIMEOUT);
    let client = builder.url(server.url()).connect().await?;
    let lock = client.lock(unique("report"));
    let guard = lock.lock().await?;

    let pages = AtomicU32::new(0);
    let print_for_ever = async {
        loop {
            sleep(Duration::from_millis(20)).await;
            pages.fetch_add(1, Relaxed);
        }
    };
    let mut redis = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let sabotage = async {
        sleep(Duration::from_millis(200)).await;
        let removed: u32 = redis.del(lock.name()).await?;
        println!("removed {removed} key after {} pages", pages.load(Relaxed));
        Ok::<_, redis::RedisError>(Instant::now())
    };
    let (work, removed) = tokio::join!(guard.run_until_lost(print_for_ever), sabotage);
    let (late, printed) = (removed?.elapsed(), pages.load(Relaxed));
    let Err(lost): Result<(), redlatch::Error> = work else { unreachable!("it prints for ever") };
    assert_eq!(lost.kind(), ErrorKind::Lost);
    println!("work stopped {} ms later, at page {printed}", late.as_millis());
    assert!(late < WATCHDOG_TIMEOUT, "a renewal must have noticed before the lease was over");

    let unlock = guard.unlock().await.expect_err("there is nothing left to give back");
    assert_eq!(unlock.kind(), ErrorKind::Lost);
    println!("unlock says: {unlock}");
    client.close().await;
    Ok(())
}
