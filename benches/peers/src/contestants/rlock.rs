//! `rlock`: the options that it has unless told otherwise, which wait without a limit and renew.

use ::rlock::async_lock::{RLock, RLockGuard};

use crate::harness::{Handle, Peer};
use crate::support::Result;

pub(crate) struct Rlock(RLock);

pub(crate) struct Named {
    lock: RLock,
    name: String,
}

impl Peer for Rlock {
    const NAME: &'static str = "rlock";
    const SENDS: &'static [&'static str] = &["set"];

    type Handle = Named;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(RLock::new(url).await?))
    }

    fn handle(&self, name: &str) -> Result<Named> {
        Ok(Named { lock: self.0.clone(), name: name.into() })
    }
}

impl Handle for Named {
    type Guard = RLockGuard;

    async fn lock(&self) -> Result<RLockGuard> {
        Ok(self.lock.acquire_mutex(&self.name).await?)
    }

    async fn unlock(&self, mut guard: RLockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }
}
