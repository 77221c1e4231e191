//! Which nodes are of a cluster, by their ids: pure state.
//!
//! **An address says nothing of the server behind it.** Where addresses are given out again, as in Kubernetes, a node of
//! another cluster can have the one of a node that is gone. It grants every lock of its slots, which others of the first
//! cluster hold. A node keeps its id when it starts again, and it knows the ids of the others, also of those that are
//! down. So a node whose id is new is of the same cluster if it knows another one that is.

use std::collections::BTreeSet;

use redis::{Value, from_redis_value};

/// The ids of the nodes that one node knows of, itself included. Empty if the user may not ask.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members(BTreeSet<Box<str>>);

impl Members {
    /// From the answer to `CLUSTER NODES`: one line for each of them.
    pub(super) fn parse(answer: Option<Value>) -> Self {
        let text = answer.and_then(|answer| from_redis_value::<String>(answer).ok());
        let id = |line: &str| line.split(' ').next().filter(|id| !id.is_empty()).map(Box::from);
        Self(text.unwrap_or_default().lines().filter_map(id).collect())
    }

    /// Whether the node with that id, as it answers for itself, is one of them.
    pub(super) fn has(&self, id: &Value) -> bool {
        from_redis_value::<String>(id.clone()).is_ok_and(|id| self.0.contains(&*id))
    }

    /// Whether these and the others may be of one cluster: a node is of both, or nothing is known of one of them.
    pub(super) fn may_be(&self, others: &Self) -> bool {
        self.0.is_empty() || others.0.is_empty() || !self.0.is_disjoint(&others.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ids: &[&str]) -> Members {
        let line =
            |id: &&str| format!("{id} 10.0.0.1:7000@17000 master - 0 0 1 connected 0-5460\n");
        let text: String = ids.iter().map(line).collect();
        Members::parse(Some(Value::BulkString(text.into_bytes())))
    }

    #[test]
    fn two_views_that_share_a_node_are_of_one_cluster() {
        let ours = members(&["a", "b"]);
        assert!(ours.has(&Value::BulkString(b"b".to_vec())));
        assert!(!ours.has(&Value::BulkString(b"c".to_vec())) && !ours.has(&Value::Nil));
        assert!(ours.may_be(&members(&["b", "c"])));
        assert!(!ours.may_be(&members(&["c", "d"])));
    }

    #[test]
    fn a_user_that_may_not_ask_takes_each_node_for_one_of_its_cluster() {
        let refused = redis::parse_redis_value(b"-NOPERM it may not ask\r\n").ok();
        for unknown in [Members::parse(None), Members::parse(refused)] {
            assert_eq!(unknown, Members::default());
            assert!(unknown.may_be(&members(&["a"])) && members(&["a"]).may_be(&unknown));
        }
    }
}
