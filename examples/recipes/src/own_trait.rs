//! A trait of one's own over the lock, for code whose tests replace it.

use std::time::Duration;

use redlatch::{ErrorKind, Lease, LockClient, LockGuard};

pub trait Locks: Send + Sync {
    type Guard: Send;

    /// `None` if the lock stays busy.
    fn acquire(
        &self,
        name: &str,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<Self::Guard>, Trouble>> + Send;

    fn is_lost(guard: &Self::Guard) -> bool;

    fn release(guard: Self::Guard) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Its own, because code outside of redlatch can make no `redlatch::Error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Unavailable,
    Lost,
    Other,
}

impl Locks for LockClient {
    type Guard = LockGuard;

    async fn acquire(&self, name: &str, wait: Duration) -> Result<Option<LockGuard>, Trouble> {
        Ok(self.lock(name).try_lock(wait, Lease::Watchdog).await?)
    }

    fn is_lost(guard: &LockGuard) -> bool {
        guard.is_lost()
    }

    async fn release(guard: LockGuard) -> Result<(), Trouble> {
        Ok(guard.unlock().await?)
    }
}

impl From<redlatch::Error> for Trouble {
    fn from(error: redlatch::Error) -> Self {
        match error.kind() {
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Lost => Self::Lost,
            _ => Self::Other,
        }
    }
}
