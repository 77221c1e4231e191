//! A client that asks Sentinels where the primary is.

mod addresses;
mod failovers;
mod late;

use super::*;
use crate::support::sentinel::{MASTER, conviction};

fn by_way_of(urls: impl IntoIterator<Item = String>) -> LockClientBuilder {
    LockClient::builder().sentinel(MASTER, urls)
}

/// A client whose locks last so long unless they are renewed.
async fn client_of(set: &Sentinels, watchdog_timeout: Duration) -> LockClient {
    connected(by_way_of(set.urls()).watchdog_timeout(watchdog_timeout)).await
}

/// A Sentinel that says so for ever. What is of a later epoch is newer.
fn stubborn(says: &Server, epoch: u64) -> Server {
    Server::start_sentinel(&conviction("127.0.0.1", says.port(), epoch))
}

/// From now on a stubborn Sentinel names that one.
fn convince(sentinel: &Server, says: &Server) {
    sentinel.kill();
    sentinel.configure(&conviction("127.0.0.1", says.port(), 1));
    sentinel.start_again();
}

/// Waits until both replicas have all that the master has been told.
fn replicated(master: &Server) {
    assert_eq!(master.ask::<u64>(&["WAIT", "2", "10000"]), 2, "replicas that lag behind");
}

/// Locks until the server has granted the lock. The client may move to it while it holds a lock of the
/// primary of before: that one is lost, and its key there ends with its lease.
async fn until_granted_at(server: &Server, client: &LockClient) {
    let until = async {
        loop {
            let lock = client.lock("moved");
            let guard = lock.lock_with_lease(ms(3_000)).await.expect("the lock");
            let is_there = server.exists("moved");
            match guard.unlock().await {
                Ok(()) if is_there => return,
                Ok(()) => {}
                Err(error) => assert!(!is_there && error.kind() == ErrorKind::Lost, "{error}"),
            }
        }
    };
    soon("a lock of the new primary", until).await;
}
