//! What a re-entrant lock does: hold, nest, exclude, wait, expire. Redisson's own tests of its
//! `RLock` are ported here; the name of each stands above the test that keeps its promise.
//!
//! Not ported: `testLockUninterruptibly` (nothing can interrupt a Rust task: a call is dropped, and
//! `cancellation.rs` drops them all), `testInCluster` and `testLockFailoverInCluster` (one server
//! here), `testLockListener` (losing the lock is awaited instead, see `leases.rs`), and the
//! renewal tests of the read and the write lock. Those with many threads are in `crowds.rs`.

mod support;

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlatch::{ErrorKind, Lease, LockClient};
use support::{SOON, Server, connect, hold, is_free, ms, release, soon, wait_until, within};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A client whose watchdog renews every 200 ms, and loses after 600 ms.
async fn quick_client(server: &Server) -> LockClient {
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(600));
    soon("connecting", builder.connect()).await.expect("connecting")
}

// testLockUnlock
#[tokio::test]
async fn a_lock_can_be_taken_and_given_back_again_and_again() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("again");
    for _ in 0..3 {
        let guard = hold(&lock).await;
        assert!(server.exists("again"));
        release(guard).await;
        assert!(!server.exists("again"));
    }
}

// testIsLocked, testIsLockedOtherThread
#[tokio::test]
async fn everybody_sees_that_a_lock_is_locked() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
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
#[tokio::test]
async fn only_the_handle_that_holds_a_lock_says_that_it_is_held() {
    let server = Server::start();
    let client = connect(&server).await;
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
#[tokio::test]
async fn the_hold_count_follows_nested_calls() {
    let server = Server::start();
    let client = connect(&server).await;
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
#[tokio::test]
async fn a_nested_hold_given_back_leaves_the_outer_one() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("nested");
    let outer = lock.try_lock_now().await.unwrap().expect("a free lock");
    let inner = lock.try_lock_now().await.unwrap().expect("a lock of our own");
    assert!(!is_free(&client, "nested").await);
    release(inner).await;
    assert!(!is_free(&client, "nested").await);
    release(outer).await;
    assert!(is_free(&client, "nested").await);
}

#[tokio::test]
async fn guards_of_one_handle_may_go_in_any_order() {
    let server = Server::start();
    let client = connect(&server).await;
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

#[tokio::test]
async fn clones_handles_and_clients_all_exclude_each_other() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
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

#[tokio::test]
async fn names_do_not_get_in_each_others_way() {
    let server = Server::start();
    let client = connect(&server).await;
    let names = ["a", "A", "a ", "{a}", "a:1", "a:{1}"];
    let locks: Vec<_> = names.iter().map(|name| client.lock(*name)).collect();
    let guards = soon("all names", join_all(locks.iter().map(|lock| lock.lock()))).await;
    assert_eq!(guards.len(), names.len());
    assert!(guards.iter().all(Result::is_ok));
}

// testForceUnlock
#[tokio::test]
async fn a_forced_unlock_frees_the_lock_for_everybody() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
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
#[tokio::test]
async fn a_lease_that_ends_lets_the_next_one_in_and_makes_unlock_say_lost() {
    let server = Server::start();
    let client = connect(&server).await;
    let (lock, next) = (client.lock("expires"), client.lock("expires"));
    let start = Instant::now();
    let guard = soon("locking", lock.lock_with_lease(ms(400))).await.unwrap();
    let successor = hold(&next).await;
    assert!(start.elapsed() >= ms(395), "let in while the lease ran");
    assert!(start.elapsed() < ms(1_500), "let in {:?} after the start", start.elapsed());
    let error = guard.unlock().await.expect_err("the lease has ended");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(next.is_held().await.unwrap(), "a late unlock must not touch the successor");
    release(successor).await;
}

// testRemainTimeToLive
#[tokio::test]
async fn a_handle_does_not_remember_the_lease_of_an_earlier_hold() {
    let server = Server::start();
    let client = connect(&server).await;
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
#[tokio::test]
async fn a_partial_release_keeps_the_lease_that_was_asked_for() {
    let server = Server::start();
    let client = connect(&server).await;
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
#[tokio::test]
async fn a_try_with_a_wait_gives_up_when_the_wait_is_over() {
    let server = Server::start();
    let gone = connect(&server).await;
    std::mem::forget(gone.lock("left").lock_with_lease(MINUTE).await.unwrap());
    soon("closing", gone.close()).await;

    let client = connect(&server).await;
    let start = Instant::now();
    let taken = client.lock("left").try_lock(ms(600), MINUTE).await.unwrap();
    assert!(taken.is_none());
    assert!(start.elapsed() >= ms(590), "gave up after {:?}", start.elapsed());
    assert!(start.elapsed() < ms(1_500), "gave up after {:?}", start.elapsed());
}

#[tokio::test]
async fn a_try_with_a_wait_gets_a_lock_that_is_freed_meanwhile() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let guard = hold(&client.lock("freed")).await;
    let waiter = other.lock("freed");
    let (taken, ()) = tokio::join!(waiter.try_lock(SOON, MINUTE), async {
        wait_until("a subscription", SOON, || server.subscribers("freed") == 1).await;
        release(guard).await;
    });
    release(taken.unwrap().expect("a lock that was freed in time")).await;
}

// testAutoExpire
#[tokio::test]
async fn a_lock_left_behind_by_a_closed_client_is_free_within_its_lease() {
    let server = Server::start();
    let gone = quick_client(&server).await;
    let guard = hold(&gone.lock("left")).await;
    soon("closing", gone.close()).await;
    std::mem::forget(guard);

    let client = connect(&server).await;
    let start = Instant::now();
    let successor = within(ms(2_500), "the end of the lease", client.lock("left").lock()).await;
    release(successor.unwrap()).await;
    assert!(start.elapsed() < ms(2_000), "free after {:?}", start.elapsed());
}

// testRedisFailed
#[tokio::test]
async fn a_try_while_redis_is_down_is_an_error_and_no_hang() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).command_timeout(ms(300));
    let client = builder.connect().await.unwrap();
    let lock = client.lock("down");
    server.kill();
    let tried = lock.try_lock(Duration::from_secs(5), Duration::from_secs(10));
    let error = within(Duration::from_secs(3), "an error", tried).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

// testLockIsNotRenewedAfterInterruptedTryLock
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_not_kept_alive_for_a_task_that_was_aborted() {
    let server = Server::start();
    let client = quick_client(&server).await;
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
        wait_until("a free lock", SOON, || !server.exists("aborted")).await;
    }
}

// testLockAfterTimeout
#[tokio::test]
async fn after_a_restart_the_old_hold_is_lost_and_a_new_one_is_renewed() {
    let server = Server::start();
    let client = quick_client(&server).await;
    let lock = client.lock("restart");
    let guard = hold(&lock).await;
    server.restart();
    soon("the loss", guard.lost()).await;
    let error = guard.unlock().await.expect_err("the server forgot the lock");
    assert_eq!(error.kind(), ErrorKind::Lost);

    let guard = hold(&lock).await;
    // More than two leases: without renewals it would have ended twice.
    tokio::time::sleep(ms(1_500)).await;
    assert!(!guard.is_lost());
    assert!(lock.is_held().await.unwrap());
    release(guard).await;
}

// testLockReentrantRenew
#[tokio::test]
async fn nested_holds_given_back_do_not_stop_the_renewal_of_another_handle() {
    let server = Server::start();
    let client = quick_client(&server).await;
    let (first, second) = (client.lock("passed on"), client.lock("passed on"));
    let outer = hold(&first).await;
    let inner = hold(&first).await;
    release(inner).await;
    release(outer).await;
    let guard = hold(&second).await;
    tokio::time::sleep(ms(1_500)).await;
    assert!(!guard.is_lost());
    assert!(second.is_held().await.unwrap());
    release(guard).await;
}
