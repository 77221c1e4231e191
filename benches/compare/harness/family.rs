//! The kinds of locks that only their siblings can be compared with: readers, readers of which one in ten
//! writes, and several names at once beside the same names one after the other.

use std::sync::atomic::{AtomicU64, Ordering};

use redlatch::{Lock, LockClient, LockGuard, MultiGuard, MultiLock};
use redlatch::{ReadGuard, ReadWriteLock, WriteGuard};

use super::crew::Contestant;
use super::peer::{Handle, Peer};
use super::worker::serve;
use crate::support::Result;

/// All of them.
pub(crate) fn family() -> Result<Vec<Contestant>> {
    Ok(vec![
        Contestant::of::<Readers>()?,
        Contestant::of::<Mixed>()?,
        Contestant::of::<Together<3>>()?,
        Contestant::of::<InOrder<3>>()?,
        Contestant::of::<Together<10>>()?,
        Contestant::of::<InOrder<10>>()?,
    ])
}

/// This process is the one with that name.
pub(crate) async fn serve_family(name: &str, url: &str) -> Result<()> {
    match name {
        Readers::NAME => serve::<Readers>(url).await,
        Mixed::NAME => serve::<Mixed>(url).await,
        <Together<3> as Peer>::NAME => serve::<Together<3>>(url).await,
        <InOrder<3> as Peer>::NAME => serve::<InOrder<3>>(url).await,
        <Together<10> as Peer>::NAME => serve::<Together<10>>(url).await,
        <InOrder<10> as Peer>::NAME => serve::<InOrder<10>>(url).await,
        _ => Err(format!("nobody is called {name}").into()),
    }
}

/// All tasks read one name.
pub(crate) struct Readers(LockClient);

pub(crate) struct Reader(ReadWriteLock);

impl Peer for Readers {
    const NAME: &'static str = "redlatch-read";

    type Handle = Reader;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<Reader> {
        Ok(Reader(self.0.read_write_lock(name)))
    }
}

impl Handle for Reader {
    type Guard = ReadGuard;

    async fn lock(&self) -> Result<ReadGuard> {
        Ok(self.0.read().await?)
    }

    async fn unlock(&self, guard: ReadGuard) -> Result<()> {
        Ok(guard.unlock().await?)
    }
}

/// Nine of ten turns of a task read, and one writes.
pub(crate) struct Mixed(LockClient);

pub(crate) struct ReaderOrWriter {
    lock: ReadWriteLock,
    turns: AtomicU64,
}

pub(crate) enum Side {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Peer for Mixed {
    const NAME: &'static str = "redlatch-90-read";

    type Handle = ReaderOrWriter;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<ReaderOrWriter> {
        // The tasks do not write in step.
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        let turns = HANDLES.fetch_add(1, Ordering::Relaxed).into();
        Ok(ReaderOrWriter { lock: self.0.read_write_lock(name), turns })
    }
}

impl Handle for ReaderOrWriter {
    type Guard = Side;

    async fn lock(&self) -> Result<Side> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        Ok(match turn % 10 {
            0 => Side::Write(self.lock.write().await?),
            _ => Side::Read(self.lock.read().await?),
        })
    }

    async fn unlock(&self, guard: Side) -> Result<()> {
        match guard {
            Side::Read(guard) => guard.unlock().await?,
            Side::Write(guard) => guard.unlock().await?,
        }
        Ok(())
    }
}

/// So many names together.
pub(crate) struct Together<const MANY: usize>(LockClient);

fn names(name: &str, many: usize) -> impl Iterator<Item = String> {
    (0..many).map(move |number| format!("{name}:of:{number}"))
}

impl<const MANY: usize> Peer for Together<MANY> {
    const NAME: &'static str = if MANY == 3 { "redlatch-multi-3" } else { "redlatch-multi-10" };

    type Handle = MultiLock;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<MultiLock> {
        Ok(self.0.multi_lock(names(name, MANY)))
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

/// The same names one after the other, in an order that all have.
pub(crate) struct InOrder<const MANY: usize>(LockClient);

impl<const MANY: usize> Peer for InOrder<MANY> {
    const NAME: &'static str = if MANY == 3 { "redlatch-single-3" } else { "redlatch-single-10" };

    type Handle = Vec<Lock>;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }

    fn handle(&self, name: &str) -> Result<Vec<Lock>> {
        Ok(names(name, MANY).map(|name| self.0.lock(name)).collect())
    }
}

impl Handle for Vec<Lock> {
    type Guard = Vec<LockGuard>;

    async fn lock(&self) -> Result<Vec<LockGuard>> {
        let mut guards = Vec::with_capacity(self.len());
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
