//! `distkit`: the options that it has unless told otherwise, which wait without a limit and renew.

use std::sync::Arc;

use ::distkit::DistkitRedisKey;
use ::distkit::lock::{LockGuardState, LockOptions, Mutex, MutexGuard};
use redis::aio::ConnectionManager;

use crate::harness::{Handle, Peer};
use crate::support::Result;

pub(crate) struct Distkit(ConnectionManager);

/// An owner of its own for each task: it is the mutex that has the owner's name.
pub(crate) struct Owner(Arc<Mutex>);

impl Peer for Distkit {
    const NAME: &'static str = "distkit";
    const SENDS: &'static [&'static str] = &["set"];

    type Handle = Owner;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(redis::Client::open(url)?.get_connection_manager().await?))
    }

    fn handle(&self, name: &str) -> Result<Owner> {
        // It allows no colons.
        let key = DistkitRedisKey::try_from(name.replace(':', "_"))?;
        Ok(Owner(Mutex::new(LockOptions::new(key, self.0.clone()))))
    }
}

impl Handle for Owner {
    type Guard = MutexGuard;

    async fn lock(&self) -> Result<MutexGuard> {
        Ok(self.0.lock().await?)
    }

    async fn unlock(&self, guard: MutexGuard) -> Result<()> {
        match guard.release().await? {
            LockGuardState::Released => Ok(()),
            state => Err(format!("the lock was {state:?}").into()),
        }
    }
}
