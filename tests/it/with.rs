//! A lock around a call: `with` and `try_with`.

use std::future::pending;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::prelude::*;

#[tokio::test]
async fn the_work_has_the_lock_and_its_value_comes_when_the_lock_is_free() {
    let server = Server::start();
    let lock = connect(&server).await.lock("around");
    let looks = async |guard: &LockGuard| {
        (guard.name().to_owned(), guard.owner().to_owned(), server.holds("around"))
    };
    let (name, owner, holds) = lock.with(looks).await.expect("the value");
    assert_eq!(name, "around");
    assert!(holds.into_iter().eq([(owner, 1)]));
    assert!(!server.exists("around"), "the unlock was not awaited");
}

#[tokio::test]
async fn a_busy_lock_makes_try_with_return_without_the_work() {
    let server = Server::start();
    let client = connect(&server).await;
    let guard = hold(&client.lock("busy")).await;
    for wait in [Duration::ZERO, ms(50)] {
        let lock = client.lock("busy");
        let work = async |_: &_| panic!("the lock is held by another owner");
        let none: Option<()> = lock.try_with(wait, Lease::Watchdog, work).await.expect("busy");
        assert_eq!(none, None);
    }
    release(guard).await;
    let some = client.lock("busy").try_with(Duration::ZERO, ms(5_000), async |_| 42).await;
    assert_eq!(some.expect("free"), Some(42));
    assert!(!server.exists("busy"));
}

#[tokio::test]
async fn a_call_inside_the_work_nests_and_leaves_the_outer_hold() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("nested");
    let counts = lock.with(async |_| {
        let inner = lock.with(async |_| lock.hold_count().await.unwrap()).await.expect("nested");
        (inner, lock.hold_count().await.unwrap())
    });
    assert_eq!(counts.await.expect("the value"), (2, 1));
}

#[tokio::test]
async fn a_loss_comes_at_once_though_the_server_hangs() {
    let server = Server::start();
    // To await the release would take the command timeout.
    let builder = LockClient::builder().url(server.url()).command_timeout(MINUTE);
    let lock = builder.connect().await.expect("connecting").lock("hangs");
    let (inside, mut dropped) = oneshot::channel::<()>();
    let work = async |_: &_| {
        let _inside = inside;
        server.pause();
        pending::<()>().await
    };
    let lost = soon("the loss", lock.try_with(Duration::ZERO, ms(400), work)).await;
    assert_eq!(lost.expect_err("the lease ended").kind(), ErrorKind::Lost);
    assert_eq!(dropped.try_recv(), Err(TryRecvError::Closed), "the work goes on");
    server.resume();
}

#[tokio::test]
async fn a_value_comes_though_the_release_is_not_confirmed() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let lock = builder.connect().await.expect("connecting").lock("unconfirmed");
    release(hold(&lock).await).await;
    // The first is the acquire.
    proxy.plan("EVALSHA", 2, Fault::Mute);
    let faults = proxy.faults();
    assert_eq!(lock.with(async |_| 42).await.expect("the value"), 42);
    assert_eq!(proxy.faults(), faults + 1);
    wait_until("a free lock", SOON, || !server.exists("unconfirmed")).await;
}

#[tokio::test]
async fn a_panic_in_the_work_gives_the_lock_back() {
    let server = Server::start();
    let lock = connect(&server).await.lock("panic");
    let call = tokio::spawn(async move { lock.with(async |_| panic!("on purpose")).await });
    assert!(soon("the panic", call).await.expect_err("a panic").is_panic());
    wait_until("a free lock", SOON, || !server.exists("panic")).await;
}

#[tokio::test]
async fn a_dropped_call_drops_the_work_and_gives_the_lock_back() {
    let server = Server::start();
    let lock = connect(&server).await.lock("dropped");
    let (inside, mut dropped) = oneshot::channel::<()>();
    let call = tokio::spawn(async move {
        let work = async |_: &_| {
            let _inside = inside;
            pending::<()>().await;
        };
        lock.with(work).await
    });
    wait_until("the work has the lock", SOON, || server.exists("dropped")).await;
    call.abort();
    wait_until("a free lock", SOON, || !server.exists("dropped")).await;
    assert_eq!(dropped.try_recv(), Err(TryRecvError::Closed), "the work is still there");
}

#[tokio::test]
async fn the_work_under_a_fenced_lock_has_its_token() {
    let server = Server::start();
    let lock = connect(&server).await.fenced_lock("fenced");
    let first = lock.with(async |guard| guard.token()).await.expect("the value");
    let second = lock.try_with(Duration::ZERO, Lease::Watchdog, async |guard| guard.token()).await;
    assert!(second.expect("the value").expect("free") > first);
}
