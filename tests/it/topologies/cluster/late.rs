//! A request that arrives late, at a node that was none for a while.

use std::time::{Duration, Instant};

use super::{of, until_gone};
use crate::support::cluster::shards_channels;
use crate::support::{Cluster, Fault, Proxy, SOON, hold, ms, release, renewed, wait_until, within};
use crate::topologies::{MINUTE, connected};

/// A cluster with a replica of each master, whose first node is known by a proxy's address.
async fn behind_a_proxy() -> Option<(Cluster, Proxy)> {
    let cluster = Cluster::start_with(1, &[]);
    let node = &cluster.nodes()[0];
    if !shards_channels(node) {
        eprintln!("left out: before 7.0 a node takes no new address while it runs");
        return None;
    }
    let proxy = Proxy::new(node);
    let port = proxy.port().to_string();
    node.ask::<()>(&["CONFIG", "SET", "cluster-announce-port", &port]);
    let known = || {
        let said = |at: usize| cluster.nodes()[at].ask::<String>(&["CLUSTER", "NODES"]);
        [0, 1, 2].iter().all(|at| said(*at).contains(&format!(":{port}@")))
    };
    wait_until("an address by way of the proxy", SOON, known).await;
    Some((cluster, proxy))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_a_node_that_went_and_came_back_is_not_executed_late() {
    let Some((cluster, proxy)) = behind_a_proxy().await else { return };
    let node = &cluster.nodes()[0];
    let lease = Duration::from_secs(6);
    let builder = of(&cluster).watchdog_timeout(lease).command_timeout(MINUTE);
    let client = connected(builder).await;
    let [late, other] = ["late", "other"].map(|stem| cluster.name_at(0, stem));
    // Its renewals find out who has the slot.
    let guard = hold(&client.lock(&other)).await;
    assert!(proxy.sent("EVALSHA") >= 1, "not by way of the proxy");

    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let lock = client.lock(&late);
    let call = tokio::spawn(async move { lock.lock_with_lease(MINUTE).await });
    wait_until("a request that is held back", SOON, || proxy.faults() == 1).await;
    let replica = cluster.replica_of(0);
    cluster.failover_to(replica);
    let granted = within(2 * SOON, "the lock", call).await.expect("no panic").expect("the lock");
    assert!(cluster.nodes()[replica].exists(&late));
    release(granted).await;
    assert!(!cluster.nodes()[replica].exists(&late));

    cluster.failover_to(0);
    renewed(&guard).await;
    renewed(&guard).await;
    let sent = proxy.sent("EVALSHA");
    let third = cluster.name_at(0, "third");
    release(hold(&client.lock(&third)).await).await;
    assert!(proxy.sent("EVALSHA") > sent, "not back at the node");
    proxy.let_go();
    let start = Instant::now();
    while start.elapsed() < ms(500) {
        assert!(!node.exists(&late), "an old request left a lock that nobody holds");
        tokio::time::sleep(ms(10)).await;
    }
    release(guard).await;
    until_gone(&cluster, &other).await;
}

/// The node has the next hold from the other one, and may execute the release before this client
/// asks it for something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w9_a_late_release_at_a_node_that_took_over_again_does_not_free_the_next_hold() {
    let Some((cluster, proxy)) = behind_a_proxy().await else { return };
    let node = &cluster.nodes()[0];
    let lease = Duration::from_secs(6);
    let builder = of(&cluster).watchdog_timeout(lease).command_timeout(MINUTE);
    let client = connected(builder).await;
    let [late, other] = ["late", "other"].map(|stem| cluster.name_at(0, stem));
    // Its renewals find out who has the slot.
    let renewing = hold(&client.lock(&other)).await;
    let lock = client.lock(&late);
    let guard = lock.lock_with_lease(MINUTE).await.expect("the lock");

    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let unlock = tokio::spawn(guard.unlock());
    wait_until("a request that is held back", SOON, || proxy.held() == 1).await;
    let replica = cluster.replica_of(0);
    cluster.failover_to(replica);
    within(2 * SOON, "the release", unlock).await.expect("no panic").expect("a release");
    let again = lock.lock_with_lease(MINUTE).await.expect("the lock");
    // No request has a reason to go there.
    let closed = || node.calls("client|kill") >= 1;
    wait_until("a stale connection that the node closes", SOON, closed).await;
    release(renewing).await;
    cluster.agrees();
    cluster.failover_to(0);
    proxy.let_go();
    wait_until("its fate", SOON, || proxy.fates_are_known()).await;
    assert_eq!((proxy.executed_late(), proxy.came_to_nothing()), (0, 1), "executed late");
    assert_eq!(cluster.holds(&late).into_values().collect::<Vec<_>>(), [1]);
    assert!(!again.is_lost());
    release(again).await;
    until_gone(&cluster, &late).await;
}
