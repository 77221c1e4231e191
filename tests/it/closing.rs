//! Closing a client gives back what was dropped, sends home who waits, and leaves live guards to
//! those who have them.

use crate::prelude::*;

pub(crate) async fn closing_sends_parked_waiters_home(setup: Setup) {
    let client = setup.connect().await;
    setup.hold_by_hand("parked", "somebody:1", MINUTE);
    let waiting = (0..3).map(|number| {
        let lock = client.lock("parked");
        tokio::spawn(async move {
            match number {
                0 => lock.lock().await.map(drop),
                _ => lock.try_lock(MINUTE, MINUTE).await.map(drop),
            }
        })
    });
    let waiting: Vec<_> = waiting.collect();
    wait_until("a subscription", SOON, || setup.subscribers("parked") == 1).await;
    soon("closing", client.close()).await;
    for waiter in soon("the waiters", join_all(waiting)).await {
        assert_eq!(waiter.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    wait_until("no subscription", SOON, || setup.subscribers("parked") == 0).await;
}

// testAutoExpire
pub(crate) async fn a_guard_that_is_alive_when_its_client_closes_is_not_renewed_but_can_be_given_back(
    setup: Setup,
) {
    let client = setup.client_with(ms(3_000)).await;
    let [unlocked, dropped, expiring] =
        ["unlocked", "dropped", "expiring"].map(|name| client.lock(name));
    let (unlocked, expiring) = (hold(&unlocked).await, hold(&expiring).await);
    let dropped = dropped.lock_with_lease(MINUTE).await.unwrap();
    soon("closing", client.close()).await;
    assert!(setup.exists("unlocked") && setup.exists("dropped"), "close gives back no live guard");
    release(unlocked).await;
    assert!(!setup.exists("unlocked"));
    drop(dropped);
    // Sooner than the lease would end.
    wait_until("a release after close", SOON, || !setup.exists("dropped")).await;
    soon("the end of a lease that is not renewed", expiring.lost()).await;
    wait_until("a free lock", SOON, || !setup.exists("expiring")).await;
}

#[tokio::test]
async fn when_the_last_of_a_client_is_gone_so_are_its_connections() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("last");
    server.hold_by_hand("busy", "somebody:1", MINUTE);
    // Makes every connection that a client may have.
    assert!(client.lock("busy").try_lock(ms(50), Lease::Watchdog).await.unwrap().is_none());
    let guard = hold(&lock).await;
    let connections = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1;
    drop((client, lock));
    assert!(connections() > 0, "a guard keeps what it needs");
    drop(guard);
    wait_until("the end of the connections", SOON, || connections() == 0).await;
    assert!(!server.exists("last"));
}

pub(crate) async fn shutting_down_ends_the_holders_that_are_not_done(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (kept, given_back) = (hold(&client.lock("kept")).await, hold(&client.lock("done")).await);
    let waiter = tokio::spawn(async move { hold(&other.lock("kept")).await });
    wait_until("a subscription", SOON, || setup.subscribers("kept") == 1).await;
    let shutdown = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(ms(1_500)).await }
    });
    wait_until("a closed client", SOON, || client.health().is_closed).await;
    let refused = client.lock("another").lock().await.expect_err("no new call");
    assert_eq!(refused.kind(), ErrorKind::Closed);
    release(given_back).await;
    soon("the loss", kept.lost()).await;
    assert_eq!(kept.loss(), Some(Loss::Closed));
    let left = soon("the shutdown", shutdown).await.expect("no panic");
    assert_eq!((left.released, left.unreleased), (vec!["kept".to_owned()], vec![]));
    // Sooner than the lease would end.
    release(soon("the lock", waiter).await.expect("no panic")).await;
    let error = kept.unlock().await.expect_err("it was lost");
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(Loss::Closed)));
    wait_until("free locks", SOON, || !setup.exists("kept") && !setup.exists("done")).await;
}

/// Nobody can drop a guard that a task had which never goes on.
#[tokio::test]
async fn shutting_down_releases_what_a_runtime_left_that_has_ended() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("left");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let guard = runtime.block_on(hold(&lock));
        runtime.shutdown_background();
        std::mem::forget(guard);
    })
    .join()
    .expect("no panic");
    assert!(server.exists("left"));
    let left = soon("the shutdown", client.shutdown(ms(50))).await;
    assert_eq!(left.released, ["left"]);
    assert!(!server.exists("left"));
}

#[tokio::test]
async fn a_lazy_client_that_has_made_no_call_shuts_down_at_once() {
    let client = LockClient::builder().url("redis://127.0.0.1:1/").connect_lazy().unwrap();
    let left = soon("the shutdown", client.shutdown(Duration::MAX)).await;
    assert!(left.is_clean() && client.health().is_closed);
}
