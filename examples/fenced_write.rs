//! Fencing: what a lock cannot prevent, and a database can.
//!
//! A holder that is paused between its last look at the lock and its write (by a garbage collector,
//! a page fault, a suspended virtual machine) writes after it has lost the lock, and nothing that a
//! lock does can keep it from that. The table can: it remembers the token of the last write, and
//! takes a write only with a higher one. That is the version column of optimistic locking, with a
//! number that the lock hands out.
//!
//! `cargo run --example fenced_write`

mod support;

use std::thread;
use std::time::Duration;

use redlatch::{FencedLock, FencedLockGuard, LockClient};
use rusqlite::{Connection, params};
use support::{Result, Server, unique};

const LEASE: Duration = Duration::from_secs(1);

/// What is in the account at first, and what each of two services withdraws.
const BALANCE: i64 = 100;
const SLOW: i64 = 10;
const QUICK: i64 = 30;

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::from_env_or_private()?;
    // Two services with a client each, and one database between them.
    let one = LockClient::connect(server.url()).await?;
    let other = LockClient::connect(server.url()).await?;
    let directory = tempfile::tempdir()?;
    let name = unique("account");

    for (title, update) in [("without the check", UNCHECKED), ("with the check", CHECKED)] {
        let bank = Bank::open(&directory.path().join(title), update)?;
        let (slow, quick) = (one.fenced_lock(&name), other.fenced_lock(&name));
        let balance = run(title, &bank, &slow, &quick).await?;
        let right = BALANCE - QUICK;
        let verdict = if balance == right { "sound" } else { "CORRUPT: a withdrawal is gone" };
        println!("{title}: the account has {balance}, {verdict}");
    }
    one.close().await;
    other.close().await;
    // The one key that a fenced lock leaves behind.
    let token = format!("redisson_lock_token:{{{name}}}");
    redis::cmd("DEL").arg(token).exec(&mut redis::Client::open(server.url())?.get_connection()?)?;
    Ok(())
}

async fn run(title: &str, bank: &Bank, slow: &FencedLock, quick: &FencedLock) -> Result<i64> {
    let paused = slow.lock_with_lease(LEASE).await?;
    let seen = bank.balance()?;
    assert!(!paused.is_lost(), "it looks, as it should");
    // And is stopped here, before it writes.
    thread::sleep(2 * LEASE);

    // Meanwhile the lease has ended, and another one has the lock.
    let guard = quick.lock().await?;
    let balance = bank.balance()?;
    let written = bank.write(balance - QUICK, &guard)?;
    println!("{title}: the new holder withdraws {QUICK}: {}", told(written));
    guard.unlock().await?;

    // The old one comes back, and goes on with what it saw.
    let written = bank.write(seen - SLOW, &paused)?;
    println!("{title}: the paused holder withdraws {SLOW}: {}", told(written));
    assert!(paused.is_lost(), "it would know now, if it looked");
    drop(paused);
    bank.balance()
}

fn told(written: bool) -> &'static str {
    if written { "written" } else { "refused by the table" }
}

struct Bank {
    database: Connection,
    update: &'static str,
}

const UNCHECKED: &str = "UPDATE account SET balance = ?1, token = ?2";

/// Whoever writes more than once in a hold says `token <= ?2`.
const CHECKED: &str = "UPDATE account SET balance = ?1, token = ?2 WHERE token < ?2";

impl Bank {
    fn open(path: &std::path::Path, update: &'static str) -> Result<Self> {
        let database = Connection::open(path)?;
        database.execute_batch("CREATE TABLE account (balance INTEGER, token INTEGER)")?;
        database.execute("INSERT INTO account VALUES (?1, 0)", [BALANCE])?;
        Ok(Self { database, update })
    }

    fn balance(&self) -> Result<i64> {
        Ok(self.database.query_row("SELECT balance FROM account", [], |row| row.get(0))?)
    }

    /// False if the table has seen a higher token.
    fn write(&self, balance: i64, guard: &FencedLockGuard) -> Result<bool> {
        // A token fits a signed column.
        let token = i64::try_from(guard.token().get())?;
        Ok(self.database.execute(self.update, params![balance, token])? == 1)
    }
}
