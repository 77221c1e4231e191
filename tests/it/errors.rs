//! What a caller learns from an error beside its kind: the lock, and whether to call again.

use crate::prelude::*;

mod mistakes;

fn about_order(error: Option<Error>, kind: ErrorKind) {
    let error = error.expect("an error");
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.lock_name(), Some("order"), "{error}");
    assert_eq!(error.is_retryable(), kind == ErrorKind::Unavailable, "{error}");
}

/// What each call about a lock says, which has to fail at once.
pub(crate) async fn every_call(lock: &Lock) -> Vec<(&'static str, Error)> {
    let errors = [
        ("lock", soon("lock", lock.lock()).await.err()),
        ("lock_with_lease", soon("lock", lock.lock_with_lease(MINUTE)).await.err()),
        ("try_lock", soon("try_lock", lock.try_lock(MINUTE, MINUTE)).await.err()),
        ("try_lock_now", soon("try_lock_now", lock.try_lock_now()).await.err()),
        ("with", soon("with", lock.with(async |_| ())).await.err()),
        ("try_with", soon("with", lock.try_with(MINUTE, MINUTE, async |_| ())).await.err()),
        ("is_locked", lock.is_locked().await.err()),
        ("is_held", lock.is_held().await.err()),
        ("hold_count", lock.hold_count().await.err()),
        ("remaining_lease", lock.remaining_lease().await.err()),
        ("force_unlock", lock.force_unlock().await.err()),
    ];
    let refused = |(call, error): (&'static str, Option<Error>)| {
        (call, error.unwrap_or_else(|| panic!("{call}: not refused")))
    };
    errors.map(refused).into()
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

#[tokio::test]
async fn an_error_of_no_lock_names_none() {
    let error = LockClient::connect("").await.expect_err("no address");
    assert_eq!((error.lock_name(), error.is_retryable()), (None, false), "{error}");
}
