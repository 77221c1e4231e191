//! What the lock costs beside what it cannot do without: the same two scripts through the redis
//! crate with nothing around them.
//!
//! `cargo bench --bench floor` measures both side by side, in turns against one private server,
//! and prints ratios: pairs of lock and unlock at 1 and at 64 tasks, round trips and server
//! commands of a pair, and the hand-off from one process to a parked waiter in another.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redlatch::LockClient;

// Shared with the examples, which use more of it.
#[allow(dead_code)]
#[path = "../examples/support/mod.rs"]
mod support;

use support::{Result, Server};

const ACQUIRE: &str = include_str!("../lua/acquire.lua");
const RELEASE: &str = include_str!("../lua/release.lua");
/// Short and many, so that what else the machine does befalls both sides.
const ROUNDS: usize = 60;
const PAIRS: usize = 1_000;
const HAND_OFFS: usize = 400;
const PAUSE: Duration = Duration::from_millis(4);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    if let Ok(url) = std::env::var("REDLATCH_BENCH_WAITER") {
        return wait_and_tell(&url).await;
    }
    let server = Server::private()?;
    let raw = Floor::connect(server.url()).await?;
    let client = LockClient::connect(server.url()).await?;

    println!("{:<44} {:>12} {:>12} {:>7}", "", "floor", "redlatch", "ratio");
    for tasks in [1, 2, 8, 64] {
        let (mut floor, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let each = PAIRS.max(64 * tasks) / tasks;
        for round in 0..ROUNDS {
            // In turns, and each first in half of them.
            let mut sides = [true, false];
            sides.rotate_left(round % 2);
            for side in sides {
                if side {
                    floor.push(pairs_per_second(tasks, each, |name| raw.worker(name)).await?);
                } else {
                    ours.push(pairs_per_second(tasks, each, |name| Ours(client.lock(name))).await?);
                }
            }
            ratios.push(ours[round] / floor[round]);
        }
        let (floor, ours, ratio) = (median(floor), median(ours), median(ratios));
        let what = format!("pairs/s, {tasks} task(s), names of their own");
        println!("{what:<44} {floor:>12.0} {ours:>12.0} {ratio:>7.2}");
    }

    commands_of_a_pair(server.url(), &client).await?;
    hand_off(server.url(), &raw, &client).await
}

/// Something that locks and unlocks one name.
trait Pair: Send + 'static {
    fn pair(&mut self) -> impl Future<Output = Result<()>> + Send;
}

struct Ours(redlatch::Lock);

impl Pair for Ours {
    async fn pair(&mut self) -> Result<()> {
        Ok(self.0.lock().await?.unlock().await?)
    }
}

/// The two scripts, with nothing around them.
#[derive(Clone)]
struct Floor {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

struct Worker {
    floor: Floor,
    name: String,
}

impl Floor {
    async fn connect(url: &str) -> Result<Self> {
        use redis::IntoConnectionInfo;
        let info = url.into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(tcp))?;
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let acquire = redis::Script::new(ACQUIRE).load_async(&mut connection).await?;
        let release = redis::Script::new(RELEASE).load_async(&mut connection).await?;
        Ok(Self { connection, acquire, release })
    }

    fn worker(&self, name: String) -> Worker {
        Worker { floor: self.clone(), name }
    }
}

impl Pair for Worker {
    async fn pair(&mut self) -> Result<()> {
        let Floor { connection, acquire, release } = &mut self.floor;
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*acquire).arg(1).arg(&self.name).arg("floor:1").arg(30_000).arg(1);
        cmd.query_async::<redis::Value>(connection).await?;
        let channel = format!("redisson_lock__channel:{{{}}}", self.name);
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*release).arg(1).arg(&self.name).arg("floor:1").arg(0).arg(1).arg(channel);
        cmd.query_async::<redis::Value>(connection).await?;
        Ok(())
    }
}

async fn pairs_per_second<P: Pair>(
    tasks: usize,
    each: usize,
    worker: impl Fn(String) -> P,
) -> Result<f64> {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let mut worker = worker(format!("bench:{task}"));
            tokio::spawn(async move {
                for _ in 0..each {
                    worker.pair().await?;
                }
                support::Result::<()>::Ok(())
            })
        })
        .collect();
    let count = tasks.len() * each;
    for task in tasks {
        task.await??;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// Counts what the server was sent for lock and unlock, and how often a reply was waited for.
async fn commands_of_a_pair(url: &str, client: &LockClient) -> Result<()> {
    const MANY: usize = 1_000;
    let mut admin = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let lock = client.lock("bench:counted");
    lock.lock().await?.unlock().await?;
    redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut admin).await?;
    for _ in 0..MANY {
        lock.lock().await?.unlock().await?;
    }
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut admin).await?;
    let sent = stats.lines().filter_map(|line| {
        let (command, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls: usize = figures.split(',').next()?.parse().ok()?;
        // What the scripts do inside the server is not sent to it.
        let from_outside = matches!(command, "evalsha" | "eval" | "subscribe" | "script|load");
        from_outside.then(|| format!("{} {command}", calls as f64 / MANY as f64))
    });
    println!("commands sent for one lock and unlock: {}", sent.collect::<Vec<_>>().join(", "));
    println!("  each awaited before the next is sent: as many round trips");
    Ok(())
}

/// From the call of `unlock` here until a waiter in another process has the lock.
async fn hand_off(url: &str, raw: &Floor, client: &LockClient) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .env("REDLATCH_BENCH_WAITER", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut go = child.stdin.take().expect("stdin was asked for");
    let mut told = BufReader::new(child.stdout.take().expect("stdout was asked for")).lines();

    let lock = client.lock("bench:hand-off");
    let mut worker = raw.worker("bench:round-trip".into());
    let (mut hand_offs, mut round_trips) = (Vec::new(), Vec::new());
    for _ in 0..HAND_OFFS {
        // After the same pause as the hand-off: idle threads take longer to wake than busy ones.
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        worker.pair().await?;
        round_trips.push(begun.elapsed().as_secs_f64() * 1e6);

        let guard = lock.lock().await?;
        writeln!(go)?;
        // Long enough for the other to be refused, to subscribe, to be refused again and to park.
        tokio::time::sleep(PAUSE).await;
        let begun = now_micros();
        guard.unlock().await?;
        let line = tokio::task::block_in_place(|| told.next());
        let got: f64 = line.ok_or("the waiter ended")??.parse()?;
        hand_offs.push(got - begun);
    }
    drop(go);
    child.wait()?;
    let (floor, ours) = (median(round_trips), median(hand_offs));
    let what = "hand-off between processes, us (floor: 2 RTT)";
    println!("{what:<44} {floor:>12.0} {ours:>12.0} {:>7.2}", ours / floor);
    Ok(())
}

/// The other process: when told to, waits for the lock and says when it came.
async fn wait_and_tell(url: &str) -> Result<()> {
    let client = LockClient::connect(url).await?;
    let lock = client.lock("bench:hand-off");
    for go in std::io::stdin().lines() {
        go?;
        let guard = lock.lock().await?;
        let got = now_micros();
        guard.unlock().await?;
        println!("{got}");
    }
    Ok(())
}

/// Wall clock, because two processes have to agree on it.
fn now_micros() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e6
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
