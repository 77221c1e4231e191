//! The kinds of locks, as types: what stands for `K` in [`Lock<K>`](crate::Lock).
//!
//! | type | alias | its guards | who has the lock next |
//! |---|---|---|---|
//! | [`Reentrant`] | [`Lock`](crate::Lock) | [`LockGuard`](crate::LockGuard) | the next waiter of the client that releases it; clients take turns |
//! | [`Fair`] | [`FairLock`](crate::FairLock) | [`LockGuard`](crate::LockGuard) | who came first, over all clients |
//! | [`Fenced`] | [`FencedLock`](crate::FencedLock) | [`FencedLockGuard`](crate::FencedLockGuard) | as with `Reentrant` |
//! | [`Fenced<Fair>`](Fenced) | [`FencedFairLock`](crate::FencedFairLock) | [`FencedLockGuard`](crate::FencedLockGuard) | as with `Fair` |
//!
//! All have the same methods. Locks of one name exclude each other, whatever their kinds.

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
/// /// What a job that runs for too long does, whichever kind of lock it has.
/// async fn start_again<K: LockKind>(lock: &Lock<K>) -> Result<(), Error> {
///     lock.force_unlock().await?;
///     let guard = lock.lock().await?;
///     guard.unlock().await
/// }
/// ```
pub trait LockKind: sealed::OfKind + 'static {
    /// What comes with each guard of such a lock: `()`, or a [`FencingToken`].
    type Token: sealed::Token;
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

/// The kind of a [`FencedLock`](crate::FencedLock), Redisson's `RFencedLock`: a lock of kind `K` whose guards
/// have a [`FencingToken`].
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

impl LockKind for Reentrant {
    type Token = ();
}

impl LockKind for Fair {
    type Token = ();
}

impl LockKind for Fenced {
    type Token = FencingToken;
}

impl LockKind for Fenced<Fair> {
    type Token = FencingToken;
}

mod sealed {
    use crate::token::FencingToken;

    /// A kind, as the inside of the crate has it. The rest of the crate asks it the questions below, and never
    /// which kind it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        Reentrant,
        Fenced,
        Fair,
        FencedFair,
    }

    pub trait OfKind {
        const KIND: Kind;
        /// What a handle calls itself.
        const NAME: &'static str;
    }

    pub trait Token: Send + Sync + Unpin + 'static {
        /// What a hold has that was granted with that token.
        fn of(granted: Option<FencingToken>) -> Self;
    }
}
pub(crate) use sealed::{Kind, Token};

impl Kind {
    /// Whether a first hold needs a token, which only Redis can give. The client draws several at once, for
    /// the holders to which it hands the lock on; where none is left, it releases the lock instead.
    pub(crate) fn has_token(self) -> bool {
        match self {
            Self::Reentrant | Self::Fair => false,
            Self::Fenced | Self::FencedFair => true,
        }
    }

    /// Whether Redis keeps the order in which clients wait. Then each client listens on a channel of
    /// its own, on which it is told of its turn, and never defers to others.
    pub(crate) fn has_queue(self) -> bool {
        match self {
            Self::Reentrant | Self::Fenced => false,
            Self::Fair | Self::FencedFair => true,
        }
    }
}

impl sealed::OfKind for Reentrant {
    const KIND: Kind = Kind::Reentrant;
    const NAME: &'static str = "Lock";
}

impl sealed::OfKind for Fair {
    const KIND: Kind = Kind::Fair;
    const NAME: &'static str = "FairLock";
}

impl sealed::OfKind for Fenced {
    const KIND: Kind = Kind::Fenced;
    const NAME: &'static str = "FencedLock";
}

impl sealed::OfKind for Fenced<Fair> {
    const KIND: Kind = Kind::FencedFair;
    const NAME: &'static str = "FencedFairLock";
}

impl Token for () {
    fn of(_: Option<FencingToken>) -> Self {}
}

impl Token for FencingToken {
    fn of(granted: Option<FencingToken>) -> Self {
        granted.expect("BUG: a fenced lock was granted without a token")
    }
}
