//! The other kinds of redlatch: who reads, who reads mostly, and who takes several locks at once.

use std::sync::atomic::{AtomicU32, Ordering};

use redlatch::{
    Lock, LockClient, LockGuard, MultiGuard, MultiLock, ReadGuard, ReadWriteLock, WriteGuard,
};

use super::peer::{Handle, Peer};
use crate::support::Result;

/// One in so many turns of who reads mostly is to write.
const WRITES: u32 = 10;

/// Says who writes in its turn, and who reads.
#[derive(Default)]
pub(crate) struct Turns(AtomicU32);

impl Turns {
    /// Each tenth one, and not the same one for all that begin together.
    pub(crate) fn writes(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) % WRITES == WRITES - 1
    }

    pub(crate) fn of(name: &str) -> Self {
        Self(AtomicU32::new(name.bytes().map(u32::from).sum::<u32>() % WRITES))
    }
}

/// The keys of who takes several locks.
pub(crate) fn keys(name: &str, many: usize) -> Vec<String> {
    (0..many).map(|key| format!("{name}:{key}")).collect()
}

pub(crate) struct Reading(LockClient);

impl Peer for Reading {
    const NAME: &'static str = "redlatch-read";

    type Handle = ReadWriteLock;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<ReadWriteLock> {
        Ok(self.0.read_write_lock(name))
    }
}

impl Handle for ReadWriteLock {
    type Guard = ReadGuard;

    async fn lock(&self) -> Result<ReadGuard> {
        Ok(self.read().await?)
    }

    async fn unlock(&self, guard: ReadGuard) -> Result<()> {
        Ok(guard.unlock().await?)
    }
}

pub(crate) struct ReadingMostly(LockClient);

pub(crate) struct ReadsMostly(ReadWriteLock, Turns);

pub(crate) enum Side<R, W> {
    Reads(R),
    Writes(W),
}

impl Peer for ReadingMostly {
    const NAME: &'static str = "redlatch-read-mostly";

    type Handle = ReadsMostly;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<ReadsMostly> {
        let lock = self.0.read_write_lock(name);
        let turns = Turns::of(lock.owner());
        Ok(ReadsMostly(lock, turns))
    }
}

impl Handle for ReadsMostly {
    type Guard = Side<ReadGuard, WriteGuard>;

    async fn lock(&self) -> Result<Self::Guard> {
        let Self(lock, turns) = self;
        Ok(match turns.writes() {
            true => Side::Writes(lock.write().await?),
            false => Side::Reads(lock.read().await?),
        })
    }

    async fn unlock(&self, guard: Self::Guard) -> Result<()> {
        match guard {
            Side::Reads(guard) => guard.unlock().await?,
            Side::Writes(guard) => guard.unlock().await?,
        }
        Ok(())
    }
}

/// Takes so many locks at once.
pub(crate) struct Several<const MANY: usize>(LockClient);

impl<const MANY: usize> Peer for Several<MANY> {
    const NAME: &'static str = if MANY == 3 { "redlatch-several-3" } else { "redlatch-several-10" };

    type Handle = MultiLock;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<MultiLock> {
        Ok(self.0.multi_lock(keys(name, MANY)))
    }
}

impl Handle for MultiLock {
    type Guard = MultiGuard;

    async fn lock(&self) -> Result<MultiGuard> {
        Ok(MultiLock::lock(self).await?)
    }

    async fn unlock(&self, guard: MultiGuard) -> Result<()> {
        Ok(guard.unlock().await?)
    }
}

/// Takes so many locks one after the other, always in the same order.
pub(crate) struct InOrder<const MANY: usize>(LockClient);

impl<const MANY: usize> Peer for InOrder<MANY> {
    const NAME: &'static str =
        if MANY == 3 { "redlatch-in-order-3" } else { "redlatch-in-order-10" };

    type Handle = Vec<Lock>;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<Vec<Lock>> {
        Ok(keys(name, MANY).into_iter().map(|key| self.0.lock(key)).collect())
    }
}

impl Handle for Vec<Lock> {
    type Guard = Vec<LockGuard>;

    async fn lock(&self) -> Result<Vec<LockGuard>> {
        let mut guards = Vec::new();
        for lock in self {
            guards.push(lock.lock().await?);
        }
        Ok(guards)
    }

    async fn unlock(&self, guards: Vec<LockGuard>) -> Result<()> {
        for guard in guards.into_iter().rev() {
            guard.unlock().await?;
        }
        Ok(())
    }
}
