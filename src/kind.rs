//! The kinds of locks, as types: what stands for `K` in [`Lock<K>`](crate::Lock).
//!
//! | type | alias | its guards | who has the lock next |
//! |---|---|---|---|
//! | [`Reentrant`] | [`Lock`](crate::Lock) | [`LockGuard`](crate::LockGuard) | the next waiter of the client that releases it; clients take turns |
//! | [`Fair`] | [`FairLock`](crate::FairLock) | [`LockGuard`](crate::LockGuard) | the call that came first, over all clients |
//! | [`Fenced`] | [`FencedLock`](crate::FencedLock) | [`FencedLockGuard`](crate::FencedLockGuard) | as with `Reentrant` |
//! | [`Fenced<Fair>`](Fenced) | [`FencedFairLock`](crate::FencedFairLock) | [`FencedLockGuard`](crate::FencedLockGuard) | as with `Fair` |
//!
//! All have the same methods. Locks of one name exclude each other, whatever their kinds.
//!
//! What stands for `K` in [`ReadWriteLock<K>`](crate::ReadWriteLock) is a kind of its own:
//!
//! | type | alias | its guards |
//! |---|---|---|
//! | [`ReadWrite`] | [`ReadWriteLock`](crate::ReadWriteLock) | [`ReadGuard`](crate::ReadGuard), [`WriteGuard`](crate::WriteGuard) |
//! | [`Fenced<ReadWrite>`](Fenced) | [`FencedReadWriteLock`](crate::FencedReadWriteLock) | [`FencedReadGuard`](crate::FencedReadGuard), [`FencedWriteGuard`](crate::FencedWriteGuard) |

use std::marker::PhantomData;

use crate::token::FencingToken;

/// A kind of lock. Code that is right for each of them can be generic over it; no other type can
/// implement it.
///
/// # Examples
///
/// ```no_run
/// use redlatch::kind::LockKind;
/// use redlatch::{Error, Lock};
///
/// /// For operators: ends whatever holds the lock, and takes it.
/// async fn take_over<K: LockKind>(lock: &Lock<K>) -> Result<(), Error> {
///     lock.force_unlock().await?;
///     let guard = lock.lock().await?;
///     guard.unlock().await
/// }
/// ```
pub trait LockKind: 'static {
    /// What comes with each guard of such a lock: `()`, or a [`FencingToken`].
    type Token: sealed::Token;

    /// Outside of this crate its type has no name.
    #[doc(hidden)]
    const KIND: sealed::Kind;
}

/// The kind of a [`Lock`](crate::Lock) without a parameter: Redisson's `RLock`.
///
/// # Examples
///
/// ```
/// use redlatch::Lock;
/// use redlatch::kind::Reentrant;
///
/// fn is_the_same(lock: Lock) -> Lock<Reentrant> {
///     lock
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Reentrant {}

/// The kind of a [`FairLock`](crate::FairLock): first come, first served over all clients. The lock is
/// that of an `RLock`, the queue is our own.
///
/// # Examples
///
/// ```
/// use redlatch::kind::Fair;
/// use redlatch::{FairLock, Lock};
///
/// fn is_the_same(lock: FairLock) -> Lock<Fair> {
///     lock
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Fair {}

/// The kind of a [`FencedLock`](crate::FencedLock), Redisson's `RFencedLock`: a lock of kind `K`, which may be
/// [`ReadWrite`], whose guards have a [`FencingToken`].
///
/// # Examples
///
/// ```
/// use redlatch::kind::{Fair, Fenced};
/// use redlatch::{FencedFairLock, FencedLock, Lock};
///
/// fn are_the_same(one: FencedLock, other: FencedFairLock) -> (Lock<Fenced>, Lock<Fenced<Fair>>) {
///     (one, other)
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Fenced<K = Reentrant>(PhantomData<K>);

/// A kind of read-write lock. Code that is right for each of them can be generic over it; no other type
/// can implement it.
///
/// # Examples
///
/// ```no_run
/// use redlatch::kind::ReadWriteKind;
/// use redlatch::{Error, ReadWriteLock};
///
/// /// Waits until no owner writes.
/// async fn settles<K: ReadWriteKind>(lock: &ReadWriteLock<K>) -> Result<(), Error> {
///     lock.read().await?.unlock().await
/// }
/// ```
pub trait ReadWriteKind: 'static {
    /// The kind of its readers. Outside of this crate its type has no name.
    #[doc(hidden)]
    const READ: sealed::Kind;

    /// The kind of its writers.
    #[doc(hidden)]
    const WRITE: sealed::Kind;
}

/// The kind of a [`ReadWriteLock`](crate::ReadWriteLock) without a parameter: Redisson's `RReadWriteLock`.
///
/// # Examples
///
/// ```
/// use redlatch::ReadWriteLock;
/// use redlatch::kind::ReadWrite;
///
/// fn is_the_same(lock: ReadWriteLock) -> ReadWriteLock<ReadWrite> {
///     lock
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub enum ReadWrite {}

impl ReadWriteKind for ReadWrite {
    const READ: Kind = Kind::Read;
    const WRITE: Kind = Kind::Write;
}

impl ReadWriteKind for Fenced<ReadWrite> {
    const READ: Kind = Kind::FencedRead;
    const WRITE: Kind = Kind::FencedWrite;
}

impl LockKind for Reentrant {
    type Token = ();
    const KIND: Kind = Kind::Reentrant;
}

impl LockKind for Fair {
    type Token = ();
    const KIND: Kind = Kind::Fair;
}

impl LockKind for Fenced {
    type Token = FencingToken;
    const KIND: Kind = Kind::Fenced;
}

impl LockKind for Fenced<Fair> {
    type Token = FencingToken;
    const KIND: Kind = Kind::FencedFair;
}

mod sealed {
    use crate::token::FencingToken;

    /// A kind, for the rest of the crate: it asks the questions below, and never which kind it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        Reentrant,
        Fenced,
        Fair,
        FencedFair,
        /// The readers of a read-write lock, which are one handle in each client.
        Read,
        Write,
        FencedRead,
        FencedWrite,
    }

    pub trait Token: Send + Sync + Unpin + 'static {
        /// What a hold has that was granted with that token.
        fn of(granted: Option<FencingToken>) -> Self;
    }
}
pub(crate) use sealed::{Kind, Token};

impl Kind {
    /// What a handle calls itself.
    pub(crate) fn name_of_handle(self) -> &'static str {
        match self {
            Self::Reentrant => "Lock",
            Self::Fenced => "FencedLock",
            Self::Fair => "FairLock",
            Self::FencedFair => "FencedFairLock",
            Self::Read | Self::Write => "ReadWriteLock",
            Self::FencedRead | Self::FencedWrite => "FencedReadWriteLock",
        }
    }

    /// What a guard of a read-write lock calls itself.
    pub(crate) fn name_of_guard(self) -> &'static str {
        match self {
            Self::Read => "ReadGuard",
            Self::FencedRead => "FencedReadGuard",
            Self::FencedWrite => "FencedWriteGuard",
            _ => "WriteGuard",
        }
    }

    /// Whether a first hold needs a token, which only Redis can give. The client draws several at once, for
    /// the holders to which it hands the lock on; where none is left, it releases the lock instead.
    pub(crate) fn has_token(self) -> bool {
        matches!(self, Self::Fenced | Self::FencedFair | Self::FencedWrite)
    }

    /// Whether a first hold has the token of the last holder that drew one.
    pub(crate) fn reads_token(self) -> bool {
        self == Self::FencedRead
    }

    /// Whether Redis keeps the order in which clients wait. Then each client listens on a channel of
    /// its own, on which it hears of its turn, and never defers to others.
    pub(crate) fn is_in_order(self) -> bool {
        matches!(self, Self::Fair | Self::FencedFair) || self.is_of_read_write()
    }

    /// Whether this is a kind of a read-write lock.
    pub(crate) fn is_of_read_write(self) -> bool {
        self.is_shared() || self.writes()
    }

    /// Whether this is the kind of a writer of a read-write lock.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write | Self::FencedWrite)
    }

    /// The readers beside this writer of a read-write lock.
    #[cfg(feature = "metrics")]
    pub(crate) fn beside(self) -> Option<Self> {
        match self {
            Self::Write => Some(Self::Read),
            Self::FencedWrite => Some(Self::FencedRead),
            _ => None,
        }
    }

    /// Whether all calls of a client share one handle, and one hold in Redis.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Read | Self::FencedRead)
    }
}

impl Token for () {
    fn of(_: Option<FencingToken>) -> Self {}
}

impl Token for FencingToken {
    fn of(granted: Option<FencingToken>) -> Self {
        granted.expect("BUG: a fenced lock was granted without a token")
    }
}
