//! What every lock of the family has: its handle is thin over a [`Lock`](super::Lock), and its guard
//! over a [`LockGuard`](crate::guard::LockGuard).

/// The calls of a handle that has a [`Lock`](super::Lock) in its field `lock`. `$wrap` makes its guard of a
/// [`LockGuard`](crate::guard::LockGuard).
macro_rules! delegate_lock {
    ($Handle:ty => $Guard:ty, $wrap:expr) => {
        impl $Handle {
            /// Acquires the lock, waiting for as long as it takes: [`Lock::lock`].
            ///
            /// # Errors
            ///
            /// Those of [`Lock::lock`].
            ///
            /// # Cancel safety
            ///
            /// That of [`Lock::lock`]: the client gives back a grant that was on its way.
            pub async fn lock(&self) -> Result<$Guard, Error> {
                self.lock.lock().await.map($wrap)
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
            pub async fn lock_with_lease(&self, lease: Duration) -> Result<$Guard, Error> {
                self.lock.lock_with_lease(lease).await.map($wrap)
            }

            /// Acquires the lock if that is possible within `wait`: [`Lock::try_lock`]. `None` if it
            /// stayed busy.
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
            ) -> Result<Option<$Guard>, Error> {
                Ok(self.lock.try_lock(wait, lease).await?.map($wrap))
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
            pub async fn try_lock_now(&self) -> Result<Option<$Guard>, Error> {
                Ok(self.lock.try_lock_now().await?.map($wrap))
            }

            /// The name that this handle was made for: [`Lock::name`].
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

            /// Frees the lock, whichever owner holds it: [`Lock::force_unlock`].
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
    };
}

/// The calls of a guard that has a [`LockGuard`](crate::guard::LockGuard) in its field `guard`.
macro_rules! delegate_guard {
    ($Guard:ty) => {
        impl $Guard {
            /// Gives this hold back and waits until Redis has confirmed it: [`LockGuard::unlock`].
            ///
            /// # Errors
            ///
            /// Those of [`LockGuard::unlock`].
            ///
            /// # Cancel safety
            ///
            /// That of [`LockGuard::unlock`]: the client gives the hold back even if this future is
            /// dropped.
            pub async fn unlock(self) -> Result<(), Error> {
                self.guard.unlock().await
            }

            /// The name of the lock: [`LockGuard::name`].
            #[must_use]
            pub fn name(&self) -> &str {
                self.guard.name()
            }

            /// The owner in Redis that has this hold: [`LockGuard::owner`].
            #[must_use]
            pub fn owner(&self) -> &str {
                self.guard.owner()
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
            /// Dropping the future has no effect; a later call completes at once if the lock is lost
            /// by then.
            pub async fn lost(&self) {
                self.guard.lost().await;
            }

            /// How long this guard is still valid: [`LockGuard::remaining`].
            #[must_use]
            pub fn remaining(&self) -> Duration {
                self.guard.remaining()
            }

            /// Has the last release leave the lock until then: [`LockGuard::hold_at_least`].
            pub fn hold_at_least(&self, least: Duration) {
                self.guard.hold_at_least(least);
            }

            /// Prolongs this hold: [`LockGuard::extend`].
            ///
            /// # Errors
            ///
            /// Those of [`LockGuard::extend`].
            ///
            /// # Cancel safety
            ///
            /// That of [`LockGuard::extend`].
            pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
                self.guard.extend(lease).await
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
    };
}

pub(super) use {delegate_guard, delegate_lock};
