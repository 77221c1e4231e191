//! Clients that cannot come when their turn comes: killed, stopped, or cut off.

use std::time::Instant;

use super::figures::measured;
use super::*;

/// The role of a child: it waits for the lock, and says when it has it.
#[test]
fn entry() {
    let Some(url) = child::role() else { return };
    workers().block_on(async {
        let client = LockClient::connect(url.as_str()).await.expect("a client");
        let guard = client.fair_lock("turn").lock().await.expect("a turn");
        child::say("held");
        child::hear();
        guard.unlock().await.expect("unlocking");
        child::say("released");
        child::hear();
    });
}

/// A child that stands in the queue by now, and can be granted the lock.
async fn waiting_child(server: &Server) -> Child {
    let before = queue(server, "turn");
    let child = Child::start("fair::absent_clients::entry", &server.url());
    wait_until("its entry", SOON, || {
        let new = queue(server, "turn").into_iter().find(|client| !before.contains(client));
        new.is_some_and(|client| takes_grants(server, "turn", &client))
    })
    .await;
    child
}

#[tokio::test]
async fn a_stopped_client_is_passed_over_after_the_grace_and_stands_where_it_stood() {
    let server = Server::start();
    let one = connect(&server).await;
    let with_grace = || LockClient::builder().url(server.url()).fair_grace(ms(600)).connect();
    let (releases, other) = (with_grace().await.unwrap(), with_grace().await.unwrap());
    let guard = hold(&releases.fair_lock("turn")).await;
    let mut child = waiting_child(&server).await;
    let first = queue(&server, "turn").remove(0);
    let waiting = timed(&server, other.fair_lock("turn")).await;
    child.stop();
    let begun = Instant::now();
    release(guard).await;
    let (guard, held) = soon("the next", waiting).await.unwrap();
    let took = held - begun;
    assert!(took >= ms(590), "its grace was not over: {took:?}");
    let last = waiter(&server, one.fair_lock("turn")).await;
    assert_eq!(queue(&server, "turn").len(), 1);
    child.go_on();
    wait_until("its old entry", SOON, || queue(&server, "turn").first() == Some(&first)).await;
    release(guard).await;
    child.hear_that("held");
    assert!(!last.is_finished());
    child.say("release");
    child.hear_that("released");
    release(soon("the last", last).await.unwrap()).await;
    nothing_is_left(&server).await;
}

/// A waiter that says when it has the lock.
async fn timed(server: &Server, lock: FairLock) -> JoinHandle<(LockGuard, Instant)> {
    waiter_then(server, lock, |guard| (guard, Instant::now())).await
}

fn end(child: &mut Child) {
    child.kill();
    child.ended();
}

/// How the head of the queue goes.
#[derive(Clone, Copy, PartialEq)]
enum Gone {
    Killed,
    Stopped,
}

/// From the release until the next client has the lock, if the head of the queue has gone before.
async fn passed_over(server: &Server, grace: Duration, rounds: usize, gone: Gone) -> Vec<Duration> {
    let with_grace = || LockClient::builder().url(server.url()).fair_grace(grace).connect();
    let (one, other) = (with_grace().await.unwrap(), with_grace().await.unwrap());
    let mut times = Vec::new();
    for _ in 0..rounds {
        let guard = hold(&one.fair_lock("turn")).await;
        let mut head = waiting_child(server).await;
        let waiting = timed(server, other.fair_lock("turn")).await;
        if gone == Gone::Killed {
            let listens = format!("*{}*", queue(server, "turn")[0]);
            end(&mut head);
            let none = || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", &listens]).is_empty();
            wait_until("Redis has noticed", SOON, none).await;
        } else {
            head.stop();
        }
        let begun = Instant::now();
        release(guard).await;
        let (guard, held) = soon("the next", waiting).await.unwrap();
        times.push(held - begun);
        end(&mut head);
        release(guard).await;
    }
    nothing_is_left(server).await;
    times.sort();
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_client_is_passed_over_at_once_and_a_stopped_one_after_the_grace() {
    let (_, strict) = measured();
    let (kills, stops) = if strict { (300, 30) } else { (2, 1) };
    let grace = Duration::from_secs(if strict { 1 } else { 3 });
    let killed = passed_over(&Server::start(), grace, kills, Gone::Killed).await;
    let stopped = passed_over(&Server::start(), grace, stops, Gone::Stopped).await;
    let (p50, p99) = (killed[kills / 2], killed[kills * 99 / 100]);
    println!("{kills} killed: p50 {p50:?}, p99 {p99:?}; {stops} stopped: {:?}", stopped[stops / 2]);
    assert!(p99 < if strict { ms(20) } else { grace / 2 }, "{p99:?}");
    let (least, most) = (stopped[0], stopped[stops - 1]);
    assert!(least >= grace - ms(10), "it was alive, for all that was known: {least:?}");
    assert!(most < if strict { grace + ms(50) } else { 2 * grace }, "{most:?}");
}
