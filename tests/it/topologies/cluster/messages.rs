//! Row T9: a release is told where the waiters listen.

use redis::Connection;

use super::*;
use crate::support::cluster::{listeners_at, shards_channels};

/// A client of another make that listens for releases.
struct Ear(Connection);

impl Ear {
    /// At the node where it has to be, in the way of that version of the server.
    fn new(cluster: &Cluster, name: &str) -> Self {
        let node = &cluster.nodes()[cluster.node_of(name)];
        let verb = if shards_channels(node) { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        let mut connection = node.connection().unwrap();
        let confirmed: (String, String, u64) =
            redis::cmd(verb).arg(channel(name)).query(&mut connection).unwrap();
        assert_eq!(confirmed.2, 1);
        Self(connection)
    }

    /// The next message.
    fn hears(&mut self) -> String {
        let message: (String, String, String) =
            redis::from_redis_value(self.0.recv_response().expect("a message")).unwrap();
        message.2
    }
}

#[tokio::test]
async fn t9_a_release_is_told_at_the_node_of_its_slot() {
    let cluster = shared();
    let client = client_of(&cluster, MINUTE).await;
    for master in 0..3 {
        let plain = cluster.name_at(master, "told");
        let tagged = format!("{{{plain}}}:x");
        for name in [plain, tagged] {
            let lock = client.lock(&name);
            let mut ear = Ear::new(&cluster, &name);
            let (outer, inner) = (hold(&lock).await, hold(&lock).await);
            release(inner).await;
            release(outer).await;
            assert_eq!(ear.hears(), "0");
            let guard = hold(&lock).await;
            assert!(client.lock(&name).force_unlock().await.unwrap());
            assert_eq!(ear.hears(), "0");
            assert_eq!(guard.unlock().await.expect_err("by force").kind(), ErrorKind::Lost);
            // Many in one call.
            let others: Vec<_> = (0..20).map(|_| client.lock(&name)).collect();
            let calls = others.iter().map(async |lock| release(hold(lock).await).await);
            futures::future::join_all(calls).await;
            assert_eq!(ear.hears(), "0");
            assert!(!cluster.exists(&name));
        }
    }
}

#[tokio::test]
async fn t9_a_waiter_listens_where_others_publish() {
    let cluster = shared();
    let client = client_of(&cluster, MINUTE).await;
    for master in 0..3 {
        let name = cluster.name_at(master, "listens");
        // Only a message can tell of its end.
        cluster.hold_by_hand(&name, "somebody:1", MINUTE);
        let waiter = waiting(&client, &name);
        parked(&cluster, &name).await;
        assert!(listeners_at(&cluster, &name, master), "not where its slot is");
        let node = &cluster.nodes()[master];
        let kind = if shards_channels(node) { "SHARDNUMSUB" } else { "NUMSUB" };
        assert_eq!(node.ask::<(String, u64)>(&["PUBSUB", kind, &channel(&name)]).1, 1);
        cluster.free_by_hand(&name);
        release(gets(waiter, SOON).await).await;
        wait_until("nobody listens", SOON, || cluster.subscribers(&name) == 0).await;
        assert!(!cluster.exists(&name));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t9_a_subscription_goes_with_its_slot() {
    let cluster = shared();
    let client = client_of(&cluster, MINUTE).await;
    let name = "{a subscription goes}:x".to_owned();
    cluster.hold_by_hand(&name, "somebody:1", MINUTE);
    let waiter = waiting(&client, &name);
    parked(&cluster, &name).await;
    let slot = cluster.slot_of(&name);
    for _ in 0..3 {
        let to = (cluster.node_of(&name) + 1) % 3;
        cluster.move_slot(slot, to);
        wait_until("a subscription at the new node", SOON, || listeners_at(&cluster, &name, to))
            .await;
    }
    assert!(!waiter.is_finished(), "granted to two");
    cluster.free_by_hand(&name);
    release(gets(waiter, SOON).await).await;
    assert!(!cluster.exists(&name));
}

/// Some clients of an upgrade find that the first node that answers has sharded channels, and others
/// that it has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w29_clients_that_listen_in_two_ways_go_by_the_lease_and_those_of_one_way_by_messages() {
    const LEASE: Duration = Duration::from_secs(4);
    let cluster = Cluster::start();
    if !cluster.nodes().iter().all(shards_channels) {
        return;
    }
    // What a server before 7.0 answers, as good as.
    for node in cluster.nodes() {
        let user = ["ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all"];
        node.ask::<()>(&[&user[..], &["-pubsub|shardnumsub"]].concat());
    }
    let urls = cluster.urls().into_iter().map(|url| url.replace("redis://", "redis://plain:pw@"));
    let plain = connected(LockClient::builder().cluster(urls)).await;
    let sharded = client_of(&cluster, MINUTE).await;
    let subscribed = |name: &str, kind| -> u64 {
        let count = |node: &Server| node.ask::<(String, u64)>(&["PUBSUB", kind, &channel(name)]).1;
        cluster.nodes().iter().map(count).sum()
    };
    for (holder, waits, kind) in [(&sharded, &plain, "NUMSUB"), (&plain, &sharded, "SHARDNUMSUB")] {
        let name = cluster.name_at(1, &format!("two ways:{kind}"));
        let guard = holder.lock(&name).lock_with_lease(LEASE).await.unwrap();
        let asked = cluster.calls("evalsha");
        let waiter = waiting(waits, &name);
        wait_until("a subscription", SOON, || subscribed(&name, kind) == 1).await;
        wait_until("the second request", SOON, || cluster.calls("evalsha") >= asked + 2).await;
        // Its refusal is on its way.
        tokio::time::sleep(ms(100)).await;
        let begun = std::time::Instant::now();
        let left = ms(cluster.pttl(&name) as u64);
        release(guard).await;
        release(gets(waiter, SOON).await).await;
        let took = begun.elapsed();
        assert!(took + ms(100) > left, "told after {took:?}: the documentation says otherwise");
        // Where both listen in the same way there is nothing to wait for.
        let guard = waits.lock(&name).lock_with_lease(LEASE).await.unwrap();
        let waiter = waiting(waits, &name);
        wait_until("a subscription", SOON, || subscribed(&name, kind) == 1).await;
        tokio::time::sleep(ms(100)).await;
        release(guard).await;
        release(gets(waiter, LEASE / 2).await).await;
        assert!(!cluster.exists(&name));
    }
}
