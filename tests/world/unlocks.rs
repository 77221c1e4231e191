//! W11: an `unlock` that is polled once, and then parked for ever, dropped, or forgotten.

use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use redlatch::LockClient;
use tokio::time::{sleep, timeout};
use tokio_test::task;

use crate::scene::play;
use crate::support::ms;

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
