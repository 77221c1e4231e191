//! A process receives `SIGTERM` while it holds locks, and the next process gets them at once.
//!
//! One process runs two jobs under locks: a short one, and one that has no end. Another process waits for
//! both locks. The first process gets `SIGTERM`, as from a deployment, and calls `client.shutdown`. That
//! waits for the short job, and then releases the lock of the other one, whose work stops before that. Without
//! it, the process would end with its guards, and the locks would stay for what is left of their leases: 30 s.
//!
//! ```text
//! cargo run --example shutdown
//! ```

#[path = "support/mod.rs"]
mod support;
#[allow(dead_code, reason = "this example needs a part of it")]
#[path = "support/workers.rs"]
mod workers;

use std::time::{Duration, Instant};

use redlatch::{LockClient, LockGuard};
use support::{Result, Server, unique};
use tokio::time::{sleep, timeout};
use workers::{Workers, orders, say};

/// How long the short job goes on after the order to stop.
const SHORT: Duration = Duration::from_millis(300);

/// How long the process waits for its jobs. Orchestrators kill it some time later: Kubernetes after 30 s, if not told
/// otherwise.
const PATIENCE: Duration = Duration::from_secs(1);

/// Far longer than the example takes.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["holds", short, long] => return holds(short, long).await,
        ["waits", short, long] => return waits(short, long).await,
        _ => {}
    }
    let server = Server::from_env_or_private()?;
    timeout(LIMIT, run(server.url(), &unique("short"), &unique("long"))).await?
}

async fn run(url: &str, short: &str, long: &str) -> Result<()> {
    let start = |role: &str| {
        let arguments = [role, short, long].map(str::to_owned);
        Workers::start(url, &[arguments.to_vec()])
    };
    let mut first = start("holds")?;
    let (_, pid) = first.next_line().await.ok_or("it has gone")?;
    let mut second = start("waits")?;
    second.next_line().await.ok_or("it has gone")?;

    let begun = Instant::now();
    stop(&mut first, &pid).await?;
    while let Some((_, line)) = first.next_line().await {
        println!("the first process: {line}");
    }
    while let Some((_, line)) = second.next_line().await {
        println!("the second process: {line}");
    }
    println!(
        "it had both locks {} ms after the first got the order to stop",
        begun.elapsed().as_millis()
    );
    first.close().await;
    second.close().await;
    Ok(())
}

/// The process that receives the order to stop.
async fn holds(short: &str, long: &str) -> Result<()> {
    let client = LockClient::connect(std::env::var("REDIS_URL")?).await?;
    let (short, long) = (client.lock(short).lock().await?, client.lock(long).lock().await?);
    let endless = tokio::spawn(endless_job(long));
    let stopped = order_to_stop()?;
    say(&std::process::id().to_string())?;

    stopped.await;
    tokio::spawn(async move {
        sleep(SHORT).await;
        drop(short);
    });
    let left = client.shutdown(PATIENCE).await;
    endless.await??;
    say(&format!("locks released under their holders: {}", left.released.len()))?;
    say(&format!("locks that Redis may keep: {}", left.unreleased.len()))
}

async fn endless_job(guard: LockGuard) -> Result<()> {
    let error = guard.run_until_lost(std::future::pending::<()>()).await.expect_err("no end");
    say(&format!("the endless job stops: {}", error.loss().ok_or("not a loss")?))
}

/// The process that comes after it.
async fn waits(short: &str, long: &str) -> Result<()> {
    let client = LockClient::connect(std::env::var("REDIS_URL")?).await?;
    say("ready")?;
    for (what, name) in [("short", short), ("endless", long)] {
        let guard = client.lock(name).lock().await?;
        say(&format!("has the lock of the {what} job"))?;
        guard.unlock().await?;
    }
    assert!(client.shutdown(PATIENCE).await.is_clean(), "all is given back");
    Ok(())
}

#[cfg(unix)]
async fn stop(_: &mut Workers, pid: &str) -> Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = Pid::from_raw(pid.parse()?).ok_or("no process")?;
    Ok(kill_process(pid, Signal::TERM)?)
}

#[cfg(not(unix))]
async fn stop(first: &mut Workers, _: &str) -> Result<()> {
    first.tell(0, "stop").await
}

/// Completes with a signal, with the order to stop of the process that started this one, or when that one has ended.
fn order_to_stop() -> Result<impl Future<Output = ()>> {
    let mut orders = orders();
    let terminated = terminated()?;
    Ok(async move {
        tokio::select! {
            _ = orders.recv() => {}
            () = terminated => {}
        }
    })
}

/// From this call on the signal ends the process no more.
#[cfg(unix)]
fn terminated() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move { _ = terminate.recv().await })
}

#[cfg(not(unix))]
fn terminated() -> Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
