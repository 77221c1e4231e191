//! The fenced read-write lock: its guards have a token for the store that they write to.

use crate::kind::{Fenced, ReadWrite};
use crate::token::FencingToken;

use super::{ReadGuard, ReadWriteLock, WriteGuard};

/// A [`ReadWriteLock`] whose guards have a token for a store to compare, as those of a
/// [`FencedLock`](crate::FencedLock#why) have: its page says why.
///
/// | guard | its token |
/// |---|---|
/// | a [`FencedWriteGuard`] | one of its own, higher than those of all that wrote before |
/// | one that is nested in it | the same |
/// | a [`FencedReadGuard`] | that of the last writer; `None` if no owner has written yet |
/// | after [`downgrade`](WriteGuard::downgrade) | the same as before: the guard was the last writer |
/// | after [`try_upgrade`](ReadGuard::try_upgrade) | a new one |
///
/// So what a reader finds includes all writes up to its token, and no later one. A store that refuses a lower token than
/// it has seen is safe from late writers; a reader needs its token where it keeps what it has read, or passes it on.
///
/// In all else it is that lock, on the same keys. Handles of both kinds that have one name are handles of one
/// lock: only, the readers of a client are two owners then, and a writer without a token is no writer to a reader that
/// asks for one.
///
/// # Examples
///
/// ```no_run
/// # async fn load() -> String { String::new() }
/// # async fn store(_: &str, _: redlatch::FencingToken) {}
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// let config = client.fenced_read_write_lock("config");
/// let writing = config.write().await?;
/// // The store refuses what comes with a lower token than it has seen.
/// store("a new text", writing.token()).await;
/// let version = writing.token();
///
/// let reading = writing.downgrade().await?;
/// assert_eq!(reading.token(), Some(version));
/// reading.unlock().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Costs
///
/// It costs the round trips that a [`ReadWriteLock`](ReadWriteLock#costs) costs. A hand-off from one writer of a client to
/// the next takes none while the client has tokens for its waiters, which it draws when one of them gets the lock from
/// Redis; where none is left, it releases the lock instead.
///
/// # In Redis
///
/// The token of `name` is the key `redisson_lock_token:{name}`, as for a [`FencedLock`](crate::FencedLock#in-redis):
/// it has no TTL, and Redisson's `RFencedLock` counts by it, too. (Redisson has no read-write lock with
/// tokens.) A client draws several at once for the writers that wait in it. When it releases the lock, it gives back those
/// that no writer has got, so that the key is the token of the last writer. Where it does not come to that, because the
/// process died, an answer got lost, an operator forced the lock or a handle of the plain kind wrote last, readers may have a
/// higher token than the last writer had, and a lower one than the next writer has. So they may after a call to write that
/// Redis granted, and that was dropped or failed before it returned a guard.
pub type FencedReadWriteLock = ReadWriteLock<Fenced<ReadWrite>>;

/// A [`ReadGuard`] of a [`FencedReadWriteLock`], with the [`token`](ReadGuard::token) of the last writer.
///
/// # Examples
///
/// ```no_run
/// # async fn load() -> String { String::new() }
/// # async fn example(config: redlatch::FencedReadWriteLock) -> Result<(), redlatch::Error> {
/// let guard = config.read().await?;
/// match guard.token() {
///     Some(version) => println!("version {version}: {}", load().await),
///     None => println!("no owner has written yet"),
/// }
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
pub type FencedReadGuard = ReadGuard<Fenced<ReadWrite>>;

/// A [`WriteGuard`] of a [`FencedReadWriteLock`], with a [`token`](WriteGuard::token) of its own.
///
/// # Examples
///
/// ```no_run
/// # async fn example(config: redlatch::FencedReadWriteLock) -> Result<(), redlatch::Error> {
/// let outer = config.write().await?;
/// let inner = config.write().await?;
/// assert_eq!(inner.token(), outer.token());
/// // As a store keeps it:
/// let token = i64::try_from(inner.token().get());
/// # Ok(())
/// # }
/// ```
pub type FencedWriteGuard = WriteGuard<Fenced<ReadWrite>>;

impl FencedReadGuard {
    /// The token that the last writer had when this guard came to read; `None` if none had one yet. Local, no I/O.
    ///
    /// If its own handle writes beside it, and was not writing before, that is a later writer: a guard that
    /// comes to read from then on has that token.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.hold.granted.token
    }
}

impl FencedWriteGuard {
    /// The token of this hold. Send it with every write to the store that checks it. Local, no I/O. All nested holds
    /// of a handle that write have the same token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.granted.token.expect("BUG: a writer has no token")
    }
}
