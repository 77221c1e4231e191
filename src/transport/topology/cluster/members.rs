//! Which nodes are of a cluster, by their ids: pure state.
//!
//! **An address says nothing of the server behind it.** Where addresses are given out again, as in Kubernetes, a node of
//! another cluster can have the one of a node that is gone. It grants every lock of its slots, which others of the first
//! cluster hold. A node keeps its id when it starts again, and it knows the ids of the others, also of those that are
//! down. So a node whose id is new is of the same cluster if it knows another one that is.
//!
//! The client takes for a node of its cluster, too: one that left it and kept its id, when it joins another cluster
//! (`redis-cli --cluster del-node` has it do a `CLUSTER RESET SOFT`); and a node of a cluster that was set up from a copy
//! of the files. It asks a connection that is there only before it leaves its cluster.

use std::collections::BTreeSet;

use redis::{RedisResult, Value, from_redis_value};

use crate::transport::error_class::is_fatal;

/// The ids of the nodes that one node knows of, itself included. Empty if the user may not ask.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members(BTreeSet<Box<str>>);

impl Members {
    /// From the answer to `CLUSTER NODES`: one line for each of them. An error if the node has yet to say, because it loads
    /// its data.
    pub(super) fn parse(answer: RedisResult<Value>) -> RedisResult<Self> {
        let text = match answer {
            Ok(text) => from_redis_value::<String>(text).unwrap_or_default(),
            Err(error) if !is_fatal(&error) => return Err(error),
            Err(_) => String::new(),
        };
        let id = |line: &str| line.split(' ').next().filter(|id| !id.is_empty()).map(Box::from);
        Ok(Self(text.lines().filter_map(id).collect()))
    }

    /// Takes over what a node says now, if it may say. Returns whether the two may be of one cluster.
    pub(super) fn renew(&mut self, now: Self) -> bool {
        let may_be = self.may_be(&now);
        if !now.0.is_empty() {
            *self = now;
        }
        may_be
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
        Members::parse(Ok(Value::BulkString(text.into_bytes()))).expect("an answer")
    }

    #[test]
    fn two_views_that_share_a_node_are_of_one_cluster() {
        let ours = members(&["a", "b"]);
        assert!(ours.has(&Value::BulkString(b"b".to_vec())));
        assert!(!ours.has(&Value::BulkString(b"c".to_vec())) && !ours.has(&Value::Nil));
        assert!(ours.may_be(&members(&["b", "c"])));
        assert!(!ours.may_be(&members(&["c", "d"])));
    }

    fn answered(line: &str) -> RedisResult<Members> {
        let answer = redis::parse_redis_value(line.as_bytes());
        Members::parse(answer.and_then(Value::extract_error))
    }

    #[test]
    fn a_user_that_may_not_ask_takes_each_node_for_one_of_its_cluster() {
        let unknown = answered("-NOPERM it may not ask\r\n").expect("no error");
        assert_eq!(unknown, Members::default());
        assert!(unknown.may_be(&members(&["a"])) && members(&["a"]).may_be(&unknown));
        let mut known = members(&["a"]);
        assert!(known.renew(unknown) && known == members(&["a"]), "the client forgot it");
        assert!(!known.renew(members(&["b"])) && known == members(&["b"]));
    }

    #[test]
    fn a_node_that_loads_its_data_has_not_said_whom_it_knows() {
        assert!(answered("-LOADING Redis is loading the dataset in memory\r\n").is_err());
    }
}
