//! The server's clock jumps: a lease in Redis ends by it (S23).

use std::sync::atomic::{AtomicU64, Ordering};

use redlatch::Loss;

use crate::outages::{AWAY, NAME, play_with};
use crate::prelude::*;

#[test]
fn s23_a_clock_that_jumps_ahead_costs_the_lock_at_the_next_renewal() {
    play_with(ms(3_600), async |way| {
        let guard = way.hold(NAME).await;
        way.scene.network.set_clock_forward(way.scene.server, MINUTE);
        assert!(way.scene.holds(NAME).is_empty(), "its lease has ended by the server's clock");
        let successor = way.other.lock(NAME).lock().await.expect("the lock");
        guard.lost().await;
        assert_eq!(guard.loss(), Some(Loss::TakenOver), "told by a renewal and not by the lease");
        assert_eq!(guard.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
        assert!(!successor.is_lost() && way.scene.holds(NAME).len() == 1);
        successor.unlock().await.expect("a release");
        assert!(way.scene.keys().is_empty());
    });
}

#[test]
fn s23_a_clock_that_jumps_back_keeps_nobody_from_releasing_or_getting_the_lock() {
    let (lease, hour) = (ms(1_800), HOUR.as_millis() as i64);
    play_with(lease, async |way| {
        let Scene { network, server, .. } = way.scene;
        let (held, dropped) = (way.client.lock(NAME), way.hold("dropped").await);
        let outer = held.lock().await.expect("the lock");
        let inner = held.lock().await.expect("a nested hold");
        let lock = way.other.lock("abandoned");
        std::mem::forget(lock.lock_with_lease(ms(3_000)).await.expect("the lock"));
        let next = waiting_for(&way.machine, way.other.lock(NAME));
        sleep(10 * AWAY).await;
        network.set_clock_back(*server, HOUR);
        assert!(way.scene.pttl(NAME) > hour, "its lease is an hour longer now");
        // Renewals neither fail nor shorten anything, and the guard goes by its own clock.
        sleep(2 * lease).await;
        assert!(!outer.is_lost() && outer.remaining() <= lease);
        assert!(way.scene.pttl(NAME) > hour - 5_000);
        // A call that asks now hears of an hour, and waits no longer than it wants.
        let (late, begun) = (way.other.lock(NAME), Instant::now());
        assert!(late.try_lock(ms(100), MINUTE).await.expect("an answer").is_none());
        assert!(begun.elapsed() <= ms(100) + 4 * AWAY);
        inner.unlock().await.expect("a release");
        // What stays is promised one lease by the new time.
        assert!((1..=1_800).contains(&way.scene.pttl(NAME)));
        outer.unlock().await.expect("a release");
        let (guard, _) = timeout(4 * AWAY, next).await.expect("its turn").expect("no panic");
        guard.unlock().await.expect("a release");
        drop(dropped);
        way.is_free_within(4 * AWAY, &[NAME, "dropped"]).await;
        // Nobody releases this one. It is free when the clock is right again.
        assert!(way.scene.pttl("abandoned") > hour - 5_000);
        network.set_clock_forward(*server, HOUR);
        assert!(way.scene.keys().is_empty());
        way.hold("abandoned").await.unlock().await.expect("a release");
    });
}

#[test]
fn s23_a_clock_that_jumps_to_and_fro_by_less_than_a_lease_costs_no_lock() {
    play_with(ms(3_000), async |way| {
        let kept = way.hold("kept").await;
        let (network, server) = (way.scene.network.clone(), way.scene.server);
        let strobe = tokio::spawn(async move {
            loop {
                network.set_clock_forward(server, ms(300));
                sleep(ms(5)).await;
                network.set_clock_back(server, ms(300));
                sleep(ms(5)).await;
            }
        });
        let total = Arc::new(AtomicU64::new(0));
        let tasks = (0..6).map(|task| {
            let client = if task % 2 == 0 { &way.client } else { &way.other };
            let (lock, total) = (client.lock(NAME), total.clone());
            tokio::spawn(async move {
                for _ in 0..100 {
                    let guard = lock.lock().await.expect("a turn");
                    // Two steps, which only the lock keeps together.
                    let before = total.load(Ordering::Relaxed);
                    sleep(ms(1)).await;
                    total.store(before + 1, Ordering::Relaxed);
                    guard.unlock().await.expect("a release");
                }
            })
        });
        for task in join_all(tasks.collect::<Vec<_>>()).await {
            task.expect("no panic");
        }
        strobe.abort();
        assert_eq!(total.load(Ordering::Relaxed), 600, "two held the lock at once");
        assert!(!kept.is_lost());
        kept.unlock().await.expect("a release");
        assert!(way.scene.keys().is_empty());
    });
}
