//! The guards of a read-write lock.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::{Error, Loss};
use crate::guard::GuardInner;
use crate::handle::Sides;
use crate::kind::{ReadWrite, ReadWriteKind};

use super::ReadWriteLock;

/// One hold of a [`ReadWriteLock`](crate::ReadWriteLock): a [`ReadGuard`] or a [`WriteGuard`], as `S` says.
///
/// What a guard can promise, and that [a drop does not release at
/// once](crate::LockGuard#release-on-drop-is-not-immediate), is the same as for a plain lock.
///
/// # Examples
///
/// ```
/// use redlatch::{ReadGuard, WriteGuard};
///
/// fn both(reads: &ReadGuard, writes: &WriteGuard) -> bool {
///     reads.is_lost() || writes.is_lost()
/// }
/// ```
#[must_use = "a dropped guard gives the lock back at once: keep it for as long as you need the lock"]
pub struct ReadWriteGuard<S: Side> {
    // Before the hold: a handle that has given its guard back reads no more.
    pub(super) side: S,
    pub(super) hold: GuardInner,
}

/// One hold of a [`ReadWriteLock`](crate::ReadWriteLock) that reads. Others may read at the same time; no
/// owner writes until [`remaining`](Self::remaining) reaches zero, as far as one healthy Redis can promise it.
///
/// # Examples
///
/// ```no_run
/// # async fn load() {}
/// # async fn example(config: redlatch::ReadWriteLock) -> Result<(), redlatch::Error> {
/// let guard = config.read().await?;
/// guard.run_until_lost(load()).await?;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
pub type ReadGuard<K = ReadWrite> = ReadWriteGuard<Reading<K>>;

/// One hold of a [`ReadWriteLock`](crate::ReadWriteLock) that writes. No other owner reads or writes until
/// [`remaining`](Self::remaining) reaches zero, as far as one healthy Redis can promise it.
///
/// # Examples
///
/// ```no_run
/// # async fn store() {}
/// # async fn example(config: redlatch::ReadWriteLock) -> Result<(), redlatch::Error> {
/// let guard = config.write().await?;
/// guard.run_until_lost(store()).await?;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
pub type WriteGuard<K = ReadWrite> = ReadWriteGuard<Writing<K>>;

mod side {
    use std::marker::PhantomData;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, OnceLock};

    use crate::handle::Sides;
    use crate::kind::ReadWriteKind;
    use crate::lease::Validity;
    use crate::process::Process;

    /// What a guard of a read-write lock does: outside of this crate it has no name.
    pub trait Side: Send + Sync + 'static {
        #[doc(hidden)]
        fn guard() -> &'static str;

        /// The guard of this side gives its hold back.
        #[doc(hidden)]
        fn leave(&self) {}

        /// The guard of this side has another validity from now on.
        #[doc(hidden)]
        fn replace(&self, _: Replaced<'_>) {}
    }

    /// A validity, and the one in its place.
    pub struct Replaced<'a> {
        pub(in crate::read_write) before: &'a Arc<Validity>,
        pub(in crate::read_write) after: &'a Arc<Validity>,
    }

    /// The side of a guard that reads, which its handle knows.
    pub struct Reading<K: ReadWriteKind> {
        pub(in crate::read_write) sides: Arc<Sides>,
        pub(in crate::read_write) validity: Arc<Validity>,
        /// The validity since the guard was extended, if it shared the first one.
        pub(in crate::read_write) own: OnceLock<Arc<Validity>>,
        pub(in crate::read_write) left: AtomicBool,
        pub(in crate::read_write) process: Process,
        pub(in crate::read_write) kind: PhantomData<fn() -> K>,
    }

    /// The side of a guard that writes.
    pub struct Writing<K: ReadWriteKind> {
        pub(in crate::read_write) sides: Arc<Sides>,
        pub(in crate::read_write) kind: PhantomData<fn() -> K>,
    }

    impl<K: ReadWriteKind> Drop for Reading<K> {
        fn drop(&mut self) {
            // In a forked child a mutex of the parent may be locked for ever.
            if self.process.is_this_one() {
                self.leave();
            }
        }
    }

    impl<K: ReadWriteKind> Side for Reading<K> {
        fn guard() -> &'static str {
            K::READ.name_of_guard()
        }

        fn leave(&self) {
            // Once: another guard may have the same validity.
            if !self.left.swap(true, Ordering::Relaxed) {
                self.sides.remove(self.own.get().unwrap_or(&self.validity));
            }
        }

        fn replace(&self, Replaced { before, after }: Replaced<'_>) {
            self.sides.replace(before, after);
            let _ = self.own.set(after.clone());
        }
    }

    impl<K: ReadWriteKind> Side for Writing<K> {
        fn guard() -> &'static str {
            K::WRITE.name_of_guard()
        }
    }
}
use side::{Reading, Replaced, Side, Writing};

impl<K: ReadWriteKind> ReadGuard<K> {
    /// A guard of a hold that its handle knows as its own.
    pub(super) fn reads(sides: Arc<Sides>, hold: GuardInner) -> Self {
        let (validity, process) = (hold.granted.validity.clone(), hold.of.engine.process.clone());
        let (own, left) = (OnceLock::new(), AtomicBool::new(false));
        Self { side: Reading { sides, validity, own, left, process, kind: PhantomData }, hold }
    }

    /// The lock through whose handle this guard reads.
    pub(super) fn lock(&self) -> ReadWriteLock<K> {
        ReadWriteLock::of_sides(&self.hold.of.engine, self.side.sides.clone())
    }
}

impl<K: ReadWriteKind> WriteGuard<K> {
    pub(super) fn writes(sides: Arc<Sides>, hold: GuardInner) -> Self {
        Self { side: Writing { sides, kind: PhantomData }, hold }
    }

    /// The lock through whose handle this guard writes.
    pub(super) fn lock(&self) -> ReadWriteLock<K> {
        ReadWriteLock::of_sides(&self.hold.of.engine, self.side.sides.clone())
    }
}

impl<S: Side> ReadWriteGuard<S> {
    /// Gives this hold back. The last one of a handle that writes, or of this client's readers, frees the lock or hands
    /// it off to the next writer of this client, and waits until Redis has confirmed that: one round trip. To give back
    /// another reader is local, and says what the client knows, unless a reader of this client has had a lease of its own:
    /// [leases](ReadWriteLock#leases-and-losses). Another hold of a writer takes a round trip, too. The last
    /// reader of a thread first lets other tasks run: one that is ready to read joins it, and is the last one then. Where a
    /// reader with a longer lease goes, and its handle writes, the client sends one more request in the background, for the
    /// lease of the writer.
    ///
    /// # Errors
    ///
    /// As for [`LockGuard::unlock`](crate::LockGuard::unlock).
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// The client gives the hold back even if this future is dropped before it completes. The release then goes on
    /// in the background.
    pub async fn unlock(self) -> Result<(), Error> {
        let Self { side, hold } = self;
        hold.unlock_side(side, S::leave).await
    }

    /// The owner in Redis that has this hold: `<uuid of the client>:<number>`, and `:write` behind it if it writes. All
    /// readers of a client have the same one at a time. Nested guards of a writer have the same one, and so has the
    /// guard to which another writer of this client hands the lock on.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.hold.owner()
    }

    /// The name for which the client made the handle of this guard.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.name()
    }

    /// Whether the client knows that the lock is lost. Local knowledge, no I/O: the deadline of this
    /// hold has passed, or a request found it gone. Once true it stays true. Always true in a [forked
    /// child](crate::LockClient#forking).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// What became of the lock, if the client knows that it is lost. Local knowledge, no I/O.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.hold.loss()
    }

    /// Completes when the lock is lost: at this hold's own deadline even if Redis is out of reach, or at the next
    /// renewal after the key was deleted, expired or taken. No I/O of its own.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; a later call completes at once if the lock is lost by then.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// How long this guard is still valid if the client does not renew it: see
    /// [`LockGuard::remaining`](crate::LockGuard::remaining). Zero when lost. Local, no I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Prolongs this hold: from now on it has at least `lease`. Never shortens it. One round trip; it first waits for a request
    /// that is under way about this hold, or about another reader of this client.
    ///
    /// # Errors
    ///
    /// As for [`LockGuard::extend`](crate::LockGuard::extend).
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Once the client has sent the command, Redis may keep the lock for longer even if the future is
    /// dropped. The guard is valid for as long as it was.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let replaces = |before: &_, after: &_| self.side.replace(Replaced { before, after });
        self.hold.extend_side(lease, replaces).await
    }

    /// Runs `fut` while the lock is held. Returns its value if it completes before the lock is lost.
    /// Else drops `fut` where it stands, and returns an error of kind
    /// [`Lost`](crate::ErrorKind::Lost). No I/O of its own.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost), also if `fut` was ready but the deadline had passed by
    /// then. Never both the value and the error.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `fut`; the hold stays.
    pub async fn run_until_lost<F: Future>(&self, fut: F) -> Result<F::Output, Error> {
        self.hold.run_until_lost(fut).await
    }
}

impl<S: Side> fmt::Debug for ReadWriteGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(S::guard());
        self.hold.show(&mut shown);
        if let Some(token) = self.hold.granted.token {
            shown.field("token", &token);
        }
        shown.finish_non_exhaustive()
    }
}
