//! Waits until replicas have what was granted, for many grants at a time.
//!
//! `WAIT` blocks everything behind it on its connection. So it has a connection of its own, for
//! each runtime and server, and does not block the connection of the grants.
//!
//! 1. A caller that comes while one `WAIT` is under way joins the next, together with all others
//!    that come meanwhile. So no caller waits longer than two of them take.
//! 2. A `WAIT` is about what was written on its own connection, and before. So each of the locks is
//!    rewritten there. (Redis 7.0 takes any command for a write; later versions do not.) In a
//!    cluster that also shows whether the lock still is where it was granted: for a lock that has
//!    moved meanwhile, the caller waits where it is now.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use redis::{RedisError, RedisResult, Value};

use super::coalescer::{Gatherer, Joined};
use super::error_class::{ErrorClass, classify, is_unknown_script};
use super::node::{Node, Purpose};
use super::retry::REDIRECTIONS;
use super::rewrite::{Replicated, Rewrite};
use super::supervisor::DialError;
use super::{Connection, Router, Topology, address};
use crate::clock;
use crate::config::Replicas;
use crate::host::spawn;

impl Router {
    /// Waits until as many replicas have a lock as `replicas` asks for, or the time has passed. Returns how many have
    /// it.
    pub(crate) async fn replicated(
        self: &Arc<Self>,
        key: &str,
        rewrite: Rewrite,
        replicas: Replicas,
    ) -> Replicated {
        let mut at = self.node_of(Some(key));
        let mut replicated = Err(None);
        for _ in 0..=REDIRECTIONS {
            let Some(node) = at.take() else { break };
            replicated = self.replicated_at(&node, rewrite.clone(), replicas).await;
            let Err(Some(error)) = &replicated else { break };
            at = match node.is_replaced() {
                true => self.node_of(Some(key)),
                false => self.note_redirect(error, &address::name(&node.info())).map(|(at, _)| at),
            };
        }
        replicated
    }

    async fn replicated_at(
        self: &Arc<Self>,
        node: &Arc<Node>,
        rewrite: Rewrite,
        replicas: Replicas,
    ) -> Replicated {
        let (entry, gatherer) = node.runtime_slot(Purpose::Replicas).queue.join(rewrite);
        if let Some(gatherer) = gatherer {
            let (router, node) = (self.clone(), node.clone());
            spawn(ReplicaWait { router, node, replicas }.run(gatherer));
        }
        entry.reply().await
    }
}

type Caller = Joined<Rewrite, Replicated>;

/// Sends one `WAIT` after the other while callers wait.
struct ReplicaWait {
    router: Arc<Router>,
    node: Arc<Node>,
    replicas: Replicas,
}

impl ReplicaWait {
    async fn run(self, mut gatherer: Gatherer<Rewrite, Replicated>) {
        // Callers whose locks the same answers have granted share a `WAIT`.
        while let Some(callers) = gatherer.gather(true).await {
            let answers = self.wait(&callers).await;
            let answers = answers.unwrap_or_else(|error| vec![Err(error); callers.len()]);
            for (caller, answer) in callers.iter().zip(answers) {
                caller.complete(answer);
            }
        }
    }

    async fn wait(&self, callers: &[Caller]) -> Result<Vec<Replicated>, Option<RedisError>> {
        let deadline = clock::now() + self.replicas.timeout + self.router.dialer.answer_timeout;
        let mut trouble = None;
        while clock::now() < deadline {
            let connection =
                match self.router.connection(&self.node, Purpose::Replicas, deadline).await {
                    Ok(connection) => connection,
                    Err(DialError::TimeUp(error)) => return Err(error.or(trouble)),
                    // Where others have the keys, no later dial brings one.
                    Err(DialError::Failed(error))
                        if classify(&error) == ErrorClass::ConnectionLost
                            && !self.node.is_replaced() =>
                    {
                        trouble = Some(error);
                        continue;
                    }
                    Err(DialError::Failed(error)) => return Err(Some(error)),
                };
            match self.ask(&connection, callers, deadline).await {
                Ok(answers) => return Ok(answers),
                Err(error) if classify(&error) == ErrorClass::ConnectionLost => {
                    self.router.drop_connection(&connection);
                    trouble = Some(error);
                }
                Err(error) => return Err(Some(error)),
            }
        }
        Err(trouble)
    }

    async fn ask(
        &self,
        connection: &Connection,
        callers: &[Caller],
        deadline: Instant,
    ) -> RedisResult<Vec<Replicated>> {
        let timeout = u64::try_from(self.replicas.timeout.as_millis()).unwrap_or(u64::MAX);
        let mut cmds = redis::pipe();
        // For a lock whose slot is about to be here. A server without a cluster would refuse that.
        let asking = matches!(self.router.topology, Topology::Cluster(_));
        for caller in callers {
            if asking {
                cmds.cmd("ASKING");
            }
            cmds.add_command(caller.request.cmd.clone());
        }
        cmds.cmd("WAIT").arg(self.replicas.count).arg(timeout);
        clock::timeout_at(deadline, connection.close_stale()).await.map_err(io::Error::from)??;
        loop {
            let answers = clock::timeout_at(deadline, connection.send_all(&cmds)).await;
            let mut answers =
                answers.map_err(io::Error::from)??.into_iter().map(Value::extract_error);
            let mut held = Vec::with_capacity(callers.len());
            while held.len() < callers.len() {
                // In a cluster behind the answer to ASKING.
                held.push(answers.nth(asking.into()).unwrap_or(Ok(Value::Nil)));
            }
            let unknown = |held: &RedisResult<_>| held.as_ref().is_err_and(is_unknown_script);
            if held.iter().any(unknown) {
                for (caller, _) in callers.iter().zip(&held).filter(|(_, held)| unknown(held)) {
                    let load = connection.load_script(caller.request.script);
                    clock::timeout_at(deadline, load).await.map_err(io::Error::from)??;
                }
                continue;
            }
            let have = match answers.next() {
                Some(Ok(Value::Int(have))) => u64::try_from(have).unwrap_or(0),
                Some(Err(error)) => return Err(error),
                _ => {
                    let nonsense = "WAIT was answered with something else";
                    return Err((redis::ErrorKind::Parse, nonsense).into());
                }
            };
            let outcome = |held| match held {
                Ok(Value::Okay) => Ok(have),
                // The lock is not held any more: no replica has it.
                Ok(_) => Ok(0),
                Err(error) => Err(Some(error)),
            };
            return Ok(held.into_iter().map(outcome).collect());
        }
    }
}
