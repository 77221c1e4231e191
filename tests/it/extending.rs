//! `LockGuard::extend`: a longer lease for a hold that is there.

use std::time::Instant;

use tokio::time::sleep;

use crate::prelude::*;

async fn held_for(lock: &Lock, lease: Duration) -> LockGuard {
    lock.lock_with_lease(lease).await.expect("the lock")
}

fn left(server: &Server, name: &str) -> Duration {
    ms(server.ask(&["PTTL", name]))
}

#[tokio::test]
async fn an_explicit_lease_is_longer_from_now_on() {
    let server = Server::start();
    let guard = held_for(&connect(&server).await.lock("longer"), ms(2_000)).await;
    let before = Instant::now();
    guard.extend(MINUTE).await.expect("still held");
    assert!(left(&server, "longer") > MINUTE - ms(1_000));
    // The margin is that of the longer lease, and the deadline counts from before the request.
    let remaining = guard.remaining();
    let least = MINUTE - MINUTE / 100 - ms(1) - before.elapsed();
    assert!((least..MINUTE - MINUTE / 100).contains(&remaining), "{remaining:?}");
    release(guard).await;
    assert!(!server.exists("longer"));
}

#[tokio::test]
async fn a_longer_lease_is_never_shortened() {
    let server = Server::start();
    let lock = connect(&server).await.lock("longest");
    let (outer, inner) = (held_for(&lock, 2 * MINUTE).await, held_for(&lock, ms(5_000)).await);
    outer.extend(ms(1_000)).await.expect("still held");
    inner.extend(MINUTE).await.expect("still held");
    assert!(left(&server, "longest") > 2 * MINUTE - ms(2_000));
    assert!(outer.remaining() > 2 * MINUTE - ms(4_000));
    assert!((MINUTE - ms(3_000)..MINUTE).contains(&inner.remaining()));
    // What was promised to the inner guard stays when the outer one goes, with its margin.
    release(outer).await;
    let left = left(&server, "longest");
    assert!(left >= inner.remaining() + ms(500) && left <= MINUTE, "{left:?}");
    release(inner).await;
}

#[tokio::test]
async fn the_watchdog_goes_on_with_a_default_lease() {
    let server = Server::start();
    let guard = hold(&client_with(server.url(), ms(2_400)).await.lock("watched")).await;
    guard.extend(ms(4_000)).await.expect("still held");
    assert!(guard.remaining() > ms(2_600));
    let extended = Instant::now() + guard.remaining();
    let renewed = || Instant::now() + guard.remaining() > extended + ms(100);
    wait_until("a renewal beyond the extension", SOON, renewed).await;
    release(guard).await;
}

#[tokio::test]
async fn a_nested_release_does_not_cut_the_extension_of_a_default_lease() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("default");
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    outer.extend(10 * MINUTE).await.expect("still held");
    release(inner).await;
    let left = left(&server, "default");
    assert!(left >= outer.remaining() + outer.remaining() / 100, "{left:?}");
    release(outer).await;
}

#[tokio::test]
async fn a_lock_that_is_lost_is_not_extended() {
    let server = Server::start();
    let client = connect(&server).await;
    let guard = held_for(&client.lock("lost"), ms(500)).await;
    soon("the loss", guard.lost()).await;
    let calls = server.calls("evalsha");
    assert_eq!(guard.extend(MINUTE).await.expect_err("lost").kind(), ErrorKind::Lost);
    assert_eq!(server.calls("evalsha"), calls, "Redis was asked");
    let guard = held_for(&client.lock("gone"), MINUTE).await;
    server.ask::<()>(&["DEL", "gone"]);
    assert_eq!(guard.extend(MINUTE).await.expect_err("gone").kind(), ErrorKind::Lost);
    assert!(guard.is_lost());
    assert!(!server.exists("gone"));
}

#[tokio::test]
async fn without_an_answer_the_guard_is_valid_for_as_long_as_it_was() {
    let (server, proxy) = proxied();
    let lock = impatient(proxy.url(&server), ms(1_000)).await.lock("silent");
    let guard = held_for(&lock, ms(10_000)).await;
    guard.extend(ms(10_000)).await.expect("every script once");
    proxy.plan("EVALSHA", 1, Fault::Mute);
    let faults = proxy.faults();
    let error = guard.extend(MINUTE).await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(proxy.faults(), faults + 1);
    assert!((ms(5_000)..ms(10_000)).contains(&guard.remaining()));
    release(guard).await;
    assert!(!server.exists("silent"));
}

/// Redis keeps the lock for the lease that was asked for, though the client never heard so. It goes
/// on with the release for as long.
#[tokio::test]
async fn an_extension_without_an_answer_is_released_after_an_outage_longer_than_the_first_lease() {
    let (server, proxy) = proxied();
    let lock = impatient(proxy.url(&server), ms(1_000)).await.lock("outage");
    let guard = held_for(&lock, ms(1_500)).await;
    guard.extend(ms(1_500)).await.expect("every script once");
    proxy.plan("EVALSHA", 1, Fault::Mute);
    guard.extend(MINUTE).await.expect_err("no answer");
    assert!(left(&server, "outage") > MINUTE / 2, "it was executed");
    proxy.refuse(true);
    proxy.cut_all();
    drop(guard);
    // Longer than the client would try the release of the first lease: that, and a command timeout.
    sleep(ms(3_500)).await;
    proxy.refuse(false);
    wait_until("the lock is released", SOON, || !server.exists("outage")).await;
}
