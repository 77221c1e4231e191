//! The read-write locks of `rlock` and `distkit`, and the several locks of `rlock`, with the options that they have
//! unless told otherwise.

use std::sync::Arc;

use ::distkit::DistkitRedisKey;
use ::distkit::lock::{LockGuardState, LockOptions, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ::rlock::async_lock::{RLock, RMultiKeyLockGuard, RReadLockGuard, RWriteLockGuard};
use redis::aio::ConnectionManager;

use crate::harness::family::{Side, Turns, keys};
use crate::harness::{Handle, Peer};
use crate::support::Result;

/// A lock of `rlock`, with what says whose turn it is to write, if somebody writes.
pub(crate) struct OfRlock {
    lock: RLock,
    name: String,
    turns: Option<Turns>,
}

impl Handle for OfRlock {
    type Guard = Side<RReadLockGuard, RWriteLockGuard>;

    async fn lock(&self) -> Result<Self::Guard> {
        Ok(match self.turns.as_ref().is_some_and(Turns::writes) {
            true => Side::Writes(self.lock.acquire_write(&self.name).await?),
            false => Side::Reads(self.lock.acquire_read(&self.name).await?),
        })
    }

    async fn unlock(&self, guard: Self::Guard) -> Result<()> {
        match guard {
            Side::Reads(mut guard) => guard.release().await?,
            Side::Writes(mut guard) => guard.release().await?,
        }
        Ok(())
    }
}

/// A lock of `distkit`.
pub(crate) struct OfDistkit(Arc<RwLock>, Option<Turns>);

impl OfDistkit {
    fn new(manager: &ConnectionManager, name: &str, turns: Option<Turns>) -> Result<Self> {
        // It allows no colons.
        let key = DistkitRedisKey::try_from(name.replace(':', "_"))?;
        Ok(Self(RwLock::new(LockOptions::new(key, manager.clone())), turns))
    }
}

impl Handle for OfDistkit {
    type Guard = Side<RwLockReadGuard, RwLockWriteGuard>;

    async fn lock(&self) -> Result<Self::Guard> {
        let Self(lock, turns) = self;
        Ok(match turns.as_ref().is_some_and(Turns::writes) {
            true => Side::Writes(lock.write().await?),
            false => Side::Reads(lock.read().await?),
        })
    }

    async fn unlock(&self, guard: Self::Guard) -> Result<()> {
        let state = match guard {
            Side::Reads(guard) => guard.release().await?,
            Side::Writes(guard) => guard.release().await?,
        };
        match state {
            LockGuardState::Released => Ok(()),
            state => Err(format!("the lock was {state:?}").into()),
        }
    }
}

macro_rules! read_write {
    ($($peer:ident($inner:ty) = $name:literal, $handle:ty, $connect:expr, $make:expr;)*) => {$(
        pub(crate) struct $peer($inner);

        impl Peer for $peer {
            const NAME: &'static str = $name;
            const SENDS: &'static [&'static str] = &["set"];

            type Handle = $handle;

            async fn connect(url: &str) -> Result<Self> {
                Ok(Self($connect(url).await?))
            }

            fn handle(&self, name: &str) -> Result<$handle> {
                $make(&self.0, name)
            }
        }
    )*};
}

async fn manager(url: &str) -> Result<ConnectionManager> {
    Ok(redis::Client::open(url)?.get_connection_manager().await?)
}

fn of_rlock(lock: &RLock, name: &str, turns: Option<Turns>) -> Result<OfRlock> {
    Ok(OfRlock { lock: lock.clone(), name: name.into(), turns })
}

read_write! {
    RlockRead(RLock) = "rlock-read", OfRlock, RLock::new, |lock, name| of_rlock(lock, name, None);
    RlockReadMostly(RLock) = "rlock-read-mostly", OfRlock, RLock::new,
        |lock, name| of_rlock(lock, name, Some(Turns::default()));
    DistkitRead(ConnectionManager) = "distkit-read", OfDistkit, manager,
        |manager, name| OfDistkit::new(manager, name, None);
    DistkitReadMostly(ConnectionManager) = "distkit-read-mostly", OfDistkit, manager,
        |manager, name| OfDistkit::new(manager, name, Some(Turns::default()));
}

/// Takes so many locks of `rlock` at once.
pub(crate) struct RlockSeveral<const MANY: usize>(RLock);

pub(crate) struct SeveralOfRlock(RLock, Arc<Vec<String>>);

impl<const MANY: usize> Peer for RlockSeveral<MANY> {
    const NAME: &'static str = if MANY == 3 { "rlock-several-3" } else { "rlock-several-10" };
    const SENDS: &'static [&'static str] = &["set"];

    type Handle = SeveralOfRlock;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(RLock::new(url).await?))
    }

    fn handle(&self, name: &str) -> Result<SeveralOfRlock> {
        Ok(SeveralOfRlock(self.0.clone(), keys(name, MANY).into()))
    }
}

impl Handle for SeveralOfRlock {
    type Guard = RMultiKeyLockGuard;

    async fn lock(&self) -> Result<RMultiKeyLockGuard> {
        Ok(self.0.acquire_multi_key_mutex(self.1.clone()).await?)
    }

    async fn unlock(&self, mut guard: RMultiKeyLockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }
}
