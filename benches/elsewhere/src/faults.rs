//! What is measured when a holder is killed, and when it is stopped for too long. All tools at
//! once: what is measured is waiting.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::LEASE;
use crate::board::{Board, Figure, LateWrite};
use crate::crew::{Contestant, PATIENCE, Worker};
use crate::servers::{Servers, Sites};
use crate::support::{Result, unique};

/// For how long a holder is stopped.
const PAUSE: Duration = LEASE.saturating_add(Duration::from_secs(3));

/// How long a holder has the lock before it is killed, in one round after the other: a lease that
/// is renewed has another rest at each.
const HELD: [f64; 3] = [1.0, 2.5, 4.0];

/// What was there, what the next holder makes of it, and what the late one writes.
const FIRST: i64 = 100;
const NEXT: i64 = 50;
const LATE: i64 = 99;

pub(crate) async fn measure(
    servers: &Servers,
    tools: &[Contestant],
    crashes: usize,
    board: &mut Board,
) {
    for round in 0..crashes {
        eprintln!("crash {} of {crashes}", round + 1);
        let held = Duration::from_secs_f64(HELD[round % HELD.len()]);
        let holders = tools.iter().filter(|tool| tool.hands_off());
        let all = at_once(holders, servers.sites, move |tool, sites| async move {
            crash(&tool, &sites, held).await
        });
        for (name, result) in all.await {
            match result {
                Ok(seconds) => board.put(Figure::Crash, name, round, seconds),
                Err(error) => board.failures.push(format!("crash, {name}: {error}")),
            }
        }
    }
    eprintln!("a pause");
    let holders = tools.iter().filter(|tool| tool.is_paused());
    let all =
        at_once(holders, servers.sites, |tool, sites| async move { pause(&tool, &sites).await });
    for (name, result) in all.await {
        match result {
            Ok((seconds, late)) => {
                board.put(Figure::Pause, name, 0, seconds);
                board.late.insert(name, late);
            }
            Err(error) => board.failures.push(format!("pause, {name}: {error}")),
        }
    }
}

async fn at_once<'a, T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    tools: impl Iterator<Item = &'a Contestant>,
    sites: Sites,
    measured: impl Fn(Contestant, Sites) -> F,
) -> Vec<(&'static str, Result<T>)> {
    let mut all = JoinSet::new();
    for tool in tools {
        let (name, measured) = (tool.name, measured(tool.clone(), sites));
        all.spawn(async move { (name, measured.await) });
    }
    all.join_all().await
}

/// A holder, and somebody who wants the same.
async fn pair(tool: &Contestant, sites: &Sites) -> Result<(Worker, Worker, String)> {
    let mut holder = Worker::start(tool, sites).await?;
    let mut waiter = Worker::start(tool, sites).await?;
    let name = unique("fault");
    holder.ask(&format!("stock {name} {FIRST}"), "stocked").await?;
    holder.ask(&format!("sit {name}"), "seated").await?;
    waiter.ask(&format!("sit {name}"), "seated").await?;
    Ok((holder, waiter, name))
}

async fn crash(tool: &Contestant, sites: &Sites, held: Duration) -> Result<f64> {
    let (mut holder, mut waiter, _) = pair(tool, sites).await?;
    holder.ask("take", "got").await?;
    sleep(held / 2).await;
    waiter.tell("take").await?;
    sleep(held / 2).await;
    let killed = now_micros();
    holder.kill().await?;
    let got: u64 = waiter.answer("got", PATIENCE).await?.parse()?;
    Ok(got.saturating_sub(killed) as f64 / 1e6)
}

/// When the next one has the lock, and what becomes of what the stopped one writes.
async fn pause(tool: &Contestant, sites: &Sites) -> Result<(f64, LateWrite)> {
    let (mut holder, mut next, name) = pair(tool, sites).await?;
    holder.ask("take", "got").await?;
    holder.ask("read", "pieces").await?;
    let (stopped, over) = (now_micros(), Instant::now() + PAUSE);
    holder.signal("STOP").await?;
    // It has checked, and writes as soon as it can.
    holder.tell(&format!("write {LATE}")).await?;

    let got: u64 = next.ask("take", "got").await?.parse()?;
    next.ask("read", "pieces").await?;
    next.ask(&format!("write {NEXT}"), "written").await?;
    next.ask("free", "freed").await?;
    sleep_until(over.into()).await;
    holder.signal("CONT").await?;
    let answer = holder.answer("", PATIENCE).await?;

    next.ask(&format!("sit {name}"), "seated").await?;
    next.ask("take", "got").await?;
    let pieces: i64 = next.ask("read", "pieces").await?.parse()?;
    let late = LateWrite { stands: pieces == LATE, answer };
    Ok((got.saturating_sub(stopped) as f64 / 1e6, late))
}

fn now_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}
