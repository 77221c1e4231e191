//! The supervisor of a connection: makes it on first use, and again when it breaks.
//!
//! 1. **A dial belongs to the client, not to the caller that needed it first.** Each runtime slot
//!    has one supervisor, a task on the runtime that drives the connection. Callers wait for its
//!    result, each until its own deadline, and the dial goes on without them.
//! 2. **A connection that breaks is made again at once**, whether or not a caller needs one now: a
//!    renewal or a release finds it there.
//! 3. **Dials are paced** by a pause that grows until a connection has lived. So the client does
//!    not flood a server that accepts and then resets, whatever it answers in between.
//! 4. A supervisor holds the router, the node and the slot weakly. It ends with them, with its
//!    runtime, and when a server refuses this client for good. The next caller starts another then.
//! 5. **No request goes to a server whose keys others have by now.** When that is known, the dial
//!    ends, and callers that wait for it go to the others, also if the server answers again.

use std::future::pending;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Instant;

use redis::{Cmd, RedisError, RedisResult};

use super::connection::dial::{Dialed, Dialer};
use super::connection::runtime_slot::RuntimeSlot;
use super::error_class::is_fatal;
use super::failure::explain;
use super::node::{Node, Purpose};
use super::topology::Found;
use super::{Connection, Router};
use crate::clock;
use crate::host::spawn;
use crate::ready::let_ready_tasks_run;

/// Why there is no connection.
pub(super) enum DialError {
    /// The deadline passed before a dial ended. With the error of the last one.
    TimeUp(Option<RedisError>),
    Failed(RedisError),
}

impl Router {
    /// This runtime's connection to a server, or a new one by `deadline`, if the next dial brings
    /// one. Fails at once, and each time, when others have the keys of the server.
    pub(super) async fn connection(
        &self,
        node: &Arc<Node>,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Connection, DialError> {
        let runtime_slot = node.runtime_slot(purpose);
        // Before the look, so that no dial that ends in between is missed.
        let mut dialed = runtime_slot.dialed();
        loop {
            if let Some(connection) = in_use(node, &runtime_slot)? {
                return Ok(connection);
            }
            self.supervise(node, &runtime_slot);
            if clock::timeout_at(deadline, dialed.changed()).await.is_err() {
                return Err(DialError::TimeUp(runtime_slot.error()));
            }
            if let Some(connection) = in_use(node, &runtime_slot)? {
                return Ok(connection);
            }
            // A runtime that ends drops the supervisor at once, and each new one: to the caller its dial has ended. Such
            // a runtime drops the caller, too, when that yields, and would wait for it for ever if it did not.
            let_ready_tasks_run().await;
            if runtime_slot.runtime_has_ended() {
                // Another runtime polls the caller by now.
                let _ = clock::timeout_at(deadline, pending::<()>()).await;
                let error = runtime_slot.error();
                return Err(DialError::TimeUp(error));
            }
            if let Some(error) = runtime_slot.error() {
                return Err(DialError::Failed(error));
            }
        }
    }

    /// Has the client look for the right server, if a new connection to `server` has led to another one. Returns why it is
    /// of no use. `again` says that a connection before has led to a stranger, too.
    fn is_of_no_use(&self, node: &Node, server: &str, found: Found, again: bool) -> RedisError {
        match found {
            Found::Itself => moved(),
            Found::Replica => {
                self.is_not_primary(server);
                io::Error::other("the server is a replica").into()
            }
            Found::Stranger => {
                let error = io::Error::other("the server is not of the cluster").into();
                self.log_failure(node, &explain(&error));
                if !again {
                    self.refresh();
                }
                error
            }
        }
    }

    /// Starts the supervisor of a slot, unless there is one.
    pub(super) fn supervise(&self, node: &Arc<Node>, runtime_slot: &Arc<RuntimeSlot>) {
        runtime_slot.supervise(|| {
            let (router, node) = (self.me.clone(), Arc::downgrade(node));
            Supervisor { router, node, runtime_slot: Arc::downgrade(runtime_slot) }.run()
        });
    }
}

/// Keeps the connection of one runtime slot.
struct Supervisor {
    router: Weak<Router>,
    node: Weak<Node>,
    runtime_slot: Weak<RuntimeSlot>,
}

impl Supervisor {
    /// Dials until there is a connection, and again when that one has ended.
    async fn run(self) {
        while let Some(connection) = self.connect().await {
            let (number, record) = (connection.number(), connection.record().clone());
            drop(connection);
            record.ended().await;
            let Some((router, node, _)) = self.all() else { return };
            // The task that noticed first has logged it.
            router.forget(number);
            if node.is_out_of_use() {
                return;
            }
        }
    }

    /// `None` if the supervisor has to end.
    async fn connect(&self) -> Option<Connection> {
        let mut met_stranger = false;
        loop {
            self.pause().await?;
            let (router, node, runtime_slot) = self.all()?;
            // Before it looks whether the node is of use, and where it is.
            let mut moves = node.moves();
            if is_unneeded(&node, &runtime_slot) {
                return None;
            }
            let begun = clock::now();
            let (dialer, client, question) =
                (router.dialer.clone(), node.to_dial(), router.question());
            drop((router, node, runtime_slot));
            let dialed = tokio::select! {
                biased;
                // The earlier server may be dead.
                () = moves.changed() => None,
                dialed = self.dial(&dialer, client, question) => Some(dialed),
            };
            let (router, node, runtime_slot) = self.all()?;
            let was_connected = !runtime_slot.dial_time().is_zero();
            let error = match dialed {
                Some(Ok((connection, Found::Itself)))
                    if installs(&node, &runtime_slot, &connection, begun) =>
                {
                    router.log_answer(connection.server(), begun);
                    if was_connected {
                        router.events.metrics.reconnected();
                    }
                    return Some(connection);
                }
                Some(Ok((connection, found))) => {
                    connection.record().carried_no_request();
                    if is_unneeded(&node, &runtime_slot) {
                        return None;
                    }
                    let again = met_stranger;
                    met_stranger |= found == Found::Stranger;
                    router.is_of_no_use(&node, connection.server(), found, again)
                }
                None => moved(),
                Some(Err(error)) => {
                    router.log_failure(&node, &explain(&error));
                    error
                }
            };
            let ends = is_fatal(&error) || node.is_out_of_use();
            runtime_slot.record_failure(error);
            if ends {
                return None;
            }
        }
    }

    /// Makes a connection, and finds out what server it leads to.
    async fn dial(
        &self,
        dialer: &Dialer,
        client: redis::Client,
        question: Option<Cmd>,
    ) -> RedisResult<(Connection, Found)> {
        let Dialed { connection, answer, missing } = dialer.dial(client, question).await?;
        let found = match self.router.upgrade() {
            Some(router) => router.found(&connection, answer).await,
            None => Ok(Found::Itself),
        };
        let found = found.inspect_err(|_| connection.record().carried_no_request())?;
        match found {
            Found::Itself => dialer.prepare(&connection, missing).await?,
            // It may become the primary again, and execute what came late. Nothing waits for it.
            Found::Replica => {
                let (connection, timeout) = (connection.clone(), dialer.answer_timeout);
                spawn(async move { drop(clock::within(timeout, connection.close_stale()).await) });
            }
            Found::Stranger => {}
        }
        Ok((connection, found))
    }

    /// Waits until the next dial may begin. `None` if the supervisor has to end.
    async fn pause(&self) -> Option<()> {
        let (router, node, runtime_slot) = self.all()?;
        // Before the look, so that a move in between is not missed.
        let mut moves = node.moves();
        let not_before = runtime_slot.not_before(router.dialer.longest_pause);
        drop((router, node, runtime_slot));
        if let Some(at) = not_before {
            tokio::select! {
                biased;
                () = clock::sleep_until(at) => {}
                // What happened at another server says nothing about this one.
                () = moves.changed() => {}
            }
        }
        Some(())
    }

    fn all(&self) -> Option<(Arc<Router>, Arc<Node>, Arc<RuntimeSlot>)> {
        Some((self.router.upgrade()?, self.node.upgrade()?, self.runtime_slot.upgrade()?))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(runtime_slot) = self.runtime_slot.upgrade() {
            if std::thread::panicking() {
                // Callers would wait for the dial, and start it again and again.
                let message =
                    "the task that connects panicked: the runtime may have no I/O enabled";
                runtime_slot.record_failure(io::Error::other(message).into());
            }
            runtime_slot.has_no_supervisor();
        }
    }
}

/// The connection in use. Others may have got the keys of the server while a call waited for one. A new request there
/// would be granted what they grant, too.
fn in_use(node: &Node, runtime_slot: &RuntimeSlot) -> Result<Option<Connection>, DialError> {
    if node.is_replaced() {
        return Err(DialError::Failed(moved()));
    }
    Ok(runtime_slot.in_use())
}

/// Whether the new connection is in use from now on. The client may have hung up by now: either this sees it, or that
/// finds the connection.
fn installs(
    node: &Node,
    runtime_slot: &RuntimeSlot,
    connection: &Connection,
    begun: Instant,
) -> bool {
    let is_of_use = |server: &str| node.is_at(server) && !is_unneeded(node, runtime_slot);
    runtime_slot.install(connection, begun, is_of_use)
}

/// Whether the node is out of use, and no call waits for its connection. One may have waited when that began: the
/// client's own tasks hear of `close` a moment after it. No call waits for a server that was replaced.
fn is_unneeded(node: &Node, runtime_slot: &RuntimeSlot) -> bool {
    node.is_replaced() || (node.is_out_of_use() && !runtime_slot.is_awaited())
}

/// Why a new connection is of no use.
fn moved() -> RedisError {
    io::Error::other("another server has become the primary").into()
}
