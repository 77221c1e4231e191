//! What one of many costs: the memory of a held lock and of a parked waiter, and the commands for
//! a lock that cannot be renewed among those that can.
//!
//! Memory is what the process has asked of its allocator and not given back; what that one needs
//! beside it is not counted. So whoever counts it has the process for itself.

mod support;

use std::alloc::System;
use std::time::{Duration, Instant};

use futures::future::join_all;
use redlatch::{Lock, LockClient, LockGuard};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use support::{Proxy, SOON, Server, connect, hold, ms, release, turns, wait_until, within};
use tokio::task::JoinHandle;

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const MINUTE: Duration = Duration::from_secs(60);

fn in_use() -> usize {
    let stats = MEMORY.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Handle and guard, and all that the client keeps for them: the owner with its account, the term,
/// the entry in the watchdog's schedule. The names have ten characters at most.
#[tokio::test]
async fn a_held_lock_costs_at_most_600_bytes() {
    const MANY: usize = 20_000;
    const MOST: usize = 600;
    let _alone = ALONE.lock().await;
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(9_000));
    let client = builder.connect().await.unwrap();
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

/// A task with the call in it, and all that is kept for it: handle, owner, seat, place in line.
#[tokio::test]
async fn a_parked_waiter_costs_at_most_a_kibibyte_and_a_half() {
    const CROWD: usize = 10_000;
    const MOST: usize = 1536;
    let _alone = ALONE.lock().await;
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
    turns(1).await;
    let each = (in_use() - before) / CROWD;
    println!("{each} bytes a waiter");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert!(each <= MOST, "{each} bytes a waiter");
    server.free_by_hand("crowd");
    within(2 * MINUTE, "the crowd", join_all(waiters)).await;
    first.await.expect("a turn");
    wait_until("a free lock", SOON, || !server.exists("crowd")).await;
}

/// Few batches are under way at a time, but not at the price of a lease: where Redis is far away
/// they do not wait for each other.
#[tokio::test]
async fn renewals_follow_each_other_while_no_answer_comes() {
    const MANY: usize = 2_000;
    let _alone = ALONE.lock().await;
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).watchdog_timeout(ms(15_000));
    // No answer is given up before the test is over.
    let client = builder.command_timeout(MINUTE).connect().await.unwrap();
    // The background has its connection before.
    drop(hold(&client.lock("first")).await);
    wait_until("a free lock", SOON, || !server.exists("first")).await;
    let locks: Vec<_> = (0..MANY).map(|n| client.lock(format!("many:{n}"))).collect();
    let guards = join_all(locks.iter().map(hold)).await;
    let before: Vec<_> = guards.iter().map(|guard| Instant::now() + guard.remaining()).collect();
    proxy.forget_commands();
    proxy.stall_replies(true);
    wait_until("a renewal of each on its way", ms(9_000), || {
        proxy.sent("EVALSHA") >= MANY as u64 / 100
    })
    .await;
    assert!(proxy.withheld() > 0);
    let renewed = || {
        let now = Instant::now();
        guards
            .iter()
            .zip(&before)
            .filter(move |(guard, before)| now + guard.remaining() > **before + ms(500))
    };
    assert_eq!(renewed().count(), 0, "nothing was answered");
    proxy.stall_replies(false);
    wait_until("a renewal of each", SOON, || renewed().count() == MANY).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    drop(guards);
    wait_until("free locks", SOON, || server.ask::<usize>(&["DBSIZE"]) == 0).await;
}

/// A lock that may not be touched has every batch refused that it is in.
#[tokio::test]
async fn a_lock_that_may_not_be_touched_costs_few_commands_of_those_beside_it() {
    const BESIDE: usize = 99;
    let _alone = ALONE.lock().await;
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(15_000));
    let client = builder.connect().await.unwrap();
    let names = (0..=BESIDE).map(|n| if n == 50 { "bad".into() } else { format!("good:{n}") });
    let locks: Vec<_> = names.map(|name| client.lock(name)).collect();
    let mut guards = join_all(locks.iter().map(hold)).await;
    let bad = guards.remove(50);
    let before: Vec<_> = guards.iter().map(|guard| Instant::now() + guard.remaining()).collect();
    server.ask::<()>(&["ACL", "SETUSER", "default", "resetkeys", "~good:*"]);
    server.reset_stats();
    wait_until("a renewal of the others", SOON, || {
        let now = Instant::now();
        guards
            .iter()
            .zip(&before)
            .all(|(guard, before)| now + guard.remaining() > *before + ms(500))
    })
    .await;
    let refused = server.errors("NOPERM");
    let calls = server.calls("evalsha") + refused;
    println!("{calls} commands, {refused} of them refused");
    assert!(refused >= 1, "nothing was refused");
    assert!(calls < 50, "{calls} commands for {BESIDE} locks and a bad one");
    server.ask::<()>(&["ACL", "SETUSER", "default", "allkeys"]);
    assert!(!bad.is_lost());
    for guard in guards.into_iter().chain([bad]) {
        release(guard).await;
    }
    assert_eq!(server.ask::<usize>(&["DBSIZE"]), 0);
}
