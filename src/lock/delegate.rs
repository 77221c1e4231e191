//! What every lock of the family has: its handle is thin over a [`Lock`](super::Lock), and its guard
//! over a [`LockGuard`](crate::guard::LockGuard).

/// Calls that await the call of the same name of the field. The documentation of each names that call.
macro_rules! delegate {
    ($self:ident.$field:ident: $(
        $(#[$doc:meta])*
        async fn $call:ident($($arg:ident: $Arg:ty),*) -> $Output:ty $(, map $map:expr)?;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            ///
            /// Those of that call.
            ///
            /// # Panics
            ///
            /// As that call.
            ///
            /// # Cancel safety
            ///
            /// That of that call, and the same costs.
            pub async fn $call(&$self, $($arg: $Arg),*) -> $Output {
                $self.$field.$call($($arg),*).await$(.map($map))?
            }
        )*
    };
}

/// The calls of a handle that has a [`Lock`](super::Lock) in its field `lock`. `$wrap` makes its guard of a
/// [`LockGuard`](crate::guard::LockGuard).
macro_rules! delegate_lock {
    ($Handle:ty => $Guard:ty, $wrap:expr) => {
        impl $Handle {
            delegate! { self.lock:
                /// Acquires the lock, waiting for as long as it takes: [`Lock::lock`].
                async fn lock() -> Result<$Guard, Error>, map $wrap;

                /// Acquires the lock for `lease` and no longer: [`Lock::lock_with_lease`].
                async fn lock_with_lease(lease: Duration) -> Result<$Guard, Error>, map $wrap;

                /// Acquires the lock if that is possible within `wait`: [`Lock::try_lock`]. `None` if
                /// it stayed busy.
                async fn try_lock(wait: Duration, lease: impl Into<Lease>)
                    -> Result<Option<$Guard>, Error>, map |granted| granted.map($wrap);

                /// Acquires the lock if it is free now: [`Lock::try_lock_now`].
                async fn try_lock_now()
                    -> Result<Option<$Guard>, Error>, map |granted| granted.map($wrap);

                /// Asks Redis whether any owner holds the lock: [`Lock::is_locked`].
                async fn is_locked() -> Result<bool, Error>;

                /// Asks Redis whether this handle holds the lock: [`Lock::is_held`].
                async fn is_held() -> Result<bool, Error>;

                /// How many holds Redis counts for this handle: [`Lock::hold_count`].
                async fn hold_count() -> Result<u32, Error>;

                /// Asks Redis what is left of the current holder's lease: [`Lock::remaining_lease`].
                async fn remaining_lease() -> Result<Option<Duration>, Error>;

                /// Frees the lock, whichever owner holds it: [`Lock::force_unlock`].
                async fn force_unlock() -> Result<bool, Error>;
            }

            /// The name that this handle was made for: [`Lock::name`].
            #[must_use]
            pub fn name(&self) -> &str {
                self.lock.name()
            }

            /// The id of this handle, for logs: [`Lock::owner`].
            #[must_use]
            pub fn owner(&self) -> &str {
                self.lock.owner()
            }
        }
    };
}

/// The calls of a guard that has a [`LockGuard`](crate::guard::LockGuard) in its field `guard`.
macro_rules! delegate_guard {
    ($Guard:ty) => {
        impl $Guard {
            delegate! { self.guard:
                /// Prolongs this hold: [`LockGuard::extend`].
                async fn extend(lease: Duration) -> Result<(), Error>;
            }

            /// Gives this hold back and waits until Redis has confirmed it: [`LockGuard::unlock`].
            ///
            /// # Errors
            ///
            /// Those of that call.
            ///
            /// # Panics
            ///
            /// As that call.
            ///
            /// # Cancel safety
            ///
            /// The client gives the hold back even if this future is dropped.
            pub async fn unlock(self) -> Result<(), Error> {
                self.guard.unlock().await
            }

            /// Completes when the lock is lost: [`LockGuard::lost`].
            ///
            /// # Panics
            ///
            /// As that call.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future has no effect.
            pub async fn lost(&self) {
                self.guard.lost().await;
            }

            /// Runs `fut` while the lock is held: [`LockGuard::run_until_lost`].
            ///
            /// # Errors
            ///
            /// Those of that call.
            ///
            /// # Panics
            ///
            /// As that call.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future drops `fut`; the hold stays.
            pub async fn run_until_lost<F: Future>(&self, fut: F) -> Result<F::Output, Error> {
                self.guard.run_until_lost(fut).await
            }

            /// Executes commands on the same Redis, if this hold still exists there:
            /// [`LockGuard::execute`].
            ///
            /// # Errors
            ///
            /// Those of that call.
            ///
            /// # Panics
            ///
            /// As that call.
            ///
            /// # Cancel safety
            ///
            /// That of that call, and the same costs.
            pub async fn execute<T: redis::FromRedisValue>(
                &self,
                pipeline: &redis::Pipeline,
            ) -> Result<T, Error> {
                self.guard.execute(pipeline).await
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

            /// What became of the lock, if it is lost: [`LockGuard::loss`].
            #[must_use]
            pub fn loss(&self) -> Option<Loss> {
                self.guard.loss()
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
        }
    };
}

pub(super) use {delegate, delegate_guard, delegate_lock};
