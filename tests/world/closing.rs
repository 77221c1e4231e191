//! A client closes while a grant of a fair lock is on its way to it, or about to be.

use futures::FutureExt;
use redlatch::simulation::Fate as RequestFate;
use tokio_test::task;

use crate::prelude::*;

const NAME: &str = "closes";
const NEAR: Duration = ms(2);

/// What the client does that closes: it drops a guard or unlocks it, and calls again by the same handle or another one.
/// That call is never polled again, or always.
#[derive(Clone, Copy, Debug)]
struct Deed {
    unlocks: bool,
    same_handle: bool,
    polled_once: bool,
}

/// The client closes so long after its deed. Returns for how long at most another one waits from then on, which has
/// the lock again and again.
fn next_waits(away: Duration, deed: Deed, closes_after: Duration) -> Duration {
    play(0, async |scene| {
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        let near = scene.client(NEAR, LockClient::builder()).await.1;
        let (lock, other) = (client.fair_lock(NAME), near.fair_lock(NAME));
        // It has waited for the lock, and listens still.
        let guard = other.lock().await.expect("the lock");
        let waits = machine.spawn(async move { (lock.lock().await.expect("a turn"), lock) });
        sleep(10 * away).await;
        guard.unlock().await.expect("a release");
        let (guard, lock) = waits.await.expect("no panic");
        let until = Instant::now() + 4 * away + 5 * NEAR + closes_after;
        let turns = tokio::spawn(async move {
            let mut had = Vec::new();
            while had.last().is_none_or(|last| *last < until) {
                let guard = other.lock().await.expect("a turn");
                had.push(Instant::now());
                guard.unlock().await.expect("a release");
            }
            had
        });
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
        let had = turns.await.expect("no panic");
        let waits = had.windows(2).map(|two| two[1].saturating_duration_since(two[0].max(closed)));
        waits.chain([had[0].saturating_duration_since(closed)]).max().expect("many turns")
    })
}

/// What the client says when it closes takes half a round trip to the server. A grant of just before that takes the
/// second half to the client, and what that answers another one.
fn keeps_the_lock_from_nobody(away: Duration) {
    let both = [false, true];
    for deed in both.into_iter().flat_map(|unlocks| {
        both.into_iter().flat_map(move |same_handle| {
            both.map(|polled_once| Deed { unlocks, same_handle, polled_once })
        })
    }) {
        let mut worst = (Duration::ZERO, Duration::ZERO);
        for step in 0..60 {
            let after = away * step / 20;
            worst = worst.max((next_waits(away, deed, after), after));
        }
        let (waits, after) = worst;
        assert!(
            waits <= away * 3 / 2 + NEAR,
            "{away:?}, {deed:?}, closed after {after:?}: {waits:?}"
        );
    }
}

#[test]
fn a_client_that_closes_beside_the_server_keeps_a_fair_lock_from_nobody() {
    keeps_the_lock_from_nobody(ms(2));
}

#[test]
fn a_client_that_closes_further_away_keeps_a_fair_lock_from_nobody() {
    keeps_the_lock_from_nobody(ms(20));
}

#[test]
fn a_client_that_closes_far_away_keeps_a_fair_lock_from_nobody() {
    keeps_the_lock_from_nobody(ms(100));
}

/// The first request of its call is late, and comes behind what the client says when it closes.
fn next_waits_while_a_request_is_late(away: Duration, closes_after: Duration) -> Duration {
    play(0, async |scene| {
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        let near = scene.client(NEAR, LockClient::builder()).await.1;
        let (lock, other) = (client.fair_lock(NAME), near.fair_lock(NAME));
        let guard = other.lock().await.expect("the lock");
        // It listens for this one.
        let waits = machine.spawn(async move { lock.lock().await });
        sleep(10 * away).await;
        let script = redis::Script::new(&scripts::texts::text("fair_acquire", str::to_owned));
        let ask = format!("EVALSHA\r\n$40\r\n{}", script.get_hash());
        guard.unlock().await.expect("a release");
        let first = waits.await.expect("no panic").expect("a turn");
        let turns = tokio::spawn(async move {
            let mut had = Vec::new();
            let until = Instant::now() + 12 * away + 5 * NEAR;
            while had.last().is_none_or(|last| *last < until) {
                let guard = other.lock().await.expect("a turn");
                had.push(Instant::now());
                guard.unlock().await.expect("a release");
            }
            had
        });
        sleep(away).await;
        first.unlock().await.expect("a release");
        scene.network.set_trap(&machine, scene.server, &ask, 0, RequestFate::HeldFor(2 * away));
        let next = client.fair_lock(NAME);
        let call = machine.spawn(async move { next.lock().await.map(drop) });
        sleep(closes_after).await;
        let closed = Instant::now();
        machine.run(client.close()).await;
        let _ = call.await;
        let had = turns.await.expect("no panic");
        let waits = had.windows(2).map(|two| two[1].saturating_duration_since(two[0].max(closed)));
        waits.chain([had[0].saturating_duration_since(closed)]).max().expect("many turns")
    })
}

#[test]
fn a_client_that_closes_before_a_late_request_comes_keeps_a_fair_lock_from_nobody() {
    for away in [2, 20, 100].map(ms) {
        let waits = (0..40).map(|step| away * step / 10);
        let waits = waits.map(|after| (next_waits_while_a_request_is_late(away, after), after));
        let (waits, after) = waits.max().expect("a wait");
        assert!(waits <= 2 * away + NEAR, "{away:?}, closed after {after:?}: {waits:?}");
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
