//! The fenced lock: a lock whose guards have a token for the store that they write to.
//!
//! It differs from a [`Lock`] in a second key of the acquire script. All else is the same lock, to
//! which this file delegates.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::{Error, Loss};
use crate::guard::LockGuard;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::token::FencingToken;

use super::Lock;
use super::around::lock_around;
use super::delegate::{delegate, delegate_guard, delegate_lock};

/// A [`Lock`] whose guards have a [`token`](FencedLockGuard::token).
///
/// # Why
///
/// No lease keeps a paused holder from going on after it has lost the lock. A store can refuse its
/// writes: each write carries the token of its hold, and the store refuses a token that is lower
/// than one that it has seen.
///
/// ```sql
/// UPDATE accounts SET balance = :balance, token = :token WHERE id = :id AND token <= :token
/// ```
///
/// Tokens grow with every hold of the name. A nested hold has the token of the outer one. A restart
/// of Redis with no data does not turn them back, because a token is at least the server's time in
/// microseconds. (Both at once would: no data, and a clock behind the last token.)
/// `examples/fenced_write.rs` shows it on a database.
///
/// # In Redis
///
/// The token of `name` is the key `redisson_lock_token:{name}`, as for Redisson's `RFencedLock`,
/// and both libraries increment the same counter. It has no TTL: if the key expired, a service on
/// Redisson would start again from the first token. So a fenced name that was used once leaves a
/// small key for good. A call that is refused uses up no token, one that is dropped may, and a client
/// whose calls wait draws several at once. `force_unlock` leaves the counter, so that the next hold has a higher token.
///
/// All calls are those of [`Lock`], with the same costs, errors and cancel safety; the
/// documentation there of a handle, an owner and a clone is true here, too.
///
/// # Examples
///
/// ```no_run
/// # async fn write_balance(_: i64, _: redlatch::FencingToken) {}
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// let lock = client.fenced_lock("account:7");
/// let guard = lock.lock().await?;
/// write_balance(100, guard.token()).await;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedLock {
    lock: Lock,
}

impl FencedLock {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        Self { lock: Lock::of_kind(Kind::Fenced, engine, name) }
    }
}

delegate_lock!(FencedLock => FencedLockGuard, FencedLockGuard::new);
lock_around!(FencedLock.lock => FencedLockGuard);

/// One hold of a fenced lock: a [`LockGuard`] with a token.
///
/// # Examples
///
/// ```no_run
/// # async fn example(lock: redlatch::FencedLock) -> Result<(), redlatch::Error> {
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?;
/// assert_eq!(inner.token(), outer.token());
/// // A column of a database, say, has a signed number of 64 bits.
/// let token = i64::try_from(inner.token().get());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a dropped guard gives the lock back at once: keep it for as long as you need the lock"]
pub struct FencedLockGuard {
    guard: LockGuard,
    token: FencingToken,
}

impl FencedLockGuard {
    pub(super) fn new(guard: LockGuard) -> Self {
        let token = guard.fencing_token().expect("BUG: a fenced lock was granted without a token");
        Self { guard, token }
    }

    /// The token of this hold. Send it with every write to the store that checks it. Local, no I/O.
    /// All nested holds of a handle have the same token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

delegate_guard!(FencedLockGuard);
