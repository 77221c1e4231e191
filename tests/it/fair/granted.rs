//! A lock that Redis grants to a client whose turn it is.

use redlatch::LockClient;

use super::{fair_hold, nothing_is_left, waiter};
use crate::support::{Server, ms, release, soon};

#[tokio::test]
async fn every_grace_that_is_accepted_is_long_enough_for_a_client_that_is_near() {
    for grace in [10, 50, 100, 110, 150] {
        let server = Server::start();
        let builder = || LockClient::builder().url(server.url()).fair_grace(ms(grace));
        let (one, other) = (builder().connect().await.unwrap(), builder().connect().await.unwrap());
        let guard = fair_hold(&one.fair_lock("grace")).await;
        let waiting = waiter(&server, other.fair_lock("grace"), |guard| guard).await;
        let before = server.calls("evalsha");
        release(guard).await;
        release(soon(&format!("a turn with {grace} ms"), waiting).await.unwrap()).await;
        // The client has not released a lock for which its waiter waits, again and again.
        let sent = server.calls("evalsha") - before;
        assert!(sent <= 20, "{sent} requests with {grace} ms");
        nothing_is_left(&server).await;
    }
}
