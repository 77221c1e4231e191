//! What became of a lock that is lost.

use std::fmt;

/// What became of a lock that its holder has lost: [`Error::loss`](crate::Error::loss), or
/// [`LockGuard::loss`](crate::LockGuard::loss) of its guard.
///
/// It is what the client found out first, and stays. A lease that ended leaves the lock to others: so
/// after [`LeaseEnded`](Self::LeaseEnded), too, another owner may have it.
///
/// # Examples
///
/// ```
/// use redlatch::{Error, Loss};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.loss() {
///         Some(Loss::LeaseEnded) => "Redis was out of reach, or the work took longer than its lease",
///         Some(Loss::KeyGone) => "who deletes keys here?",
///         Some(Loss::TakenOver) => "another owner is at work by now",
///         Some(_) => "the client was shut down",
///         None => "not a loss",
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ended by the client's own clock, before a renewal was confirmed. Redis was not asked.
    LeaseEnded,
    /// Redis had no such lock when the client asked: the key expired, was deleted or flushed, a failover
    /// lost it, or it is no lock any more.
    KeyGone,
    /// Another owner had the lock when the client asked: the key was gone, and that owner came since.
    TakenOver,
    /// The client released the lock under its guard: [`LockClient::shutdown`](crate::LockClient::shutdown) waited for
    /// the holder in vain.
    Closed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseEnded => "its lease has ended",
            Self::KeyGone => "its key is gone",
            Self::TakenOver => "another owner has it",
            Self::Closed => "its client was shut down",
        })
    }
}
