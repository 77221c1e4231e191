//! Commands that only read, at a server of one's choice: for a look at all locks.

use std::sync::Arc;
use std::time::Instant;

use redis::{Pipeline, RedisError, Value};

use super::error_class::{ErrorClass, classify};
use super::failure::{dial_failed, names_the_command, refused, unavailable};
use super::supervisor::DialError;
use super::{Connection, Node, Purpose, Router, address};
use crate::clock;
use crate::error::{Error, ErrorKind};

/// What a server cannot answer that has refused a command about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Another server of the cluster has the key, or is about to have it.
    Elsewhere,
    /// The command about this key: the user may not read it, or it is of another type.
    Key,
    /// The command: the user may not run it.
    Command,
    /// The command about this key, for now.
    Now,
}

/// See [`Unread`].
pub(crate) fn unread(error: &RedisError) -> Unread {
    match classify(error) {
        ErrorClass::Redirect => Unread::Elsewhere,
        ErrorClass::Fatal(ErrorKind::NotALock) => Unread::Key,
        ErrorClass::Fatal(_) if error.code() == Some("NOPERM") && !names_the_command(error) => {
            Unread::Key
        }
        ErrorClass::Fatal(_) => Unread::Command,
        _ => Unread::Now,
    }
}

impl Router {
    /// The servers that have locks: the one, the primary, or those of the cluster that have slots. Waits for them by
    /// the deadline if none is known yet. In a cluster by a map of now: an older one lacks a node that has slots since.
    pub(crate) async fn primaries(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, Error> {
        self.renew_map(deadline).await;
        loop {
            if self.node_of(None).is_some() {
                return Ok(self.nodes());
            }
            if !self.looks_for_servers(None, deadline).await {
                return Err(unavailable("no server of Redis is known yet", false, None));
            }
        }
    }

    /// Sends all of them at once, on this runtime's connection to that server. An error that the server answers one
    /// of them with is its answer. Also returns the number of the connection.
    pub(crate) async fn read(
        &self,
        node: &Arc<Node>,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<(Vec<Value>, u64), Error> {
        let mut lost = None;
        loop {
            let on = match self.connection(node, Purpose::Commands, deadline).await {
                Ok(on) => on,
                Err(DialError::Failed(error)) => return Err(self.unread(node, Some(error), lost)),
                Err(DialError::TimeUp(error)) => return Err(self.unread(node, error, lost)),
            };
            let asked = clock::now();
            match clock::timeout_at(deadline, on.send_all(commands)).await {
                Ok(Ok(answers)) => {
                    on.record_answer(asked);
                    self.log_answer(on.server(), asked);
                    return Ok((answers, on.number()));
                }
                // It broke while it was idle, say: another one is made at once.
                Ok(Err(error)) if lost.is_none() => {
                    self.drop_connection(&on);
                    lost = Some(error);
                }
                Ok(Err(error)) => return Err(self.unread(node, Some(error), lost)),
                Err(_) => return Err(self.unanswered_read(node, &on, asked, lost)),
            }
        }
    }

    /// What a caller gets for the refusal of a command that only read.
    pub(crate) fn read_refused(&self, node: &Node, what: &str, error: RedisError) -> Error {
        let redis = format!("Redis at {}", address::name(&node.info()));
        match classify(&error) {
            ErrorClass::Fatal(kind) => refused(kind, &redis, what, false, error).replied(),
            _ => unavailable(&format!("{redis} cannot serve {what} now"), false, Some(error)),
        }
    }

    fn unread(&self, node: &Node, error: Option<RedisError>, lost: Option<RedisError>) -> Error {
        let redis = format!("Redis at {}", address::name(&node.info()));
        let error = dial_failed(&redis, "a look at its locks", false, error, lost);
        self.log_failure(node, &error);
        error
    }

    fn unanswered_read(
        &self,
        node: &Node,
        on: &Connection,
        asked: Instant,
        lost: Option<RedisError>,
    ) -> Error {
        if on.is_silent(asked, self.dialer.answer_timeout) {
            self.drop_connection(on);
        }
        let redis = address::name(&node.info());
        let message = format!("no answer from Redis at {redis} for a look at its locks");
        let error = unavailable(&message, false, lost);
        self.log_failure(node, &error);
        error
    }
}
