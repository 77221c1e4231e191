//! Rows S: the state of the server. It is full, read-only, or restricts its users.
//! That it is busy, or loads, is in `tests/world/outages.rs`.

mod memory;
mod permissions;
mod replicas;

use std::time::Instant;

use super::*;

/// An error of that kind, in the words of the server, behind which nothing has happened.
#[track_caller]
fn not_executed<T>(result: Result<T, Error>, kind: ErrorKind, words: &str) {
    fails(result, (kind, Outcome::NotExecuted), words);
}

/// A release that the server refused, and that the background tries again.
fn goes_on(unlocked: Result<(), Error>, kind: ErrorKind, words: &str) {
    fails(unlocked, (kind, Outcome::Unknown), words);
}

fn fails<T>(result: Result<T, Error>, expected: (ErrorKind, Outcome), words: &str) {
    let error = result.err().expect("a server in this state grants nothing");
    assert_eq!((error.kind(), error.outcome()), expected, "{error}");
    assert!(format!("{error:#}").contains(words), "{error:#} does not say {words}");
}

/// What Redis counts for the owner of that hold.
fn count(server: &Server, guard: &LockGuard) -> u32 {
    server.holds(guard.name()).get(guard.owner()).copied().unwrap_or(0)
}
