//! How fast the simulated Redis is, beside a real one in the same run.
//!
//! ```sh
//! cargo test --release --features test-util --test world -- --ignored --nocapture figures
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::prelude::*;
use crate::support::Server;

const FOR: Duration = Duration::from_secs(2);

/// How often 64 tasks of a client have one lock in that time.
async fn turns(client: LockClient) -> u64 {
    let (turns, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (lock, turns) = (client.lock("one"), turns.clone());
            tokio::spawn(async move {
                while begun.elapsed() < FOR {
                    lock.lock().await.expect("a guard").unlock().await.expect("a release");
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    turns.load(Ordering::Relaxed)
}

/// How often a task has a lock of its own in that time.
async fn pairs(client: LockClient) -> u64 {
    let (lock, begun, mut pairs) = (client.lock("own"), Instant::now(), 0);
    while begun.elapsed() < FOR {
        lock.lock().await.expect("a guard").unlock().await.expect("a release");
        pairs += 1;
    }
    pairs
}

#[tokio::test]
#[ignore = "it measures"]
async fn it_is_faster_than_a_real_one() {
    let server = Server::start();
    for _ in 0..3 {
        let real = LockClient::connect(server.url()).await.expect("a client");
        let (real_turns, real_pairs) = (turns(real.clone()).await, pairs(real).await);
        let (turns, pairs) =
            (turns(Redis::new().client()).await, pairs(Redis::new().client()).await);
        println!(
            "64 tasks: {:.2} ({turns} beside {real_turns}), one task: {:.2} ({pairs} beside {real_pairs})",
            turns as f64 / real_turns as f64,
            pairs as f64 / real_pairs as f64
        );
    }
}
