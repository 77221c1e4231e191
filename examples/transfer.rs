//! Transfers between accounts, in several processes: both accounts at once, with a multi lock.
//!
//! A transfer reads two balances, and then writes both. Where two of them overlap without a lock, one writes over what
//! the other has written, and money appears or goes. With the locks of both accounts a transfer is alone with them.
//! One process may pay from A to B while another one pays from B to A: `multi_lock` has both locks or none, so neither
//! waits for the other with one of them in its hand.
//!
//! ```text
//! cargo run --example transfer
//!
//!                  transfers  wrong accounts   money  seconds
//! without a lock         300               4      50     0.10
//! with multi_lock        300               0     400     0.51
//! There was 400 in all accounts together.
//! ```

#[path = "support/mod.rs"]
mod support;
#[allow(dead_code, reason = "this example needs a part of it")]
#[path = "support/workers.rs"]
mod workers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use redis::AsyncTypedCommands;
use redis::aio::MultiplexedConnection;
use redlatch::LockClient;
use support::{Result, Server, unique};
use tokio::time::timeout;
use workers::{Workers, say};

const PROCESSES: usize = 3;
/// Of each process, and how many of them are under way at a time.
const TRANSFERS: usize = 100;
const AT_ONCE: usize = 8;

const ACCOUNTS: usize = 4;
const BALANCE: i64 = 100;

/// Far longer than the example takes: two transfers that wait for each other fail it.
const PATIENCE: Duration = Duration::from_secs(60);

const WAYS: [&str; 2] = ["without a lock", "with multi_lock"];

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [bank, way] = &arguments[..] {
        return work(bank, way == WAYS[1]).await;
    }
    let server = Server::from_env_or_private()?;
    println!("{:16}{:>10}{:>16}{:>8}{:>9}", "", "transfers", "wrong accounts", "money", "seconds");
    for way in WAYS {
        let bank = unique("bank");
        let result = timeout(PATIENCE, day(server.url(), &bank, way)).await;
        let mut redis = connection(server.url()).await?;
        redis.del(accounts(&bank)).await?;
        let (wrong, money) = result??;
        if way == WAYS[1] {
            assert_eq!((wrong, money), (0, BALANCE * ACCOUNTS as i64), "a lock has failed");
        }
    }
    println!("There was {} in all accounts together.", BALANCE * ACCOUNTS as i64);
    Ok(())
}

async fn connection(url: &str) -> Result<MultiplexedConnection> {
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection().await?)
}

fn accounts(bank: &str) -> Vec<String> {
    (0..ACCOUNTS).map(|number| format!("{bank}:{number}")).collect()
}

/// A day of the bank, with a row of the table at its end. Returns how many accounts have not what was paid into and out
/// of them, and the money in all of them.
async fn day(url: &str, bank: &str, way: &str) -> Result<(usize, i64)> {
    let (mut redis, accounts) = (connection(url).await?, accounts(bank));
    for account in &accounts {
        redis.set(account, BALANCE).await?;
    }
    let begun = Instant::now();
    let mut workers = Workers::start(url, &vec![vec![bank.to_owned(), way.to_owned()]; PROCESSES])?;
    // What each of them says that it has paid.
    let mut expected: BTreeMap<_, _> = accounts.iter().map(|name| (&**name, BALANCE)).collect();
    for _ in 0..PROCESSES * TRANSFERS {
        let (_, line) = workers.next_line().await.ok_or("a process has gone")?;
        let [payer, payee, amount] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("not a transfer: {line}").into());
        };
        let amount: i64 = amount.parse()?;
        for (account, change) in [(payer, -amount), (payee, amount)] {
            *expected.get_mut(account).ok_or("no such account")? += change;
        }
    }
    workers.close().await;
    let seconds = begun.elapsed().as_secs_f64();
    let balances: Vec<i64> = redis::cmd("MGET").arg(&accounts).query_async(&mut redis).await?;
    let money = balances.iter().sum();
    let wrong = accounts.iter().zip(balances).filter(|(name, has)| expected[&***name] != *has);
    let (wrong, transfers) = (wrong.count(), PROCESSES * TRANSFERS);
    println!("{way:16}{transfers:>10}{wrong:>16}{money:>8}{seconds:>9.2}");
    Ok((wrong, money))
}

/// One of the processes. It says what it has paid: nothing, if the payer had not enough.
async fn work(bank: &str, with_lock: bool) -> Result<()> {
    let url = std::env::var("REDIS_URL")?;
    let (redis, client) = (connection(&url).await?, LockClient::connect(url).await?);
    let accounts = accounts(bank);
    let transfer = async |_| {
        let payer = fastrand::usize(0..ACCOUNTS);
        let payee = (payer + fastrand::usize(1..ACCOUNTS)) % ACCOUNTS;
        let [payer, payee] = [payer, payee].map(|number| &*accounts[number]);
        let amount = fastrand::i64(1..=BALANCE);
        let paid = match with_lock {
            true => pay_alone(&client, &redis, [payer, payee], amount).await?,
            false => pay(&redis, [payer, payee], amount).await?,
        };
        say(&format!("{payer} {payee} {paid}"))
    };
    stream::iter(0..TRANSFERS).map(transfer).buffer_unordered(AT_ONCE).try_collect().await
}

/// The loss of either lock stops the work.
async fn pay_alone(
    client: &LockClient,
    redis: &MultiplexedConnection,
    accounts: [&str; 2],
    amount: i64,
) -> Result<i64> {
    let both = client.multi_lock(accounts.map(|account| format!("{account}:lock")));
    let guard = both.lock().await?;
    let paid = guard.run_until_lost(pay(redis, accounts, amount)).await??;
    guard.unlock().await?;
    Ok(paid)
}

/// Reads both accounts, and writes both of them in one step. Only the lock keeps the others away between the two.
async fn pay(redis: &MultiplexedConnection, accounts: [&str; 2], amount: i64) -> Result<i64> {
    let mut redis = redis.clone();
    let [has, gets]: [i64; 2] = redis::cmd("MGET").arg(&accounts).query_async(&mut redis).await?;
    if has < amount {
        return Ok(0);
    }
    let [payer, payee] = accounts;
    redis.mset(&[(payer, has - amount), (payee, gets + amount)]).await?;
    Ok(amount)
}
