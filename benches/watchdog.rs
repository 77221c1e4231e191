//! A hundred thousand locks of one client: how long a cycle of renewals takes, and what it does to
//! others who use the server meanwhile.
//!
//! `cargo bench --bench watchdog` takes them against one private server, watches a cycle, then
//! stops the server for a while, so that all are overdue at once, and watches again.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redlatch::{LockClient, LockGuard};

#[allow(dead_code, reason = "shared with the examples, which use more of it")]
#[path = "../examples/support/mod.rs"]
mod support;

use support::{Result, Server};

const LOCKS: usize = 100_000;
const TASKS: usize = 8;

/// What SLOWLOG keeps, in microseconds.
const LONG: &str = "5000";

/// Over before a renewal is given up.
const STANDSTILL: Duration = Duration::from_millis(2_800);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let server = Server::private()?;
    let builder = LockClient::builder().url(server.url());
    let client = builder.command_timeout(Duration::from_secs(10)).connect().await?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let other = redis::Client::open(server.url())?;
    let mut other = other.get_multiplexed_async_connection_with_config(&config).await?;
    let keep = ["CONFIG", "SET", "slowlog-log-slower-than", LONG];
    ask::<()>(&mut other, &keep).await?;

    let begun = Instant::now();
    let guards = take(&client).await?;
    println!("{LOCKS} locks taken in {:.2?}", begun.elapsed());
    // They were taken one after the other, and are renewed at that pace or faster.
    reset(&mut other).await?;
    let cycle = watch("a cycle", None, &mut other, &guards).await?;

    // The next begins nine seconds after the one before.
    tokio::time::sleep_until((cycle + Duration::from_millis(8_500)).into()).await;
    reset(&mut other).await?;
    let pause = STANDSTILL.as_millis().to_string();
    ask::<()>(&mut other, &["CLIENT", "PAUSE", &pause]).await?;
    let end = Instant::now() + STANDSTILL;
    watch("a cycle after a standstill", Some(end), &mut other, &guards).await?;
    drop(guards);
    client.close().await;
    Ok(())
}

async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &[&str],
) -> Result<T> {
    let mut cmd = redis::cmd(command[0]);
    cmd.arg(&command[1..]);
    Ok(cmd.query_async(connection).await?)
}

async fn take(client: &LockClient) -> Result<Vec<LockGuard>> {
    let tasks = (0..TASKS).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut guards = Vec::with_capacity(LOCKS / TASKS);
            for first in (0..LOCKS / TASKS).step_by(100) {
                let names = (first..first + 100).map(|n| format!("many:{task}:{n}"));
                let locks: Vec<_> = names.map(|name| client.lock(name)).collect();
                guards.extend(try_join_all(locks.iter().map(|lock| lock.lock())).await?);
            }
            Result::<_>::Ok(guards)
        })
    });
    let mut guards = Vec::with_capacity(LOCKS);
    for task in tasks.collect::<Vec<_>>() {
        guards.extend(task.await??);
    }
    Ok(guards)
}

/// Renewals so far, and the time that the server spent on them in microseconds.
async fn renewals(connection: &mut MultiplexedConnection) -> Result<(u64, u64)> {
    let info: String = ask(connection, &["INFO", "commandstats"]).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let figure = |name| {
        let figures = line?.split(',').find_map(|figure| figure.strip_prefix(name));
        figures?.parse().ok()
    };
    Ok((figure("calls=").unwrap_or(0), figure("usec=").unwrap_or(0)))
}

async fn reset(connection: &mut MultiplexedConnection) -> Result<()> {
    ask::<()>(connection, &["CONFIG", "RESETSTAT"]).await?;
    ask(connection, &["SLOWLOG", "RESET"]).await
}

/// Watches a cycle and says what it was like. Returns when it began: then, or with its first
/// renewal.
async fn watch(
    what: &str,
    begins: Option<Instant>,
    other: &mut MultiplexedConnection,
    guards: &[LockGuard],
) -> Result<Instant> {
    let mut calls = 0;
    let mut begun = begins.unwrap_or_else(Instant::now);
    let mut last = begun;
    let mut pings = Vec::new();
    while calls == 0 || last.elapsed() < Duration::from_secs(1) {
        let (now, _) = renewals(other).await?;
        if calls == 0 && begins.is_none() {
            begun = Instant::now();
        }
        if now > calls {
            (calls, last) = (now, Instant::now());
        }
        let asked = Instant::now();
        ask::<()>(other, &["PING"]).await?;
        if calls > 0 {
            pings.push(asked.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (_, micros) = renewals(other).await?;
    let renewed = |guard: &&LockGuard| guard.remaining() > Duration::from_secs(25);
    assert_eq!(guards.iter().filter(renewed).count(), LOCKS, "after {calls} commands");
    type Entry = (i64, i64, u64, redis::Value, redis::Value, redis::Value);
    let long: Vec<Entry> = ask(other, &["SLOWLOG", "GET", "-1"]).await?;
    let longest = long.iter().map(|entry| entry.2).max();
    pings.sort_unstable();
    println!("{what}: {:.2?} in {calls} commands", last - begun);
    println!("  {micros} us of the server, {} a command", micros / calls);
    println!("  {} commands took more than {LONG} us; the longest {longest:?}", long.len());
    println!(
        "  the PING of another client meanwhile: half within {:.2?}, all within {:.2?}",
        pings[pings.len() / 2],
        pings[pings.len() - 1]
    );
    Ok(begun)
}
