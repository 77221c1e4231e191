//! How much memory the library asks for. How often a lock and its unlock do, beside the same two
//! scripts through the driver with nothing around them; and how much a held lock keeps, and a parked
//! waiter.
//!
//! All that the process does is counted, the driver's own tasks too. So this is a program of its own,
//! with an allocator that counts, and each test has a process of its own.
//!
//! `cargo test --release --test allocations -- --nocapture` says the numbers.

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
mod support;

use std::alloc::System;
use std::time::Instant;

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redlatch::{Lock, LockGuard};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{
    MINUTE, SOON, Server, child, client_with, connect, hold, ms, release, runtime, scripts, turns,
    wait_until, within,
};
use tokio::task::JoinHandle;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 200;

/// In a process of its own, on one thread.
fn alone<F: Future<Output = ()>>(name: &str, test: fn() -> F) {
    child::alone(name, || runtime().block_on(test()));
}

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
        release.arg(&scripts[1]).arg(1).arg(&name).arg("floor:1");
        release.arg(&name).arg("PUBLISH");
        let freed: redis::Value = release.query_async(&mut redis).await.unwrap();
        assert_eq!(freed, redis::Value::Int(0));
    }
}

#[test]
fn a_pair_asks_for_memory_about_as_often_as_its_two_scripts_alone() {
    alone("a_pair_asks_for_memory_about_as_often_as_its_two_scripts_alone", pairs_ask_for_memory);
}

async fn pairs_ask_for_memory() {
    let server = Server::start();
    let client = connect(&server).await;
    let driver = redis::Client::open(server.url()).unwrap();
    let mut redis = driver.get_multiplexed_async_connection().await.unwrap();
    let mut scripts =
        [scripts::acquire(), scripts::release()].map(|text| redis::Script::new(&text));
    for script in &mut scripts {
        script.load_async(&mut redis).await.unwrap();
    }
    let digests = scripts.map(|script| script.get_hash().to_owned());

    for (tasks, at_most) in [(1, 16.0), (64, 19.0)] {
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

/// What the process has asked of its allocator and not given back; what that one needs beside it is
/// not counted.
fn in_use() -> usize {
    let stats = COUNTED.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Handle and guard, and all that the client keeps for them: the possession with its account, the term,
/// the entries in its registry and in the watchdog's schedule. The names have ten characters at most.
#[test]
fn a_held_lock_costs_at_most_592_bytes() {
    alone("a_held_lock_costs_at_most_592_bytes", held_locks_cost);
}

async fn held_locks_cost() {
    const MANY: usize = 20_000;
    const MOST: usize = 592;
    let server = Server::start();
    let client = client_with(server.url(), ms(9_000)).await;
    // What there is of it once is there before.
    release(hold(&client.lock("first")).await).await;
    let before = in_use();
    let mut held: Vec<(Lock, LockGuard)> = Vec::with_capacity(MANY);
    while held.len() < MANY {
        let locks: Vec<_> =
            (held.len()..held.len() + 100).map(|n| client.lock(format!("many:{n}"))).collect();
        let guards = join_all(locks.iter().map(hold)).await;
        held.extend(locks.into_iter().zip(guards));
    }
    let taken = (in_use() - before) / MANY;
    let deadlines = || held.iter().map(|(_, guard)| Instant::now() + guard.remaining());
    let first: Vec<_> = deadlines().collect();
    wait_until("a renewal of each", MINUTE, || {
        deadlines().zip(&first).all(|(now, first)| now > *first + ms(500))
    })
    .await;
    drop(first);
    let renewed = (in_use() - before) / MANY;
    println!("{taken} bytes a lock, {renewed} after it was renewed");
    assert!(taken <= MOST, "{taken} bytes a lock");
    assert!(renewed <= MOST, "{renewed} bytes a lock that was renewed");
    assert!(held.iter().all(|(_, guard)| !guard.is_lost()));
    drop(held);
    wait_until("free locks", MINUTE, || server.ask::<usize>(&["DBSIZE"]) == 0).await;
    // What is left is buffers that have grown, say; the schedule forgets them in their turn.
    let left = || in_use().saturating_sub(before) / MANY;
    wait_until("the memory back", SOON, || left() <= MOST / 4).await;
    println!("{} bytes of each are left", left());
}

/// A task with the call in it, and all that the client keeps for it: owner, waiter, and entry in the wait
/// queue. Only the head of the queue has a timer.
#[test]
fn a_parked_waiter_costs_at_most_1900_bytes() {
    alone("a_parked_waiter_costs_at_most_1900_bytes", parked_waiters_cost);
}

async fn parked_waiters_cost() {
    const CROWD: usize = 10_000;
    const MOST: usize = 1900;
    let server = Server::start();
    let client = connect(&server).await;
    server.hold_by_hand("crowd", "somebody:1", 60 * MINUTE);
    let waiter = || {
        let lock = client.lock("crowd");
        tokio::spawn(async move { drop(lock.lock().await.expect("a turn")) })
    };
    let first = waiter();
    wait_until("a subscription", SOON, || server.subscribers("crowd") == 1).await;
    let before = in_use();
    let waiters: Vec<JoinHandle<()>> = (0..CROWD).map(|_| waiter()).collect();
    // So that each has been polled.
    turns(CROWD).await;
    let each = (in_use() - before) / CROWD;
    println!("{each} bytes a waiter");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert!(each <= MOST, "{each} bytes a waiter");
    server.free_by_hand("crowd");
    within(2 * MINUTE, "the crowd", join_all(waiters)).await;
    first.await.expect("a turn");
    wait_until("a free lock", SOON, || !server.exists("crowd")).await;
}
