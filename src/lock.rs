//! The handle: one owner of one lock's name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::acquire::{Wait, acquire};
use crate::clock;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Outcome};
use crate::guard::LockGuard;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::owner::{Granted, Owner};
use crate::protocol::{Inspected, Names, Session};

/// A handle to a lock. **A handle is an owner**: whoever calls [`lock`](Self::lock) on the same
/// handle again, by reference or through an [`Arc`], re-enters; a [clone](Clone), or another
/// [`client.lock(name)`](crate::LockClient::lock), is a new owner that has to wait.
///
/// Making a handle costs no I/O. Every acquisition that succeeds gives a [`LockGuard`], and the
/// lock is free when the last guard of the handle has gone. A call that cannot be granted at once
/// waits without polling: it subscribes to the lock's channel, asks again, and then asks no more
/// until it is woken or the lease that Redis reported could have ended (30 s later at most).
///
/// Like every async mutex that is fair, it relies on waiting futures being polled: a call that
/// was polled, and is neither polled again nor dropped, holds up those of this client that stand
/// in line behind it; calls on the same handle say `Unavailable` then. A grant that came to it
/// keeps everybody out until its lease ends.
///
/// All calls but [`name`](Self::name) and [`owner`](Self::owner) need a Tokio runtime with time
/// and I/O enabled, any one; a call from another runtime than before makes its own connection.
///
/// # Errors
///
/// Every call can say
/// [`Unavailable`](crate::ErrorKind::Unavailable) when Redis has not answered within the command
/// timeout, [`NotALock`](crate::ErrorKind::NotALock) when the key holds something else, which is
/// left untouched, [`Server`](crate::ErrorKind::Server) when Redis refused the command, and
/// [`Closed`](crate::ErrorKind::Closed) after the client was closed, and in a
/// [forked child](crate::LockClient#forking).
pub struct Lock {
    engine: Arc<Engine>,
    owner: Arc<Owner>,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        Self::of_kind(Kind::Reentrant, engine, name)
    }

    pub(crate) fn of_kind(kind: Kind, engine: Arc<Engine>, name: &str) -> Self {
        let names = Names::new(&engine.config.name_prefix, name);
        let owner = engine.owners.new_owner(kind, names);
        Self { engine, owner }
    }

    /// Acquires the lock, waiting for as long as it takes. The lease is the watchdog timeout
    /// (30 s), renewed in the background while the guard lives.
    ///
    /// One round trip if the lock is free or this handle holds it. Else a SUBSCRIBE if nobody of
    /// this client waits yet, one more try, and one try for each time that it is woken; none if
    /// another holder of this client hands the lock over.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors). A call that begins while Redis is out of reach says
    /// `Unavailable` after the command timeout; one that waits already rides an outage out, up to
    /// the [outage limit](crate::LockClientBuilder::outage_limit).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line. A grant that was on its way is given back
    /// in the background within about a round trip, and a wake-up, or a lock that was handed off,
    /// is passed to the next in line.
    pub async fn lock(&self) -> Result<LockGuard, Error> {
        self.wait_for(Lease::Watchdog).await
    }

    /// Acquires the lock for `lease` and no longer, waiting for as long as it takes. The lease is
    /// never renewed: when it ends before the guard is given back, the lock is lost.
    ///
    /// A nested call never shortens what another guard of this handle was promised.
    /// Costs what [`lock`](Self::lock) costs.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock), and
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `lease` is zero or longer than a
    /// hundred years. It is rounded up to whole milliseconds.
    ///
    /// # Cancel safety
    ///
    /// That of [`lock`](Self::lock).
    pub async fn lock_with_lease(&self, lease: Duration) -> Result<LockGuard, Error> {
        self.wait_for(Lease::Fixed(lease)).await
    }

    /// Acquires the lock if that is possible within `wait`; `None` if it stayed busy. Zero means
    /// exactly one try, [`Duration::MAX`] for ever.
    ///
    /// Returns within `wait`, or, when Redis does not answer, within the command timeout if that
    /// is longer. Costs what [`lock`](Self::lock) costs.
    ///
    /// # Errors
    ///
    /// As for [`lock_with_lease`](Self::lock_with_lease). An outage while it waits is ridden out
    /// until `wait` is over; if it still lasts then, the error is `Unavailable`, because nobody
    /// knows whether the lock is busy.
    ///
    /// # Cancel safety
    ///
    /// That of [`lock`](Self::lock).
    pub async fn try_lock(
        &self,
        wait: Duration,
        lease: impl Into<Lease>,
    ) -> Result<Option<LockGuard>, Error> {
        self.acquire(lease.into(), Wait::from_now(wait)).await
    }

    /// Acquires the lock if it is free now: `try_lock(Duration::ZERO, Lease::Watchdog)`.
    ///
    /// One round trip.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// That of [`lock`](Self::lock).
    pub async fn try_lock_now(&self) -> Result<Option<LockGuard>, Error> {
        self.acquire(Lease::Watchdog, Wait::Once).await
    }

    /// The name, as it was given to [`LockClient::lock`](crate::LockClient::lock).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.owner.names.key()[self.engine.config.name_prefix.len()..]
    }

    /// The owner that this handle is to Redis: `<uuid of the client>:<number>`.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner.id
    }

    /// Whether anybody holds the lock, asked of Redis. One round trip.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let inspect = async { self.call()?.inspect(&self.owner.names, &self.owner.id).await };
        let inspected = self.ask(inspect).await?;
        Ok(inspected.is_some())
    }

    /// Whether this handle holds the lock, asked of Redis. One round trip; if the lock was handed
    /// over to this handle, not before Redis has heard of that.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn is_held(&self) -> Result<bool, Error> {
        Ok(self.hold_count().await? > 0)
    }

    /// How many holds Redis counts for this handle; zero if it does not hold the lock. One round
    /// trip, like [`is_held`](Self::is_held).
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn hold_count(&self) -> Result<u32, Error> {
        let inspected = self.ask(self.inspect_settled()).await?;
        Ok(inspected.map_or(0, |inspected| inspected.count))
    }

    /// What Redis says is left of the holder's lease, whoever that is; `None` if the lock is free,
    /// [`Duration::MAX`] if somebody took the lease away. One round trip.
    ///
    /// A guard's own [`remaining`](LockGuard::remaining) is the figure to act on.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// It only reads; dropping it has no effect.
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        let inspected = self.ask(self.inspect_settled()).await?;
        Ok(inspected.map(|inspected| inspected.left.unwrap_or(Duration::MAX)))
    }

    /// Frees the lock whoever holds it, and wakes a waiter of each client. False if it was free.
    /// One round trip.
    ///
    /// For operators: the holder goes on working until its next renewal, or the end of its explicit
    /// lease, tells it that the lock is lost.
    ///
    /// # Errors
    ///
    /// As for [every call](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// Once sent it may take effect, whether or not the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        let free = async { self.call()?.force_unlock(&self.owner.names).await };
        let freed = self.ask(free).await?;
        if freed {
            tracing::warn!(name = %self.owner.names.key(), "a lock was freed by force");
        }
        Ok(freed)
    }

    async fn inspect_settled(&self) -> Result<Option<Inspected>, Error> {
        self.settled().await?.inspect(&self.owner.names, &self.owner.id).await
    }

    /// The answer to one command, in the client's own process only.
    async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        self.engine.check_process()?;
        self.engine.process.bind(answer).await
    }

    fn call(&self) -> Result<Session<'_>, Error> {
        self.check_name()?;
        if self.engine.waiters.is_closed() {
            return Err(Error::closed());
        }
        let deadline = clock::now() + self.engine.config.command_timeout;
        Ok(Session::new(&self.engine.router, deadline))
    }

    /// For a question about this handle: not before Redis has heard that the lock was handed to
    /// it by another of this client.
    async fn settled(&self) -> Result<Session<'_>, Error> {
        let call = self.call()?;
        if self.owner.holds.lock().is_unconfirmed() {
            let permit = clock::timeout_at(call.deadline, self.owner.permit()).await;
            drop(permit.map_err(|_| {
                let message = "Redis has not confirmed that the lock was handed off";
                Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
            })?);
        }
        Ok(call)
    }

    fn check_name(&self) -> Result<(), Error> {
        if self.name().is_empty() {
            return Err(Error::invalid("a lock needs a name"));
        }
        self.owner.names.check(&self.engine.router)
    }

    async fn wait_for(&self, lease: Lease) -> Result<LockGuard, Error> {
        let guard = self.acquire(lease, Wait::Forever).await?;
        guard.ok_or_else(|| {
            let message = "BUG: a wait without an end has ended";
            Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
        })
    }

    async fn acquire(&self, lease: Lease, wait: Wait) -> Result<Option<LockGuard>, Error> {
        // Before the span: the subscriber may have a mutex of its own.
        self.engine.check_process()?;
        let span = tracing::debug_span!("acquire", name = %self.owner.names.key(),
            owner = %self.owner.id, waited_ms = Empty, granted = Empty);
        self.check_name()?;
        if !span.is_disabled() {
            return self.engine.process.bind(self.acquire_in(span, lease, wait)).await;
        }
        let granted = acquire(&self.engine, &self.owner, lease, wait).await?;
        Ok(granted.map(|granted| self.guard(granted)))
    }

    async fn acquire_in(
        &self,
        span: Span,
        lease: Lease,
        wait: Wait,
    ) -> Result<Option<LockGuard>, Error> {
        let begun = clock::now();
        let call = acquire(&self.engine, &self.owner, lease, wait).instrument(span.clone());
        // Into a guard at once: from here on its drop is the undo.
        let guard = call.await?.map(|granted| self.guard(granted));
        span.record("waited_ms", (clock::now() - begun).as_secs_f64() * 1e3);
        span.record("granted", guard.is_some());
        Ok(guard)
    }

    fn guard(&self, granted: Granted) -> LockGuard {
        LockGuard::new(self.engine.clone(), self.owner.clone(), granted)
    }
}

/// A new owner of the same name, which does not share the original's holds.
impl Clone for Lock {
    fn clone(&self) -> Self {
        let owner = self.engine.owners.new_owner(self.owner.kind, self.owner.names.clone());
        Self { engine: self.engine.clone(), owner }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name())
            .field("owner", &self.owner.id)
            .finish_non_exhaustive()
    }
}
