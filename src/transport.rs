//! The one module that talks to Redis: connections, retries, and what an answer means.
//!
//! **A connection belongs to the runtime that drives it.** Every Tokio runtime that makes calls
//! gets one connection of its own to each server. The client's own thread is such a runtime, too.
//! Its connections, and those of the runtime that connects the client, are made at `connect`; those
//! of any other runtime on first use. A connection that breaks is made again at once (see
//! [`supervisor`]). So a runtime whose threads are blocked, or which has ended, delays no other
//! runtime's commands: renewals, releases of dropped guards and incoming messages never wait behind
//! a user's code or a user's flood of commands. (The undo of a call that was dropped half-way goes
//! behind that call, on its runtime's connection, for a command timeout at most.) An uncontended
//! call crosses no thread. Concurrent calls share commands (see [`connection::batch`]).
//!
//! Callers never ask where to go: they use the known [`topology`] and follow redirections
//! ([`request`]), while the client's own thread keeps the topology up to date.
//!
//! 1. A request is sent again after its connection is lost, because every command of this crate may
//!    be executed twice and count once. Those of a caller may not, nor may `force_unlock`: they are not sent again. Nothing is
//!    sent again after its deadline.
//! 2. A silent connection gets no new requests (see `connection::silence`), and what is still under
//!    way on it does no harm (see `connection::stale`).

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, Script, Value};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock;
use crate::error::Error;
use crate::events::Events;
use crate::metrics::Operation;

mod address;
mod coalescer;
mod connect;
mod connection;
mod error_class;
mod failure;
mod node;
mod reading;
mod replicas;
mod request;
mod retry;
mod rewrite;
mod subscriptions;
mod supervisor;
mod topology;
mod version;

pub(crate) use connection::Connection;
pub(crate) use connection::batch::Batchable;
use connection::dial::Dialer;
pub(crate) use connection::dial::Times;
use failure::{bad_address, is_unknown_host};
pub(crate) use node::{Node, Purpose};
pub(crate) use reading::{Unread, unread};
pub(crate) use rewrite::Rewrite;
pub(crate) use subscriptions::{Channels, Subscribed, unconfirmed};
pub(crate) use topology::ServerEpoch;
use topology::Topology;
pub(crate) use topology::endpoint::Endpoint;
use topology::retired::RetiredServers;

/// What a connection reports without a request.
#[derive(Debug)]
pub(crate) enum Push {
    /// A message on a subscribed channel: a reason to recheck.
    Message { channel: String, payload: Vec<u8> },
    /// The connection of that number is not subscribed to the channel any more.
    Dropped { number: u64, channel: String },
    /// The connection of that number is gone, with its subscriptions.
    Cut { number: u64 },
}

/// Sends each request to the server of its key.
pub(crate) struct Router {
    /// Itself, for tasks that must not keep it alive.
    me: Weak<Self>,
    topology: Topology,
    dialer: Arc<Dialer>,
    /// The purposes of the connections of a calling runtime.
    for_callers: Vec<Purpose>,
    retired: RetiredServers,
    /// The client is closed: servers that become known later get no connections that wait for calls.
    hung_up: AtomicBool,
    pub(crate) events: Arc<Events>,
}

/// Builds a command for a sending on that connection.
pub(crate) type Rebuild<'a> = dyn Fn(&Connection) -> Cmd + Send + Sync + 'a;

/// A command, and how to send it.
pub(crate) struct Request<'a> {
    pub(crate) cmd: Cmd,
    /// Builds the command anew for each sending, on that connection: if it says for how long a caller has waited, or
    /// whether this client listens.
    pub(crate) rebuild: Option<Box<Rebuild<'a>>>,
    /// The script that the command calls, for a server that does not know that script.
    pub(crate) script: Option<&'static Script>,
    /// What the request asks for, as the client exports it.
    pub(crate) operation: Operation,
    /// How the request goes in a batch, if it may.
    pub(crate) batch: Option<Batchable>,
    /// Whether the metrics count the round trip of this request: of the requests of one operation that share a batch,
    /// they count one.
    pub(crate) counts: bool,
    /// The key to whose server the request goes; `None` for any server.
    pub(crate) key: Option<&'a str>,
    /// Whether the request has several keys that do not belong to one lock.
    pub(crate) multi_key: bool,
    /// Whether the client never sends the request again once Redis may have executed it.
    pub(crate) at_most_once: bool,
    /// For a request for a hold: becomes true when it may be on its way.
    pub(crate) was_sent: Option<&'a mut bool>,
    /// The channel on which the request may publish a message.
    pub(crate) publishes_on: Option<&'a str>,
    /// What an error names as its subject.
    pub(crate) what: &'a str,
    pub(crate) deadline: Instant,
    /// How long an answer may take, before the connection counts as silent.
    pub(crate) answer_timeout: Duration,
}

impl Request<'_> {
    /// What an error names as its subject.
    fn subject(&self) -> String {
        if self.key == Some(self.what) { format!("`{}`", self.what) } else { self.what.to_owned() }
    }
}

/// A command's answer.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// Taken before the answered request was sent.
    pub(crate) sent: Instant,
    /// Whether an earlier sending of the request was never answered.
    pub(crate) repeated: bool,
    /// Whether the answer came from a server that is about to get the slot. No waiter listens there yet.
    pub(crate) asking: bool,
}

impl Router {
    /// Checks the addresses, with no I/O. `pushes` receives what connections report. Each server
    /// gets the scripts, and may take `times.answer_timeout` for each answer. `replicas` says that callers wait
    /// for replicas, and `name` is what the servers call the connections.
    pub(crate) fn new(
        endpoint: Endpoint,
        times: Times,
        scripts: Vec<&'static Script>,
        replicas: bool,
        pushes: UnboundedSender<Push>,
        events: Arc<Events>,
        name: String,
    ) -> Result<Arc<Self>, Error> {
        let topology = Topology::new(endpoint, times.answer_timeout)?;
        let retired = RetiredServers::default();
        let dialer = Arc::new(Dialer::new(scripts, pushes, times, name));
        let mut for_callers = vec![Purpose::Commands];
        if replicas {
            for_callers.push(Purpose::Replicas);
        }
        Ok(Arc::new_cyclic(|me| {
            let me = me.clone();
            let hung_up = AtomicBool::new(false);
            Self { me, topology, dialer, for_callers, retired, hung_up, events }
        }))
    }

    /// How long an answer may take, unless a request says otherwise.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.dialer.answer_timeout
    }

    /// Drops a connection (invariant 2), with its subscriptions.
    pub(crate) fn drop_connection(&self, connection: &Connection) {
        connection.record().mark_stale();
        self.forget(connection.number());
    }

    /// Drops the connection of that number, with its subscriptions.
    pub(crate) fn forget(&self, number: u64) {
        if self.nodes().iter().any(|node| node.forget(number).is_some()) {
            self.was_cut(number);
            self.refresh();
        }
    }

    /// Reports that a connection is out of use, with its subscriptions.
    fn was_cut(&self, number: u64) {
        tracing::debug!(connection = number, "lost a connection to Redis");
        // Its driver may be stopped before it can report this itself.
        let _ = self.dialer.pushes.send(Push::Cut { number });
    }

    /// Logs that a server did not answer, or could not be reached, unless others have its keys: then nothing
    /// would ever end its outage.
    fn log_failure(&self, node: &Node, error: &dyn Display) {
        if node.is_replaced() {
            tracing::debug!(%error, "a server that is out of use does not answer");
            return;
        }
        let error = format!("{error:#}");
        let name = (!is_unknown_host(&error)).then(|| address::name(&node.info()));
        let server = name.as_deref().unwrap_or("a host that no name server knows");
        let has = |key: &str| self.node_of(Some(key)).is_none_or(|at| at.number == node.number);
        self.events.server_failed((node.number, server), &error, &has, clock::now());
        // Who replaced it meanwhile may have ended its outages before this one began.
        if node.is_replaced() {
            self.log_replaced(node);
        }
    }

    /// Logs that a server is out of use, if that ends an outage.
    fn log_replaced(&self, node: &Node) {
        self.events.server_replaced(node.number, &address::name(&node.info()), clock::now());
    }

    /// Logs that a server has answered a request that was sent at `sent`, if that ends an outage.
    fn log_answer(&self, server: &str, sent: Instant) {
        if self.events.is_in_outage()
            && let Some(node) = self
                .nodes()
                .iter()
                .find(|node| self.events.is_silent(node.number) && node.is_at(server))
        {
            self.events.server_answered(node.number, server, sent, clock::now());
        }
    }

    /// Releases all connections; each closes when the last request on it is done. Servers that become known later get
    /// connections for requests alone.
    pub(crate) fn hang_up(&self) {
        // Before the look at them: a new one comes before it, or sees this.
        self.hung_up.store(true, Ordering::SeqCst);
        self.nodes().iter().for_each(|node| drop(node.hang_up()));
    }
}
