//! redlatch itself, as its README shows it.

use redlatch::{Lock, LockClient, LockGuard};

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
