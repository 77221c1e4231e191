//! A slot that is on its way to a node that is not there.

use super::of;
use crate::support::{Cluster, SOON, release, wait_until, within};
use crate::topologies::{MINUTE, connected};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_called_off_because_its_target_died_holds_up_nobody() {
    let cluster = Cluster::start_with(0, &["--cluster-require-full-coverage", "no"]);
    let name = cluster.name_at(0, "wanted");
    let client = connected(of(&cluster).watchdog_timeout(MINUTE).command_timeout(2 * SOON)).await;
    let move_ = cluster.begin_move(cluster.slot_of(&name), 1);
    cluster.kill_node(1);
    let lock = client.lock(&name);
    let call = tokio::spawn(async move { lock.try_lock_now().await });
    let source = &cluster.nodes()[0];
    wait_until("a redirection", SOON, || source.errors("ASK") >= 1).await;
    source.ask::<()>(&["CLUSTER", "SETSLOT", &move_.slot.to_string(), "STABLE"]);
    let guard = within(SOON, "the lock", call).await.expect("no panic").expect("an answer");
    release(guard.expect("a free lock")).await;
    wait_until("a free lock", SOON, || !source.exists(&name)).await;
}
