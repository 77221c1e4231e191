//! A client closes while a grant of a fair lock is on its way to it, or about to be.

use futures::FutureExt;
use redlatch::FairLock;
use tokio_test::task;

use crate::prelude::*;

const NAME: &str = "closes";
const NEAR: Duration = ms(2);
/// So many times a busy machine is late at most before a grant is given back. It is far less than the grace.
const STEPS: u32 = 8;

/// What the client does that closes: it drops a guard or unlocks it, and calls again by the same handle or another one.
/// That call is never polled again, or always.
#[derive(Clone, Copy, Debug)]
struct Deed {
    unlocks: bool,
    same_handle: bool,
    polled_once: bool,
}

/// Has the lock again and again. Returns when.
async fn takes_turns(lock: FairLock, until: Instant) -> Vec<Instant> {
    let mut had = Vec::new();
    while had.last().is_none_or(|last| *last < until) {
        let guard = lock.lock().await.expect("a turn");
        had.push(Instant::now());
        guard.unlock().await.expect("a release");
    }
    had
}

/// Between two of these turns, after a client has closed.
fn longest_wait(had: &[Instant], closed: Instant) -> Duration {
    let waits = had.windows(2).map(|two| two[1].saturating_duration_since(two[0].max(closed)));
    waits.chain([had[0].saturating_duration_since(closed)]).max().expect("many turns")
}

/// The client, whose machine is late by up to `lateness`, closes so long after its deed. Returns for how long at most
/// another one waits from then on, which has the lock again and again.
fn next_waits(
    seed: u64,
    away: Duration,
    lateness: Duration,
    deed: Deed,
    closes_after: Duration,
) -> Duration {
    play(seed, async |scene| {
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        machine.set_lateness(lateness);
        let near = scene.client(NEAR, LockClient::builder()).await.1;
        let (lock, other) = (client.fair_lock(NAME), near.fair_lock(NAME));
        // It has waited for the lock, and listens still.
        let guard = other.lock().await.expect("the lock");
        let waits = machine.spawn(async move { (lock.lock().await.expect("a turn"), lock) });
        sleep(10 * away).await;
        guard.unlock().await.expect("a release");
        let (guard, lock) = waits.await.expect("no panic");
        let until = Instant::now() + 4 * away + 5 * NEAR + closes_after;
        let turns = tokio::spawn(takes_turns(other, until));
        // Redis has heard of the hand-off.
        sleep(away + 5 * NEAR).await;
        if deed.unlocks {
            machine.spawn(guard.unlock());
            tokio::task::yield_now().await;
        } else {
            drop(guard);
        }
        let next = if deed.same_handle { lock } else { client.fair_lock(NAME) };
        let mut call = task::spawn(machine.run(async move { next.lock().await.map(drop) }).boxed());
        assert!(call.poll().is_pending());
        let _parked = if deed.polled_once {
            Some(call)
        } else {
            tokio::spawn(call);
            None
        };
        sleep(closes_after).await;
        let closed = Instant::now();
        machine.run(client.close()).await;
        longest_wait(&turns.await.expect("no panic"), closed)
    })
}

/// What the client says when it closes takes half a round trip to the server. A grant of just before that takes the
/// second half to the client, and what that answers another one.
fn keeps_the_lock_from_nobody(away: Duration, lateness: Duration, moments_of_it: u32) {
    // What a call has asked for that is never polled again, and late, nobody undoes before its lease ends.
    let cases = if lateness.is_zero() { 8 } else { 4 };
    for case in 0..cases {
        let [unlocks, same_handle, polled_once] = [0, 1, 2].map(|bit| case >> bit & 1 == 1);
        let deed = Deed { unlocks, same_handle, polled_once };
        for after in moments(3 * away, moments_of_it) {
            let seed = if lateness.is_zero() { 0 } else { after.as_micros() as u64 };
            let waits = next_waits(seed, away, lateness, deed, after);
            let most = away * 3 / 2 + NEAR + STEPS * lateness;
            assert!(waits <= most, "{away:?}, {deed:?}, closed after {after:?}: {waits:?}");
        }
    }
}

#[test]
fn a_client_that_closes_beside_the_server_or_far_away_keeps_a_fair_lock_from_nobody() {
    keeps_the_lock_from_nobody(ms(2), Duration::ZERO, 60);
    keeps_the_lock_from_nobody(ms(100), Duration::ZERO, 13);
}

#[test]
fn a_client_that_closes_further_away_keeps_a_fair_lock_from_nobody() {
    keeps_the_lock_from_nobody(ms(20), Duration::ZERO, 60);
}

/// The message of a grant may come to it behind all that it does when it closes.
#[test]
fn a_busy_client_that_closes_keeps_a_fair_lock_from_nobody() {
    keeps_the_lock_from_nobody(ms(2), ms(6), 600);
    keeps_the_lock_from_nobody(ms(20), ms(30), 600);
}

/// The first request of its call is late, and comes behind what the client says when it closes.
fn next_waits_while_a_request_is_late(away: Duration, closes_after: Duration) -> Duration {
    play(0, async |scene| {
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        let near = scene.client(NEAR, LockClient::builder()).await.1;
        let (lock, other) = (client.fair_lock(NAME), near.fair_lock(NAME));
        let guard = other.lock().await.expect("the lock");
        // It listens for this one.
        let waits = waiting_for(&machine, lock);
        sleep(10 * away).await;
        guard.unlock().await.expect("a release");
        let (first, _) = waits.await.expect("no panic");
        let turns = tokio::spawn(takes_turns(other, Instant::now() + 12 * away + 5 * NEAR));
        sleep(away).await;
        first.unlock().await.expect("a release");
        let asks = scripts::texts::text("fair_acquire", str::to_owned);
        scene.trap_script(&machine, &asks, Fate::HeldFor(2 * away));
        let next = client.fair_lock(NAME);
        let call = machine.spawn(async move { next.lock().await.map(drop) });
        sleep(closes_after).await;
        let closed = Instant::now();
        machine.run(client.close()).await;
        let _ = call.await;
        longest_wait(&turns.await.expect("no panic"), closed)
    })
}

#[test]
fn a_client_that_closes_before_a_late_request_comes_keeps_a_fair_lock_from_nobody() {
    for away in [2, 20, 100].map(ms) {
        for after in moments(4 * away, 40) {
            let waits = next_waits_while_a_request_is_late(away, after);
            assert!(waits <= 2 * away + NEAR, "{away:?}, closed after {after:?}: {waits:?}");
        }
    }
}

/// A waiter was parked, and the client's thread dials to subscribe again.
#[test]
fn a_client_that_is_closed_while_redis_is_gone_connects_no_more() {
    for away in [Duration::ZERO, NEAR, ms(100)] {
        play(0, async |scene| {
            let (_, other) = scene.client(NEAR, LockClient::builder()).await;
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let _held = other.lock(NAME).lock().await.expect("the lock");
            let lock = client.lock(NAME);
            let _parked = machine.spawn(async move { lock.lock().await.map(drop) });
            sleep(5 * away + ms(10)).await;
            scene.network.kill(scene.server);
            sleep(ms(1_000)).await;
            machine.run(client.close()).await;
            scene.network.start(scene.server, |server, now| server.start(now));
            sleep(ms(5_000)).await;
            assert_eq!(scene.network.connections(&machine, scene.server), 0, "{away:?}");
        });
    }
}

/// It waits for the release of its own handle, and goes on when its client is closed.
#[test]
fn a_call_that_waits_for_a_release_while_its_client_closes_asks_no_more() {
    for away in [20, 100].map(ms) {
        for step in 0..4 {
            play(0, async |scene| {
                let (machine, client) = scene.client(away, LockClient::builder()).await;
                let lock = client.lock(NAME);
                let guard = machine.run(lock.lock()).await.expect("the lock");
                let before = scene.calls("evalsha");
                drop(guard);
                let call = machine.spawn(async move { lock.lock().await.map(drop) });
                tokio::task::yield_now().await;
                // Before the answer to the release.
                sleep(away * step / 4).await;
                machine.run(client.close()).await;
                let error = call.await.expect("no panic").expect_err("it is closed");
                assert_eq!(error.kind(), ErrorKind::Closed, "{away:?}, {step}");
                sleep(4 * away).await;
                assert_eq!(scene.calls("evalsha") - before, 1, "{away:?}, {step}: the release");
            });
        }
    }
}
