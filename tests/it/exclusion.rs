//! At most one holder at a time, over tasks, clients and processes.
//!
//! Every section reads a number from Redis, yields, and writes back one more: exactly what goes
//! wrong when two are inside at once. That it would go wrong is a test as well: the same run
//! without the lock has to lose updates.

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::prelude::*;

const PROCESSES: usize = 4;
const TASKS: usize = 16;
/// Fewer in a build without optimization.
const SECTIONS: usize = if cfg!(debug_assertions) { 80 } else { 320 };
/// Each name is a lock, and guards the total of the same name.
const NAMES: [&str; 4] = ["one", "two", "three", "four"];
const TOTAL: usize = PROCESSES * TASKS * SECTIONS;

/// Another process is this test binary again, which runs this alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_process() {
    let Some(role) = child::role() else { return };
    let (mode, url) = role.split_once(' ').expect("a mode and a URL");
    let locked = mode == "locked";
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
    child::say("done");
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
    let role = format!("{mode} {}", server.url());
    let workers = [(); PROCESSES].map(|()| Child::start("exclusion::worker_process", &role));
    for mut worker in workers {
        block_until("a worker's end", 5 * MINUTE, || worker.heard().is_some());
        assert!(worker.ended().success(), "a worker failed");
    }
    // Guards that were dropped have been flushed by `close`, so every lock is free.
    assert!(NAMES.iter().all(|name| !server.exists(name)));
    let totals = NAMES.map(|name| server.ask::<usize>(&["GET", &format!("total:{name}")]));
    totals.iter().sum()
}

// testConcurrency_SingleInstance, testConcurrency_MultiInstance, testConcurrencyLoop_MultiInstance,
// testSubscriptionsPerConnection
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
