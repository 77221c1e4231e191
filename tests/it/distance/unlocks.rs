//! W11: an `unlock` that is polled once, and then parked for ever, dropped, or forgotten.

use std::task::Poll;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use redlatch::LockClient;
use tokio_test::task;

use crate::support::{
    Distance, Network, SOON, Server, hold, machine, ms, release, soon, wait_until, within,
};

/// Renewed in time at the largest distance, on a busy machine.
const TIMEOUT: Duration = ms(3_000);

/// What becomes of it.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Parked,
    Dropped,
    Forgotten,
}

async fn an_unlock_is_polled_once(server: &Server, round_trip: Duration, fate: Fate) {
    let name = format!("once:{}:{fate:?}", round_trip.as_millis());
    let network = Network::new(server, Distance::round_trip(round_trip));
    let builder = LockClient::builder().url(network.url(server)).watchdog_timeout(TIMEOUT);
    let client = soon("connecting", builder.connect()).await.expect("connecting");
    let (old, new) = (client.lock(&name), client.lock(&name));
    let owner = new.owner().to_owned();
    let guard = hold(&old).await;
    let mut taking = new.lock().boxed();
    assert!(tokio::time::timeout(2 * round_trip + ms(200), &mut taking).await.is_err());
    wait_until("it is parked", SOON, || server.subscribers(&name) == 1).await;

    let mut unlocking = task::spawn(guard.unlock().boxed());
    let parked = match (unlocking.poll(), fate) {
        // The client's thread, which has a processor of its own, and Redis were faster than that poll.
        (Poll::Ready(unlocked), _) => {
            assert!(round_trip.is_zero(), "no answer can be here yet");
            unlocked.expect("a release");
            None
        }
        (Poll::Pending, fate) => match fate {
            Fate::Parked => Some(unlocking),
            Fate::Dropped => {
                drop(unlocking);
                None
            }
            Fate::Forgotten => {
                std::mem::forget(unlocking);
                None
            }
        },
    };
    let guard = soon("the lock", taking).await.expect("the lock");
    let begun = Instant::now();
    let owned = || server.holds(&name).into_keys().eq([owner.clone()]);
    wait_until("Redis has heard of it", TIMEOUT, owned).await;
    while begun.elapsed() < TIMEOUT * 3 / 2 {
        assert!(!guard.is_lost(), "{fate:?}: the new holder lost it");
        assert!(owned(), "{fate:?}: Redis has another holder");
        tokio::time::sleep(ms(10)).await;
    }
    release(guard).await;
    // Both handles are of use, again and again.
    for _ in 0..2 {
        release(hold(&old).await).await;
        release(hold(&new).await).await;
    }
    // And for each other.
    let guard = hold(&new).await;
    let (taken, ()) = tokio::join!(old.lock(), async {
        tokio::time::sleep(4 * round_trip + ms(50)).await;
        release(guard).await;
    });
    release(taken.expect("the lock")).await;
    assert!(!server.exists(&name), "{fate:?}: something is left");
    within(ms(1_000), "closing is prompt", client.close()).await;
    drop(parked);
}

async fn unlocks_are_polled_once(round_trip: Duration) {
    let server = Server::start();
    let fates = [Fate::Parked, Fate::Dropped, Fate::Forgotten];
    join_all(fates.map(|fate| an_unlock_is_polled_once(&server, round_trip, fate))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w11_an_unlock_that_is_polled_once_hands_the_lock_over_on_loopback() {
    let _quiet = machine::quiet();
    unlocks_are_polled_once(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w11_an_unlock_that_is_polled_once_hands_the_lock_over_at_2_ms() {
    let _quiet = machine::quiet();
    unlocks_are_polled_once(ms(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w11_an_unlock_that_is_polled_once_hands_the_lock_over_at_100_ms() {
    let _quiet = machine::quiet();
    unlocks_are_polled_once(ms(100)).await;
}
