//! No wake-up is lost: not before the subscription, not with its connection, not with a waiter
//! that goes away, and not where nothing is published at all. In each case the lock must come
//! long before the holder's lease would have ended.

mod support;

use std::time::Duration;

use futures::future::join_all;
use redlatch::{LockClient, LockGuard};
use support::{Proxy, SOON, Server, connect, ms, release, soon, wait_until};
use tokio::task::JoinHandle;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn waiter(client: &LockClient, name: &str) -> JoinHandle<LockGuard> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await.expect("a turn") })
}

#[tokio::test]
async fn n10_a_release_before_the_subscription_is_noticed() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = LockClient::connect(proxy.url(&server)).await.unwrap();
    server.hold_by_hand("early", "somebody:1", MINUTE);
    proxy.hold("SUBSCRIBE");
    let waiter = waiter(&client, "early");
    wait_until("a subscription on its way", SOON, || proxy.faults() == 1).await;
    assert_eq!(server.subscribers("early"), 0);
    // Nobody is subscribed, so nobody hears this.
    server.free_by_hand("early");
    proxy.let_go();
    release(soon("the lock", waiter).await.unwrap()).await;
}

#[tokio::test]
async fn n10_a_release_before_the_subscription_is_confirmed_is_noticed() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = LockClient::connect(proxy.url(&server)).await.unwrap();
    server.hold_by_hand("early", "somebody:1", MINUTE);
    proxy.hold("SUBSCRIBE");
    let waiter = waiter(&client, "early");
    wait_until("a subscription on its way", SOON, || proxy.faults() == 1).await;
    proxy.stall_replies(true);
    proxy.let_go();
    wait_until("a confirmation on its way", SOON, || proxy.withheld() == 1).await;
    assert_eq!(server.subscribers("early"), 1);
    // Without a message, which would come behind the confirmation and hide that nobody looks.
    server.ask::<()>(&["DEL", "early"]);
    proxy.stall_replies(false);
    release(soon("the lock", waiter).await.unwrap()).await;
}

/// Kills connections and releases the lock in one transaction, so that the message has nobody to
/// go to: no client can be back in between.
fn kill_and_free(server: &Server, kind: &str, name: &str) -> u64 {
    server.ask::<()>(&["MULTI"]);
    server.ask::<()>(&["CLIENT", "KILL", "TYPE", kind]);
    server.ask::<()>(&["DEL", name]);
    server.ask::<()>(&["PUBLISH", &support::channel(name), "0"]);
    let (killed, _, heard): (u64, u64, u64) = server.ask(&["EXEC"]);
    if kind == "pubsub" {
        assert_eq!(heard, 0, "somebody heard the release: nothing was lost");
    }
    killed
}

#[tokio::test]
async fn n9_a_release_while_the_subscriptions_connection_is_down_is_noticed() {
    for kind in ["pubsub", "normal"] {
        let server = Server::start();
        let mut waiters = Vec::new();
        for _ in 0..3 {
            let client = connect(&server).await;
            server.hold_by_hand("cut", "somebody:1", MINUTE);
            for _ in 0..3 {
                let lock = client.lock("cut");
                waiters
                    .push(tokio::spawn(async move { release(lock.lock().await.unwrap()).await }));
            }
        }
        wait_until("three subscriptions", SOON, || server.subscribers("cut") == 3).await;
        assert!(kill_and_free(&server, kind, "cut") >= 3);
        for waiter in soon("nine turns", join_all(waiters)).await {
            waiter.unwrap();
        }
    }
}

#[tokio::test]
async fn n9_a_release_during_an_outage_is_noticed_when_it_is_over() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = LockClient::connect(proxy.url(&server)).await.unwrap();
    server.hold_by_hand("outage", "somebody:1", MINUTE);
    let waiter = waiter(&client, "outage");
    wait_until("a subscription", SOON, || server.subscribers("outage") == 1).await;
    let attempts = proxy.attempts();
    proxy.refuse(true);
    proxy.cut_all();
    wait_until("an attempt to come back", SOON, || proxy.attempts() > attempts).await;
    server.free_by_hand("outage");
    proxy.refuse(false);
    release(soon("the lock", waiter).await.unwrap()).await;
}

#[tokio::test]
async fn n9_a_waiter_survives_its_connection_and_is_woken_by_a_later_release() {
    let server = Server::start();
    let client = connect(&server).await;
    server.hold_by_hand("later", "somebody:1", MINUTE);
    let waiter = waiter(&client, "later");
    for _ in 0..3 {
        wait_until("a subscription", SOON, || server.subscribers("later") == 1).await;
        let killed: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(killed, 1);
    }
    wait_until("a subscription again", SOON, || server.subscribers("later") == 1).await;
    assert!(!waiter.is_finished());
    server.free_by_hand("later");
    release(soon("the lock", waiter).await.unwrap()).await;
}

#[tokio::test]
async fn a_lease_that_was_prolonged_meanwhile_is_waited_for_in_silence() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = LockClient::connect(proxy.url(&server)).await.unwrap();
    server.hold_by_hand("renewed", "somebody:1", ms(2_000));
    let waiter = waiter(&client, "renewed");
    wait_until("a subscription", SOON, || server.subscribers("renewed") == 1).await;
    proxy.settled(ms(200)).await;
    assert!(server.ask::<bool>(&["PEXPIRE", "renewed", "60000"]), "the lease is over already");
    proxy.forget_commands();
    // One look at the time at which the first lease would have ended, and no more.
    wait_until("that look", SOON, || proxy.sent("EVALSHA") == 1).await;
    proxy.forget_commands();
    tokio::time::sleep(SECOND).await;
    assert!(proxy.commands().is_empty(), "{:?}", proxy.commands());
    server.free_by_hand("renewed");
    release(soon("the lock", waiter).await.unwrap()).await;
}
