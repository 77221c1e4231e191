//! What a caller says and hears that waits for replicas (see [`super::replicas`]).

use redis::{Cmd, RedisError, Script};

use super::coalescer::Unanswered;

/// How to write a granted lock again as it is.
#[derive(Clone)]
pub(crate) struct Rewrite {
    pub(crate) cmd: Cmd,
    pub(crate) script: &'static Script,
}

/// How many replicas have the lock, or the error that kept the client from finding out.
pub(crate) type Replicated = Result<u64, Option<RedisError>>;

impl Unanswered for Replicated {
    fn unanswered(_was_sent: bool) -> Self {
        Err(None)
    }
}
