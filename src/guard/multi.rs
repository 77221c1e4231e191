//! The guard of a multi lock: one hold of each of its locks.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Loss};
use crate::join::{first_of, join_all};

use super::GuardInner;

/// One hold of each lock of a [`MultiLock`](crate::MultiLock). It is lost when any of them is.
///
/// What is said of a [`LockGuard`](crate::LockGuard) is true of this one, too: a drop gives the holds back in the
/// background, and does not wait for that.
///
/// # Examples
///
/// ```no_run
/// # async fn example(both: redlatch::MultiLock) -> Result<(), redlatch::Error> {
/// let guard = both.lock().await?;
/// println!("{} are ours for {:?}", guard.name(), guard.remaining());
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a dropped guard gives the locks back at once: keep it for as long as you need them"]
pub struct MultiGuard {
    /// At least one.
    holds: Vec<GuardInner>,
    name: Box<str>,
}

impl MultiGuard {
    pub(crate) fn new(holds: Vec<GuardInner>, name: &str) -> Self {
        Self { holds, name: name.into() }
    }

    /// Gives all holds back, and waits until Redis has confirmed each. One that was lost does not keep
    /// the others. One round trip, or two if there are many.
    ///
    /// # Errors
    ///
    /// As for [`LockGuard::unlock`](crate::LockGuard::unlock). [`Lost`](crate::ErrorKind::Lost) if any of them was lost, and the
    /// error names [that lock](Error::lock_name). Its [outcome](Error::outcome) is that of the lock which it names: of the
    /// others it says nothing.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// The client gives the holds back even if this future is dropped before it completes.
    pub async fn unlock(self) -> Result<(), Error> {
        let answers = join_all(self.holds.into_iter().map(GuardInner::unlock)).await;
        let mut errors = answers.into_iter().filter_map(Result::err).collect::<Vec<_>>();
        // What was lost says more than what is not known.
        errors.sort_by_key(|error| error.kind() != ErrorKind::Lost);
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// The names of all locks, separated by commas, as that of the handle.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the locks, in the order in which every call takes them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.holds.iter().map(GuardInner::name)
    }

    /// The owner in Redis that has the first lock. Each of the locks has an owner of its own: see
    /// [`owners`](Self::owners), which says why.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.holds.first().map_or("", GuardInner::owner)
    }

    /// The owner in Redis of each lock, `<uuid of the client>:<number>`, in the order of [`names`](Self::names).
    ///
    /// An owner stands for the time in which this client has one lock without a break. The locks of a guard may have
    /// been had for different times: a nested call finds one of them lost and the others held, or a call was handed one of
    /// them. So there is no one owner that all of them could have.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.holds.iter().map(GuardInner::owner)
    }

    /// Whether the client knows that any of the locks is lost. Local knowledge, no I/O. Once true it stays true.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.holds.iter().any(GuardInner::is_lost)
    }

    /// What became of the first lock that is lost, in the order of the names, if the client knows of one. Local
    /// knowledge, no I/O.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.holds.iter().find_map(GuardInner::loss)
    }

    /// Completes when any of the locks is lost, as [`LockGuard::lost`](crate::LockGuard::lost) does for one.
    ///
    /// No I/O of its own.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; a later call completes at once if a lock is lost by then.
    pub async fn lost(&self) {
        first_of(self.holds.iter().map(GuardInner::lost)).await;
    }

    /// How long this guard is still valid if the client does not renew it: for as long as the lock that ends first.
    /// Zero when lost. Local, no I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.holds.iter().map(GuardInner::remaining).min().unwrap_or_default()
    }

    /// Prolongs all holds: from now on each has at least `lease`, as with
    /// [`LockGuard::extend`](crate::LockGuard::extend). One round trip.
    ///
    /// # Errors
    ///
    /// As for [`LockGuard::extend`](crate::LockGuard::extend), about any of the locks, whose outcome it says. Others may
    /// have been prolonged.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Once the client has sent the commands, Redis may keep the locks for longer even if the future is dropped.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let extensions = join_all(self.holds.iter().map(|hold| hold.extend(lease))).await;
        extensions.into_iter().collect()
    }

    /// Runs `fut` while all locks are held. Returns its value if it completes before any of them is lost. Else drops
    /// `fut` where it stands, and returns an error of kind [`Lost`](crate::ErrorKind::Lost).
    ///
    /// No I/O of its own.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost), also if `fut` was ready but a deadline had passed by then. Never both the
    /// value and the error.
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `fut`; the holds stay.
    pub async fn run_until_lost<F: Future>(&self, fut: F) -> Result<F::Output, Error> {
        let value = tokio::select! {
            biased;
            () = self.lost() => None,
            value = fut => Some(value),
        };
        match (value, self.holds.iter().find(|hold| hold.is_lost())) {
            (Some(value), None) => Ok(value),
            (_, lost) => {
                Err(lost.or(self.holds.first()).map_or_else(Error::closed, GuardInner::not_held))
            }
        }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("owners", &self.owners().collect::<Vec<_>>())
            .field("remaining", &self.remaining())
            .field("lost", &self.is_lost())
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}
