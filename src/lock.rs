//! The handle of a lock: calls on it nest.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::acquire::{Wait, acquire, forever};
use crate::clock;
use crate::engine::Engine;
use crate::error::Error;
use crate::guard::{ClientHandle, GuardInner, LockGuard};
use crate::handle::Handle;
use crate::kind::{LockKind, Reentrant, Token};
use crate::lease::Lease;
use crate::possession::Held;
use crate::protocol::Names;
use crate::spans;

mod around;
mod fair;
mod fenced;
mod inspect;
mod multi;
pub use fair::FairLock;
pub use fenced::{FencedFairLock, FencedLock};
pub use multi::MultiLock;

/// A handle to a lock. **Calls on one handle nest; another handle waits**: a task that calls [`lock`](Self::lock) on
/// the same handle again, by reference or through an [`Arc`], re-enters; a [clone](Clone), or another
/// [`client.lock(name)`](crate::LockClient::lock), is another handle, which has to wait.
///
/// Every acquisition that succeeds returns a [`LockGuard`], and the lock is free when the last guard of
/// the handle is given back.
///
/// # Kinds
///
/// `K` says which [kind](crate::kind) of lock it is. Each has the calls of this page, with the same
/// errors and the same cancel safety. What is true of one kind alone stands at its alias.
///
/// | | |
/// |---|---|
/// | `Lock` | the plain one: re-entrant, and clients take turns |
/// | [`FairLock`] | first come, first served over all clients |
/// | [`FencedLock`] | its guards have a token for the store that they write to |
/// | [`FencedFairLock`] | both |
///
/// # What a call does
///
/// A call that Redis refuses waits without polling: it subscribes to the lock's channel, asks again, and
/// then asks only when a message wakes it or the lease that Redis reported could have ended (30 s later at
/// most). Making a handle costs no I/O.
///
/// **A task that holds the lock by one handle and calls [`lock`](Self::lock) on another one waits for itself**, and
/// no error says so: pass the handle on to what has to re-enter.
///
/// # Costs
///
/// | | round trips |
/// |---|---|
/// | a lock that is free, or that this handle holds | 1 |
/// | its [`unlock`](LockGuard::unlock), of a nested hold, too | 1; many calls share a request. 2 or 3 for the last of several calls of a client, one right after the other |
/// | a waiter that gets the lock from a holder of its own client | 0: it waits for no answer |
/// | a waiter that gets it from another client | from that `unlock` on 2: the message, and one more request. While it waits, 0 |
/// | the first waiter of a client, before it waits | 3: the request that Redis refused, the subscription, one more request |
///
/// All calls but [`name`](Self::name) and [`owner`](Self::owner) need a Tokio runtime with time
/// and I/O enabled, any one; a call from another runtime than before makes its own connection. Poll the future of a call
/// in the runtime in which it was polled first: its timers are there.
///
/// Like every fair async mutex, the lock relies on waiting futures being polled. A call that was polled,
/// and is neither polled again nor dropped, holds up the waiters of this client behind it; calls on
/// the same handle return `Unavailable` then, and so can those of a handle to which this client hands the lock
/// meanwhile. What a guard gives back is released all the same, unless that call has been about to give one back itself, or to
/// extend one: then the lock may stay for its lease. If Redis has granted the lock to that call, no other call can have it
/// until the lease ends.
///
/// # What the log says of a handle
///
/// Two mistakes are a warning, once a handle, and of long waits two a minute at most: two tasks are inside at the same time by one handle; and a
/// call [waits long](crate::LockClientBuilder::warn_waits_longer_than) for a lock that another handle of the
/// same client holds. (A task that nests under a guard which was moved to it makes no mistake, but the client
/// cannot tell it from the first case. Nor can it tell a task that waits for its own guard from one that has moved the guard
/// to another task.)
///
/// # Errors
///
/// Every call can return
/// [`Unavailable`](crate::ErrorKind::Unavailable) when Redis has not answered within the command
/// timeout, [`NotALock`](crate::ErrorKind::NotALock) when the key holds something else, which the
/// call leaves untouched, [`Server`](crate::ErrorKind::Server) when Redis refused the command, and
/// [`Closed`](crate::ErrorKind::Closed) after the client was closed, and in a
/// [forked child](crate::LockClient#forking). Outside of a Tokio runtime it is
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), and in one without I/O
/// ([`enable_io`](tokio::runtime::Builder::enable_io)) `Unavailable`.
///
/// # Panics
///
/// Every call that is awaited, of a client, a handle or a guard, can panic in a Tokio runtime without
/// timers ([`enable_time`](tokio::runtime::Builder::enable_time)).
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// use std::time::Duration;
///
/// let lock = client.lock("order:42");
/// // Waits. The client renews the lease while the guard lives.
/// let outer = lock.lock().await?;
/// // The same handle nests: now Redis counts two holds.
/// let inner = lock.lock().await?;
/// inner.unlock().await?;
/// outer.unlock().await?;
///
/// // Waits for half a second at most, for a lease of ten seconds that the client never renews.
/// let (wait, lease) = (Duration::from_millis(500), Duration::from_secs(10));
/// match lock.try_lock(wait, lease).await? {
///     Some(guard) => guard.unlock().await?,
///     None => println!("busy"),
/// }
///
/// // Around a call: acquires, runs it, and unlocks.
/// let sum = lock.with(async |_guard| 20 + 22).await?;
/// # Ok(())
/// # }
/// ```
pub struct Lock<K = Reentrant> {
    of: Arc<ClientHandle>,
    kind: PhantomData<fn() -> K>,
}

impl<K: LockKind> Lock<K> {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        let names = engine.names(K::KIND, name);
        Self::of(names, &engine)
    }

    fn of(names: Arc<Names>, engine: &Arc<Engine>) -> Self {
        let handle = Arc::new(Handle::new(K::KIND, names, &engine.possessions));
        Self { of: ClientHandle::new(engine, handle), kind: PhantomData }
    }

    /// Acquires the lock, waiting for as long as it takes. The lease is the watchdog timeout
    /// (30 s), which the client renews in the background while the guard lives.
    ///
    /// One round trip if the lock is free or this handle holds it. Else a SUBSCRIBE if no task of
    /// this client waits yet, one more try, and one try for each wake-up. No request at all if a holder of
    /// this client hands the lock off: [Costs](Self#costs). What a [fair lock](FairLock#costs) costs beside that stands there.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors). A call that begins while Redis is out of reach returns
    /// `Unavailable` after the command timeout; one that waits already keeps waiting in an outage, up
    /// to the [outage limit](crate::LockClientBuilder::outage_limit). So does one that begins behind calls of this client that
    /// wait for the same lock, if none of them has heard of the outage yet: where Redis hangs and closes no connection, that takes
    /// up to six and a half command timeouts.
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the wait queue. The client gives a grant that was on its way back
    /// in the background within about a round trip, and passes a wake-up, or a lock that was handed
    /// off, to the next waiter.
    pub async fn lock(&self) -> Result<LockGuard<K::Token>, Error> {
        self.wait_for(Lease::Watchdog).await
    }

    /// Acquires the lock for `lease` and no longer, waiting for as long as it takes. The client never
    /// renews the lease: if it ends before the guard is given back, the lock is lost.
    ///
    /// The client rounds `lease` up to whole milliseconds. A nested call never shortens what another guard of
    /// this handle was promised. It costs what [`lock`](Self::lock) costs.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock), and
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `lease` is zero or longer than a
    /// hundred years.
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the wait queue, and the client gives back what it was granted, as with
    /// [`lock`](Self::lock).
    pub async fn lock_with_lease(&self, lease: Duration) -> Result<LockGuard<K::Token>, Error> {
        self.wait_for(Lease::Fixed(lease)).await
    }

    /// Acquires the lock if that is possible within `wait`; `None` if it stayed busy. Zero means
    /// exactly one try, [`Duration::MAX`] for as long as
    /// [`lock`](Self::lock) waits. A [`Duration`] as `lease` is a [fixed one](Lease::Fixed).
    ///
    /// It returns within `wait`, or, when Redis does not answer, within the command timeout if that
    /// is longer. It costs what [`lock`](Self::lock) costs.
    ///
    /// # Errors
    ///
    /// As for [`lock_with_lease`](Self::lock_with_lease). If an outage begins while the call waits,
    /// it keeps waiting until `wait` is over. If the outage still lasts then, the error is
    /// `Unavailable`, because the client does not know whether the lock is busy.
    ///
    /// # Panics
    ///
    /// As for [every call](Self#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the wait queue, and the client gives back what it was granted, as with
    /// [`lock`](Self::lock).
    pub async fn try_lock(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<LockGuard<K::Token>>, Error> {
        self.acquire(lease.into(), Wait::from_now(&self.of.engine, wait)).await
    }

    /// Acquires the lock if it is free now: `try_lock(Duration::ZERO, Lease::Watchdog)`. A [fair
    /// lock](FairLock) is not free for this call while another one waits for it.
    ///
    /// One round trip.
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
    /// If the future is dropped, the client gives back what it was granted, as with [`lock`](Self::lock).
    pub async fn try_lock_now(&self) -> Result<Option<LockGuard<K::Token>>, Error> {
        self.acquire(Lease::Watchdog, Wait::Once).await
    }

    /// The name for which the client made this handle.
    #[must_use]
    pub fn name(&self) -> &str {
        self.of.engine.config.without_prefix(self.of.handle.names.key())
    }

    /// The id of this handle, for logs: `<uuid of the client>:<number>`. It never stands in Redis: the owner that does
    /// is that of the [guard](LockGuard::owner), another one each time the client gets the lock.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.of.handle.id(&self.of.engine.possessions)
    }

    fn check_name(&self) -> Result<(), Error> {
        if self.name().is_empty() {
            return Err(Error::invalid("a lock needs a name"));
        }
        self.of.handle.names.check(&self.of.engine.router)
    }

    async fn wait_for(&self, lease: Lease) -> Result<LockGuard<K::Token>, Error> {
        forever(self.acquire(lease, Wait::Forever).await)
    }

    async fn acquire(
        &self,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<LockGuard<K::Token>>, Error> {
        let about = |error: Error| error.about(self.name());
        // Before the span: the subscriber may have a mutex of its own.
        self.of.engine.begin_call().map_err(about)?;
        let key = self.of.handle.names.key();
        let server = || self.of.engine.router.address_of(key);
        let span = spans::acquire(key, || self.owner(), server);
        self.check_name().map_err(about)?;
        if !span.is_disabled() {
            let granted = self.of.engine.host.run(self.acquire_in(span, lease, wait));
            let granted = self.of.engine.process.bind(granted);
            return granted.await.map_err(about);
        }
        let granted =
            self.of.engine.host.run(acquire(&self.of.engine, &self.of.handle, lease, wait));
        let granted = granted.await.map_err(about)?;
        Ok(granted.map(|granted| self.guard(granted, &Span::none())))
    }

    async fn acquire_in(
        &self,
        span: Span,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<LockGuard<K::Token>>, Error> {
        let begun = clock::now();
        let call = acquire(&self.of.engine, &self.of.handle, lease, wait).instrument(span.clone());
        // Makes a guard at once: from here on its drop is the undo.
        let acquired = call.await.map(|granted| granted.map(|granted| self.guard(granted, &span)));
        spans::acquired(&span, begun, &acquired);
        acquired
    }

    fn guard(&self, granted: Held, acquired_in: &Span) -> LockGuard<K::Token> {
        let token = Token::of(granted.token);
        let hold = GuardInner::new(self.of.clone(), granted, acquired_in);
        LockGuard::new(hold, token)
    }
}

/// Another handle of the same name, which does not share the original's holds.
impl<K: LockKind> Clone for Lock<K> {
    fn clone(&self) -> Self {
        Self::of(self.of.handle.names.clone(), &self.of.engine)
    }
}

impl<K: LockKind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(K::KIND.name_of_handle())
            .field("name", &self.name())
            .field("owner", &self.owner())
            .finish_non_exhaustive()
    }
}
