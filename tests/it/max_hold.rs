//! `max_hold`: for how long the watchdog renews a lock.

use std::time::Instant;

use crate::prelude::*;

const LEASE: Duration = ms(1_200);
const MAX_HOLD: Duration = ms(1_500);

/// Lost now: the last renewal is up to a third of a lease before the limit; and what a busy machine may take.
fn is_limited(begun: Instant) -> bool {
    begun.elapsed() > MAX_HOLD && passed(begun) < MAX_HOLD + LEASE + ms(500)
}

async fn client(server: &Server) -> LockClient {
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(LEASE);
    builder.max_hold(MAX_HOLD).connect().await.expect("connecting")
}

#[tokio::test]
async fn a_lock_is_renewed_up_to_max_hold_and_ends_with_its_lease() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("hangs");
    let begun = Instant::now();
    let guard = hold(&lock).await;
    // Somebody waits for a holder that hangs.
    let next = client.lock("hangs");
    let waiter = tokio::spawn(async move { (hold(&next).await, Instant::now()) });
    soon("the loss", guard.lost()).await;
    let held = begun.elapsed();
    assert!(is_limited(begun), "{held:?}");
    let (next, granted) = soon("the lock", waiter).await.expect("no panic");
    assert!(granted > begun + held);
    assert_eq!(guard.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
    // Each hold counts for itself.
    renewed(&next).await;
    release(next).await;
    let again = hold(&lock).await;
    renewed(&again).await;
    renewed(&again).await;
    release(again).await;
}

#[tokio::test]
async fn nested_holds_count_from_the_first() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("nested");
    let begun = Instant::now();
    let outer = hold(&lock).await;
    // If the limit counted from the inner one, it would be so much later.
    tokio::time::sleep(MAX_HOLD * 2 / 3).await;
    let inner = hold(&lock).await;
    release(outer).await;
    soon("the loss", inner.lost()).await;
    assert!(is_limited(begun), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_the_caller_asks_for_is_not_limited() {
    let server = Server::start();
    let client = client(&server).await;
    let explicit = client.lock("explicit").lock_with_lease(SOON).await.expect("the lock");
    let extended = hold(&client.lock("extended")).await;
    extended.extend(SOON).await.expect("still held");
    tokio::time::sleep(MAX_HOLD + LEASE).await;
    assert!(!explicit.is_lost() && !extended.is_lost());
    assert!(!is_free(&client, "extended").await);
    release(explicit).await;
    release(extended).await;
}
