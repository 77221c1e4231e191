//! A request that arrives late, at a node that was none for a while.

use std::time::{Duration, Instant};

use super::{of, until_gone};
use crate::support::cluster::shards_channels;
use crate::support::{Cluster, Fault, Proxy, SOON, hold, ms, release, renewed, wait_until, within};
use crate::{MINUTE, connected};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_a_node_that_went_and_came_back_is_not_executed_late() {
    let cluster = Cluster::start_with(1, &[]);
    let node = &cluster.nodes()[0];
    if !shards_channels(node) {
        eprintln!("left out: before 7.0 a node takes no new address while it runs");
        return;
    }
    let proxy = Proxy::new(node);
    let port = proxy.port().to_string();
    node.ask::<()>(&["CONFIG", "SET", "cluster-announce-port", &port]);
    let known = || {
        let said = |at: usize| cluster.nodes()[at].ask::<String>(&["CLUSTER", "NODES"]);
        [0, 1, 2].iter().all(|at| said(*at).contains(&format!(":{port}@")))
    };
    wait_until("an address by way of the proxy", SOON, known).await;
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
