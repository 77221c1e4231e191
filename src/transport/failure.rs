//! The errors that callers get for failed requests.

use std::fmt;

use redis::{Arg, Cmd, ErrorKind as Driver, RedisError};

use super::error_class::{ErrorClass, classify, is_forbidden};
use super::version;
use crate::error::{Error, ErrorKind, Outcome};

/// What the driver or the server says, in one line.
pub(super) fn explain(error: &RedisError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A password may stand where the host of a url belongs. Then no name server knows it, and no text
/// may name it.
pub(super) fn is_unknown_host(error: &dyn fmt::Display) -> bool {
    format!("{error:#}").contains("failed to lookup address")
}

pub(super) fn bad_address(error: RedisError) -> Error {
    Error::invalid("the address of Redis is not usable").caused_by(error)
}

pub(super) fn unavailable(message: &str, sent: bool, cause: Option<RedisError>) -> Error {
    let outcome = outcome(sent);
    let reason = cause.as_ref().and_then(reason).map(|reason| format!(": {reason}"));
    let message = format!("{message}{}", reason.unwrap_or_default());
    let error = Error::new(ErrorKind::Unavailable, outcome, message);
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}

/// What a failure leaves open, if the request was `sent` before.
fn outcome(sent: bool) -> Outcome {
    if sent { Outcome::Unknown } else { Outcome::NotExecuted }
}

/// `redis` says which server refused `what`.
pub(super) fn refused(
    kind: ErrorKind,
    redis: &str,
    what: &str,
    sent: bool,
    cause: RedisError,
) -> Error {
    let outcome = outcome(sent);
    if let Some(words) = version::words(&cause) {
        return Error::new(kind, outcome, format!("cannot use {redis}: {words}"));
    }
    let message = match (kind, reason(&cause)) {
        (ErrorKind::NotALock, _) => format!(
            "the key {what} in {redis} holds something that is not a lock; \
             give the lock another name, or the client a `name_prefix`"
        ),
        (_, Some(reason)) => format!("{redis} refused {what}: {reason}"),
        (_, None) => format!("{redis} refused {what}"),
    };
    Error::new(kind, outcome, message).caused_by(cause)
}

/// The script found something else where it keeps the queue of the lock `what`.
pub(super) fn not_of_a_queue(
    key: &str,
    redis: &str,
    what: &str,
    sent: bool,
    cause: RedisError,
) -> Error {
    let outcome = outcome(sent);
    let message = format!(
        "the key `{key}` in {redis}, where the queue of the fair lock {what} belongs, holds something \
         else; delete that key, or give the lock another name, or the client a `name_prefix`"
    );
    Error::new(ErrorKind::NotALock, outcome, message).caused_by(cause)
}

/// The key of another type, if the script says which one of its keys that is.
pub(super) fn key_of_another_type(cause: &RedisError, cmd: &Cmd) -> Option<String> {
    let nth = cause.detail()?.strip_prefix("key ")?.split(' ').next()?.parse::<usize>().ok()?;
    // Behind the verb, the digest and the number of keys.
    let Arg::Simple(key) = cmd.args_iter().nth(nth + 2)? else { return None };
    Some(String::from_utf8_lossy(key).into_owned())
}

/// A redirection that the client cannot follow.
pub(super) fn nowhere_to_go(redis: &str, sent: bool, cause: RedisError) -> Error {
    let outcome = outcome(sent);
    let message = format!(
        "{redis} is a node of a cluster, and sent the client on to another one; \
         name the nodes with `cluster`, not with `url`"
    );
    Error::new(ErrorKind::Server, outcome, message).caused_by(cause)
}

/// What is wrong, and what to do about it, in words that the cause does not have.
fn reason(cause: &RedisError) -> Option<String> {
    let text = cause.to_string();
    if is_forbidden(cause) || NOT_IN_A_SCRIPT.iter().any(|part| text.contains(part)) {
        return Some(forbidden(&text));
    }
    let says = |part: &str| cause.code() == Some(part) || text.contains(part);
    if let Some((_, words)) = REASONS.iter().find(|(part, _)| says(part)) {
        return Some((*words).to_owned());
    }
    match cause.kind() {
        Driver::Parse => Some(NOT_REDIS.to_owned()),
        Driver::AuthenticationFailed => Some(WRONG_PASSWORD.to_owned()),
        _ => cause.code().map(|code| format!("it answered with {code}")),
    }
}

/// What a cause says, and what that means.
const REASONS: [(&str, &str); 16] = [
    ("Connection refused", "nothing listens there; start Redis, or correct host and port"),
    ("No such file or directory", "there is no such socket; start Redis, or correct the path"),
    ("failed to lookup address", "no name server knows the host; correct it in the url"),
    ("certificate", "the client does not trust its certificate, or it does not trust the client's"),
    ("InvalidContentType", "it answers without TLS; use `redis://`, or correct the port"),
    ("NOAUTH", "it asks for a password; add it to the url: `redis://[user]:password@host`"),
    ("WRONGPASS", WRONG_PASSWORD),
    ("cluster support disabled", "it is in no cluster; name it with `url`, not with `cluster`"),
    ("unknown command 'SENTINEL'", "it is not a Sentinel; correct the port"),
    ("unknown command `SENTINEL`", "it is not a Sentinel; correct the port"),
    ("No such master", "it watches no primary of that name; `SENTINEL MASTERS` lists the names"),
    ("OOM", "its memory is full; raise `maxmemory`, or delete data"),
    ("READONLY", "it is a replica; name the primary, or use `sentinel`"),
    ("max number of clients", "it has no room for another connection; raise `maxclients`"),
    ("MISCONF", "it cannot save its data to disk; its log says why"),
    ("Multiplexed connection driver unexpectedly terminated", "it closed the connection"),
];

const WRONG_PASSWORD: &str = "user name or password is wrong; correct them in the url";

const NOT_REDIS: &str = "what answers there is not Redis, or it asks for TLS (`rediss://`)";

/// What Redis 7.2 and newer, and what earlier ones say of a command in a script.
const NOT_IN_A_SCRIPT: [&str; 2] = ["no permissions to run the", "can't run this command"];

/// Whether the user may not run the command, whatever its keys.
pub(super) fn names_the_command(refusal: &RedisError) -> bool {
    refusal.to_string().contains(NOT_IN_A_SCRIPT[0])
}

/// Redis names the command; but before 7.2 not that of a script.
fn forbidden(text: &str) -> String {
    let command = text.split_once("the '").and_then(|(_, rest)| rest.split_once("' command"));
    let what = match command {
        Some((command, _)) => format!("run `{command}`"),
        None if text.contains("channel") => "use the channel of the lock".to_owned(),
        None if text.contains("key") => {
            "use the key of the lock, or of a command under it".to_owned()
        }
        None => "run a command that a script of redlatch calls".to_owned(),
    };
    format!(
        "the user may not {what}; the guide (deployment) lists the permissions that redlatch needs"
    )
}

pub(super) fn dial_failed(
    redis: &str,
    what: &str,
    sent: bool,
    error: Option<RedisError>,
    trouble: Option<RedisError>,
) -> Error {
    if let Some(error) = &error
        && let ErrorClass::Fatal(kind) = classify(error)
    {
        return refused(kind, redis, what, sent, error.clone());
    }
    let cause = error.or(trouble);
    let message = match cause.as_ref().and_then(RedisError::code) {
        // It had answered before.
        Some(_) => format!("{redis} cannot serve {what} now"),
        None => format!("could not connect to {redis} for {what}"),
    };
    unavailable(&message, sent, cause)
}
