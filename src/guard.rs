//! The guard: one hold of a lock, which `unlock` or a drop gives back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::clock;
use crate::engine::Engine;
use crate::error::{Error, Loss, Outcome};
use crate::handle::Handle;
use crate::lease::{Lease, MAX_LEASE};
use crate::loss::{found_gone, report};
use crate::possession::{FoundBy, Granted};
use crate::protocol::Session;
use crate::releaser::{PossessionSession, Unlock};
use crate::spans;
use crate::token::FencingToken;

mod execute;

/// One hold of a lock.
///
/// A guard can be sent to another task or thread, and keeps working when the client and the
/// handle that it came from are dropped.
///
/// # What it can promise
///
/// Until [`remaining`](Self::remaining) reaches zero, no other owner holds the lock, as far as one
/// healthy Redis can promise it. Nothing can stop your code from going on after that: a paused
/// process does not notice the time. What must never happen twice needs a check where it takes
/// effect, too.
///
/// # Release on drop is not immediate!
///
/// Dropping a guard only hands its hold to a background thread. That thread gives it back within
/// about a round trip, and tries again while Redis is out of reach, until the lease has ended. A
/// caller that needs to know that the lock is free awaits [`unlock`](Self::unlock); a process about
/// to exit awaits [`LockClient::close`](crate::LockClient::close). A guard that is forgotten
/// ([`mem::forget`](std::mem::forget)) counts as held: the client renews its lease while the process
/// lives.
///
/// # Examples
///
/// ```no_run
/// # async fn charge() -> String { String::new() }
/// # async fn example(lock: redlatch::Lock) -> Result<(), redlatch::Error> {
/// use redlatch::ErrorKind;
///
/// let guard = lock.lock().await?;
/// match guard.run_until_lost(charge()).await {
///     Ok(receipt) => println!("{receipt}"),
///     Err(error) if error.kind() == ErrorKind::Lost => println!("stopped: {error}"),
///     Err(error) => return Err(error),
/// }
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a dropped guard gives the lock back at once: keep it for as long as you need the lock"]
pub struct LockGuard {
    engine: Arc<Engine>,
    /// Keeps the watchdog renewing, also when the handle is dropped.
    handle: Arc<Handle>,
    granted: Granted,
    /// When the caller got it, in milliseconds of [`Engine::uptime`]: it takes no room here.
    acquired: u32,
    /// `unlock` does what the drop would do.
    unlocking: bool,
    span: spans::Hold,
}

impl LockGuard {
    pub(crate) fn new(
        engine: Arc<Engine>,
        handle: Arc<Handle>,
        granted: Granted,
        acquired_in: &Span,
    ) -> Self {
        let acquired = engine.uptime(clock::now());
        let span = spans::Hold::begin(handle.names.key(), &granted.possession.id, acquired_in);
        Self { engine, handle, granted, acquired, unlocking: false, span }
    }

    /// The fencing token, if the lock is fenced.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.granted.token
    }

    /// Gives this hold back and waits until Redis has confirmed it. The last hold of a handle hands
    /// the lock off to the next waiter of this client, or frees it and wakes one waiter of each
    /// client. An earlier one leaves the lock held.
    ///
    /// One round trip. Needs a Tokio runtime, any one; a drop needs none. Outside of one this is an error,
    /// and gives the hold back as a drop does.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): this handle no longer held the lock, so work done under it
    /// may have run beside another holder's. The client never touches another owner's lock.
    /// [`Unavailable`](crate::ErrorKind::Unavailable): Redis did not confirm in time; the release
    /// goes on in the background until the lease has ended.
    /// [`Closed`](crate::ErrorKind::Closed): this process is a [forked
    /// child](crate::LockClient#forking), and the hold is its parent's.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// The client gives the hold back even if this future is dropped before it completes. The
    /// release then goes on in the background.
    pub async fn unlock(mut self) -> Result<(), Error> {
        // If this fails, the drop gives the hold back.
        self.engine.begin_call().map_err(|error| error.about(self.name()))?;
        self.end_span();
        let key = self.handle.names.key();
        let server = || self.engine.router.address_of(key);
        let span = spans::release(key, &self.granted.possession.id, false, server);
        self.unlocking = true;
        if span.is_disabled() {
            return self.engine.host.run(self.release()).await;
        }
        self.engine.process.bind(self.engine.host.run(self.release_in(span))).await
    }

    async fn release_in(&self, span: Span) -> Result<(), Error> {
        let released = self.release().instrument(span.clone()).await;
        released.inspect_err(|error| spans::failed(&span, error))
    }

    async fn release(&self) -> Result<(), Error> {
        let about = |error: Error| error.about(self.name());
        let now = clock::now();
        let call = Session::new(&self.engine.router, now + self.engine.config.command_timeout);
        let mut unlock = Unlock::begin(&self.engine.releaser, call, &self.granted, now);
        if unlock.is_handed_off() {
            let handed_off = self.engine.process.bind(async move { unlock.await_handoff().await });
            return handed_off.await.map_err(about);
        }
        self.engine.process.bind(async move { unlock.release().await }).await.map_err(about)
    }

    fn end_span(&mut self) {
        let validity = &self.granted.validity;
        self.span.end(|| validity.loss(clock::now()));
    }

    /// The name that [`LockClient::lock`](crate::LockClient::lock) got.
    #[must_use]
    pub fn name(&self) -> &str {
        self.engine.config.without_prefix(self.handle.names.key())
    }

    /// The owner in Redis that has this hold: `<uuid of the client>:<number>`, drawn for the time in which this client has
    /// the lock, and never used again. Nested guards have the same one, and so has the guard to whom another holder of
    /// this client hands the lock on.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.granted.possession.id
    }

    /// Has [`unlock`](Self::unlock) and a drop leave the lock until `least` after this guard was
    /// acquired, for every other owner and for this handle. So a job that is done in milliseconds runs
    /// once, though other instances begin it a little later. Of several calls and guards of one
    /// possession the latest time counts.
    ///
    /// Local, no I/O, and it prolongs nothing while the lock is held. The last release leaves the key
    /// in Redis with the rest of `least` as its TTL, which nothing renews. It takes no round trip more,
    /// and neither the client nor [`close`](crate::LockClient::close) cuts it short. The client
    /// measures the time that this guard was held modulo 49 days, and takes a hundred years for more.
    ///
    /// A process that dies before it releases the lock leaves it for its lease, however long `least`
    /// is. If a failover misses the release, this client tells the new primary until when the lock stays;
    /// but the handle itself may acquire it there before, and a failover can lose the key as [it can
    /// any lock](crate::promises#anything-about-a-redis-that-forgets).
    /// [`force_unlock`](crate::Lock::force_unlock) frees it.
    pub fn hold_at_least(&self, least: Duration) {
        if !self.engine.process.is_this_one() {
            return;
        }
        let _on = self.engine.host.enter();
        let now = clock::now();
        let held = self.engine.uptime(now).wrapping_sub(self.acquired);
        let left = least.min(MAX_LEASE).saturating_sub(Duration::from_millis(held.into()));
        self.granted.possession.holds.lock().hold_until(self.granted.hold, now + left);
    }

    /// Whether the client knows that the lock is lost. Local knowledge, no I/O: the deadline of this
    /// hold has passed, or a request found it gone. Once true it stays true. Always true in a [forked
    /// child](crate::LockClient#forking).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let _on = self.engine.host.enter();
        !self.engine.process.is_this_one() || self.granted.validity.is_lost()
    }

    /// What became of the lock, if the client knows that it is lost. The first finding stays, and is that
    /// of every error about this loss. Local knowledge, no I/O. `None` in a
    /// [forked child](crate::LockClient#forking), where the hold is its parent's.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        if !self.engine.process.is_this_one() {
            return None;
        }
        let _on = self.engine.host.enter();
        self.granted.validity.loss(clock::now())
    }

    /// Completes when the lock is lost: at this hold's own deadline even if Redis is out of
    /// reach, or at the next renewal after the key was deleted, expired or taken. (The client does
    /// not renew an explicit lease: if another client deletes or takes the key, the guard is lost at
    /// its deadline, or when [`unlock`](Self::unlock) finds out.)
    ///
    /// No I/O of its own.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; a later call completes at once if the lock is lost by then.
    pub async fn lost(&self) {
        let process = &self.engine.process;
        if process.is_this_one() {
            process.bind(self.engine.host.run(self.granted.validity.lost())).await;
        }
    }

    /// How long this guard is still valid if the client does not renew it: the lease, counted from
    /// before the client sent the request, minus a margin of 1 % and 1 ms. Zero when lost. Local, no
    /// I/O.
    ///
    /// If another holder of this client handed the lock off, the guard is valid no longer than Redis
    /// has confirmed by then. So it may grow once, when Redis has heard of a longer lease.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if !self.engine.process.is_this_one() {
            return Duration::ZERO;
        }
        let _on = self.engine.host.enter();
        let now = clock::now();
        self.granted.validity.check(now).map_or(Duration::ZERO, |until| until - now)
    }

    /// Prolongs this hold: from now on it has at least `lease`. Never shortens it: a longer lease that
    /// was promised to this or another guard of the handle stays. The client goes on renewing a
    /// default lease, and does not begin to renew an explicit one.
    ///
    /// One round trip; after a hand-off to this guard, it first waits until Redis has confirmed that.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is lost, or was when the answer came.
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis did not answer in time: then the guard
    /// is valid for as long as it was, though Redis may keep the lock for longer.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `lease` is zero or longer than a
    /// hundred years, [`Server`](crate::ErrorKind::Server) if Redis refused the command, and
    /// [`Closed`](crate::ErrorKind::Closed) in a [forked child](crate::LockClient#forking).
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
        let about = |error: Error| error.about(self.name());
        self.engine.begin_call().map_err(about)?;
        let lease = Lease::Fixed(lease).checked(self.engine.config.watchdog_timeout);
        let extend = self.engine.host.run(self.extend_to(lease.map_err(about)?));
        self.engine.process.bind(extend).await.map_err(about)
    }

    async fn extend_to(&self, lease: Duration) -> Result<(), Error> {
        let Self { engine, granted, .. } = self;
        let mut session = self.session(lease).await?;
        granted.asks_for(lease);
        let possession = &granted.possession;
        let locks = [(possession.names.key(), &*possession.id)];
        let (held, sent) = session.call.renew(&locks, lease).await?;
        if let [Err(loss)] = *held {
            found_gone(&engine.waiters, possession, FoundBy::Extension, loss);
            return Err(self.was_lost(Outcome::NotExecuted));
        }
        let extended = possession.holds.lock().extended(granted.hold, lease, sent, clock::now());
        if extended { Ok(()) } else { Err(self.was_lost(Outcome::Executed)) }
    }

    /// A session of its owner, in which this hold is valid.
    async fn session(&self, lease: Duration) -> Result<PossessionSession<'_>, Error> {
        let Self { engine, granted, .. } = self;
        if granted.validity.is_lost() {
            return Err(self.was_lost(Outcome::NotExecuted));
        }
        let call = Session::new(&engine.router, clock::now() + engine.config.command_timeout);
        let mut session =
            PossessionSession::new(call, &granted.possession, &engine.releaser, None, lease);
        session.acquire_permit(clock::now()).await?;
        if granted.validity.is_lost() {
            return Err(self.was_lost(Outcome::NotExecuted));
        }
        Ok(session)
    }

    fn was_lost(&self, outcome: Outcome) -> Error {
        Error::lost(self.handle.names.key(), self.loss(), outcome)
    }

    /// Runs `fut` while the lock is held. Returns its value if it completes before the lock is lost.
    /// Else drops `fut` where it stands, and returns an error of kind
    /// [`Lost`](crate::ErrorKind::Lost).
    ///
    /// No I/O of its own. The loss can only stop `fut` where it awaits: code that blocks its
    /// thread goes on to the next await.
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
        let value = tokio::select! {
            biased;
            () = self.lost() => None,
            value = fut => Some(value),
        };
        match value {
            Some(value) if !self.is_lost() => Ok(value),
            _ => Err(self.was_lost(Outcome::NotExecuted).about(self.name())),
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // In a forked child the hold is the parent's.
        if !self.engine.process.is_this_one() {
            return self.span.forget();
        }
        let _on = self.engine.host.enter();
        if self.unlocking {
            return;
        }
        if self.granted.validity.lost_unreported(clock::now())
            && let Some(loss) = self.loss()
        {
            report(
                &self.engine.waiters,
                &self.granted.possession,
                loss,
                "and then its guard was dropped",
            );
        }
        self.engine.releaser.give_back(&self.granted);
        self.end_span();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LockGuard");
        shown.field("name", &self.name()).field("owner", &self.owner());
        // In a forked child a mutex of the parent may be locked for ever.
        if self.engine.process.is_this_one() {
            shown
                .field("holds", &self.granted.possession.holds.lock().live_with(self.granted.hold));
        }
        shown.field("remaining", &self.remaining());
        shown.field("lost", &self.is_lost()).field("loss", &self.loss()).finish_non_exhaustive()
    }
}
