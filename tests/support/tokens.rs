//! What the tests of fenced locks do again and again.

use redlatch::{FencedLock, FencedLockGuard, FencingToken};

use super::soon;

/// `lock.lock()` that has to succeed soon.
pub(crate) async fn fence(lock: &FencedLock) -> FencedLockGuard {
    soon("locking", lock.lock()).await.expect("locking")
}

/// `guard.unlock()` that has to succeed soon, and the token of the hold.
pub(crate) async fn open(guard: FencedLockGuard) -> FencingToken {
    let token = guard.token();
    soon("unlocking", guard.unlock()).await.expect("unlocking");
    token
}

pub(crate) async fn next_token(lock: &FencedLock) -> FencingToken {
    open(fence(lock).await).await
}

pub(crate) fn assert_growing(tokens: &[FencingToken]) {
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "not growing: {tokens:?}");
}
