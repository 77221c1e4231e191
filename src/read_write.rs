//! The read-write lock: readers share it, a writer has it alone.
//!
//! A `ReadWriteLock` has two sides. It writes by a handle of its own, like that of a fair lock. It reads by the
//! handle that all readers of its client share (see [`crate::handle`]), and knows which guards are its own.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Wait, forever};
use crate::engine::Engine;
use crate::error::Error;
use crate::guard::ClientHandle;
use crate::handle::{Handle, Sides};
use crate::kind::{ReadWrite, ReadWriteKind};
use crate::lease::Lease;
use crate::protocol::Names;

mod calls;
mod changes;
mod fenced;
mod guards;
mod inspect;
pub use fenced::{FencedReadGuard, FencedReadWriteLock, FencedWriteGuard};
pub use guards::{ReadGuard, ReadWriteGuard, WriteGuard};

/// A handle to a read-write lock: any number of readers share it, over all processes, or one writer has it
/// alone. In Redis it is Redisson's `RReadWriteLock`.
///
/// `K` says which [kind](crate::kind) it is: the guards of a [`FencedReadWriteLock`] have a token, too. All else on this
/// page is true of both.
///
/// # Who has it next
///
/// First come, first served, as with a [`FairLock`](crate::FairLock): a reader that comes behind a waiting
/// writer waits, too, and readers that stand behind each other enter together. So neither a stream of readers
/// nor one of writers keeps the others out. What that promises, and what becomes of a client that dies, is [on
/// that page](crate::FairLock#what-it-promises), with these differences:
///
/// - readers of one client join each other without asking Redis for up to 10 ms
///   ([`max_handoff_time`](crate::LockClientBuilder::max_handoff_time), a second at most), or a round trip if
///   that is longer, after Redis has said that no other client waits to write: they may pass a writer in another client
///   that came within that time. The next one asks Redis again;
/// - a client whose first waiter wants to write and has died behind readers counts as alive for up to 10 s;
/// - readers and writers of Redisson do not see the queue. A stream of its readers can keep a writer
///   out, and with it the readers of other clients that came behind it. The first client in the queue hears at once of
///   their release. Within 3.3 s hears one that became the first
///   because a client died, because the oldest waiter of another one left before a younger one of its own, or because a writer
///   became a reader. A client that has become the first behind one that has read for less than a second (`fair_grace`) hears
///   within that second. Redisson tells no client that its writer has become a reader.
///
/// # One handle
///
/// Calls on one handle nest, as those on a [`Lock`](crate::Lock) do, and a clone is another handle. (But all readers of a client are
/// one owner: a call to read, an `unlock` or `extend` of a reader, or a change to write that was polled and is not polled again
/// holds up the other handles that read, until their command timeout.) The guards of a
/// handle keep others out, and never the handle itself:
///
/// - a handle that reads or writes reads again at once, past all waiters. One that writes writes again;
/// - a handle that reads writes at once if no other handle reads. Else it would wait for its own guard, and returns
///   [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock) at once. (The tries that do not wait return `None`.) But a call to
///   write that waits already when its handle comes to read waits for that guard, too, and does not return an error:
///   begin both in one task, and it may wait for itself.
///
/// Guards of both sorts are given back in any order, and others may read when the last one that writes is. So to
/// give the write back first is what [`downgrade`](WriteGuard::downgrade) does;
/// [`try_upgrade`](ReadGuard::try_upgrade) is the other way round.
///
/// # Leases and losses
///
/// All readers of a client are one owner in Redis. The client renews its default lease once for all of them, and if
/// Redis finds it gone, all of them are lost. An explicit lease ends by itself, as ever; Redis keeps the lock
/// for the longest of these leases. To give back a guard that is not the last one of these readers is local while all of
/// them have had the default lease: `unlock` then asks Redis nothing. Once one had a lease of its own, each `unlock` waits for
/// the requests of these readers that are under way, and one that leaves only shorter leases tells Redis so: one round trip.
///
/// A handle that reads and writes has two owners in Redis, and each of its guards its own lease. But Redis has one time
/// for a writer and for all that are beside it: if the lease of a write has ended, others wait until its guard is
/// dropped, or until the lease of the read ends, too.
///
/// # Errors
///
/// Those of [every call](crate::Lock#errors) of a lock. [`NotALock`](crate::ErrorKind::NotALock) also if a plain lock has
/// that name: neither of the two touches the other, and that is why they need different names. (Redisson's read-write
/// lock takes a name that a plain lock holds.)
///
/// # Panics
///
/// As for [every call](crate::Lock#panics) of a lock.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// use std::time::Duration;
///
/// let config = client.read_write_lock("config");
/// let reading = config.read().await?;
/// // Other owners may read, too, and no owner writes.
/// reading.unlock().await?;
///
/// let writing = config.write().await?;
/// // No other owner reads or writes. From here on others may read, and still none writes.
/// let reading = writing.downgrade().await?;
/// reading.unlock().await?;
///
/// // Waits for a second at most, for a lease of ten seconds that the client never renews.
/// let (wait, lease) = (Duration::from_secs(1), Duration::from_secs(10));
/// if let Some(writing) = config.try_write(wait, lease).await? {
///     writing.unlock().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Costs
///
/// | | round trips |
/// |---|---|
/// | to read or write on a free name, and to give that back | 1 each |
/// | to read where this client does | 0 while readers may join, as above; 1 by the next one |
/// | to give a read back that is not the last one of its client | 0; 1 if it leaves shorter leases; the last one lets a task that is ready to read join it |
/// | to read where this handle writes, or to write where it is the only reader | 1; 0 to read again |
/// | [`downgrade`](WriteGuard::downgrade), [`try_upgrade`](ReadGuard::try_upgrade) | 2 |
/// | to write where readers are | 1 more, which looks whether they are alive |
/// | a waiter | as with a [fair lock](crate::FairLock#costs); a turn of a writer of the same client costs 0 |
///
/// # In Redis
///
/// As Redisson has it: a hash with the field `mode`, and a field for each owner, also if a writer reads; `{name}:<owner>:rwlock_timeout:1` is
/// the lease of a reader; messages come on `redisson_rwlock:{name}`. The queue is in `redlatch_rw_queue:{name}` and
/// `redlatch_rw_waiting:{name}`, which expire by themselves.
pub struct ReadWriteLock<K = ReadWrite> {
    reads: Arc<ClientHandle>,
    writes: Arc<ClientHandle>,
    sides: Arc<Sides>,
    kind: PhantomData<fn() -> K>,
}

impl<K: ReadWriteKind> ReadWriteLock<K> {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        let names = engine.names(K::WRITE, name);
        Self::of(names, &engine)
    }

    fn of(names: Arc<Names>, engine: &Arc<Engine>) -> Self {
        let handle = |kind| Arc::new(Handle::new(kind, names.clone(), &engine.possessions));
        // In a forked child a mutex of the parent may be locked for ever, and every call is refused.
        let read = match engine.process.is_this_one() {
            true => engine.readers.of(K::READ, &names, &engine.possessions),
            false => handle(K::READ),
        };
        Self::of_sides(engine, Sides::new(read, handle(K::WRITE)).into())
    }

    /// The lock with these sides. A guard has sides, too: its lock is one with the same handles.
    fn of_sides(engine: &Arc<Engine>, sides: Arc<Sides>) -> Self {
        let of = |side: &Arc<Handle>| ClientHandle::new(engine, side.clone());
        Self { reads: of(&sides.read), writes: of(&sides.write), sides, kind: PhantomData }
    }

    /// Acquires the lock to read, waiting for as long as it takes. The lease is the watchdog timeout (30 s), which
    /// the client renews in the background while a guard lives.
    ///
    /// # Errors
    ///
    /// As for [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the wait queue. The client gives a grant that was on its way back in the
    /// background, as with [`Lock::lock`](crate::Lock::lock).
    pub async fn read(&self) -> Result<ReadGuard<K>, Error> {
        forever(self.acquire_to_read(Lease::Watchdog, Wait::Forever).await)
    }

    /// Acquires the lock to read, for `lease` and no longer, waiting for as long as it takes. The client never
    /// renews the lease.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `lease` is zero or longer
    /// than a hundred years.
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// As for [`read`](Self::read).
    pub async fn read_with_lease(&self, lease: Duration) -> Result<ReadGuard<K>, Error> {
        forever(self.acquire_to_read(Lease::Fixed(lease), Wait::Forever).await)
    }

    /// Acquires the lock to read if that is possible within `wait`; `None` if it stayed busy. Zero means exactly
    /// one try, [`Duration::MAX`] for ever, but
    /// for an [outage](crate::LockClientBuilder::outage_limit). A [`Duration`] as `lease` is a [fixed one](Lease::Fixed).
    ///
    /// # Errors
    ///
    /// As for [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// As for [`read`](Self::read).
    pub async fn try_read(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<ReadGuard<K>>, Error> {
        self.acquire_to_read(lease.into(), Wait::from_now(&self.writes.engine, wait)).await
    }

    /// Acquires the lock to read if that is possible now: `try_read(Duration::ZERO, Lease::Watchdog)`. It never goes
    /// before a call that waits, but for a writer in another client that came while the readers of this one
    /// [join each other](Self#who-has-it-next).
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client gives back what it was granted.
    pub async fn try_read_now(&self) -> Result<Option<ReadGuard<K>>, Error> {
        self.acquire_to_read(Lease::Watchdog, Wait::Once).await
    }

    /// Acquires the lock to write, waiting for as long as it takes. The lease is the watchdog timeout (30 s), which
    /// the client renews in the background while the guard lives.
    ///
    /// # Errors
    ///
    /// As for [`Lock::lock`](crate::Lock::lock), and [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock) if this handle
    /// reads and is not the [only reader](Self#one-handle).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the wait queue. The client gives a grant that was on its way back in the
    /// background, and passes a lock that was handed off to the next waiter, as with
    /// [`Lock::lock`](crate::Lock::lock).
    pub async fn write(&self) -> Result<WriteGuard<K>, Error> {
        forever(self.acquire_to_write(Lease::Watchdog, Wait::Forever).await)
    }

    /// Acquires the lock to write, for `lease` and no longer, waiting for as long as it takes. The client never
    /// renews the lease.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `lease` is zero or
    /// longer than a hundred years.
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// As for [`write`](Self::write).
    pub async fn write_with_lease(&self, lease: Duration) -> Result<WriteGuard<K>, Error> {
        forever(self.acquire_to_write(Lease::Fixed(lease), Wait::Forever).await)
    }

    /// Acquires the lock to write if that is possible within `wait`; `None` if it stayed busy. Zero means exactly
    /// one try, [`Duration::MAX`] for ever, but
    /// for an [outage](crate::LockClientBuilder::outage_limit). A [`Duration`] as `lease` is a [fixed one](Lease::Fixed).
    ///
    /// # Errors
    ///
    /// As for [`Lock::try_lock`](crate::Lock::try_lock), and [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock) if it may
    /// wait, and this handle reads and is not the [only reader](Self#one-handle).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// As for [`write`](Self::write).
    pub async fn try_write(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<WriteGuard<K>>, Error> {
        self.acquire_to_write(lease.into(), Wait::from_now(&self.writes.engine, wait)).await
    }

    /// Acquires the lock to write if it is free now: `try_write(Duration::ZERO, Lease::Watchdog)`. It never goes
    /// before a call that waits.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client gives back what it was granted.
    pub async fn try_write_now(&self) -> Result<Option<WriteGuard<K>>, Error> {
        self.acquire_to_write(Lease::Watchdog, Wait::Once).await
    }

    /// The name for which the client made this handle.
    #[must_use]
    pub fn name(&self) -> &str {
        self.writes.engine.config.without_prefix(self.sides.write.names.key())
    }

    /// The id of this handle, for logs: `<uuid of the client>:<number>`. It never stands in Redis: the owner that does
    /// is that of the guard.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.sides.write.id(&self.writes.engine.possessions)
    }
}

/// Another handle of the same name, which does not share the original's holds.
impl<K: ReadWriteKind> Clone for ReadWriteLock<K> {
    fn clone(&self) -> Self {
        Self::of(self.sides.write.names.clone(), &self.writes.engine)
    }
}

impl<K: ReadWriteKind> fmt::Debug for ReadWriteLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(K::WRITE.name_of_handle())
            .field("name", &self.name())
            .field("owner", &self.owner())
            .finish_non_exhaustive()
    }
}
