//! A request that arrives late, at a node that was none for a while.

use super::*;
use crate::support::cluster::shards_channels;

/// The node has the next hold from the other one, and may execute the release before this client
/// asks it for something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w9_a_late_release_at_a_node_that_took_over_again_does_not_free_the_next_hold() {
    let cluster = Cluster::start_with(1, &[]);
    let node = &cluster.nodes()[0];
    if !shards_channels(node) {
        eprintln!("left out: before 7.0 a node takes no new address while it runs");
        return;
    }
    let proxy = Proxy::new(node);
    announce(&cluster, node, &proxy).await;
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
