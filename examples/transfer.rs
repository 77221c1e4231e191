//! Transfers between accounts: two locks, always in the same order.
//!
//! A transfer reads and writes two accounts, so it needs the locks of both. If one transfer locked
//! its payer first and the transfer in the other direction did so too, each would wait for the other
//! for ever. Everybody who sorts the names first is safe from that.
//!
//! `cargo run --example transfer`

mod support;

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use redis::AsyncTypedCommands;
use redis::aio::MultiplexedConnection;
use redlatch::LockClient;
use support::{Result, Server, unique};
use tokio::time::timeout;

const ACCOUNTS: usize = 4;
const TRANSFERS: usize = 200;
const BALANCE: i64 = 100;

/// Transfers that are under way at the same time.
const AT_ONCE: usize = 16;

/// Far longer than the example takes: two transfers that wait for each other fail it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether there was enough in the payer's account.
async fn transfer(
    client: &LockClient,
    redis: &MultiplexedConnection,
    [payer, payee]: [&str; 2],
    amount: i64,
) -> Result<bool> {
    let mut names = [payer, payee].map(|account| format!("{account}:lock"));
    names.sort_unstable();
    let [first, second] = names.map(|name| client.lock(name));
    // The loss of either lock stops the work. Each error is one of a lock until here, and the last
    // one is that of the transfer.
    first
        .with(async |_| second.with(async |_| pay(redis, payer, payee, amount).await).await)
        .await??
}

/// Reads both accounts, and writes both of them in one step. Only the lock keeps the others away
/// between the two.
async fn pay(redis: &MultiplexedConnection, payer: &str, payee: &str, amount: i64) -> Result<bool> {
    let mut redis = redis.clone();
    let balances: [i64; 2] =
        redis::cmd("MGET").arg(&[payer, payee]).query_async(&mut redis).await?;
    let [has, gets] = [balances[0] - amount, balances[1] + amount];
    if has < 0 {
        return Ok(false);
    }
    redis.mset(&[(payer, has), (payee, gets)]).await?;
    Ok(true)
}

async fn all_transfers(url: &str, accounts: &[String]) -> Result<usize> {
    // Two services with a client each.
    let clients = [LockClient::connect(url).await?, LockClient::connect(url).await?];
    let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let paid = stream::iter(0..TRANSFERS)
        .map(|number| {
            let payer = fastrand::usize(0..ACCOUNTS);
            let payee = (payer + fastrand::usize(1..ACCOUNTS)) % ACCOUNTS;
            let accounts = [payer, payee].map(|account| accounts[account].as_str());
            transfer(&clients[number % 2], &redis, accounts, fastrand::i64(1..=BALANCE))
        })
        .buffer_unordered(AT_ONCE)
        .try_filter(|paid| std::future::ready(*paid))
        .try_collect::<Vec<_>>()
        .await?;
    for client in clients {
        client.close().await;
    }
    Ok(paid.len())
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::from_env_or_private()?;
    let mut redis = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let bank = unique("bank");
    let accounts: Vec<_> = (0..ACCOUNTS).map(|number| format!("{bank}:{number}")).collect();
    for account in &accounts {
        redis.set(account, BALANCE).await?;
    }
    let paid = timeout(PATIENCE, all_transfers(server.url(), &accounts)).await;
    let balances: Vec<i64> = redis::cmd("MGET").arg(&accounts).query_async(&mut redis).await?;
    redis.del(&accounts).await?;

    let paid = paid??;
    let (total, least) = (balances.iter().sum::<i64>(), balances.iter().min());
    assert_eq!(total, BALANCE * ACCOUNTS as i64, "no money may appear or go: {balances:?}");
    assert!(least >= Some(&0), "no account may be overdrawn: {balances:?}");
    println!("{TRANSFERS} transfers, {} refused for lack of money", TRANSFERS - paid);
    println!("the accounts have {total} together, as before");
    Ok(())
}
