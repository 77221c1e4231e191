//! A lock around a call: acquire, run, unlock.

use crate::error::{Error, ErrorKind, log_failure};

use super::Lock;

impl Lock {
    /// What the call returns once the work is done: its value, unless the lock was lost by then.
    ///
    /// The work is done if only the release could not be confirmed: the client goes on with that in the
    /// background.
    pub(super) fn outcome<T>(&self, value: T, unlocked: Result<(), Error>) -> Result<T, Error> {
        match unlocked {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            Err(error) => {
                let (waiters, name, owner) =
                    (&self.engine.waiters, self.handle.names.key(), self.owner());
                log_failure!(
                    error,
                    waiters,
                    name,
                    owner,
                    "the release of a lock around a call is unconfirmed"
                );
                Ok(value)
            }
            Ok(()) => Ok(value),
        }
    }
}

/// The calls of a handle that take the work to do.
macro_rules! lock_around {
    ($Handle:ident$(.$field:ident)? => $Guard:ty) => {
        impl $Handle {
            /// Acquires the lock as [`lock`](Self::lock) does, runs `work`, and awaits the
            /// [`unlock`](crate::LockGuard::unlock). Returns the value of `work`.
            ///
            /// If the lock is lost before `work` completes, drops `work` where it awaits (see
            /// [`LockGuard::run_until_lost`](crate::LockGuard::run_until_lost)). If `work` panics, the client gives the lock back in the
            /// background. A call of `with` on the same handle inside `work` nests.
            ///
            /// Costs what [`lock`](Self::lock) and [`unlock`](crate::LockGuard::unlock) cost: two round trips
            /// if the lock is free.
            ///
            /// # Errors
            ///
            /// As for [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost) if the lock was lost
            /// before it was given back: then `work` may have run beside another holder's. Never both
            /// the value and the error, and the error comes at once. If Redis does not confirm the release in time, the value comes
            /// all the same, with a warning in the log, and the release goes on in the background.
            ///
            /// # Panics
            ///
            /// As for [every call](crate::Lock#panics), and if `work` does.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future drops `work` where it awaits, and the client gives the lock back in
            /// the background.
            pub async fn with<T>(&self, work: impl AsyncFnOnce(&$Guard) -> T) -> Result<T, Error> {
                let guard = self.lock().await?;
                let value = guard.run_until_lost(work(&guard)).await?;
                self$(.$field)?.outcome(value, guard.unlock().await)
            }

            /// The same if the lock can be acquired within `wait`, as [`try_lock`](Self::try_lock)
            /// does. `None` if it stayed busy: then `work` has not run. With a `wait` of zero the call
            /// returns instead of waiting.
            ///
            /// # Errors
            ///
            /// As for [`try_lock`](Self::try_lock), and [`Lost`](crate::ErrorKind::Lost) as for
            /// [`with`](Self::with).
            ///
            /// # Panics
            ///
            /// As for [every call](crate::Lock#panics), and if `work` does.
            ///
            /// # Cancel safety
            ///
            /// That of [`with`](Self::with).
            pub async fn try_with<T>(
                &self,
                wait: Duration,
                lease: impl Into<Lease>,
                work: impl AsyncFnOnce(&$Guard) -> T,
            ) -> Result<Option<T>, Error> {
                let Some(guard) = self.try_lock(wait, lease).await? else { return Ok(None) };
                let value = guard.run_until_lost(work(&guard)).await?;
                self$(.$field)?.outcome(value, guard.unlock().await).map(Some)
            }
        }
    };
}

pub(super) use lock_around;
