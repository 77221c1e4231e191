//! The errors that callers get for failed requests.

use redis::RedisError;

use super::error_class::{ErrorClass, classify};
use super::version;
use crate::error::{Error, ErrorKind, Outcome};

/// The error in one line.
pub(super) fn explain(error: &RedisError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

pub(super) fn bad_address(error: RedisError) -> Error {
    Error::invalid("the address of Redis is not usable").caused_by(error)
}

pub(super) fn unavailable(message: &str, sent: bool, cause: Option<RedisError>) -> Error {
    let outcome = if sent { Outcome::Unknown } else { Outcome::NotExecuted };
    let error = Error::new(ErrorKind::Unavailable, outcome, message);
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}

pub(super) fn refused(kind: ErrorKind, what: &str, sent: bool, cause: RedisError) -> Error {
    let outcome = if sent { Outcome::Unknown } else { Outcome::NotExecuted };
    if let Some(words) = version::words(&cause) {
        return Error::new(kind, outcome, words);
    }
    let message = match kind {
        ErrorKind::NotALock => format!("the key `{what}` holds something that is not a lock"),
        _ => format!("Redis answered with an error ({what})"),
    };
    Error::new(kind, outcome, message).caused_by(cause)
}

/// A redirection that the client cannot follow.
pub(super) fn nowhere_to_go(sent: bool, cause: RedisError) -> Error {
    let outcome = if sent { Outcome::Unknown } else { Outcome::NotExecuted };
    let message = "the server sent on to a node of a cluster that cannot be followed: \
        a cluster has to be named with `cluster`";
    Error::new(ErrorKind::Server, outcome, message).caused_by(cause)
}

pub(super) fn dial_failed(
    what: &str,
    sent: bool,
    error: Option<RedisError>,
    trouble: Option<RedisError>,
) -> Error {
    if let Some(error) = &error
        && let ErrorClass::Fatal(kind) = classify(error)
    {
        return refused(kind, what, sent, error.clone());
    }
    unavailable("Redis could not be reached", sent, error.or(trouble))
}
