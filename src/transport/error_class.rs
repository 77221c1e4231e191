//! What an error of the driver or of the server means for the request behind it.

use redis::{ErrorKind as Driver, RedisError, ServerErrorKind};

use crate::error::ErrorKind;

/// What to do about an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The connection is gone and the request's fate unknown: send it again on another.
    ConnectionLost,
    /// Redis did not execute it and will be able to soon: send it again later.
    RetryLater,
    /// Redis did not execute it, because another node of the cluster has the slot.
    Redirect,
    /// Sending it again would change nothing.
    Fatal(ErrorKind),
}

/// From the error that a script gets for a key that is not on this node.
const NOT_HERE: &str = "access a non local key";

/// From the driver's error for a database that the server refuses.
pub(super) const NOT_SELECTED: &str = "refused to switch database";

/// Redis 6.2 wraps an error inside a script into `ERR Error running script ...: -CODE ...`, so
/// the text is searched, not only the code.
pub(super) fn classify(error: &RedisError) -> ErrorClass {
    match error.kind() {
        Driver::Server(ServerErrorKind::NoPerm) => return ErrorClass::Fatal(ErrorKind::Server),
        Driver::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            return ErrorClass::Redirect;
        }
        Driver::Server(_) | Driver::Extension => {}
        Driver::AuthenticationFailed | Driver::InvalidClientConfig | Driver::RESP3NotSupported => {
            return ErrorClass::Fatal(ErrorKind::Server);
        }
        _ => return ErrorClass::ConnectionLost,
    }
    // Many clients connect after a restart, say: a later try finds room.
    let words = error.to_string();
    // The driver, which selects the database of a new connection, leaves out the code of the refusal.
    let is_busy = words.contains(NOT_SELECTED) && words.contains("is busy running");
    if words.contains("max number of clients reached") || words.contains(NOT_HERE) || is_busy {
        return ErrorClass::RetryLater;
    }
    const RETRY_LATER: [&str; 8] = [
        "BUSY",
        "LOADING",
        "MASTERDOWN",
        "READONLY",
        "NOREPLICAS",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "MISCONF",
    ];
    if has_code(error, "WRONGTYPE") {
        ErrorClass::Fatal(ErrorKind::NotALock)
    } else if RETRY_LATER.iter().any(|code| has_code(error, code)) {
        ErrorClass::RetryLater
    } else {
        ErrorClass::Fatal(ErrorKind::Server)
    }
}

pub(super) fn is_fatal(error: &RedisError) -> bool {
    matches!(classify(error), ErrorClass::Fatal(_))
}

/// The user has no permission, so the server has not begun the command.
pub(super) fn is_forbidden(error: &RedisError) -> bool {
    error.kind() == Driver::Server(ServerErrorKind::NoPerm)
}

/// The server has not begun the command: the user has no permission, or its keys are in several slots of a cluster.
pub(super) fn is_not_begun(error: &RedisError) -> bool {
    is_forbidden(error) || error.kind() == Driver::Server(ServerErrorKind::CrossSlot)
}

/// The server has not seen this script, or has forgotten it.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == Driver::Server(ServerErrorKind::NoScript)
}

/// The slot of the request is migrating, and its keys are not all on the same node; or one of them
/// has moved while a script ran. A script fails at the first thing that it does with such a key, so
/// it has done nothing with that one.
pub(super) fn is_cross_node(error: &RedisError) -> bool {
    has_code(error, "TRYAGAIN") || error.to_string().contains(NOT_HERE)
}

/// Some key of the request is where its slot is about to be. Redis 6.2 replies so even if others
/// are not.
pub(super) fn is_ask(error: &RedisError) -> bool {
    error.kind() == Driver::Server(ServerErrorKind::Ask)
}

/// Slot, host (empty: that of the server that replied) and port of a `MOVED` or an `ASK`, and
/// whether it is for good.
pub(super) fn redirection(error: &RedisError) -> Option<(u16, &str, u16, bool)> {
    let (address, slot) = error.redirect_node()?;
    let (host, port) = super::address::host_and_port(address)?;
    Some((slot, host, port, error.kind() == Driver::Server(ServerErrorKind::Moved)))
}

/// The server cannot serve the key, and another one may: it has to be found.
pub(super) fn needs_refresh(error: &RedisError) -> bool {
    ["READONLY", "CLUSTERDOWN", "MASTERDOWN"].iter().any(|code| has_code(error, code))
}

/// The server has become a replica: another one has to be found.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    has_code(error, "READONLY")
}

fn has_code(error: &RedisError, code: &str) -> bool {
    let wrapped = format!("-{code} ");
    error.code() == Some(code)
        || error
            .detail()
            .is_some_and(|text| text.contains(&wrapped) || text.contains(&format!(": {code} ")))
}

#[cfg(test)]
mod tests {
    use super::ErrorKind::{NotALock, Server};
    use super::*;

    fn server(line: &str) -> RedisError {
        let parsed = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        parsed.extract_error().unwrap_err()
    }

    #[test]
    fn s25_an_error_inside_a_script_is_recognised_in_the_words_of_every_version() {
        // Redis 6.2, Redis 7 and later, Valkey 9.
        let words = |error: &str| {
            let before = "ERR Error running script (call to f_1f): @user_script:33:";
            [
                format!("{before} @user_script: 33: -{error}"),
                format!("{error} script: 1f, on @user_script:33."),
                format!("{error} script: on @user_script:33."),
            ]
        };
        let refused = "The user executing the script can't run this command or subcommand";
        for (error, expected) in [
            ("READONLY You can't write against a read only replica.", ErrorClass::RetryLater),
            ("NOREPLICAS Not enough good replicas to write.", ErrorClass::RetryLater),
            (
                "MISCONF Redis is configured to save RDB snapshots, but cannot.",
                ErrorClass::RetryLater,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorClass::Fatal(Server)),
        ] {
            for line in words(error) {
                assert_eq!(classify(&server(&line)), expected, "{line}");
                assert_eq!(is_read_only(&server(&line)), error.starts_with("READONLY"), "{line}");
            }
        }
        // These come without a dash, or without a code.
        for (line, expected) in [
            (
                "ERR Error running script (call to f_1f): @user_script:30: WRONGTYPE Operation against a key holding the wrong kind of value",
                ErrorClass::Fatal(NotALock),
            ),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value script: 1f, on @user_script:30.",
                ErrorClass::Fatal(NotALock),
            ),
            (
                &format!("ERR Error running script (call to f_1f): @user_script:21: {refused}"),
                ErrorClass::Fatal(Server),
            ),
            (&format!("ERR {refused} script: 1f, on @user_script:21."), ErrorClass::Fatal(Server)),
            (
                "ERR ACL failure in script: User default has no permissions to run the 'hexists' command script: on @user_script:21.",
                ErrorClass::Fatal(Server),
            ),
        ] {
            assert_eq!(classify(&server(line)), expected, "{line}");
        }
    }

    #[test]
    fn an_error_says_whether_to_retry_later() {
        for (line, expected) in [
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                ErrorClass::RetryLater,
            ),
            (
                "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                ErrorClass::RetryLater,
            ),
            ("LOADING Redis is loading the dataset in memory", ErrorClass::RetryLater),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                ErrorClass::RetryLater,
            ),
            ("ERR max number of clients reached", ErrorClass::RetryLater),
            // A script returned it, so every version sends it unchanged.
            ("WRONGTYPE the hash is not a lock", ErrorClass::Fatal(NotALock)),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                ErrorClass::Fatal(Server),
            ),
            ("NOPERM No permissions to access a key", ErrorClass::Fatal(Server)),
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                ErrorClass::Fatal(Server),
            ),
        ] {
            assert_eq!(classify(&server(line)), expected, "{line}");
        }
        for (said, expected) in [
            ("Redis is busy running a script. You can only call", ErrorClass::RetryLater),
            ("DB index is out of range", ErrorClass::Fatal(Server)),
        ] {
            let what =
                (ServerErrorKind::ResponseError.into(), "Redis server refused to switch database");
            assert_eq!(classify(&(what.0, what.1, said.to_owned()).into()), expected, "{said}");
        }
        let crowded = server("ERR max number of clients reached");
        assert_eq!(classify(&crowded), ErrorClass::RetryLater);
    }

    #[test]
    fn a_redirection_says_where_to_and_whether_for_good() {
        for (line, expected) in [
            ("MOVED 3999 127.0.0.1:6381", Some((3999, "127.0.0.1", 6381, true))),
            ("ASK 3999 127.0.0.1:6381", Some((3999, "127.0.0.1", 6381, false))),
            ("MOVED 1 :6381", Some((1, "", 6381, true))),
            ("CLUSTERDOWN Hash slot not served", None),
        ] {
            let error = server(line);
            assert_eq!(redirection(&error), expected, "{line}");
            assert_eq!(classify(&error) == ErrorClass::Redirect, expected.is_some(), "{line}");
            assert_eq!(is_ask(&error), line.starts_with("ASK"), "{line}");
        }
        for line in [
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "ERR Script attempted to access a non local key in a cluster node script: 1f, on @user_script:33.",
            "ERR Attempted to access a non local key in a cluster node",
            "ERR Error running script (call to f_1f): @user_script:33: @user_script: 33: Script attempted to access a non local key in a cluster node",
        ] {
            assert!(is_cross_node(&server(line)), "{line}");
            assert_eq!(classify(&server(line)), ErrorClass::RetryLater, "{line}");
        }
    }

    #[test]
    fn a_refusal_is_fatal_whatever_it_quotes() {
        let quotes = server("NOPERM this user may not use the key: READONLY is its name");
        assert_eq!(classify(&quotes), ErrorClass::Fatal(ErrorKind::Server));
        let rejected = RedisError::from((Driver::AuthenticationFailed, "wrong password"));
        assert_eq!(classify(&rejected), ErrorClass::Fatal(ErrorKind::Server));
    }

    #[test]
    fn a_connection_that_broke_or_sent_nonsense_is_lost() {
        for kind in [Driver::Io, Driver::Parse] {
            assert_eq!(classify(&RedisError::from((kind, "in words"))), ErrorClass::ConnectionLost);
        }
    }

    #[test]
    fn only_a_replica_is_read_only_and_only_a_script_can_be_unknown() {
        let wrapped = "ERR Error running script: @user_script:9: -READONLY You can't write";
        for (line, read_only, unknown) in [
            ("READONLY You can't write against a read only replica.", true, false),
            (wrapped, true, false),
            ("NOSCRIPT No matching script. Please use EVAL.", false, true),
            ("LOADING Redis is loading the dataset in memory", false, false),
        ] {
            let error = server(line);
            assert_eq!((is_read_only(&error), is_unknown_script(&error)), (read_only, unknown));
        }
    }

    #[test]
    fn a_command_that_was_not_begun_is_told_from_one_that_failed() {
        for (line, is_begun) in [
            ("NOPERM No permissions to access a key", false),
            ("CROSSSLOT Keys in request don't hash to the same slot", false),
            ("OOM command not allowed when used memory > 'maxmemory'.", true),
            ("ERR Error running script: @user_script:9: unpack", true),
        ] {
            assert_eq!(is_not_begun(&server(line)), !is_begun, "{line}");
        }
    }
}
