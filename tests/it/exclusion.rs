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

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::prelude::*;

/// What a worker process is to do: `<mode> <url>`.
const ORDER: &str = "REDLATCH_TEST_WORKER";

const PROCESSES: usize = 4;
const TASKS: usize = 16;
/// Fewer in a build without optimization.
const SECTIONS: usize = if cfg!(debug_assertions) { 80 } else { 320 };
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

// testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance, testSubscriptionsPerConnection
#[test]
fn thousands_of_sections_in_several_processes_lose_no_update() {
    let _busy = machine::busy();
    assert_eq!(total_of("locked"), TOTAL);
}

#[test]
fn the_same_sections_without_the_lock_do_lose_updates() {
    let _busy = machine::busy();
    let total = total_of("unlocked");
    assert!(total < TOTAL, "a run without the lock came out right: the check checks nothing");
}

// testConcurrency_MultiInstance
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_all_get_the_lock_once() {
    let server = Arc::new(Server::start());
    let tasks = (0..100).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let client = connect(&server).await;
            let guard = within(MINUTE, "a turn", client.lock("once").lock()).await.unwrap();
            let count: u32 = server.ask::<Option<u32>>(&["GET", "sum"]).unwrap_or(0);
            server.ask::<()>(&["SET", "sum", &(count + 1).to_string()]);
            release(guard).await;
        })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        task.unwrap();
    }
    assert_eq!(server.ask::<u32>(&["GET", "sum"]), 100);
}
