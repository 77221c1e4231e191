//! The server's clock jumps: a lease in Redis ends by it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const HOUR: i64 = 60 * 60 * 1000;

/// Sets the clock, and waits until the server goes by it: a server may look at the clock once for
/// all that came in together.
async fn jump(clock: &Clock, server: &Server, millis: i64) {
    clock.set(millis);
    let follows = || (Clock::seen_by(server) - millis).abs() < 5_000;
    wait_until("a server that goes by its new time", SOON, follows).await;
}

#[tokio::test]
async fn s23_a_clock_that_jumps_ahead_costs_the_lock_at_the_next_renewal() {
    let Some(clock) = Clock::new() else { return };
    let server = Server::start_with_clock(&clock);
    // Renewed every 1.2 s, believed for 3.6 s: the two can be told apart.
    let client = client_with(server.url(), ms(3_600)).await;
    let guard = hold(&client.lock("jumped")).await;
    let by_itself = deadline(&guard);
    jump(&clock, &server, 60_000).await;
    assert!(!server.exists("jumped"), "its lease has ended by the server's clock");
    let other = connect(&server).await;
    let successor = hold(&other.lock("jumped")).await;
    told_by_a_renewal(&guard, by_itself).await;
    assert_eq!(guard.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
    assert!(!successor.is_lost());
    assert!(server.exists("jumped"), "the successor's lock was released");
    release(successor).await;
    assert!(!server.exists("jumped"));
}

#[tokio::test]
async fn s23_a_clock_that_jumps_back_keeps_nobody_from_releasing_or_getting_the_lock() {
    let Some(clock) = Clock::new() else { return };
    let server = Server::start_with_clock(&clock);
    let (client, other) = (client_with(server.url(), ms(1_800)).await, connect(&server).await);
    let lock = client.lock("jumped");
    let (outer, inner, dropped) =
        (hold(&lock).await, hold(&lock).await, hold(&client.lock("dropped")).await);
    server.hold_by_hand("abandoned", "somebody:1", ms(3_000));
    let waiter = parked(&server, &other, "jumped").await;
    jump(&clock, &server, -HOUR).await;
    assert!(server.pttl("jumped") > HOUR - 5_000, "its lease is an hour longer now");
    // Renewals neither fail nor shorten anything, and the guard goes by its own clock.
    renewed(&outer).await;
    renewed(&outer).await;
    assert!(outer.remaining() <= ms(1_800));
    // Whoever asks now is told of an hour, and does not wait longer than he wants.
    let late = other.lock("jumped");
    assert!(soon("a try", late.try_lock(ms(100), MINUTE)).await.unwrap().is_none());
    release(inner).await;
    // What stays is promised one lease by the new time.
    assert!(server.pttl("jumped") <= 1_800);
    release(outer).await;
    has_its_turn(waiter).await;
    drop(dropped);
    wait_until("a free lock", SOON, || !server.exists("dropped")).await;
    // Nobody releases this one. It is free when the clock is right again.
    assert!(server.pttl("abandoned") > HOUR - 5_000);
    jump(&clock, &server, 0).await;
    wait_until("a free lock", SOON, || !server.exists("abandoned")).await;
    release(hold(&client.lock("abandoned")).await).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s23_a_clock_that_jumps_to_and_fro_by_less_than_a_lease_costs_no_lock() {
    let Some(clock) = Clock::new() else { return };
    let server = Arc::new(Server::start_with_clock(&clock));
    let stop = Arc::new(AtomicBool::new(false));
    let strobe = {
        let (server, stop) = (Arc::clone(&server), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut jumps = 0_u64;
            for ahead in [0, 300, -300].into_iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    return jumps;
                }
                clock.set(ahead);
                jumps += u64::from((Clock::seen_by(&server) - ahead).abs() < 150);
                std::thread::sleep(ms(5));
            }
            jumps
        })
    };
    let clients = [connect(&server).await, client_with(server.url(), ms(3_000)).await];
    // Held all the time and renewed.
    let kept = hold(&clients[1].lock("kept")).await;
    let total = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + ms(1_200);
    let tasks = (0..6).map(|task| {
        let (client, total) = (clients[task % 2].clone(), Arc::clone(&total));
        tokio::spawn(async move {
            let mut rounds = 0_u64;
            while Instant::now() < end || total.load(Ordering::SeqCst) <= 50 {
                let guard = soon("a turn", client.lock("strobed").lock()).await.expect("a turn");
                // Two steps, which only the lock keeps together.
                let before = total.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                total.store(before + 1, Ordering::SeqCst);
                release(guard).await;
                rounds += 1;
            }
            rounds
        })
    });
    let rounds = within(MINUTE, "an end", join_all(tasks.collect::<Vec<_>>())).await;
    let rounds: u64 = rounds.into_iter().map(Result::unwrap).sum();
    stop.store(true, Ordering::Relaxed);
    let jumps = strobe.join().expect("the strobe failed");
    assert!(jumps > 20, "only {jumps} jumps");
    assert_eq!(total.load(Ordering::SeqCst), rounds, "two held the lock at once");
    assert!(!kept.is_lost());
    release(kept).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}
