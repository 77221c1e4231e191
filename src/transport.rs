//! The one room that talks to Redis: connections, sending again, and what an answer means.
//!
//! **A connection belongs to the runtime that drives it.** Every Tokio runtime that calls gets
//! one connection of its own to each server. The client's own thread is such a runtime too. Its
//! connections, and those of the runtime that connects the client, are made at `connect`; those of
//! any other runtime on first use. Each is kept: it is made again as soon as it breaks ([`dial`]). So
//! a runtime whose threads are blocked, or which has ended, delays no other runtime's commands:
//! renewals, releases of dropped guards and incoming messages never wait behind a user's code or a
//! user's flood of commands. (The undo of a call that was dropped half-way goes behind that call, on
//! its runtime's connection, for a command timeout at most.) And an uncontended call crosses no
//! thread. Calls that come in numbers share commands (see [`batch`]).
//!
//! Where Redis is one server, that is the one [`Node`]. Behind Sentinels it is the master, whichever
//! server that is ([`sentinel`]); in a cluster there are several, and a key has one of them
//! ([`cluster`]). Callers ask nobody where to go: they go by what is known, and by what they are told
//! there ([`call`]), while the client's own thread keeps up with the changes.
//!
//! 1. A request is sent again after a cut, because every command of this crate may be executed
//!    twice and count once. Nothing is sent again after its deadline.
//! 2. A connection on which an answer did not come in time is not used for new requests, and
//!    what it may still have under way comes to nothing (see [`stale`]).

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, Script, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::error::Error;
use crate::slot;

mod address;
mod batch;
mod cluster;
mod connect;
mod connection;
mod deadline;
mod dial;
mod endpoint;
mod error_class;
mod failure;
mod node;
mod replicas;
mod request;
mod retry;
mod runtime_slot;
mod sentinel;
mod stale;
mod subscriptions;
mod version;

pub(crate) use batch::Batchable;
use cluster::Cluster;
pub(crate) use connection::Connection;
use dial::Dialer;
pub(crate) use endpoint::Endpoint;
use failure::bad_address;
pub(crate) use node::{Node, Purpose};
pub(crate) use replicas::Rewrite;
use sentinel::Sentinels;
pub(crate) use subscriptions::Channels;

/// What comes unasked.
#[derive(Debug)]
pub(crate) enum Push {
    /// A message on a subscribed channel. What it says does not matter: it is a reason to look.
    Message { channel: String },
    /// That connection is not subscribed to the channel any more.
    Dropped { number: u64, channel: String },
    /// The connection of that number is gone, and what it had subscribed.
    Cut { number: u64 },
}

/// The way to Redis, wherever a key is.
pub(crate) struct Router {
    /// Itself, for tasks that must not keep it.
    me: Weak<Self>,
    topology: Topology,
    dialer: Arc<Dialer>,
    /// What the connections of a runtime that calls are for.
    for_callers: Vec<Purpose>,
    /// Servers that are not asked any more, and at which connections may be stale.
    left: (UnboundedSender<redis::Client>, Mutex<Option<UnboundedReceiver<redis::Client>>>),
}

enum Topology {
    Standalone(Arc<Node>),
    Sentinel(Box<Sentinels>),
    Cluster(Cluster),
}

/// Which server, among those of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Server(usize);

#[cfg(test)]
impl Server {
    pub(crate) fn numbered(number: usize) -> Self {
        Self(number)
    }
}

/// A command, and how it is to be sent.
pub(crate) struct Request<'a> {
    pub(crate) cmd: Cmd,
    /// If it calls one, for a server that does not know it.
    pub(crate) script: Option<&'static Script>,
    /// If it may share a call with others.
    pub(crate) batch: Option<Batchable>,
    /// Whose server it goes to; `None` for any.
    pub(crate) key: Option<&'a str>,
    /// Whether it has several keys that have nothing to do with each other.
    pub(crate) divisible: bool,
    /// The channel on which it may tell somebody something.
    pub(crate) publishes_on: Option<&'a str>,
    /// What an error says that it was about.
    pub(crate) what: &'a str,
    pub(crate) deadline: Instant,
}

/// A command's answer.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// Taken before the request that was answered left.
    pub(crate) sent: Instant,
    /// Whether an earlier sending of it was never answered.
    pub(crate) repeated: bool,
    /// Whether it came from a server that is about to have the slot. Nobody listens there yet.
    pub(crate) asking: bool,
}

impl Router {
    /// Checks the addresses, with no I/O. `pushes` hears what subscriptions bring. The servers are to
    /// have the scripts, and may take `patience` for each answer. `replicas` says that callers wait
    /// for some.
    pub(crate) fn new(
        endpoint: Endpoint,
        patience: Duration,
        scripts: Vec<&'static Script>,
        replicas: bool,
        pushes: UnboundedSender<Push>,
    ) -> Result<Arc<Self>, Error> {
        let set_up = |info| endpoint::set_up(&info, patience);
        let topology = match endpoint {
            Endpoint::Standalone(info) => {
                Topology::Standalone(Arc::new(Node::new(set_up(info), false)?))
            }
            Endpoint::Sentinel { master, sentinels, server } => {
                let ways = |ways: Vec<_>| ways.into_iter().map(set_up).collect();
                let sentinels = sentinels.into_iter().map(ways).collect();
                Topology::Sentinel(Sentinels::new(master, sentinels, set_up(server))?.into())
            }
            Endpoint::Cluster(seeds) => {
                Topology::Cluster(Cluster::new(seeds.into_iter().map(set_up).collect())?)
            }
        };
        let (left, servers_left) = unbounded_channel();
        let left = (left, Mutex::new(Some(servers_left)));
        let dialer = Arc::new(Dialer::new(scripts, pushes, patience));
        let mut for_callers = vec![Purpose::Commands];
        if replicas {
            for_callers.push(Purpose::Replicas);
        }
        Ok(Arc::new_cyclic(|me| Self { me: me.clone(), topology, dialer, for_callers, left }))
    }

    fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// Keeps up with which server is the master, or has which slot.
    pub(crate) async fn keep_up(self: &Arc<Self>) {
        let keep_up = async {
            match &self.topology {
                Topology::Standalone(_) => std::future::pending().await,
                Topology::Sentinel(_) => Sentinels::keep_up(self).await,
                Topology::Cluster(cluster) => cluster.keep_up(self).await,
            }
        };
        tokio::join!(keep_up, self.close_at_those_left());
    }

    /// The server that a key is on now, as far as is known; `None` for any server.
    fn node_of(&self, key: Option<&str>) -> Option<Arc<Node>> {
        match &self.topology {
            Topology::Standalone(node) => Some(node.clone()),
            Topology::Sentinel(sentinels) => Some(sentinels.master.clone()),
            Topology::Cluster(cluster) => cluster.node_of(key.map(slot::of)),
        }
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.topology {
            Topology::Standalone(node) => vec![node.clone()],
            Topology::Sentinel(sentinels) => vec![sentinels.master.clone()],
            Topology::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Tells servers apart.
    pub(crate) fn server_of(&self, key: &str) -> Server {
        match &self.topology {
            Topology::Standalone(_) => Server(0),
            Topology::Sentinel(sentinels) => Server(sentinels.changes_so_far()),
            Topology::Cluster(_) => Server(self.node_of(Some(key)).map_or(0, |node| node.number)),
        }
    }

    /// The server that is responsible for a key, if another one can become that.
    pub(crate) fn movable_server_of(&self, key: &str) -> Option<Server> {
        (!matches!(self.topology, Topology::Standalone(_))).then(|| self.server_of(key))
    }

    /// News of other servers that are responsible for some keys; `None` if that cannot happen.
    pub(crate) fn server_changes(&self) -> Option<watch::Receiver<()>> {
        match &self.topology {
            Topology::Standalone(_) => None,
            Topology::Sentinel(sentinels) => Some(sentinels.changes()),
            Topology::Cluster(cluster) => Some(cluster.changes()),
        }
    }

    /// The slot of a key, where only what is in one slot can be in one call.
    pub(crate) fn slot_of(&self, key: &str) -> Option<u16> {
        matches!(self.topology, Topology::Cluster(_)).then(|| slot::of(key))
    }

    /// A server that was said to be the master is not.
    fn is_not_primary(&self, server: &str) {
        if let Topology::Sentinel(sentinels) = &self.topology {
            sentinels.reject(server, self);
        }
    }

    /// Something is not where it was looked for.
    fn refresh(&self) {
        match &self.topology {
            Topology::Standalone(_) => {}
            Topology::Sentinel(sentinels) => sentinels.refresh(),
            Topology::Cluster(cluster) => cluster.refresh(),
        }
    }

    /// Drops a connection (invariant 2), and what it subscribed is gone.
    fn drop_connection(&self, connection: &Connection) {
        connection.mark_stale();
        self.forget(connection.number());
    }

    /// The same, by its number.
    pub(crate) fn forget(&self, number: u64) {
        if self.nodes().iter().any(|node| node.forget(number).is_some()) {
            self.was_cut(number);
            self.refresh();
        }
    }

    /// The server of those connections is not asked any more. What is under way to it is asked
    /// again where it belongs now.
    fn leave(&self, connections: Vec<Connection>) {
        for connection in connections {
            connection.end();
            self.was_cut(connection.number());
            let _ = self.left.0.send(connection.client().clone());
        }
    }

    /// That connection is not used any more, and what it subscribed is gone.
    fn was_cut(&self, number: u64) {
        tracing::warn!(connection = number, "lost a connection to Redis");
        // Its driver may be stopped before it can say so itself.
        let _ = self.dialer.pushes.send(Push::Cut { number });
    }

    /// Lets go of all connections; they close when the last request on them is done.
    pub(crate) fn hang_up(&self) {
        for node in self.nodes() {
            drop(node.hang_up());
        }
    }
}
