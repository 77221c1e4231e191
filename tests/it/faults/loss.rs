//! Losing a lock is known: at the next renewal when somebody tampered with it, at the guard's own
//! deadline when nobody can be asked, and for good.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

async fn is_lost_soon(guard: &LockGuard) {
    soon("the loss", guard.lost()).await;
    assert!(guard.is_lost());
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[tokio::test]
async fn s22_a_deleted_taken_renamed_or_replaced_lock_is_lost_at_the_next_renewal() {
    type Tamper = fn(&Server);
    let tampering: [(&str, Tamper); 5] = [
        ("deleted", |server| server.ask(&["DEL", "lock"])),
        ("taken", |server| {
            server.ask::<()>(&["DEL", "lock"]);
            server.hold_by_hand("lock", "somebody:1", MINUTE);
        }),
        ("renamed", |server| server.ask(&["RENAME", "lock", "elsewhere"])),
        ("replaced", |server| server.ask(&["SET", "lock", "a string"])),
        ("flushed", |server| server.ask(&["FLUSHALL"])),
    ];
    for (what, tamper) in tampering {
        let server = Server::start();
        // Renewed every 1.5 s, believed for 4.5 s: the two can be told apart.
        let client = client_with(server.url(), ms(4_500)).await;
        let guard = hold(&client.lock("lock")).await;
        tamper(&server);
        is_lost_soon(&guard).await;
        assert_ne!(guard.loss(), Some(Loss::LeaseEnded), "{what}: not found by a renewal");
        let error = guard.unlock().await.expect_err("nothing to give back");
        assert_eq!(error.kind(), ErrorKind::Lost, "{what}: {error}");
    }
}

#[tokio::test]
async fn all_holds_of_a_lost_lock_are_lost_and_everybody_who_waits_for_it_is_told() {
    let setup = Setup::alone();
    let client = setup.client_with(ms(600)).await;
    let lock = client.lock("nested");
    let guards = [hold(&lock).await, hold(&lock).await, hold(&lock).await];
    let guards = Arc::new(guards);
    let watchers: Vec<_> = (0..9)
        .map(|number| {
            let guards = Arc::clone(&guards);
            tokio::spawn(async move { guards[number % 3].lost().await })
        })
        .collect();
    tokio::task::yield_now().await;
    setup.ask::<()>("DEL", "nested", &[]);
    for watcher in watchers {
        soon("the loss", watcher).await.unwrap();
    }
    assert!(guards.iter().all(LockGuard::is_lost));
}

#[tokio::test]
async fn n12_renewals_that_arrive_while_no_answer_does_do_not_count() {
    let (server, proxy) = proxied();
    let client = client_with(proxy.url(&server), ms(3_000)).await;
    let guard = hold(&client.lock("mute")).await;
    // Answered, not only sent: a renewal that was under way at the fault would fail together with
    // its connection, and no later one could be sent.
    renewed(&guard).await;
    let deadline = Instant::now() + guard.remaining();
    server.reset_stats();
    proxy.stall_replies(true);
    is_lost_soon(&guard).await;
    // One that was answered just before may have been on its way in.
    let late = passed(deadline);
    assert!(late <= ms(1_500), "known only {late:?} after its deadline");
    // It did try, and the server did renew: nobody heard of it.
    assert!(proxy.withheld() > 0);
    assert!(server.calls("evalsha") > 0);
    // Loss is for good: the answers that were under way change nothing.
    proxy.stall_replies(false);
    let stop = Instant::now() + ms(1_000);
    while Instant::now() < stop {
        assert!(guard.is_lost());
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test]
async fn n8_when_no_renewal_arrives_the_loss_is_known_before_anybody_else_has_the_lock() {
    let (server, proxy) = proxied();
    let (holder, other) =
        (client_with(proxy.url(&server), ms(3_000)).await, connect(&server).await);
    let guard = Arc::new(hold(&holder.lock("handover")).await);
    let successor = {
        let (lock, guard) = (other.lock("handover"), Arc::clone(&guard));
        tokio::spawn(async move {
            let successor = lock.lock().await.unwrap();
            // By its own clock, whether or not anybody has told it.
            assert!(guard.is_lost(), "two holders, {:?} are left of the first", guard.remaining());
            successor
        })
    };
    wait_until("the successor in line", SOON, || server.subscribers("handover") == 1).await;
    // Renewed, so that its lease is not the one with which it began.
    renewed(&guard).await;
    let deadline = Instant::now() + guard.remaining();
    proxy.refuse(true);
    assert_eq!(proxy.cut_all(), 2);
    soon("the loss", guard.lost()).await;
    let late = passed(deadline);
    assert!(late < ms(1_000), "told {late:?} after its deadline");
    release(soon("the successor", successor).await.unwrap()).await;
    assert!(!server.exists("handover"));
}

#[tokio::test]
async fn i10_a_nested_call_after_an_unnoticed_loss_takes_the_lock_anew() {
    // Or one that its guards have heard of.
    for noticed in [false, true] {
        let setup = Setup::alone();
        let client =
            if noticed { setup.client_with(ms(2_400)).await } else { setup.connect().await };
        let lock = client.lock("unnoticed");
        let old = [hold(&lock).await, hold(&lock).await];
        setup.ask::<()>("DEL", "unnoticed", &[]);
        if noticed {
            soon("the loss", old[0].lost()).await;
        }
        let new = hold(&lock).await;
        assert!(old.iter().all(LockGuard::is_lost), "the nested call found out");
        assert!(!new.is_lost());
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        for old in old {
            assert_eq!(old.unlock().await.expect_err("a lost lock").kind(), ErrorKind::Lost);
        }
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        if noticed {
            renewed(&new).await;
        }
        release(new).await;
        assert!(!setup.exists("unnoticed"));
    }
}

#[tokio::test]
async fn work_is_dropped_when_the_lock_is_lost() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let setup = Setup::alone();
    let client = setup.client_with(ms(600)).await;
    let guard = hold(&client.lock("work")).await;
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Dropped(Arc::clone(&dropped));
    let work = guard.run_until_lost(async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    });
    setup.ask::<()>("DEL", "work", &[]);
    let error = soon("the loss", work).await.expect_err("the lock is lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(dropped.load(Ordering::Relaxed), "the work went on without the lock");
}

#[tokio::test]
async fn work_under_a_lock_that_is_lost_already_is_not_begun() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let guard = client.lock("work").lock_with_lease(ms(500)).await.unwrap();
    soon("the loss", guard.lost()).await;
    let begun = AtomicBool::new(false);
    let work = guard.run_until_lost(async { begun.store(true, Ordering::Relaxed) });
    assert_eq!(work.await.expect_err("a lost lock").kind(), ErrorKind::Lost);
    assert!(!begun.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_value_that_comes_after_the_deadline_is_no_success() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let guard = client.lock("late").lock_with_lease(ms(500)).await.unwrap();
    let work = guard.run_until_lost(async {
        // Blocks past the lease, and is ready in the same poll.
        std::thread::sleep(ms(600));
        "too late"
    });
    assert_eq!(work.await.expect_err("a lost lock").kind(), ErrorKind::Lost);
}

/// The answers to this client come after the lease that they grant.
async fn answers_late(server: &Server, proxy: &Proxy) {
    wait_until("a grant on its way", SOON, || proxy.withheld() > 0).await;
    wait_until("the end of its lease", SOON, || !server.exists("late")).await;
    proxy.stall_replies(false);
}

fn no_lock(granted: Result<LockGuard, Error>) {
    match granted {
        Ok(guard) => assert!(guard.is_lost(), "the lease ended before the grant was heard of"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Lost),
    }
}

#[tokio::test]
async fn n4_a_grant_that_arrives_after_its_lease_is_no_lock() {
    let Far { server, proxy, client } = Far::new().await;
    let lock = client.lock("late");
    release(hold(&lock).await).await;
    server.reset_stats();
    proxy.stall_replies(true);
    let (granted, ()) = tokio::join!(lock.lock_with_lease(ms(300)), answers_late(&server, &proxy));
    assert_eq!(server.calls("hset"), 1, "it has to be granted: that is the point");
    no_lock(granted);
}

#[tokio::test]
async fn i12_a_lease_that_ended_while_its_waiter_was_woken_is_no_lock() {
    let Far { server, proxy, client } = Far::new().await;
    server.hold_by_hand("late", "somebody:1", MINUTE);
    let lock = client.lock("late");
    let waiter = tokio::spawn(async move { lock.lock_with_lease(ms(300)).await });
    wait_until("a subscription", SOON, || server.subscribers("late") == 1).await;
    proxy.settled(ms(200)).await;
    // What it is granted when it is woken is held back by a proxy that lets the wake-up through:
    // the first command from now on is its acquire.
    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    server.free_by_hand("late");
    wait_until("the acquire", SOON, || proxy.faults() == 1).await;
    proxy.stall_replies(true);
    server.reset_stats();
    proxy.let_go();
    answers_late(&server, &proxy).await;
    assert_eq!(server.calls("hset"), 1, "it has to be granted: that is the point");
    no_lock(soon("the answer", waiter).await.unwrap());
}

#[tokio::test]
async fn an_unlock_of_a_lost_lock_says_whether_it_released_anything() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let lock = client.lock("lock");
    // Lost by its own deadline, beside a hold that keeps the key.
    let outer = hold(&lock).await;
    let inner = soon("locking", lock.lock_with_lease(ms(500))).await.unwrap();
    soon("the end of the lease", inner.lost()).await;
    let error = soon("unlocking", inner.unlock()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Lost, Outcome::Executed));
    assert_eq!(setup.holds("lock").values().sum::<u32>(), 1);
    // Gone.
    setup.ask::<()>("DEL", "lock", &[]);
    let error = soon("unlocking", outer.unlock()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Lost, Outcome::NotExecuted));
}
