//! How a node sees its cluster: pure.

use std::collections::BTreeMap;

use crate::slot;

/// What a node believes of its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The id of the node itself.
    pub me: String,
    /// All nodes, itself included.
    pub nodes: Vec<ClusterNode>,
    /// Slots that move from here to that node.
    pub migrating: BTreeMap<u16, String>,
    /// Slots that move from that node to here.
    pub importing: BTreeMap<u16, String>,
    /// Whether the node believes that the cluster cannot be used.
    pub is_down: bool,
}

/// A node, as another one sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterNode {
    /// Forty hexadecimal digits.
    pub id: String,
    /// Where it says that it is.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// Since when it has its slots.
    pub epoch: u64,
    /// The first and the last slot of each range.
    pub slots: Vec<(u16, u16)>,
    /// The id of its primary, if it is a replica.
    pub primary: Option<String>,
    /// Whether this node is believed to be down.
    pub has_failed: bool,
}

impl ClusterView {
    /// The slot of a key.
    pub fn slot_of(key: &str) -> u16 {
        slot::of(key)
    }

    /// The node that has the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&ClusterNode> {
        let has = |node: &&ClusterNode| node.slots.iter().any(|(a, b)| (*a..=*b).contains(&slot));
        self.nodes.iter().filter(|node| node.primary.is_none()).find(has)
    }

    pub(super) fn node(&self, id: &str) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    pub(super) fn myself(&self) -> Option<&ClusterNode> {
        self.node(&self.me)
    }

    pub(super) fn replicas_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a ClusterNode> {
        self.nodes.iter().filter(move |node| node.primary.as_deref() == Some(id))
    }

    pub(super) fn epoch(&self) -> u64 {
        self.nodes.iter().map(|node| node.epoch).max().unwrap_or(0)
    }
}
