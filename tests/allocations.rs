//! How often a lock and its unlock ask for memory, beside the same two scripts through the driver
//! with nothing around them. All that the process does is counted, the driver's own tasks too.
//!
//! `cargo test --release --test allocations -- --nocapture` says the numbers.

mod support;

use std::alloc::System;

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{Server, connect, hold, release};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 200;

/// Of one pair, how often memory was asked for.
async fn counted(tasks: usize, pairs: impl AsyncFn()) -> f64 {
    // What is made once and kept is there by then.
    pairs().await;
    let region = Region::new(COUNTED);
    pairs().await;
    let stats = region.change();
    (stats.allocations + stats.reallocations) as f64 / (PAIRS * tasks) as f64
}

async fn bare(mut redis: MultiplexedConnection, scripts: [String; 2], name: String) {
    for _ in 0..PAIRS {
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&scripts[0]).arg(1).arg(&name).arg("floor:1").arg(30_000).arg(1);
        let granted: redis::Value = acquire.query_async(&mut redis).await.unwrap();
        assert_eq!(granted, redis::Value::Nil);
        let mut release = redis::cmd("EVALSHA");
        release.arg(&scripts[1]).arg(1).arg(&name).arg("floor:1").arg(0).arg(1);
        release.arg(&name).arg("PUBLISH");
        let freed: redis::Value = release.query_async(&mut redis).await.unwrap();
        assert_eq!(freed, redis::Value::Int(2));
    }
}

// One test, because all threads of the process are counted.
#[tokio::test]
async fn a_pair_asks_for_memory_about_as_often_as_its_two_scripts_alone() {
    let server = Server::start();
    let client = connect(&server).await;
    let driver = redis::Client::open(server.url()).unwrap();
    let mut redis = driver.get_multiplexed_async_connection().await.unwrap();
    let mut scripts = [include_str!("../lua/acquire.lua"), include_str!("../lua/release.lua")]
        .map(redis::Script::new);
    for script in &mut scripts {
        script.load_async(&mut redis).await.unwrap();
    }
    let digests = scripts.map(|script| script.get_hash().to_owned());

    for (tasks, at_most) in [(1, 15.0), (64, 19.0)] {
        let names: Vec<_> = (0..tasks).map(|task| format!("lock:{task}")).collect();
        let floor = counted(tasks, async || {
            let all = names.iter().map(|name| bare(redis.clone(), digests.clone(), name.clone()));
            join_all(all.map(tokio::spawn)).await.into_iter().for_each(Result::unwrap);
        });
        let floor = floor.await;
        let locks: Vec<_> = names.iter().map(|name| client.lock(name)).collect();
        let ours = counted(tasks, async || {
            let all = locks.iter().map(|lock| async move {
                for _ in 0..PAIRS {
                    release(hold(lock).await).await;
                }
            });
            join_all(all).await;
        });
        let ours = ours.await;
        println!("{tasks} task(s): {ours:.1} a pair, {floor:.1} of the scripts alone");
        assert!(ours <= at_most, "{tasks} task(s): {ours:.1} a pair, {floor:.1} alone");
    }
}
