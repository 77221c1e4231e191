//! What `connect` does: it finds the servers, and makes all connections that a client needs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::task::JoinSet;

use super::error_class::{ErrorClass, classify, is_fatal};
use super::failure::{refused, unavailable};
use super::supervisor::DialError;
use super::topology::Topology;
use super::topology::cluster::NEXT_NODE_DELAY;
use super::{Channels, Purpose, Router};
use crate::clock;
use crate::error::Error;
use crate::host::here;

/// The round trips to find the servers: TCP, two of TLS, `HELLO`, and the questions to a node; once more if the first login
/// is refused. Each may take as long as the command timeout.
const FIND_ROUND_TRIPS: u32 = 9;

/// The round trips until a connection is ready: TCP, two of TLS, `HELLO`, and three more. Each may take as long as the
/// command timeout.
const DIAL_ROUND_TRIPS: u32 = 7;

impl Router {
    /// Tries once to make the connections of this runtime. The caller gets the error at once.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.find(clock::now() + FIND_ROUND_TRIPS * self.dialer.answer_timeout).await?;
        self.connect_all(&self.for_callers).await
    }

    /// Tries once to make the connections of the client's own thread, once the servers are known.
    pub(crate) async fn connect_thread(self: &Arc<Self>) -> Result<(), Error> {
        self.connect_all(self.for_thread()).await
    }

    /// The purposes of the connections of the client's own thread.
    fn for_thread(&self) -> &'static [Purpose] {
        match self.channels() {
            Channels::Sharded => &[Purpose::Commands, Purpose::Listening],
            Channels::Plain | Channels::Everywhere => &[Purpose::Commands],
        }
    }

    /// Makes the connections of this runtime to servers that have become known; to those of a closed client it makes none
    /// but for requests.
    pub(super) fn connect_to_new(&self) {
        if self.hung_up.load(Ordering::SeqCst) {
            let nodes = self.nodes().into_iter().filter(|node| !node.is_out_of_use());
            return nodes.for_each(|node| drop(node.hang_up()));
        }
        for node in self.nodes() {
            for purpose in self.for_thread() {
                self.supervise(&node, &node.runtime_slot(*purpose));
            }
        }
    }

    async fn connect_all(self: &Arc<Self>, purposes: &[Purpose]) -> Result<(), Error> {
        let (begun, answer_timeout) = (clock::now(), self.dialer.answer_timeout);
        let deadline = begun + DIAL_ROUND_TRIPS * answer_timeout;
        loop {
            return match self.reach_all(purposes, deadline).await {
                Ok(()) => Ok(()),
                Err(DialError::TimeUp(error)) => {
                    let redis = self.redis(None, error.as_ref());
                    Err(unavailable(&format!("could not connect to {redis}"), false, error))
                }
                // This server, or another one, is just becoming the primary.
                Err(DialError::Failed(error))
                    if matches!(self.topology, Topology::Sentinel(_))
                        && !is_fatal(&error)
                        && clock::now() < begun + answer_timeout =>
                {
                    self.find(clock::now() + FIND_ROUND_TRIPS * answer_timeout).await?;
                    continue;
                }
                Err(DialError::Failed(error)) => Err(self.unconnected(error)),
            };
        }
    }

    /// Connects to the server, or to all nodes of a cluster. A node may be dead: once another one
    /// is connected, the rest have a few times as long. Their dials go on.
    async fn reach_all(
        self: &Arc<Self>,
        purposes: &[Purpose],
        deadline: Instant,
    ) -> Result<(), DialError> {
        let begun = clock::now();
        let mut dialed = JoinSet::new();
        for node in self.nodes() {
            for purpose in purposes {
                self.supervise(&node, &node.runtime_slot(*purpose));
            }
            let (router, purposes) = (self.clone(), purposes.to_vec());
            dialed.spawn(here(async move {
                for purpose in purposes {
                    router.connection(&node, purpose, deadline).await?;
                }
                Ok(())
            }));
        }
        let (mut trouble, mut others) = (DialError::TimeUp(None), None);
        loop {
            let answer = clock::by(others, dialed.join_next()).await.flatten();
            let Some(answer) = answer else { break };
            match answer {
                Ok(Err(_)) if matches!(&trouble, DialError::Failed(error) if is_fatal(error)) => {}
                Ok(Err(error)) => trouble = error,
                Ok(Ok(())) => {
                    let now = clock::now();
                    let took = now.saturating_duration_since(begun);
                    others.get_or_insert(now + (3 * took).max(NEXT_NODE_DELAY));
                }
                Err(_) => {}
            }
        }
        if others.is_some() { Ok(()) } else { Err(trouble) }
    }

    /// How long it took to make this runtime's connection to the server of a key.
    pub(crate) fn dial_time(&self, key: &str) -> Duration {
        let node = self.node_of(Some(key));
        node.map_or(Duration::ZERO, |node| node.runtime_slot(Purpose::Commands).dial_time())
    }

    /// Finds the server, or the servers.
    async fn find(&self, deadline: Instant) -> Result<(), Error> {
        match &self.topology {
            Topology::Standalone(_) => Ok(()),
            Topology::Sentinel(sentinels) => sentinels.find_primary(self, deadline).await,
            Topology::Cluster(cluster) => {
                let found = cluster.find_nodes(self, deadline).await;
                found.map_err(|error| self.unconnected(error))
            }
        }
    }

    fn unconnected(&self, error: RedisError) -> Error {
        let redis = self.redis(None, Some(&error));
        match classify(&error) {
            ErrorClass::Fatal(kind) => refused(kind, &redis, "the connection", false, error),
            _ => unavailable(&format!("could not connect to {redis}"), false, Some(error)),
        }
    }
}
