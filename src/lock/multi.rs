//! The multi lock: several locks of this client that are acquired together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::acquire::{Wait, acquire_all, forever};
use crate::clock;
use crate::engine::Engine;
use crate::error::Error;
use crate::guard::{ClientHandle, GuardInner, MultiGuard};
use crate::handle::Handle;
use crate::join::join_all;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::possession::AcquiredHold;
use crate::spans;

/// A handle to several locks, which it acquires **together: all of them or none**. Made by
/// [`LockClient::multi_lock`](crate::LockClient::multi_lock).
///
/// In Redis these are ordinary locks: each excludes a [`Lock`](crate::Lock) of its name, of this crate or of
/// Redisson, and Redisson's `RedissonMultiLock`. What is said of a [handle](crate::Lock) is true here, too: calls on
/// one handle nest, and a [clone](Clone) is another handle, which waits.
///
/// # No deadlock
///
/// The order in which the names are given does not matter, and a name that is given twice counts once. At first a call
/// holds nothing while it waits: Redis grants all locks by one script, or none, and the call waits for the one that was
/// busy, in the place that its age gives it among those who wait for that one in this client. So calls with
/// overlapping names never wait for each other in a circle. A caller that holds other locks meanwhile can be in one: take
/// all that the work needs with one call. (A task that holds one of these names by another handle waits for itself.) Its guard has no token: fence single locks.
///
/// A set of which some lock is always held would never be free as a whole. So after 16 refusals, and after a third of the
/// [command timeout](crate::LockClientBuilder::command_timeout), a call takes its locks one by one, in an order that is the same
/// for all calls. It waits a third of the command timeout for each at most, or the part of the lease that falls to it if
/// that is less; then it gives all back, and begins again.
///
/// In a [cluster](crate::LockClientBuilder::cluster) the names may be in different slots. Then Redis is asked once for
/// each slot, one after the other, and others may see a part of the locks held for the time that this takes. So it is with more
/// than 64 names.
///
/// # Costs
///
/// One round trip to acquire all, if they are free, and one to give them back; in a cluster one for each slot to acquire them.
/// More than 64 names of a slot take one more for each 64. A call that waits costs what a
/// [`Lock`](crate::Lock#what-a-call-does) costs, and two round trips and a SUBSCRIBE more for each lock that another owner has in turn. Waiters of this
/// client never have a lock handed off to a multi lock of several names: it is released first.
///
/// # Examples
///
/// ```no_run
/// # async fn transfer(_: i64) {}
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// // Another process may name the two the other way round.
/// let both = client.multi_lock(["account:1", "account:2"]);
/// let guard = both.lock().await?;
/// guard.run_until_lost(transfer(100)).await?;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
pub struct MultiLock {
    engine: Arc<Engine>,
    /// In the order in which every call takes them.
    handles: Box<[Arc<Handle>]>,
    /// All names, for what concerns all.
    name: Box<str>,
}

impl MultiLock {
    pub(crate) fn new<N: AsRef<str>>(
        engine: Arc<Engine>,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        let of = |name: N| engine.names(Kind::Reentrant, name.as_ref());
        let mut all: Vec<_> = names.into_iter().map(of).collect();
        all.sort_by_cached_key(|one| (engine.router.slot_of(one.key()), one.key().to_owned()));
        all.dedup();
        let handle = |names| Arc::new(Handle::new(Kind::Reentrant, names, &engine.possessions));
        Self::of(all.into_iter().map(handle).collect(), engine.clone())
    }

    fn of(handles: Box<[Arc<Handle>]>, engine: Arc<Engine>) -> Self {
        let names = handles.iter().map(|one| engine.config.without_prefix(one.names.key()));
        let name = names.collect::<Vec<_>>().join(", ").into();
        Self { engine, handles, name }
    }

    /// Acquires all locks, waiting for as long as it takes. The lease is the watchdog timeout (30 s), which the
    /// client renews in the background while the guard lives.
    ///
    /// What it costs stands [above](Self#costs).
    ///
    /// # Errors
    ///
    /// As for [every call](crate::Lock#errors) of a lock, where `NotALock` is about any of the keys; and
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), before any I/O, if there is no name, or an empty one.
    /// An error leaves no lock behind: what Redis may have granted, the client gives back in the background.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the wait queue. The client gives back in the background what was granted,
    /// within about a round trip.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        self.wait_for(Lease::Watchdog).await
    }

    /// Acquires all locks for `lease` and no longer, waiting for as long as it takes. The client never renews the
    /// lease: if it ends before the guard is given back, the locks are lost. It is rounded up to whole
    /// milliseconds, and costs what [`lock`](Self::lock) costs.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `lease` is zero or
    /// longer than a hundred years.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// As with [`lock`](Self::lock).
    pub async fn lock_with_lease(&self, lease: Duration) -> Result<MultiGuard, Error> {
        self.wait_for(Lease::Fixed(lease)).await
    }

    /// Acquires all locks if that is possible within `wait`; `None` if one of them stayed busy, and then it holds none.
    /// Zero means exactly one try, [`Duration::MAX`] for as long as
    /// [`lock`](Self::lock) waits. It costs what [`lock`](Self::lock) costs.
    ///
    /// # Errors
    ///
    /// As for [`lock_with_lease`](Self::lock_with_lease), and in an outage as for
    /// [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// As with [`lock`](Self::lock).
    pub async fn try_lock(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<MultiGuard>, Error> {
        self.acquire(lease.into(), Wait::from_now(&self.engine, wait)).await
    }

    /// Acquires all locks if they are free now: `try_lock(Duration::ZERO, Lease::Watchdog)`. It costs what
    /// [`lock`](Self::lock) costs where all are free.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// As with [`lock`](Self::lock).
    pub async fn try_lock_now(&self) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Lease::Watchdog, Wait::Once).await
    }

    /// Frees each of the locks, whichever owner holds it, as [`Lock::force_unlock`](crate::Lock::force_unlock) does. False
    /// if all were free. One round trip.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock). The locks about which there is no error are free all the same.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Once the client has sent it, it may take effect even if the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        let engine = &self.engine;
        let free = async {
            self.check()?;
            let frees = self.handles.iter();
            let frees = frees.map(async |handle| engine.force_unlock(&handle.names).await);
            let freed: Result<Vec<bool>, Error> = join_all(frees).await.into_iter().collect();
            Ok(freed?.contains(&true))
        };
        engine.call(self.name(), free).await
    }

    /// The names of all locks, separated by commas, for logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the locks, each once, in the order in which every call takes them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handles.iter().map(|one| self.engine.config.without_prefix(one.names.key()))
    }

    /// The id of this handle, for logs: `<uuid of the client>:<number>`; empty if there is no name.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.handles.first().map_or("", |first| first.id(&self.engine.possessions))
    }

    fn check(&self) -> Result<(), Error> {
        if self.handles.is_empty() {
            return Err(Error::invalid("a multi lock needs at least one name"));
        }
        if self.names().any(str::is_empty) {
            return Err(Error::invalid("each lock of a multi lock needs a name"));
        }
        self.handles.iter().try_for_each(|handle| handle.names.check(&self.engine.router))
    }

    async fn wait_for(&self, lease: Lease) -> Result<MultiGuard, Error> {
        forever(self.acquire(lease, Wait::Forever).await)
    }

    async fn acquire(&self, lease: Lease, wait: Wait) -> Result<Option<MultiGuard>, Error> {
        let about = |error: Error| error.about(self.name());
        // Before the span: the subscriber may have a mutex of its own.
        self.engine.begin_call().map_err(about)?;
        self.check().map_err(about)?;
        let server = || self.engine.router.address_of(self.handles[0].names.key());
        let span = spans::acquire(&self.name, || self.owner(), server);
        let granted = self.engine.host.run(self.acquire_in(span, lease, wait));
        self.engine.process.bind(granted).await.map_err(about)
    }

    async fn acquire_in(
        &self,
        span: Span,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<MultiGuard>, Error> {
        let begun = clock::now();
        let call = acquire_all(&self.engine, &self.handles, lease, wait).instrument(span.clone());
        let acquired = call.await.map(|granted| granted.map(|granted| self.guard(granted, &span)));
        spans::acquired(&span, begun, &acquired);
        acquired
    }

    fn guard(&self, granted: Vec<AcquiredHold>, acquired_in: &Span) -> MultiGuard {
        let hold = |(handle, granted): (&Arc<Handle>, AcquiredHold)| {
            GuardInner::new(
                ClientHandle::new(&self.engine, handle.clone()),
                granted.into(),
                acquired_in,
            )
        };
        MultiGuard::new(self.handles.iter().zip(granted).map(hold).collect(), &self.name)
    }
}

/// Another handle of the same names, which does not share the original's holds.
impl Clone for MultiLock {
    fn clone(&self) -> Self {
        let handle = |one: &Arc<Handle>| {
            Arc::new(Handle::new(one.kind, one.names.clone(), &self.engine.possessions))
        };
        Self::of(self.handles.iter().map(handle).collect(), self.engine.clone())
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("owner", &self.owner())
            .finish_non_exhaustive()
    }
}
