//! The one error type: the kind of failure, and whether Redis executed the command.

use std::error::Error as StdError;
use std::fmt;

mod loss;
pub use loss::Loss;

/// Why a call failed.
///
/// A lock that is busy is not an error: it is `Ok(None)`.
///
/// # Examples
///
/// ```
/// use redlatch::{Error, ErrorKind};
///
/// /// The status of an HTTP response.
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::Unavailable => 503,
///         ErrorKind::Lost => 409,
///         _ => 500,
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller does not hold the lock any more: its lease ended, Redis does not have the key any more, another owner has
    /// it, or the client was shut down. [`Error::loss`] says which. Work done under it may have run beside another holder's.
    Lost,
    /// The client could not reach Redis in time, or Redis did not answer in time; or fewer
    /// [replicas](crate::LockClientBuilder::replicas) than required had the acquire in time.
    Unavailable,
    /// An argument or an option that can never work, or a call outside of a Tokio runtime; the client
    /// sent nothing.
    InvalidArgument,
    /// The key holds something that is not a lock: another type, or a hash whose fields are no owner. A plain, fenced or
    /// fair lock is a hash with one field, `<id>:<number>`; a read-write lock has the field `mode` as well, and each of these two
    /// sorts is no lock for a call about the other. The client left it untouched. Also if a key in which Redis
    /// would keep the queue of a [fair lock](crate::FairLock) holds something else: the text of the error names
    /// that key.
    NotALock,
    /// The call would wait for a guard of the handle on which it is made: to write while that reads, and others do,
    /// too. Nothing has changed. See [`ReadWriteLock`](crate::ReadWriteLock#one-handle).
    WouldDeadlock,
    /// The client was closed, or it belongs to another process: this one was forked from it.
    Closed,
    /// Redis answered with an error: a refused password, a missing permission, full memory.
    Server,
}

/// Whether the command behind an error has had its effect in Redis.
///
/// # Examples
///
/// ```
/// use redlatch::{Error, Outcome};
///
/// fn says_what_is_known(error: &Error) -> &'static str {
///     match error.outcome() {
///         Outcome::NotExecuted => "nothing has happened",
///         Outcome::Executed => "Redis did it, and the call failed after that",
///         _ => "not known: the client undoes an acquire, repeats a release, and leaves anything else",
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Redis did not execute it, and will not; or the client undid it before the call ended.
    NotExecuted,
    /// Redis executed it.
    Executed,
    /// The client sent it, and Redis never answered. The client undoes an acquire or repeats a release in the
    /// background; but [`extend`](crate::LockGuard::extend), `force_unlock` and the commands of
    /// [`execute`](crate::LockGuard::execute) are left as they are, executed or not.
    Unknown,
}

/// A failed call: [`kind`](Error::kind) says why, [`outcome`](Error::outcome) says whether
/// anything happened.
///
/// Its text is one line for a person, if the name of the lock is: what is wrong, at which address, and for a usual mistake what to
/// do. It has neither a password nor a user name in it. [`source`](std::error::Error::source) is what the
/// driver or the server said, which may name the user, and never a password. The text does not repeat it, so a report that walks the chain, such as
/// that of `anyhow`, says each cause once. So does `{error:#}`, in one line: that is what to log.
///
/// # Examples
///
/// ```no_run
/// # async fn example(lock: redlatch::Lock) {
/// use redlatch::{ErrorKind, Outcome};
///
/// match lock.try_lock_now().await {
///     Ok(Some(guard)) => drop(guard),
///     Ok(None) => println!("busy"),
///     Err(error) if error.kind() == ErrorKind::Unavailable => println!("try again: {error}"),
///     Err(error) => println!("{error} ({:?}: {:?})", error.kind(), error.outcome()),
/// }
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    message: String,
    source: Option<redis::RedisError>,
    lock_name: Option<Box<str>>,
    loss: Option<Loss>,
    is_reply: bool,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, outcome: Outcome, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            outcome,
            message: message.into(),
            source: None,
            lock_name: None,
            loss: None,
            is_reply: false,
        }))
    }

    /// Notes that the error is the server's reply to the request itself.
    pub(crate) fn replied(mut self) -> Self {
        self.0.is_reply = true;
        self
    }

    pub(crate) fn is_reply(&self) -> bool {
        self.0.is_reply
    }

    /// Whether Redis may execute the request yet.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.outcome() != Outcome::NotExecuted && !self.is_reply()
    }

    /// Adds its source, if that is one line: what is not Redis may answer with several.
    pub(crate) fn caused_by(mut self, source: redis::RedisError) -> Self {
        self.0.source = Some(source).filter(|source| source.to_string().lines().count() == 1);
        self
    }

    /// Adds the name of the lock that the call was about.
    pub(crate) fn about(mut self, name: &str) -> Self {
        self.0.lock_name = Some(name.into());
        self
    }

    /// Notes that the client has undone the command.
    pub(crate) fn undone(mut self) -> Self {
        self.0.outcome = Outcome::NotExecuted;
        self
    }

    /// Notes that the call may have sent a command.
    pub(crate) fn unknown(mut self) -> Self {
        self.0.outcome = Outcome::Unknown;
        self
    }

    /// Notes that an earlier try of the call failed, too: if the outcome of that one is unknown, so is that of the
    /// call.
    pub(crate) fn after(mut self, earlier: Option<Self>) -> Self {
        if earlier.is_some_and(|earlier| earlier.outcome() == Outcome::Unknown) {
            self.0.outcome = Outcome::Unknown;
        }
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, Outcome::NotExecuted, message)
    }

    /// The outcome is that of the release, if the call was one: Redis can have a hold, and release it, after
    /// the deadline of its guard.
    pub(crate) fn lost(name: &str, loss: Option<Loss>, outcome: Outcome) -> Self {
        let message = match loss {
            Some(loss) => format!("the lock `{name}` was lost: {loss}"),
            None => {
                format!("the lock `{name}` is lost to this process: it was forked from its holder")
            }
        };
        let mut error = Self::new(ErrorKind::Lost, outcome, message);
        error.0.loss = loss;
        error
    }

    pub(crate) fn closed() -> Self {
        let message = "the lock client is closed: connect another one";
        Self::new(ErrorKind::Closed, Outcome::NotExecuted, message)
    }

    /// The call touched nothing of that client.
    pub(crate) fn another_process() -> Self {
        let message = "this lock client belongs to another process: \
            a forked child has to connect a client of its own";
        Self::new(ErrorKind::Closed, Outcome::NotExecuted, message)
    }

    /// Why the call failed.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether Redis executed the command behind the error.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// The name of the lock that the call was about; `None` if it was about none, such as
    /// [`connect`](crate::LockClient::connect).
    #[must_use]
    pub fn lock_name(&self) -> Option<&str> {
        self.0.lock_name.as_deref()
    }

    /// What became of the lock, if the error is [`Lost`](ErrorKind::Lost): what
    /// [`loss`](crate::LockGuard::loss) of its guard says, too. `None` for every other kind, and in a
    /// [forked child](crate::LockClient#forking), where a guard's hold is its parent's.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.0.loss
    }

    /// Whether the call may succeed if it is made again later: Redis could not be reached, or did not answer
    /// in time. Look at the [`outcome`](Self::outcome), too: Redis may have executed the commands of
    /// [`execute`](crate::LockGuard::execute) already. After [`unlock`](crate::LockGuard::unlock) there is
    /// nothing to make again: the client goes on with the release.
    ///
    /// False for [`Lost`](ErrorKind::Lost): no second try undoes what was done under a lock that is lost.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match self.source() {
            Some(source) if f.alternate() => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("outcome", &self.0.outcome)
            .field("message", &format_args!("{self:#}"))
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Where the driver's error has a source, it says just what that one says.
        self.0.source.as_ref().map(|source| source.source().unwrap_or(source))
    }
}
