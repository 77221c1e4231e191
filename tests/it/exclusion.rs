//! At most one holder at a time, over tasks, clients and processes.
//!
//! Every section reads a number from Redis, yields, and writes back one more: exactly what goes
//! wrong when two are inside at once. That it would go wrong is a test as well: the same run
//! without the lock has to lose updates.
//!
//! The other processes are this test binary again, told by its environment to run one test,
//! [`worker_process`], which does nothing otherwise.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redlatch::{Lease, LockClient};

use crate::support::{SOON, Server, connect, hold, machine, ms, release, wait_until, within};

/// What a worker process is to do: `<mode> <url>`.
const ORDER: &str = "REDLATCH_TEST_WORKER";

const PROCESSES: usize = 4;
const TASKS: usize = 16;
const SECTIONS: usize = 320;
/// Each name is a lock, and guards the total of the same name.
const NAMES: [&str; 4] = ["one", "two", "three", "four"];
const TOTAL: usize = PROCESSES * TASKS * SECTIONS;

/// A copy of this process. Killed when dropped, so that a test that fails leaves none behind.
struct Worker(Child);

impl Worker {
    fn spawn(mode: &str, server: &Server) -> Self {
        let worker = Command::new(env::current_exe().expect("this binary"))
            .args(["--exact", "exclusion::worker_process", "--nocapture", "--quiet"])
            .env(ORDER, format!("{mode} {}", server.url()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(worker.expect("this binary again"))
    }

    fn ended_well(&mut self) -> bool {
        self.0.wait().expect("waiting for a worker").success()
    }

    fn kill(&mut self) {
        self.0.kill().expect("killing a worker");
        self.0.wait().expect("waiting for a killed worker");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn worker_process() {
    let Ok(order) = env::var(ORDER) else { return };
    let (mode, url) = order.split_once(' ').expect("a mode and a URL");
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match mode {
            "locked" => work(url, true).await,
            "unlocked" => work(url, false).await,
            "holder" => hold_for_ever(url).await,
            unknown => panic!("no such mode: {unknown}"),
        }
    });
}

async fn work(url: &str, locked: bool) {
    let client = LockClient::connect(url).await.expect("a server");
    let redis = redis::Client::open(url).expect("a URL");
    let connection = redis.get_multiplexed_async_connection().await.expect("a server");
    let tasks = (0..TASKS).map(|task| {
        let (client, mut connection) = (client.clone(), connection.clone());
        tokio::spawn(async move {
            for section in 0..SECTIONS {
                let name = NAMES[(task + section) % NAMES.len()];
                if locked {
                    let guard = client.lock(name).lock().await.expect("a turn");
                    add_one(&mut connection, name).await;
                    // Both ways to give back take part.
                    if section % 2 == 0 {
                        guard.unlock().await.expect("the lock was held throughout");
                    }
                } else {
                    add_one(&mut connection, name).await;
                }
            }
        })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        task.expect("a task that ends well");
    }
    client.close().await;
}

/// As careless as application code is.
async fn add_one(connection: &mut MultiplexedConnection, name: &str) {
    let key = format!("total:{name}");
    let total: Option<u64> = connection.get(&key).await.expect("GET");
    tokio::task::yield_now().await;
    let _: () = connection.set(&key, total.unwrap_or(0) + 1).await.expect("SET");
}

async fn hold_for_ever(url: &str) {
    let builder = LockClient::builder().url(url).watchdog_timeout(ms(900));
    let client = builder.connect().await.expect("a server");
    let _guard = client.lock("held").lock().await.expect("the lock");
    std::future::pending::<()>().await;
}

/// Runs the workers and adds up what they left.
fn total_of(mode: &str) -> usize {
    let server = Server::start();
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| Worker::spawn(mode, &server)).collect();
    for worker in &mut workers {
        assert!(worker.ended_well(), "a worker failed");
    }
    // Guards that were dropped have been flushed by `close`, so every lock is free.
    assert!(NAMES.iter().all(|name| !server.exists(name)));
    let totals = NAMES.map(|name| server.ask::<usize>(&["GET", &format!("total:{name}")]));
    totals.iter().sum()
}

#[test]
fn twenty_thousand_sections_in_several_processes_lose_no_update() {
    let _busy = machine::busy();
    const { assert!(TOTAL >= 20_000) };
    assert_eq!(total_of("locked"), TOTAL);
}

#[test]
fn the_same_sections_without_the_lock_do_lose_updates() {
    let _busy = machine::busy();
    let total = total_of("unlocked");
    assert!(total < TOTAL, "a run without the lock came out right: the check checks nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_holders_overlap_whichever_way_they_acquire_and_release() {
    let _busy = machine::busy();
    let server = Server::start();
    let stop = Instant::now() + Duration::from_secs(3);
    let mut tasks = Vec::new();
    for task in 0..12_u64 {
        let client = connect(&server).await;
        let redis = redis::Client::open(server.url()).unwrap();
        let mut connection = redis.get_multiplexed_async_connection().await.unwrap();
        tasks.push(tokio::spawn(async move {
            let lock = client.lock("one");
            let mut sections = 0_u64;
            while Instant::now() < stop {
                let guard = match (task + sections) % 4 {
                    0 => Some(lock.lock().await.unwrap()),
                    1 => Some(lock.lock_with_lease(SOON).await.unwrap()),
                    2 => lock.try_lock(ms(50), Lease::Watchdog).await.unwrap(),
                    _ => lock.try_lock_now().await.unwrap(),
                };
                let Some(guard) = guard else {
                    tokio::time::sleep(ms(1)).await;
                    continue;
                };
                let nested = sections.is_multiple_of(3).then_some(lock.lock());
                let nested = match nested {
                    Some(nested) => Some(nested.await.unwrap()),
                    None => None,
                };
                add_one(&mut connection, "one").await;
                sections += 1;
                if sections.is_multiple_of(2) {
                    release(guard).await;
                } else {
                    drop(guard);
                }
                drop(nested);
            }
            sections
        }));
    }
    let sections = within(6 * SOON, "an end", join_all(tasks)).await;
    let sections: u64 = sections.into_iter().map(Result::unwrap).sum();
    assert!(sections > 100, "only {sections} sections");
    assert_eq!(server.ask::<u64>(&["GET", "total:one"]), sections);
}

#[tokio::test]
async fn a_holder_that_is_killed_keeps_others_out_for_its_lease_and_no_longer() {
    let server = Server::start();
    let mut holder = Worker::spawn("holder", &server);
    wait_until("the holder", SOON, || server.exists("held")).await;
    let client = connect(&server).await;
    // Longer than its lease: it is renewed, in a process that does nothing else.
    let taken = client.lock("held").try_lock(ms(1_500), Lease::Watchdog).await.unwrap();
    assert!(taken.is_none(), "the holder lives");

    holder.kill();
    let start = Instant::now();
    release(hold(&client.lock("held")).await).await;
    let elapsed = start.elapsed();
    assert!(elapsed < ms(1_900), "let in {elapsed:?} after the end of a holder with 900 ms");
}
