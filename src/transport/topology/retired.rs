//! Servers that are out of use. The client's thread has them close the stale connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::RedisResult;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::clock;
use crate::host::{here, join_rest};
use crate::transport::node::RetiredServer;
use crate::transport::{Router, address};

/// How often the client's thread tries to reach a server that is out of use: for ten seconds.
const TRIES: u32 = 14;

/// The servers that are out of use, and at which connections may be stale.
pub(in crate::transport) struct RetiredServers {
    sender: UnboundedSender<redis::Client>,
    /// Until the client's thread takes it.
    receiver: Mutex<Option<UnboundedReceiver<redis::Client>>>,
}

impl Default for RetiredServers {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Router {
    /// Ends the connections to a server that is out of use. Callers send what is under way on them
    /// again, to the server that is responsible now. That server also closes the connections that broke or were
    /// dropped before.
    pub(super) fn retire(&self, retired: RetiredServer) {
        let mut servers = BTreeMap::new();
        if let Some(server) = retired.server {
            servers.insert(address::name(server.get_connection_info()), server);
        }
        for connection in retired.connections {
            connection.end();
            self.was_cut(connection.number());
            servers.insert(connection.server().to_owned(), connection.client().clone());
        }
        // After all connections are marked as stale: each server closes all of them at once.
        for server in servers.into_values() {
            let _ = self.retired.sender.send(server);
        }
    }

    /// Has servers that are out of use close the stale connections, until this future is dropped.
    pub(super) async fn close_stale_at_retired(self: &Arc<Self>) {
        let receiver = self.retired.receiver.lock().take();
        let Some(mut retired) = receiver else { return std::future::pending().await };
        let mut closers = JoinSet::new();
        loop {
            let client = tokio::select! {
                biased;
                () = join_rest(&mut closers), if !closers.is_empty() => continue,
                client = retired.recv() => client,
            };
            let Some(client) = client else { return };
            let router = Arc::downgrade(self);
            closers.spawn(here(async move {
                let mut backoff = Backoff::in_background();
                for _ in 0..TRIES {
                    let Some(router) = router.upgrade() else { return };
                    match close_at(&router, &client).await {
                        Ok(()) => return,
                        Err(error) => tracing::debug!(%error, "stale connections are not closed"),
                    }
                    drop(router);
                    clock::sleep(backoff.next()).await;
                }
            }));
        }
    }
}

async fn close_at(router: &Router, client: &redis::Client) -> RedisResult<()> {
    let connection = router.dialer.dial(client.clone(), None).await?.connection;
    let closed = clock::within(router.dialer.answer_timeout, connection.close_stale()).await;
    connection.record().carried_no_request();
    closed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transport::{Endpoint, Node, Times};

    #[test]
    fn a_server_whose_keys_others_have_begins_no_outage() {
        let client = redis::Client::open("redis://127.0.0.1:6379").unwrap();
        let info = client.get_connection_info();
        let (pushes, _) = tokio::sync::mpsc::unbounded_channel();
        let times = Times::new(Duration::from_secs(1), Duration::from_secs(30));
        let (endpoint, events) = (Endpoint::Cluster(vec![info.clone()]), Arc::default());
        let router =
            Router::new(endpoint, times, Vec::new(), false, pushes, events, String::new()).unwrap();
        let node = Node::new(info.clone()).unwrap();
        router.log_failure(&node, &"no answer");
        assert!(router.events.is_in_outage());
        router.retire(node.retire());
        router.log_replaced(&node);
        assert!(!router.events.is_in_outage());
        // A dial, say, that was under way.
        router.log_failure(&node, &"no answer");
        assert!(!router.events.is_in_outage());
    }
}
