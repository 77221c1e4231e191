//! Fencing tokens.

use redlatch::ErrorKind;

use crate::support::tokens::{assert_growing, fence, next_token, open};
use crate::support::{SOON, hold, ms, release, soon, wait_until};
use crate::{MINUTE, Site};

pub(super) async fn a_token_grows_with_every_hold_whoever_holds(site: Site) {
    let (one, other) = (site.connect().await, site.connect().await);
    let first = one.fenced_lock("order");
    let handles = [first.clone(), first, other.fenced_lock("order")];
    let mut tokens = Vec::new();
    for round in 0..9 {
        tokens.push(next_token(&handles[round % 3]).await);
    }
    // Also from holder to waiting successor.
    let guard = fence(&handles[0]).await;
    tokens.push(guard.token());
    let waiter = tokio::spawn({
        let lock = handles[2].clone();
        async move { next_token(&lock).await }
    });
    wait_until("a waiter", SOON, || site.subscribers("order") == 1).await;
    open(guard).await;
    tokens.push(soon("the waiter", waiter).await.unwrap());
    assert_growing(&tokens);
    let last = tokens.last().unwrap();
    assert_eq!(last.to_string(), last.get().to_string());
    assert_eq!(u64::from(*last), last.get());
}

pub(super) async fn a_fenced_lock_and_a_plain_one_of_that_name_exclude_each_other(site: Site) {
    let client = site.connect().await;
    let (fenced, plain) = (client.fenced_lock("both"), client.lock("both"));
    let guard = hold(&plain).await;
    assert!(fenced.try_lock_now().await.unwrap().is_none());
    assert_eq!(site.token("both"), None, "a plain lock has no token");
    release(guard).await;
    let guard = fence(&fenced).await;
    assert!(plain.try_lock_now().await.unwrap().is_none());
    open(guard).await;
}

pub(super) async fn a_fenced_guard_knows_what_every_guard_knows(site: Site) {
    let client = site.connect().await;
    let lock = client.fenced_lock("same");
    assert_eq!(lock.name(), "same");
    let guard = lock.try_lock(MINUTE, ms(300)).await.unwrap().expect("a free lock");
    assert_eq!(site.holds("same").keys().collect::<Vec<_>>(), [lock.owner()]);
    assert!(guard.remaining() <= ms(300) && !guard.is_lost());
    assert!(lock.remaining_lease().await.unwrap().is_some_and(|left| left <= ms(300)));
    assert!(lock.is_held().await.unwrap());
    assert_eq!(guard.run_until_lost(async { 5 }).await.unwrap(), 5);
    let never = guard.run_until_lost(std::future::pending::<()>());
    assert_eq!(soon("the loss", never).await.unwrap_err().kind(), ErrorKind::Lost);
    soon("the loss", guard.lost()).await;
    assert!(guard.is_lost());
    drop(guard);
    // A dropped guard gives back in the background, and force frees what somebody else holds.
    let guard = fence(&lock).await;
    let token = guard.token();
    drop(guard);
    wait_until("a free lock", SOON, || !site.exists("same")).await;
    let guard = fence(&lock).await;
    assert!(lock.clone().force_unlock().await.unwrap());
    assert!(guard.token() > token && site.token("same") == Some(guard.token().get()));
    drop(guard);
}
