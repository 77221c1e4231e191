//! Many at once.

use futures::future::join_all;
use std::sync::Arc;
use std::time::Instant;

use crate::support::{SOON, hold, ms, release, soon, wait_until, within};
use crate::{MINUTE, Site};

// testSinglePubSub
pub(super) async fn one_connection_serves_the_waiters_of_several_names(site: Site) {
    let client = site.connect().await;
    let rounds = (0..40).map(|round| {
        let lock = client.lock(["left", "right"][round % 2]);
        async move {
            let guard = lock.try_lock(SOON, MINUTE).await.unwrap().expect("in time");
            tokio::time::sleep(ms(1)).await;
            release(guard).await;
        }
    });
    soon("every round", join_all(rounds)).await;
    wait_until("no subscription", SOON, || site.subscribers("left") == 0).await;
}

// testConcurrencyTryLockUnLock
pub(super) async fn tasks_that_share_a_handle_nest_in_any_interleaving(site: Site) {
    let client = site.client_with(ms(600)).await;
    let lock = Arc::new(client.lock("shared"));
    let outer = hold(&lock).await;
    let start = Instant::now();
    let tasks = (0..16).map(|_| {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move {
            // Longer than the lease, so that a renewal which gets lost in the traffic shows.
            while start.elapsed() < ms(1_500) {
                let a = lock.try_lock_now().await.unwrap().expect("a lock of our own");
                let b = lock.lock().await.unwrap();
                release(a).await;
                drop(b);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for task in within(MINUTE, "the tasks", join_all(tasks)).await {
        task.unwrap();
    }
    assert!(!outer.is_lost());
    wait_until("only the outer hold", SOON, || site.holds("shared").get(lock.owner()) == Some(&1))
        .await;
    release(outer).await;
    assert!(!site.exists("shared"));
}
