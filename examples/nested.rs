//! Re-entrancy: functions that lock for themselves and also call each other.
//!
//! Each function below is safe on its own because it takes the lock that it needs. `transfer` needs
//! both of the others under one lock; with a lock that is not re-entrant it would wait for itself
//! for ever. Here the inner calls are nested holds: the count goes up to 2, and the lock is free
//! when the last hold is given back.
//!
//! What re-enters is the *handle*: the functions share one `&Lock`. A clone of a handle is another
//! owner, and has to wait like everybody else.
//!
//! `cargo run --example nested`

mod support;

use redlatch::{Lock, LockClient};
use support::{Result, Server, unique};

async fn withdraw(lock: &Lock, account: &mut i64, amount: i64) -> Result<()> {
    let hold = lock.lock().await?;
    println!("withdraw {amount}: hold {}", lock.hold_count().await?);
    *account -= amount;
    Ok(hold.unlock().await?)
}

async fn deposit(lock: &Lock, account: &mut i64, amount: i64) -> Result<()> {
    let hold = lock.lock().await?;
    println!("deposit {amount}: hold {}", lock.hold_count().await?);
    *account += amount;
    Ok(hold.unlock().await?)
}

async fn transfer(lock: &Lock, from: &mut i64, to: &mut i64, amount: i64) -> Result<()> {
    let hold = lock.lock().await?;
    withdraw(lock, from, amount).await?;
    // The inner hold is back, and the outer one still keeps everybody else out.
    assert_eq!(lock.hold_count().await?, 1);
    assert!(lock.clone().try_lock_now().await?.is_none(), "a clone is another handle");
    deposit(lock, to, amount).await?;
    Ok(hold.unlock().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::from_env_or_private()?;
    let client = LockClient::connect(server.url()).await?;
    let lock = client.lock(unique("accounts"));
    let (mut savings, mut current) = (100, 0);

    withdraw(&lock, &mut savings, 10).await?; // alone: a first hold
    transfer(&lock, &mut savings, &mut current, 30).await?; // nested: a second hold
    assert_eq!((savings, current), (60, 30));
    assert!(!lock.is_locked().await?, "the last hold given back frees the lock");
    println!("savings {savings}, current {current}, and the lock is free");
    client.close().await;
    Ok(())
}
