//! Hold, nest, exclude, wait, expire. Redisson's own tests of its `RLock` are ported here; the name
//! of each stands above the case that keeps its promise. (`testInCluster` is all of `contract.rs`.)
//!
//! Not ported: `testLockUninterruptibly` (nothing can interrupt a Rust task: a call is dropped, and
//! `cancellation` drops them all), `testLockListener` (losing the lock is awaited instead, see
//! `faults/loss.rs`), and the renewal tests of the read and the write lock. What has to do with an
//! outage is in `faults/outages.rs`, a failover in `topologies`, and many tasks in `exclusion.rs`.

use tokio::time::Instant;

use crate::prelude::*;

// testLockUnlock
pub(crate) async fn a_lock_can_be_taken_and_given_back_again_and_again(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("again");
    for _ in 0..3 {
        let guard = hold(&lock).await;
        assert!(setup.exists("again"));
        release(guard).await;
        assert!(!setup.exists("again"));
    }
}

// testIsLocked, testIsLockedOtherThread
pub(crate) async fn everybody_sees_that_a_lock_is_locked(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (lock, watcher) = (client.lock("seen"), other.lock("seen"));
    assert!(!lock.is_locked().await.unwrap());
    assert!(!watcher.is_locked().await.unwrap());
    let guard = hold(&lock).await;
    assert!(lock.is_locked().await.unwrap());
    assert!(watcher.is_locked().await.unwrap());
    release(guard).await;
    assert!(!lock.is_locked().await.unwrap());
    assert!(!watcher.is_locked().await.unwrap());
}

// testIsHeldByCurrentThread, testIsHeldByCurrentThreadOtherThread
pub(crate) async fn only_the_handle_that_holds_a_lock_says_that_it_is_held(setup: Setup) {
    let client = setup.connect().await;
    let (lock, other) = (client.lock("mine"), client.lock("mine"));
    assert!(!lock.is_held().await.unwrap());
    assert!(!other.is_held().await.unwrap());
    let guard = hold(&lock).await;
    assert!(lock.is_held().await.unwrap());
    assert!(!other.is_held().await.unwrap());
    release(guard).await;
    assert!(!lock.is_held().await.unwrap());
    assert!(!other.is_held().await.unwrap());
}

// testGetHoldCount
pub(crate) async fn the_hold_count_follows_nested_calls(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("count");
    let other = client.lock("count");
    assert_eq!(lock.hold_count().await.unwrap(), 0);
    let first = hold(&lock).await;
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    release(first).await;
    assert_eq!(lock.hold_count().await.unwrap(), 0);
    let first = hold(&lock).await;
    let second = hold(&lock).await;
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    assert_eq!(other.hold_count().await.unwrap(), 0);
    release(first).await;
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    release(second).await;
    assert_eq!(lock.hold_count().await.unwrap(), 0);
}

// testReentrancy
pub(crate) async fn a_nested_hold_given_back_leaves_the_outer_one(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("nested");
    let outer = lock.try_lock_now().await.unwrap().expect("a free lock");
    let inner = lock.try_lock_now().await.unwrap().expect("a lock of our own");
    assert!(!is_free(&client, "nested").await);
    release(inner).await;
    assert!(!is_free(&client, "nested").await);
    release(outer).await;
    assert!(is_free(&client, "nested").await);
}

pub(crate) async fn guards_of_one_handle_may_go_in_any_order(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("order");
    let first = hold(&lock).await;
    let second = hold(&lock).await;
    let third = hold(&lock).await;
    for guard in [second, first] {
        release(guard).await;
        assert!(!is_free(&client, "order").await);
    }
    release(third).await;
    assert!(is_free(&client, "order").await);
}

pub(crate) async fn clones_handles_and_clients_all_exclude_each_other(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let lock = client.lock("one");
    let rivals = [lock.clone(), client.lock("one"), client.clone().lock("one"), other.lock("one")];
    let mut owners: Vec<&str> = rivals.iter().map(|lock| lock.owner()).collect();
    owners.push(lock.owner());
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 5, "every handle is an owner of its own");

    let guard = hold(&lock).await;
    for rival in &rivals {
        assert!(rival.try_lock_now().await.unwrap().is_none());
        assert!(rival.try_lock(ms(20), Lease::Watchdog).await.unwrap().is_none());
    }
    release(guard).await;
    for rival in &rivals {
        release(hold(rival).await).await;
    }
}

pub(crate) async fn names_do_not_get_in_each_others_way(setup: Setup) {
    let client = setup.connect().await;
    let names = ["a", "A", "a ", "{a}", "a:1", "a:{1}"];
    let locks: Vec<_> = names.iter().map(|name| client.lock(*name)).collect();
    let guards = soon("all names", join_all(locks.iter().map(|lock| lock.lock()))).await;
    assert_eq!(guards.len(), names.len());
    assert!(guards.iter().all(Result::is_ok));
}

// testForceUnlock
pub(crate) async fn a_forced_unlock_frees_the_lock_for_everybody(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let lock = client.lock("forced");
    let guard = hold(&lock).await;
    let rescue = other.lock("forced");
    assert!(rescue.force_unlock().await.unwrap());
    assert!(!lock.is_locked().await.unwrap());
    assert!(!rescue.force_unlock().await.unwrap(), "there was nothing left to free");
    let successor = rescue.try_lock_now().await.unwrap().expect("a lock that was freed");
    // testUnlockFail: who does not hold the lock cannot give it back.
    let error = guard.unlock().await.expect_err("the lock is another's");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(rescue.is_held().await.unwrap());
    release(successor).await;
}

// testExpire
pub(crate) async fn a_lease_that_ends_lets_the_next_one_in_and_makes_unlock_say_lost(setup: Setup) {
    let client = setup.connect().await;
    let (lock, next) = (client.lock("expires"), client.lock("expires"));
    let start = Instant::now();
    let guard = soon("locking", lock.lock_with_lease(ms(400))).await.unwrap();
    let successor = hold(&next).await;
    assert!(start.elapsed() >= ms(395), "let in while the lease ran");
    assert!(passed(start) < ms(1_500), "let in {:?} after the start", passed(start));
    let error = guard.unlock().await.expect_err("the lease has ended");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(next.is_held().await.unwrap(), "a late unlock must not touch the successor");
    release(successor).await;
}

// testRemainTimeToLive
pub(crate) async fn a_handle_does_not_remember_the_lease_of_an_earlier_hold(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("ttl");
    let guard = lock.lock_with_lease(HOUR).await.unwrap();
    let left = lock.remaining_lease().await.unwrap().expect("a lease");
    assert!(left <= HOUR && left > HOUR - MINUTE, "{left:?}");
    release(guard).await;
    assert_eq!(lock.remaining_lease().await.unwrap(), None);
    let guard = hold(&lock).await;
    let left = lock.remaining_lease().await.unwrap().expect("a lease");
    assert!(left <= Duration::from_secs(30) && left > Duration::from_secs(15), "{left:?}");
    release(guard).await;
}

// testRemainTimeToLive2
pub(crate) async fn a_partial_release_keeps_the_lease_that_was_asked_for(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("partial");
    let lease = Duration::from_secs(100);
    let first = lock.lock_with_lease(lease).await.unwrap();
    let second = lock.lock_with_lease(lease).await.unwrap();
    let third = lock.lock_with_lease(lease).await.unwrap();
    release(third).await;
    release(second).await;
    let left = lock.remaining_lease().await.unwrap().expect("a lease");
    assert!(left <= lease && left > Duration::from_secs(80), "{left:?}");
    release(first).await;
}

// testTryLockWait
pub(crate) async fn a_try_with_a_wait_gives_up_when_the_wait_is_over(setup: Setup) {
    let gone = setup.connect().await;
    std::mem::forget(gone.lock("left").lock_with_lease(MINUTE).await.unwrap());
    soon("closing", gone.close()).await;

    let client = setup.connect().await;
    let start = Instant::now();
    let taken = client.lock("left").try_lock(ms(600), MINUTE).await.unwrap();
    assert!(taken.is_none());
    assert!(start.elapsed() >= ms(590), "gave up after {:?}", start.elapsed());
    assert!(passed(start) < ms(1_500), "gave up after {:?}", passed(start));
}

pub(crate) async fn a_try_with_a_wait_gets_a_lock_that_is_freed_meanwhile(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let guard = hold(&client.lock("freed")).await;
    let waiter = other.lock("freed");
    let (taken, ()) = tokio::join!(waiter.try_lock(SOON, MINUTE), async {
        wait_until("a subscription", SOON, || setup.subscribers("freed") == 1).await;
        release(guard).await;
    });
    release(taken.unwrap().expect("a lock that was freed in time")).await;
}

// testAutoExpire
pub(crate) async fn a_lock_left_behind_by_a_closed_client_is_free_within_its_lease(setup: Setup) {
    let gone = setup.client_with(ms(600)).await;
    let guard = hold(&gone.lock("left")).await;
    soon("closing", gone.close()).await;
    std::mem::forget(guard);

    let client = setup.connect().await;
    let start = Instant::now();
    let successor = within(ms(2_500), "the end of the lease", client.lock("left").lock()).await;
    release(successor.unwrap()).await;
    assert!(passed(start) < ms(2_000), "free after {:?}", passed(start));
}

// testLockIsNotRenewedAfterInterruptedTryLock
pub(crate) async fn a_lock_is_not_kept_alive_for_a_task_that_was_aborted(setup: Setup) {
    let client = setup.client_with(setup.stretch(ms(600))).await;
    for turn in 0..20 {
        let lock = client.lock("aborted");
        let task = tokio::spawn(async move {
            let _guard = lock.lock().await.unwrap();
            std::future::pending::<()>().await;
        });
        // From "not even asked" to "granted and held".
        tokio::time::sleep(Duration::from_micros(turn * 100)).await;
        task.abort();
        let _ = task.await;
        wait_until("a free lock", SOON, || !setup.exists("aborted")).await;
    }
}

// testLockReentrantRenew
pub(crate) async fn nested_holds_given_back_do_not_stop_the_renewal_of_another_handle(
    setup: Setup,
) {
    let client = setup.client_with(setup.stretch(ms(600))).await;
    let (first, second) = (client.lock("passed on"), client.lock("passed on"));
    let outer = hold(&first).await;
    let inner = hold(&first).await;
    release(inner).await;
    release(outer).await;
    let guard = hold(&second).await;
    tokio::time::sleep(setup.stretch(ms(1_500))).await;
    assert!(!guard.is_lost());
    assert!(second.is_held().await.unwrap());
    release(guard).await;
}

// testConcurrencyTryLockUnLock
pub(crate) async fn tasks_that_share_a_handle_nest_in_any_interleaving(setup: Setup) {
    let client = setup.client_with(setup.stretch(ms(600))).await;
    let (lock, time) = (Arc::new(client.lock("shared")), setup.stretch(ms(1_500)));
    let outer = hold(&lock).await;
    let start = Instant::now();
    let tasks = (0..16).map(|_| {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move {
            // Longer than the lease, so that a renewal which gets lost in the traffic shows.
            while start.elapsed() < time {
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
    wait_until("only the outer hold", SOON, || {
        setup.holds("shared").get(outer.owner()) == Some(&1)
    })
    .await;
    release(outer).await;
    assert!(!setup.exists("shared"));
}
