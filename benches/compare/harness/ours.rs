//! redlatch itself, as its README shows it.

use redlatch::{FairLock, Lock, LockClient, LockGuard};

use super::peer::{Handle, Peer};
use crate::support::Result;

pub(crate) struct Redlatch(LockClient);

impl Peer for Redlatch {
    const NAME: &'static str = "redlatch";

    type Handle = Lock;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<Lock> {
        Ok(self.0.lock(name))
    }
}

impl Handle for Lock {
    type Guard = LockGuard;

    async fn lock(&self) -> Result<LockGuard> {
        Ok(Lock::lock(self).await?)
    }

    async fn unlock(&self, guard: LockGuard) -> Result<()> {
        Ok(guard.unlock().await?)
    }
}

/// The same with fair locks.
pub(crate) struct Fair(LockClient);

impl Peer for Fair {
    const NAME: &'static str = "redlatch-fair";

    type Handle = FairLock;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<FairLock> {
        Ok(self.0.fair_lock(name))
    }
}

impl Handle for FairLock {
    type Guard = LockGuard;

    async fn lock(&self) -> Result<LockGuard> {
        Ok(FairLock::lock(self).await?)
    }

    async fn unlock(&self, guard: LockGuard) -> Result<()> {
        Ok(guard.unlock().await?)
    }
}
