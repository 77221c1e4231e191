//! Clients that cannot come when their turn comes.

use std::time::Instant;

use redlatch::LockClient;

use super::{fair_hold, nothing_is_left, queue, waiter};
use crate::support::{Child, SOON, Server, child, connect, ms, release, soon, wait_until};

/// The role of a child: it waits for the lock, and says when it has it.
#[test]
fn entry() {
    let Some(url) = child::role() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = LockClient::connect(url.as_str()).await.expect("a client");
        let guard = client.fair_lock("turn").lock().await.expect("a turn");
        child::say("held");
        child::hear();
        guard.unlock().await.expect("unlocking");
        child::say("released");
        child::hear();
    });
}

/// A child that stands in the queue by now.
async fn waiting_child(server: &Server) -> Child {
    let before = queue(server, "turn").len();
    let child = Child::start("fair::gone::entry", &server.url());
    wait_until("its place", SOON, || queue(server, "turn").len() == before + 1).await;
    child
}

#[tokio::test]
async fn a_killed_client_is_passed_over_at_once() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let guard = fair_hold(&one.fair_lock("turn")).await;
    let mut child = waiting_child(&server).await;
    let waiting = waiter(&server, other.fair_lock("turn"), |guard| (guard, Instant::now())).await;
    child.kill();
    child.ended();
    let begun = Instant::now();
    release(guard).await;
    let (guard, held) = soon("the next", waiting).await.unwrap();
    assert!(held - begun < ms(300), "{:?}", held - begun);
    release(guard).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_stopped_client_is_passed_over_after_the_grace_and_stands_where_it_stood() {
    let server = Server::start();
    let one = connect(&server).await;
    let with_grace = || LockClient::builder().url(server.url()).fair_grace(ms(600)).connect();
    let (releases, other) = (with_grace().await.unwrap(), with_grace().await.unwrap());
    let guard = fair_hold(&releases.fair_lock("turn")).await;
    let mut child = waiting_child(&server).await;
    let first = queue(&server, "turn").remove(0);
    let waiting = waiter(&server, other.fair_lock("turn"), |guard| (guard, Instant::now())).await;
    child.stop();
    let begun = Instant::now();
    release(guard).await;
    let (guard, held) = soon("the next", waiting).await.unwrap();
    let took = held - begun;
    assert!(took >= ms(590), "its grace was not over: {took:?}");
    assert!(took < ms(1_500), "{took:?}");
    let last = waiter(&server, one.fair_lock("turn"), |guard| guard).await;
    assert_eq!(queue(&server, "turn").len(), 1);
    child.go_on();
    wait_until("its old place", SOON, || queue(&server, "turn").first() == Some(&first)).await;
    release(guard).await;
    child.hear_that("held");
    assert!(!last.is_finished());
    child.say("release");
    child.hear_that("released");
    release(soon("the last", last).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_waiter_that_is_never_polled_is_passed_over_after_the_grace() {
    let server = Server::start();
    let (one, slow, other) =
        (connect(&server).await, connect(&server).await, connect(&server).await);
    let guard = fair_hold(&one.fair_lock("turn")).await;
    let lock = slow.fair_lock("turn");
    let mut first = tokio_test::task::spawn(async move { lock.lock().await });
    wait_until("its place", SOON, || {
        assert!(first.poll().is_pending());
        queue(&server, "turn").len() == 1
    })
    .await;
    let waiting = waiter(&server, other.fair_lock("turn"), |guard| (guard, Instant::now())).await;
    let begun = Instant::now();
    release(guard).await;
    let (guard, held) = soon("the next", waiting).await.unwrap();
    let took = held - begun;
    assert!(took >= ms(990) && took < ms(2_000), "{took:?}");
    // Its client is alive, and it has its turn as soon as it is polled.
    let first = tokio::spawn(first);
    wait_until("its place", SOON, || queue(&server, "turn").len() == 1).await;
    release(guard).await;
    release(soon("the first", first).await.unwrap().unwrap()).await;
    nothing_is_left(&server).await;
}
