//! A lock around a call: acquire, run, unlock.

use std::time::Duration;

use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::guard::LockGuard;
use crate::kind::LockKind;
use crate::lease::Lease;

use super::Lock;

impl<K: LockKind> Lock<K> {
    /// Acquires the lock as [`lock`](Self::lock) does, runs `work`, and awaits the
    /// [`unlock`](LockGuard::unlock). Returns the value of `work`.
    ///
    /// If the lock is lost before `work` completes, drops `work` where it awaits (see
    /// [`LockGuard::run_until_lost`]). If `work` panics, the client gives the lock back in the
    /// background. A call of `with` on the same handle inside `work` nests.
    ///
    /// Costs what [`lock`](Self::lock) and [`unlock`](LockGuard::unlock) cost: two round trips
    /// if the lock is free.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock), and [`Lost`](ErrorKind::Lost) if the lock was lost
    /// before it was given back: then `work` may have run beside another holder's. Never both
    /// the value and the error, and the error comes at once. So after `Lost` a part of the work may be done, or all of it:
    /// look before you do it again, or keep what `work` did in a variable outside of it. If Redis does not confirm the release in time, the
    /// value comes all the same, the log says so (at debug; an outage is a warning of its own), and the release goes on in
    /// the background.
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics), and if `work` does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` where it awaits, and the client gives the lock back in
    /// the background.
    pub async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&LockGuard<K::Token>) -> T,
    ) -> Result<T, Error> {
        let guard = self.lock().await?;
        self.run_under(guard, work).await
    }

    /// Acquires the lock if that is possible within `wait`, as [`try_lock`](Self::try_lock) does, runs
    /// `work`, and awaits the [`unlock`](LockGuard::unlock). Returns the value of `work`, or `None` if the lock
    /// stayed busy: then `work` has not run. With a `wait` of zero the call returns instead of waiting.
    ///
    /// What becomes of `work`, of the lock and of the release is as in [`with`](Self::with). Costs what
    /// [`try_lock`](Self::try_lock) and [`unlock`](LockGuard::unlock) cost.
    ///
    /// # Errors
    ///
    /// As for [`try_lock`](Self::try_lock), and [`Lost`](ErrorKind::Lost) as for
    /// [`with`](Self::with).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics), and if `work` does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` where it awaits, and the client gives the lock back in
    /// the background.
    pub async fn try_with<T>(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
        work: impl AsyncFnOnce(&LockGuard<K::Token>) -> T,
    ) -> Result<Option<T>, Error> {
        match self.try_lock(wait, lease).await? {
            Some(guard) => self.run_under(guard, work).await.map(Some),
            None => Ok(None),
        }
    }

    async fn run_under<T>(
        &self,
        guard: LockGuard<K::Token>,
        work: impl AsyncFnOnce(&LockGuard<K::Token>) -> T,
    ) -> Result<T, Error> {
        let value = guard.run_until_lost(work(&guard)).await?;
        let Err(error) = guard.unlock().await else { return Ok(value) };
        if error.kind() == ErrorKind::Lost {
            return Err(error);
        }
        // The work is done, and the client goes on with the release in the background.
        let of = (self.of.handle.names.key(), self.owner());
        self.of.engine.events.release_unconfirmed(&error, of, clock::now());
        Ok(value)
    }
}
