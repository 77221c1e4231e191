//! What a caller learns from an error beside its kind: the lock, and whether to call again.

use futures::future::LocalBoxFuture;
use futures::{FutureExt, TryFutureExt};
use redlatch::kind::LockKind;

use crate::prelude::*;

mod mistakes;

fn about_order(error: Option<Error>, kind: ErrorKind) {
    let error = error.expect("an error");
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.lock_name(), Some("order"), "{error}");
    assert_eq!(error.loss().is_some(), kind == ErrorKind::Lost, "{error}");
    assert_eq!(error.is_retryable(), kind == ErrorKind::Unavailable, "{error}");
}

/// Each call about a lock, and its name.
pub(crate) fn calls<K: LockKind>(
    lock: &Lock<K>,
) -> [(&'static str, LocalBoxFuture<'_, Result<(), Error>>); 11] {
    [
        ("lock", lock.lock().map_ok(drop).boxed_local()),
        ("lock_with_lease", lock.lock_with_lease(MINUTE).map_ok(drop).boxed_local()),
        ("try_lock", lock.try_lock(MINUTE, MINUTE).map_ok(drop).boxed_local()),
        ("try_lock_now", lock.try_lock_now().map_ok(drop).boxed_local()),
        ("with", lock.with(async |_| ()).boxed_local()),
        ("try_with", lock.try_with(MINUTE, MINUTE, async |_| ()).map_ok(drop).boxed_local()),
        ("is_locked", lock.is_locked().map_ok(drop).boxed_local()),
        ("is_held", lock.is_held().map_ok(drop).boxed_local()),
        ("hold_count", lock.hold_count().map_ok(drop).boxed_local()),
        ("remaining_lease", lock.remaining_lease().map_ok(drop).boxed_local()),
        ("force_unlock", lock.force_unlock().map_ok(drop).boxed_local()),
    ]
}

/// What each of them says, which has to fail at once.
pub(crate) async fn every_call<K: LockKind>(lock: &Lock<K>) -> Vec<(&'static str, Error)> {
    let mut errors = Vec::new();
    for (name, call) in calls(lock) {
        let Err(error) = soon(name, call).await else { panic!("{name}: not refused") };
        errors.push((name, error));
    }
    errors
}

async fn every_call_is_about_order(lock: &Lock, kind: ErrorKind) {
    for (_, error) in every_call(lock).await {
        about_order(Some(error), kind);
    }
}

#[tokio::test]
async fn an_error_names_its_lock_as_the_caller_did_and_says_whether_to_call_again() {
    let (server, proxy) = proxied();
    let builder = LockClient::builder().url(proxy.url(&server)).name_prefix("app:");
    let client = connected(builder.command_timeout(ms(1_000))).await;
    let lock = client.lock("order");

    server.ask::<()>(&["SET", "app:order", "data"]);
    every_call_is_about_order(&lock, ErrorKind::NotALock).await;
    server.ask::<()>(&["DEL", "app:order"]);

    about_order(lock.lock_with_lease(Duration::ZERO).await.err(), ErrorKind::InvalidArgument);

    let guard = hold(&lock).await;
    server.ask::<()>(&["DEL", "app:order"]);
    about_order(guard.extend(MINUTE).await.err(), ErrorKind::Lost);
    about_order(guard.extend(Duration::ZERO).await.err(), ErrorKind::InvalidArgument);
    about_order(guard.run_until_lost(async {}).await.err(), ErrorKind::Lost);
    about_order(guard.unlock().await.err(), ErrorKind::Lost);

    release(hold(&lock).await).await;
    proxy.plan("EVALSHA", 1, Fault::Mute);
    about_order(lock.try_lock_now().await.err(), ErrorKind::Unavailable);

    soon("closing", client.close()).await;
    soon("closing again", client.close()).await;
    every_call_is_about_order(&lock, ErrorKind::Closed).await;
    every_call_is_about_order(&client.clone().lock("order"), ErrorKind::Closed).await;
    assert!(!server.exists("app:order"));
}
