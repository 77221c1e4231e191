//! Servers that are out of use. The client's thread has them close the stale connections.

use std::sync::Arc;

use redis::RedisResult;
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::clock;
use crate::host::here;
use crate::transport::{Connection, Router};

/// How often the client's thread tries to reach a server that is out of use: for ten seconds.
const TRIES: u32 = 14;

impl Router {
    /// Ends the connections to a server that is out of use. Callers send what is under way on them
    /// again, to the server that is responsible now.
    pub(super) fn leave(&self, connections: Vec<Connection>) {
        for connection in connections {
            connection.end();
            self.was_cut(connection.number());
            let _ = self.left.0.send(connection.client().clone());
        }
    }

    /// Has servers that are out of use close the stale connections, until this future is dropped.
    pub(super) async fn close_at_those_left(self: &Arc<Self>) {
        let Some(mut left) = self.left.1.lock().take() else { return std::future::pending().await };
        let mut closers = JoinSet::new();
        while let Some(client) = left.recv().await {
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
            while closers.try_join_next().is_some() {}
        }
    }
}

async fn close_at(router: &Router, client: &redis::Client) -> RedisResult<()> {
    let (connection, _) = router.dialer.dial(client.clone(), false).await?;
    // The dial has done it, unless the server could not.
    let closed = clock::within(router.dialer.patience, connection.close_stale()).await;
    connection.record().carried_no_request();
    closed
}
