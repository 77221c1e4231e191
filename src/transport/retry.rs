//! What a request does after an error: the pure decisions.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;

use super::Request;
use super::error_class::{ErrorClass, classify, is_cross_node, is_read_only, needs_refresh};
use super::failure::unavailable;
use super::node::Node;
use crate::backoff::Backoff;
use crate::error::{Error, ErrorKind};

/// A request follows this many redirections without a pause. More come from nodes that do not agree yet.
pub(super) const REDIRECTIONS: u32 = 3;

/// The pauses between the tries of a request that Redis cannot serve now.
pub(super) const PAUSES: Backoff =
    Backoff::new(Duration::from_millis(10), Duration::from_millis(200));

/// What happened to one request so far.
pub(super) struct Retry {
    /// The node to which the slot of the key moves. The next sending asks there.
    pub(super) asking: Option<Arc<Node>>,
    /// Whether an earlier sending was never answered, so that Redis may have executed it.
    pub(super) repeated: bool,
    /// The last error.
    pub(super) cause: Option<RedisError>,
    pub(super) redirections: u32,
    pub(super) backoff: Backoff,
}

impl Retry {
    pub(super) fn new() -> Self {
        Self { asking: None, repeated: false, cause: None, redirections: 0, backoff: PAUSES }
    }

    /// The request ends without an answer.
    pub(super) fn unavailable(&mut self, message: &str) -> Error {
        unavailable(message, self.repeated, self.cause.take())
    }

    /// What the request does after this error.
    pub(super) fn next_step(&self, error: &RedisError, request: &Request<'_>) -> Step {
        let batched = request.batch.is_some();
        match next_step(error, batched, request.multi_key, self.redirections) {
            Step::Reconnect if request.at_most_once => Step::GiveUp,
            step => step,
        }
    }
}

/// What a request does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The client sends the request again at once, without the other requests of its batch.
    Unbatch,
    /// The connection is lost. The client sends the request again at once on another one.
    Reconnect,
    /// The connection is lost, and Redis may have executed the request. The client does not send it again.
    GiveUp,
    /// The client sends the request again where the error points to: at once, or after a pause.
    Redirect { at_once: bool },
    /// The client sends the request again after a pause.
    Pause {
        /// Another server may be responsible for the key by now.
        refresh: bool,
        /// The connection leads to a server that does not take writes.
        drop_connection: bool,
    },
    /// To send it again would change nothing.
    Fail(ErrorKind),
}

fn next_step(error: &RedisError, batched: bool, multi_key: bool, redirections: u32) -> Step {
    if batched && is_cross_node(error) {
        // Another request of the same batch may have taken its key away.
        return Step::Unbatch;
    }
    match classify(error) {
        ErrorClass::ConnectionLost => Step::Reconnect,
        ErrorClass::Redirect => Step::Redirect { at_once: redirections < REDIRECTIONS },
        ErrorClass::RetryLater if multi_key && is_cross_node(error) => {
            Step::Fail(ErrorKind::Server)
        }
        // A replica is of as little use as a dead server. Dropping the connection slows down the
        // dials to it, however many requests learn that it is a replica.
        ErrorClass::RetryLater => {
            Step::Pause { refresh: needs_refresh(error), drop_connection: is_read_only(error) }
        }
        ErrorClass::Fatal(kind) => Step::Fail(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(line: &str) -> RedisError {
        let parsed = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        parsed.extract_error().unwrap_err()
    }

    fn pause(refresh: bool, drop_connection: bool) -> Step {
        Step::Pause { refresh, drop_connection }
    }

    #[test]
    fn each_error_has_its_next_step() {
        for (line, expected) in [
            ("LOADING Redis is loading the dataset in memory", pause(false, false)),
            ("BUSY Redis is busy running a script", pause(false, false)),
            ("READONLY You can't write against a read only replica.", pause(true, true)),
            ("CLUSTERDOWN Hash slot not served", pause(true, false)),
            ("MASTERDOWN Link with MASTER is down", pause(true, false)),
            ("TRYAGAIN Multiple keys request during rehashing of slot", pause(false, false)),
            ("MOVED 3999 127.0.0.1:6381", Step::Redirect { at_once: true }),
            ("ASK 3999 127.0.0.1:6381", Step::Redirect { at_once: true }),
            ("WRONGTYPE the hash is not a lock", Step::Fail(ErrorKind::NotALock)),
            ("NOPERM No permissions to access a key", Step::Fail(ErrorKind::Server)),
            ("NOSCRIPT No matching script", Step::Fail(ErrorKind::Server)),
        ] {
            assert_eq!(next_step(&server(line), false, false, 0), expected, "{line}");
        }
        let broken = RedisError::from((redis::ErrorKind::Io, "the connection has ended"));
        assert_eq!(next_step(&broken, true, true, 0), Step::Reconnect);
    }

    #[test]
    fn a_request_follows_three_redirections_at_once_and_pauses_before_each_of_the_others() {
        let moved = server("MOVED 3999 127.0.0.1:6381");
        let at_once: Vec<_> = (0..5)
            .map(|before| next_step(&moved, false, false, before))
            .map(|step| step == Step::Redirect { at_once: true })
            .collect();
        assert_eq!(at_once, [true, true, true, false, false]);
    }

    #[test]
    fn cross_node_keys_leave_their_batch_or_fail_to_be_divided_by_the_caller() {
        let divided = server("TRYAGAIN Multiple keys request during rehashing of slot");
        assert_eq!(next_step(&divided, true, false, 0), Step::Unbatch);
        assert_eq!(next_step(&divided, true, true, 0), Step::Unbatch);
        assert_eq!(next_step(&divided, false, true, 0), Step::Fail(ErrorKind::Server));
        assert_eq!(next_step(&divided, false, false, 0), pause(false, false));
    }

    #[test]
    fn pauses_double_up_to_a_fifth_of_a_second() {
        let mut backoff = Retry::new().backoff;
        let pauses: Vec<_> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 200, 200]);
    }
}
