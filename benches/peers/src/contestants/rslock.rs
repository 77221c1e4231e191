//! `rslock`: one server, the retries that it has unless told otherwise, in the loop of `acquire`,
//! which has no end.

use std::time::Duration;

use ::rslock::{LockGuard, LockManager};

use crate::harness::{Handle, Peer};
use crate::support::Result;

/// It does not renew, and nothing here is held nearly as long.
const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Rslock(LockManager);

pub(crate) struct Named {
    manager: LockManager,
    name: String,
}

impl Peer for Rslock {
    const NAME: &'static str = "rslock";
    const SENDS: &'static [&'static str] = &["set"];

    type Handle = Named;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockManager::new(vec![url])))
    }

    fn handle(&self, name: &str) -> Result<Named> {
        Ok(Named { manager: self.0.clone(), name: name.into() })
    }
}

impl Handle for Named {
    type Guard = LockGuard;

    async fn lock(&self) -> Result<LockGuard> {
        Ok(self.manager.acquire(self.name.as_bytes(), LEASE).await?)
    }

    async fn unlock(&self, guard: LockGuard) -> Result<()> {
        guard.release().await;
        Ok(())
    }
}
