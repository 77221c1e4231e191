//! W11: an `unlock` that is polled once, and then parked for ever, dropped, or forgotten.

use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use redlatch::LockClient;
use redlatch::simulation::{Fate as RequestFate, Fates};
use tokio::time::{sleep, timeout};
use tokio_test::task;

use crate::scene::{Scene, play};
use crate::support::{ms, scripts};

const LEASE: Duration = ms(3_000);

/// What becomes of it.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Parked,
    Dropped,
    Forgotten,
}

fn an_unlock_is_polled_once(away: Duration, fate: Fate) {
    let name = "once";
    play(0, async |scene| {
        let (machine, client) =
            scene.client(away, LockClient::builder().watchdog_timeout(LEASE)).await;
        let (old, new) = (client.lock(name), client.lock(name));
        let guard = old.lock().await.expect("the lock");
        let owner = new.owner().to_owned();
        let taking = machine.spawn(async move { (new.lock().await, new) });
        sleep(8 * away + ms(10)).await;
        assert_eq!(scene.subscribers(name), 1, "it is parked");

        let mut unlocking = task::spawn(guard.unlock().boxed());
        assert!(matches!(unlocking.poll(), Poll::Pending), "no answer can be here yet");
        let _parked = match fate {
            Fate::Parked => Some(unlocking),
            Fate::Dropped => None,
            Fate::Forgotten => {
                std::mem::forget(unlocking);
                None
            }
        };
        let (guard, new) = taking.await.expect("no panic");
        let guard = guard.expect("the lock");
        sleep(2 * away + ms(10)).await;
        for _ in 0..30 {
            assert!(!guard.is_lost(), "{away:?}, {fate:?}: the new holder lost it");
            let holds = Vec::from_iter(scene.holds(name));
            assert_eq!(holds, [(owner.clone(), 1)], "{away:?}, {fate:?}");
            sleep(LEASE / 20).await;
        }
        guard.unlock().await.expect("a release");
        // Both handles are of use, again and again.
        for lock in [&old, &new, &old, &new] {
            lock.lock().await.expect("the lock").unlock().await.expect("a release");
        }
        assert!(scene.holds(name).is_empty(), "{away:?}, {fate:?}: something is left");
        timeout(4 * away + ms(100), client.close()).await.expect("closing is prompt");
    });
}

#[test]
fn w11_an_unlock_that_is_polled_once_hands_the_lock_over_however_far_redis_is() {
    for away in [0, 2, 100].map(ms) {
        for fate in [Fate::Parked, Fate::Dropped, Fate::Forgotten] {
            an_unlock_is_polled_once(away, fate);
        }
    }
}

/// Closes the connection of the client's thread, which listens there.
async fn cut_the_thread(scene: &Scene) {
    let list: String = scene.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let id = list.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect("a listener");
    assert_eq!(scene.ask::<u64>(&["CLIENT", "KILL", "ID", id]), 1);
}

/// The dial has taken some of the time for the hand-off. So that nobody answers it in time does not show
/// that the connection is silent; but nothing goes behind it there, and the owner goes on elsewhere.
#[test]
fn a_hand_off_that_was_given_up_is_not_executed_behind_the_next_hold_of_its_owner() {
    let (name, away) = ("late", ms(60));
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(ms(1_000));
        let (machine, client) = scene.client(away, options).await;
        let (first, next) = (client.fenced_lock(name), client.fenced_lock(name));
        let guard = first.lock().await.expect("the lock");
        let next = machine.spawn(async move { next.lock().await.map(drop) });
        sleep(8 * away).await;
        let script = redis::Script::new(&scripts::hand_off());
        let call = format!("EVALSHA\r\n$40\r\n{}", script.get_hash());
        let held = RequestFate::HeldFor(ms(1_000));
        scene.network.set_trap(&machine, scene.server, &call, 0, held);
        cut_the_thread(scene).await;
        sleep(away).await;
        let unlocking = machine.spawn(guard.unlock());
        sleep(ms(700)).await;
        next.abort();
        // The waiter goes. The owner has its turn when the hand-off is given up.
        let guard = loop {
            if let Ok(Some(guard)) = first.try_lock_now().await {
                break guard;
            }
        };
        unlocking.await.expect("no panic").expect_err("nobody knows");
        assert_eq!(scene.network.fates().held, 1, "no hand-off was late");
        while scene.network.fates() == (Fates { held: 1, ..Fates::default() }) {
            sleep(ms(10)).await;
        }
        sleep(away).await;
        let owner = first.owner().to_owned();
        assert_eq!(Vec::from_iter(scene.holds(name)), [(owner, 1)], "{:?}", scene.network.fates());
        guard.unlock().await.expect("a release");
    });
}

/// The same for a release in the background, which ends with the lease.
#[test]
fn a_release_that_was_given_up_is_not_executed_behind_the_next_hold_of_its_owner() {
    let (name, away) = ("late", ms(10));
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(ms(200));
        let (machine, client) = scene.client(away, options).await;
        let lock = client.lock(name);
        let guard = lock.lock_with_lease(ms(40)).await.expect("the lock");
        let script = redis::Script::new(&scripts::release());
        let call = format!("EVALSHA\r\n$40\r\n{}", script.get_hash());
        scene.network.set_trap(&machine, scene.server, &call, 0, RequestFate::HeldFor(ms(260)));
        // The thread connects last, but for who asks.
        let list: String = scene.ask(&["CLIENT", "LIST"]);
        let ids = list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
        let ids: Vec<&str> = ids.collect();
        assert_eq!(scene.ask::<u64>(&["CLIENT", "KILL", "ID", ids[ids.len() - 2]]), 1);
        sleep(away).await;
        drop(guard);
        sleep(ms(1)).await;
        // A call of the owner comes when the release is given up.
        let guard = loop {
            if let Ok(Some(guard)) = lock.try_lock_now().await {
                break guard;
            }
        };
        assert_eq!(scene.network.fates().held, 1, "no release was late");
        while scene.network.fates() == (Fates { held: 1, ..Fates::default() }) {
            sleep(ms(1)).await;
        }
        sleep(away).await;
        assert_eq!(Vec::from_iter(scene.holds(name)), [(lock.owner().to_owned(), 1)]);
        guard.unlock().await.expect("a release");
    });
}
