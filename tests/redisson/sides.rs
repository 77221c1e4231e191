//! What a party wants, by which call, and how ours do it.

use std::time::Duration;

use redlatch::{Error, Lease, Lock, LockGuard, ReadGuard, ReadWriteLock, WriteGuard};

use crate::support::MINUTE;

/// What a party wants: the plain lock of a name, or the read-write lock of that name to read or to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Plain,
    Read,
    Write,
}

/// By which call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    /// `lock()`, with the watchdog.
    Lock,
    /// `lock(lease)`.
    For(Duration),
    /// `tryLock(wait)`, for a minute, with the watchdog.
    TryLock,
    /// `tryLock(wait, lease)`, each a minute.
    TryLockWithLease,
}

pub(crate) const ASKS: [Ask; 4] =
    [Ask::Lock, Ask::For(MINUTE), Ask::TryLock, Ask::TryLockWithLease];

pub(crate) enum Guard {
    Plain(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
}

/// The handles of one of ours.
pub(crate) struct Locks {
    pub(crate) plain: Lock,
    pub(crate) read_write: ReadWriteLock,
}

impl Side {
    pub(crate) fn verb(self, verb: &str) -> String {
        let side = match self {
            Self::Plain => "",
            Self::Read => "read.",
            Self::Write => "write.",
        };
        format!("{side}{verb}")
    }
}

impl Guard {
    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Plain(_) => Side::Plain,
            Self::Read(_) => Side::Read,
            Self::Write(_) => Side::Write,
        }
    }

    pub(crate) fn owner(&self) -> &str {
        match self {
            Self::Plain(guard) => guard.owner(),
            Self::Read(guard) => guard.owner(),
            Self::Write(guard) => guard.owner(),
        }
    }

    pub(crate) async fn unlock(self) -> Result<(), Error> {
        match self {
            Self::Plain(guard) => guard.unlock().await,
            Self::Read(guard) => guard.unlock().await,
            Self::Write(guard) => guard.unlock().await,
        }
    }
}

impl Locks {
    pub(crate) async fn acquire(&self, side: Side, ask: Ask) -> Guard {
        let Self { plain, read_write } = self;
        let in_time = |got: Option<LockGuard>| Guard::Plain(got.expect("it within a minute"));
        let granted = match (side, ask) {
            (Side::Plain, Ask::Lock) => plain.lock().await.map(Guard::Plain),
            (Side::Plain, Ask::For(lease)) => plain.lock_with_lease(lease).await.map(Guard::Plain),
            (Side::Plain, Ask::TryLock) => {
                plain.try_lock(MINUTE, Lease::Watchdog).await.map(in_time)
            }
            (Side::Plain, Ask::TryLockWithLease) => {
                plain.try_lock(MINUTE, MINUTE).await.map(in_time)
            }
            (Side::Read, Ask::Lock) => read_write.read().await.map(Guard::Read),
            (Side::Read, Ask::For(lease)) => {
                read_write.read_with_lease(lease).await.map(Guard::Read)
            }
            (Side::Write, Ask::Lock) => read_write.write().await.map(Guard::Write),
            (Side::Write, Ask::For(lease)) => {
                read_write.write_with_lease(lease).await.map(Guard::Write)
            }
            (_, ask) => panic!("no case asks a read-write lock by {ask:?}"),
        };
        granted.expect("the lock")
    }

    /// What all owners of the client begin with in Redis.
    pub(crate) fn client(&self) -> &str {
        self.read_write.owner().rsplit_once(':').expect("an owner").0
    }
}
