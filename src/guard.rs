//! The guard: one hold of a lock, which `unlock` or a drop gives back.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Loss};
use crate::token::FencingToken;

mod execute;
mod inner;
mod multi;
pub(crate) use inner::{ClientHandle, GuardInner};
pub use multi::MultiGuard;

/// One hold of a lock. `T` is what comes with it: nothing, or the token of a [`FencedLockGuard`].
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
/// Dropping a guard does no I/O. The next waiter of this client has the lock at once; if there is none, a background
/// thread has Redis release it, within about a round trip, and tries again while Redis is out of reach, until the lease
/// has ended. A caller that needs to know that the lock is free awaits [`unlock`](Self::unlock); a process about
/// to exit awaits [`LockClient::close`](crate::LockClient::close), or, with guards that live,
/// [`shutdown`](crate::LockClient::shutdown). A guard that is forgotten
/// ([`mem::forget`](std::mem::forget)) counts as held: the client renews a default lease until
/// [`max_hold`](crate::LockClientBuilder::max_hold), or the client's [`shutdown`](crate::LockClient::shutdown) or
/// [`close`](crate::LockClient::close), and else while the process lives. An explicit lease ends by itself.
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
///     Ok(receipt) => {
///         println!("{receipt}");
///         guard.unlock().await?;
///     }
///     Err(error) if error.kind() == ErrorKind::Lost => println!("stopped: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a dropped guard gives the lock back at once: keep it for as long as you need the lock"]
pub struct LockGuard<T = ()> {
    hold: GuardInner,
    token: T,
}

/// One hold of a fenced lock: a [`LockGuard`] with a [`token`](Self::token).
///
/// # Examples
///
/// ```no_run
/// # async fn example(lock: redlatch::FencedLock) -> Result<(), redlatch::Error> {
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?;
/// assert_eq!(inner.token(), outer.token());
/// // A column of a database, say, has a signed number of 64 bits.
/// let token = i64::try_from(inner.token().get());
/// # Ok(())
/// # }
/// ```
pub type FencedLockGuard = LockGuard<FencingToken>;

impl LockGuard<FencingToken> {
    /// The token of this hold. Send it with every write to the store that checks it. Local, no I/O.
    /// All nested holds of a handle have the same token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

impl<T> LockGuard<T> {
    pub(crate) fn new(hold: GuardInner, token: T) -> Self {
        Self { hold, token }
    }

    /// Gives this hold back and waits until Redis has confirmed it. The last hold of a handle hands
    /// the lock off to the next waiter of this client, or frees it and wakes those that wait in other
    /// clients. An earlier one leaves the lock held.
    ///
    /// One round trip. One or two more if other calls of this client have just handed the lock on and still wait for their
    /// confirmation, and no call comes for the lock meanwhile: the client keeps it for them until then. Needs a Tokio
    /// runtime, any one; a drop needs none. Outside of one this is an error, and gives the hold back as a drop does.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): this handle no longer held the lock, so work done under it
    /// may have run beside another holder's. The client never touches another owner's lock.
    /// [`Unavailable`](crate::ErrorKind::Unavailable): Redis did not confirm in time; the release
    /// goes on in the background until the lease has ended. Or the client had handed the lock off, the reply to its request
    /// about that was lost, and the lock was gone when the client asked again: it cannot tell whether this hold was
    /// there to its end. A release whose reply was lost is no error: it counts as executed if the lock is gone then.
    /// [`Server`](crate::ErrorKind::Server): Redis refused the release, because the user has lost a right, say; the client
    /// tries again in the background.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument): the call was outside of a runtime.
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
    pub async fn unlock(self) -> Result<(), Error> {
        self.hold.unlock().await
    }

    /// The name for which the client made the handle of this guard.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.name()
    }

    /// The owner in Redis that has this hold: `<uuid of the client>:<number>`, drawn for the time in which
    /// this client has the lock, and never used again. Nested guards have the same one, and so has the guard to
    /// which another holder of this client hands the lock on.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.hold.owner()
    }

    /// Has [`unlock`](Self::unlock) and a drop leave the lock until `least` after this guard was
    /// acquired, for every other owner and for this handle. So a job that is done in milliseconds runs
    /// once, though other instances begin it a little later. Of several calls and guards of one
    /// possession the latest time counts.
    ///
    /// Local, no I/O, and it prolongs nothing while the lock is held. The last release leaves the key
    /// in Redis with the rest of `least` as its TTL, which nothing renews. It takes no round trip more,
    /// and neither the client nor [`close`](crate::LockClient::close) cuts it short. A `least`
    /// of more than a hundred years counts as a hundred. Of a guard that is older than 49 days the client counts the age
    /// modulo 49 days, and the lock stays for longer than asked.
    ///
    /// A process that dies before it releases the lock leaves it for its lease, however long `least`
    /// is. If a failover misses the release, this client tells the new primary until when the lock stays;
    /// but the handle itself may acquire it there before, and a failover can lose the key as [it can
    /// any lock](crate::promises#anything-about-a-redis-that-forgets).
    /// [`force_unlock`](crate::Lock::force_unlock) frees it.
    pub fn hold_at_least(&self, least: Duration) {
        self.hold.hold_at_least(least);
    }

    /// Whether the client knows that the lock is lost. Local knowledge, no I/O: the deadline of this
    /// hold has passed, or a request found it gone. Once true it stays true. Always true in a [forked
    /// child](crate::LockClient#forking).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    /// What became of the lock, if the client knows that it is lost. The first finding stays, and is that
    /// of every error about this loss. Local knowledge, no I/O. `None` in a
    /// [forked child](crate::LockClient#forking), where the hold is its parent's.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.hold.loss()
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
        self.hold.lost().await;
    }

    /// How long this guard is still valid if the client does not renew it: the lease, counted from
    /// before the client sent the request, minus a margin of 1 % and 1 ms. Zero when lost. Local, no
    /// I/O.
    ///
    /// If another holder of this client handed the lock off, the guard is valid no longer than Redis
    /// has confirmed by then. So it may grow once, when Redis has heard of a longer lease.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
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
        self.hold.extend(lease).await
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
        self.hold.run_until_lost(fut).await
    }
}

impl<T> fmt::Debug for LockGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.hold.granted.token;
        let mut shown =
            f.debug_struct(if token.is_some() { "FencedLockGuard" } else { "LockGuard" });
        self.hold.show(&mut shown);
        if let Some(token) = token {
            shown.field("token", &token);
        }
        shown.finish_non_exhaustive()
    }
}
