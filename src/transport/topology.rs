//! Where to send: to the one server; behind Sentinels to the primary, whichever server that is
//! ([`sentinel`]); in a cluster to one of several, each key to its own ([`cluster`]).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, RedisResult, Value};

use super::connection::is_primary;
use super::failure::is_unknown_host;
use super::{Connection, Node, Router, address};
use crate::clock;
use crate::error::Error;
use crate::signal;
use crate::slot;

pub(super) mod cluster;
pub(super) mod endpoint;
pub(super) mod retired;
mod sentinel;

use cluster::Cluster;
use endpoint::Endpoint;
use sentinel::Sentinels;

/// How long a caller waits for a server that the client does not know, before it asks the client's thread again.
const UNKNOWN_SERVER_PAUSE: Duration = Duration::from_millis(20);

pub(super) enum Topology {
    Standalone(Arc<Node>),
    Sentinel(Arc<Sentinels>),
    Cluster(Box<Cluster>),
}

/// Identifies the server of a key within one router. Behind Sentinels it is the number of failovers so far: each of
/// them counts as a change to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerEpoch(usize);

/// What server a new connection has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The one that it was made to.
    Itself,
    /// Behind Sentinels, one that is not the primary.
    Replica,
    /// In a cluster, a server that is not of it, and has the address by now.
    Stranger,
}

impl Topology {
    /// Checks the addresses, with no I/O. Each server may take `answer_timeout` for each answer.
    pub(super) fn new(endpoint: Endpoint, answer_timeout: Duration) -> Result<Self, Error> {
        let set_up = |info| endpoint::set_up(&info, answer_timeout);
        Ok(match endpoint {
            Endpoint::Standalone(info) => Self::Standalone(Node::new(set_up(info))?.into()),
            Endpoint::Sentinel { master, sentinels, server } => {
                let set_up_all = |logins: Vec<_>| logins.into_iter().map(set_up).collect();
                let sentinels = sentinels.into_iter().map(set_up_all).collect();
                Self::Sentinel(Sentinels::new(master, sentinels, set_up(server))?.into())
            }
            Endpoint::Cluster(seeds) => {
                Self::Cluster(Cluster::new(seeds.into_iter().map(set_up).collect())?.into())
            }
        })
    }
}

impl fmt::Debug for Router {
    /// Where the servers are: host and port, and nothing else of a url.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: &Arc<Node>| address::name(&node.info());
        match &self.topology {
            Topology::Standalone(node) => {
                f.debug_struct("Standalone").field("server", &name(node)).finish()
            }
            Topology::Sentinel(sentinels) => {
                let primary = sentinels.found_primary().as_ref().map(name);
                let mut shown = f.debug_struct("Sentinel");
                shown.field("master", &sentinels.name).field("primary", &primary).finish()
            }
            Topology::Cluster(cluster) => {
                let nodes: Vec<String> = cluster.nodes().iter().map(name).collect();
                f.debug_struct("Cluster").field("nodes", &nodes).finish()
            }
        }
    }
}

impl Router {
    /// Follows changes of the primary, or of the slots.
    pub(crate) async fn keep_up(self: &Arc<Self>) {
        let keep_up = async {
            match &self.topology {
                Topology::Standalone(_) => std::future::pending().await,
                Topology::Sentinel(sentinels) => sentinels.keep_up(self).await,
                Topology::Cluster(cluster) => cluster.keep_up(self).await,
            }
        };
        tokio::join!(keep_up, self.close_stale_at_retired());
    }

    /// The server that has a key now, as far as is known; any server for `None`.
    pub(super) fn node_of(&self, key: Option<&str>) -> Option<Arc<Node>> {
        match &self.topology {
            Topology::Standalone(node) => Some(node.clone()),
            Topology::Sentinel(sentinels) => sentinels.found_primary(),
            Topology::Cluster(cluster) => cluster.node_of(key.map(slot::of)),
        }
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.topology {
            Topology::Standalone(node) => vec![node.clone()],
            Topology::Sentinel(sentinels) => vec![sentinels.primary.clone()],
            Topology::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// What a text calls the server of a key: "Redis", with its address if that is known to be one.
    pub(crate) fn redis(&self, key: Option<&str>, cause: Option<&RedisError>) -> String {
        let (info, was_reached) = match (self.node_of(key), &self.topology) {
            (Some(node), _) => (Some(node.info()), node.was_reached()),
            (None, Topology::Cluster(cluster)) => (cluster.only_seed(), false),
            (None, _) => (None, false),
        };
        match info {
            Some(info) if was_reached || cause.is_some_and(|cause| !is_unknown_host(cause)) => {
                format!("Redis at {}", address::name(&info))
            }
            _ => "Redis".to_owned(),
        }
    }

    /// Each server by its address, with how long a round trip to it takes if there is a connection. None behind
    /// Sentinels as long as no primary is found. A connection of a runtime that nothing drives does not count while dials
    /// from elsewhere fail: it may have ended long ago.
    pub(crate) fn round_trips(&self) -> Vec<(String, Option<Duration>)> {
        let nodes = match &self.topology {
            Topology::Sentinel(sentinels) => Vec::from_iter(sentinels.found_primary()),
            _ => self.nodes(),
        };
        let is_down = |node: &Node| node.is_dialled_in_vain() && self.events.is_silent(node.number);
        let round_trip = |node: &Node| node.round_trip().filter(|_| !is_down(node));
        nodes.iter().map(|node| (address::name(&node.info()), round_trip(node))).collect()
    }

    /// How long an answer of the server of a key takes; zero as long as that is unknown. What was measured last may be too
    /// long: it is a part of the time for an answer at most.
    pub(crate) fn round_trip_of(&self, key: &str) -> Duration {
        let measured = self.node_of(Some(key)).and_then(|node| node.round_trip());
        measured.unwrap_or_default().min(self.answer_timeout() / 4)
    }

    /// Host and port of the server of a key, or the path of its socket, if it is known to be one.
    pub(crate) fn address_of(&self, key: &str) -> Option<(String, Option<u16>)> {
        let node = self.node_of(Some(key)).filter(|node| node.was_reached())?;
        Some(address::parts(&node.info()))
    }

    /// Identifies the server of a key.
    pub(crate) fn server_of(&self, key: &str) -> ServerEpoch {
        match &self.topology {
            Topology::Standalone(_) => ServerEpoch(0),
            Topology::Sentinel(sentinels) => ServerEpoch(sentinels.changes_so_far()),
            Topology::Cluster(_) => {
                ServerEpoch(self.node_of(Some(key)).map_or(0, |node| node.number))
            }
        }
    }

    /// The server that is responsible for a key, if another one can become responsible.
    pub(crate) fn movable_server_of(&self, key: &str) -> Option<ServerEpoch> {
        (!matches!(self.topology, Topology::Standalone(_))).then(|| self.server_of(key))
    }

    /// Notifies when another server becomes responsible for keys; `None` if that cannot happen.
    pub(crate) fn server_changes(&self) -> Option<signal::Receiver> {
        match &self.topology {
            Topology::Standalone(_) => None,
            Topology::Sentinel(sentinels) => Some(sentinels.changes()),
            Topology::Cluster(cluster) => Some(cluster.changes()),
        }
    }

    /// The slot of a key in a cluster, where all keys of a command have to be in one slot.
    pub(crate) fn slot_of(&self, key: &str) -> Option<u16> {
        matches!(self.topology, Topology::Cluster(_)).then(|| slot::of(key))
    }

    /// What a new connection asks first, to find out what server it leads to.
    pub(super) fn question(&self) -> Option<Cmd> {
        match &self.topology {
            Topology::Standalone(_) => None,
            Topology::Sentinel(_) => Some(redis::cmd("ROLE")),
            Topology::Cluster(_) => Some(cluster::who_are_you()),
        }
    }

    /// What server a new connection leads to, by its answer to the [question](Self::question). For a user that may not ask
    /// it is the right one: a replica refuses the first write.
    pub(super) async fn found(
        &self,
        connection: &Connection,
        answer: RedisResult<Value>,
    ) -> RedisResult<Found> {
        Ok(match (&self.topology, answer) {
            (Topology::Sentinel(_), Ok(role)) if !is_primary(&role) => Found::Replica,
            (Topology::Sentinel(sentinels), Ok(_)) => {
                sentinels.accept(connection.server());
                Found::Itself
            }
            (Topology::Cluster(cluster), id) => {
                let is_stranger =
                    cluster.is_stranger(id, connection, self.dialer.answer_timeout).await;
                if is_stranger? { Found::Stranger } else { Found::Itself }
            }
            _ => Found::Itself,
        })
    }

    /// The server that the Sentinels reported is not the primary.
    pub(super) fn is_not_primary(&self, server: &str) {
        if let Topology::Sentinel(sentinels) = &self.topology {
            sentinels.reject(server, self);
        }
    }

    /// Has the client's thread look for the server of a key that the client does not know, and waits until it knows
    /// one, or until it is time to ask that thread again. False if the deadline passes first.
    pub(super) async fn looks_for_servers(&self, key: Option<&str>, deadline: Instant) -> bool {
        // Before the look, so that a change in between is not missed.
        let changes = self.server_changes();
        self.refresh();
        let known = async {
            let Some(mut changes) = changes else { return std::future::pending().await };
            while self.node_of(key).is_none() {
                changes.changed().await;
            }
        };
        let known = clock::timeout(UNKNOWN_SERVER_PAUSE, known);
        clock::timeout_at(deadline, known).await.is_ok()
    }

    /// In a cluster, has the client's thread fetch a map of the slots, and waits for that: for half of the time that is
    /// left, and then it goes by the one that is known.
    pub(super) async fn renew_map(&self, deadline: Instant) {
        let Topology::Cluster(cluster) = &self.topology else { return };
        let mut changes = cluster.changes();
        cluster.refresh();
        let half = deadline.saturating_duration_since(clock::now()) / 2;
        let _ = clock::timeout(half, changes.changed()).await;
    }

    /// Has the client's thread look for the servers again.
    pub(super) fn refresh(&self) {
        match &self.topology {
            Topology::Standalone(_) => {}
            Topology::Sentinel(sentinels) => sentinels.refresh(),
            Topology::Cluster(cluster) => cluster.refresh(),
        }
    }

    /// Where a `MOVED` or an `ASK` of that server points to, and whether for good.
    pub(super) fn note_redirect(
        &self,
        error: &RedisError,
        from: &str,
    ) -> Option<(Arc<Node>, bool)> {
        let Topology::Cluster(cluster) = &self.topology else { return None };
        cluster.note_redirect(error, from)
    }
}

#[cfg(test)]
mod tests {
    impl super::ServerEpoch {
        pub(crate) fn numbered(number: usize) -> Self {
            Self(number)
        }
    }
}
