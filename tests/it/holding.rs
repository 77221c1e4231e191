//! Hold, nest, exclude, wait, expire. Redisson's own tests of its `RLock` are ported here and in the topics
//! beside this one; the name of each stands above the case that keeps its promise. (`testInCluster` is all of
//! `contract.rs`.)
//!
//! Not ported: `testLockUninterruptibly` (nothing can interrupt a Rust task: a call is dropped, and
//! `cancellation` drops them all), `testLockListener` (losing the lock is awaited instead, see
//! `losses.rs`), and the renewal tests of the read and the write lock. What has to do with an
//! outage is in `faults/outages.rs`, a failover in `topologies`, and many tasks in `hammer`.

use tokio::time::Instant;

use crate::prelude::*;

// testLockUnlock, testIsLocked, testIsLockedOtherThread, testIsHeldByCurrentThread,
// testIsHeldByCurrentThreadOtherThread, testGetHoldCount
pub(crate) async fn everybody_sees_that_a_lock_is_locked_and_its_handle_how_often(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (lock, beside, elsewhere) = (client.lock("seen"), client.lock("seen"), other.lock("seen"));
    let is_held_so_often = async |holds: u32| {
        assert_eq!(setup.exists("seen"), holds > 0);
        for (lock, own) in [(&lock, holds), (&beside, 0), (&elsewhere, 0)] {
            assert_eq!(lock.is_locked().await.unwrap(), holds > 0);
            assert_eq!(lock.is_held().await.unwrap(), own > 0);
            assert_eq!(lock.hold_count().await.unwrap(), own);
            let left = lock.remaining_lease().await.unwrap();
            assert_eq!(left.is_some(), holds > 0);
            assert!(left.is_none_or(|left| (ms(15_000)..=ms(30_000)).contains(&left)), "{left:?}");
        }
    };
    is_held_so_often(0).await;
    for _ in 0..3 {
        let first = hold(&lock).await;
        is_held_so_often(1).await;
        let second = hold(&lock).await;
        is_held_so_often(2).await;
        release(first).await;
        is_held_so_often(1).await;
        release(second).await;
        is_held_so_often(0).await;
    }
}

// testReentrancy
pub(crate) async fn guards_of_one_handle_may_go_in_any_order(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("order");
    let first = hold(&lock).await;
    let second = lock.try_lock_now().await.unwrap().expect("a lock of our own");
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
    let guards = soon("all names", join_all(locks.iter().map(hold))).await;
    assert_eq!(guards.len(), names.len());
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
    let (start, lease) = (Instant::now(), setup.stretch(ms(400)));
    let guard = soon("locking", lock.lock_with_lease(lease)).await.unwrap();
    let successor = hold(&next).await;
    assert!(start.elapsed() >= lease - ms(5), "let in while the lease ran");
    let error = guard.unlock().await.expect_err("the lease has ended");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(next.is_held().await.unwrap(), "a late unlock must not touch the successor");
    release(successor).await;
}

// testTryLockWait
pub(crate) async fn a_try_with_a_wait_gives_up_when_the_wait_is_over(setup: Setup) {
    setup.hold_by_hand("left", "somebody:1", MINUTE);
    let client = setup.connect().await;
    let start = Instant::now();
    let taken = soon("the end", client.lock("left").try_lock(ms(600), MINUTE)).await.unwrap();
    assert!(taken.is_none());
    assert!(start.elapsed() >= ms(590), "gave up after {:?}", start.elapsed());
}

// testLockIsNotRenewedAfterInterruptedTryLock
pub(crate) async fn c4_a_lock_is_not_kept_alive_for_a_task_that_was_aborted(setup: Setup) {
    let client = setup.client_with(setup.stretch(ms(600))).await;
    for turn in 0..20 {
        let lock = client.lock("aborted");
        let task = tokio::spawn(async move {
            let _outer = lock.lock().await.unwrap();
            let _inner = lock.lock_with_lease(MINUTE).await.unwrap();
            std::future::pending::<()>().await;
        });
        // From "not even asked" to "granted and held".
        tokio::time::sleep(Duration::from_micros(turn * 100)).await;
        if turn == 19 {
            wait_until("both", SOON, || setup.holds("aborted").into_values().eq([2])).await;
        }
        task.abort();
        let _ = task.await;
        wait_until("a free lock", SOON, || !setup.exists("aborted")).await;
    }
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
