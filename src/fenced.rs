//! The fenced lock: a lock whose guards have a token for the store that they write to.
//!
//! It differs from [`crate::lock`] in a second key of the acquire script. All else is the same lock,
//! to which this file delegates.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::Error;
use crate::guard::LockGuard;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::token::FencingToken;

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
/// small key for good.
///
/// All calls are those of [`Lock`], with the same costs, errors and cancel safety; the
/// documentation there of a handle, an owner and a clone is true here, too.
#[derive(Debug, Clone)]
pub struct FencedLock {
    lock: Lock,
}

impl FencedLock {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        Self { lock: Lock::of_kind(Kind::Fenced, engine, name) }
    }

    /// Acquires the lock, waiting for as long as it takes: [`Lock::lock`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`].
    ///
    /// # Cancel safety
    ///
    /// That of [`Lock::lock`]: the client gives back a grant that was on its way. Its token is used up.
    pub async fn lock(&self) -> Result<FencedLockGuard, Error> {
        self.lock.lock().await.map(FencedLockGuard::new)
    }

    /// Acquires the lock for `lease` and no longer: [`Lock::lock_with_lease`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock_with_lease`].
    ///
    /// # Cancel safety
    ///
    /// That of [`lock`](Self::lock).
    pub async fn lock_with_lease(&self, lease: Duration) -> Result<FencedLockGuard, Error> {
        self.lock.lock_with_lease(lease).await.map(FencedLockGuard::new)
    }

    /// Acquires the lock if that is possible within `wait`: [`Lock::try_lock`]. `None` if the lock
    /// stayed busy; that uses up no token.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`].
    ///
    /// # Cancel safety
    ///
    /// That of [`lock`](Self::lock).
    pub async fn try_lock(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<FencedLockGuard>, Error> {
        Ok(self.lock.try_lock(wait, lease).await?.map(FencedLockGuard::new))
    }

    /// Acquires the lock if it is free now: [`Lock::try_lock_now`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock_now`].
    ///
    /// # Cancel safety
    ///
    /// That of [`lock`](Self::lock).
    pub async fn try_lock_now(&self) -> Result<Option<FencedLockGuard>, Error> {
        Ok(self.lock.try_lock_now().await?.map(FencedLockGuard::new))
    }

    /// The name that [`LockClient::fenced_lock`](crate::LockClient::fenced_lock) got.
    #[must_use]
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// The owner in Redis that this handle is: [`Lock::owner`].
    #[must_use]
    pub fn owner(&self) -> &str {
        self.lock.owner()
    }

    /// Asks Redis whether any owner holds the lock: [`Lock::is_locked`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.lock.is_locked().await
    }

    /// Asks Redis whether this handle holds the lock: [`Lock::is_held`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_held`].
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn is_held(&self) -> Result<bool, Error> {
        self.lock.is_held().await
    }

    /// How many holds Redis counts for this handle: [`Lock::hold_count`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::hold_count`].
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn hold_count(&self) -> Result<u32, Error> {
        self.lock.hold_count().await
    }

    /// Asks Redis what is left of the current holder's lease: [`Lock::remaining_lease`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::remaining_lease`].
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        self.lock.remaining_lease().await
    }

    /// Frees the lock, whichever owner holds it: [`Lock::force_unlock`]. The token counter stays, so
    /// that the next hold has a higher token.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::force_unlock`].
    ///
    /// # Cancel safety
    ///
    /// Once the client has sent it, it may take effect even if the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        self.lock.force_unlock().await
    }
}

/// One hold of a fenced lock: a [`LockGuard`] with a token.
#[derive(Debug)]
#[must_use = "a dropped guard gives the lock back at once: keep it for as long as you need the lock"]
pub struct FencedLockGuard {
    guard: LockGuard,
    token: FencingToken,
}

impl FencedLockGuard {
    fn new(guard: LockGuard) -> Self {
        let token = guard.fencing_token().expect("BUG: a fenced lock was granted without a token");
        Self { guard, token }
    }

    /// The token of this hold. Send it with every write to the store that checks it. Local, no I/O.
    /// All nested holds of a handle have the same token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Gives this hold back and waits until Redis has confirmed it: [`LockGuard::unlock`].
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::unlock`].
    ///
    /// # Cancel safety
    ///
    /// That of [`LockGuard::unlock`]: the client gives the hold back even if this future is dropped.
    pub async fn unlock(self) -> Result<(), Error> {
        self.guard.unlock().await
    }

    /// Whether the client knows that the lock is lost: [`LockGuard::is_lost`].
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Completes when the lock is lost: [`LockGuard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; a later call completes at once if the lock is lost by then.
    pub async fn lost(&self) {
        self.guard.lost().await;
    }

    /// How long this guard is still valid: [`LockGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Runs `fut` while the lock is held: [`LockGuard::run_until_lost`].
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::run_until_lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `fut`; the hold stays.
    pub async fn run_until_lost<F: Future>(&self, fut: F) -> Result<F::Output, Error> {
        self.guard.run_until_lost(fut).await
    }
}
