//! Whether another node has taken slots over while this client had no request that would have found that out.
//!
//! A node whose machine has died breaks no connection, nor does one that has become a replica. A client that has nothing
//! to ask there would never hear of it, and would not release again what the new primary has missed (see
//! [`crate::reclaim`]).

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::map;
use super::view::who_has_what;
use crate::clock;
use crate::transport::error_class::is_fatal;
use crate::transport::node::Purpose;
use crate::transport::{Node, address};

/// How long the client does without a look at the map of a node. It is as long behind Sentinels.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

impl Cluster {
    /// Completes when a node has another map than the client, or does not answer. It asks on connections of the client's
    /// thread that are there: with each turn another node.
    pub(super) async fn news(&self, turn: &mut u64, answer_timeout: Duration) {
        loop {
            clock::sleep(LONGEST_SILENCE).await;
            *turn = turn.wrapping_add(1);
            if self.has_news(*turn, answer_timeout).await {
                return;
            }
        }
    }

    async fn has_news(&self, turn: u64, answer_timeout: Duration) -> bool {
        let nodes = self.nodes_from(turn);
        let connected = |node: &Arc<Node>| node.runtime_slot(Purpose::Commands).in_use();
        let Some(connection) = nodes.iter().find_map(connected) else {
            // Those who dial hear of trouble.
            return false;
        };
        let question = who_has_what();
        let timeout = answer_timeout.min(LONGEST_SILENCE);
        match clock::timeout(timeout, connection.send(&question)).await {
            Ok(Ok(answer)) => {
                let host = address::host_and_port(connection.server()).map_or("", |(host, _)| host);
                let ranges = map::parse(&answer, host);
                ranges.is_none_or(|ranges| self.map.read().differs(&ranges))
            }
            // This user may not ask any more.
            Ok(Err(error)) => !is_fatal(&error),
            Err(_) => true,
        }
    }
}
