//! The fair lock in a cluster, of which a shard hangs.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_at_a_shard_that_hangs_cost_no_entry_at_the_others() {
    let cluster = Cluster::start_with(0, &["--cluster-require-full-coverage", "no"]);
    let connect = || LockClient::builder().cluster(cluster.urls()).connect();
    let (one, other) = (connect().await.unwrap(), connect().await.unwrap());
    // The first in the order of slots are those that hang.
    let hanging = ["a", "b", "c"].map(|stem| cluster.name_at(0, stem));
    let healthy = cluster.name_at(1, "d");
    let mut guards = Vec::new();
    let mut waiters = Vec::new();
    for name in hanging.iter().chain([&healthy]) {
        guards.push(hold(&one.fair_lock(name)).await);
        waiters.push(call(other.fair_lock(name)));
        let entries = || cluster.ask_at::<u64>(name, &["ZCARD", &queue_keys(name)[0]]);
        wait_until("an entry in the queue", SOON, || entries() == 1).await;
    }
    let client = client_of(&other.fair_lock(&healthy));
    let [_, waiting] = queue_keys(&healthy);
    let term = || cluster.nodes()[1].ask::<u64>(&["HGET", &waiting, &format!("alive:{client}")]);
    cluster.pause_node(0);
    for _ in 0..2 {
        let before = term();
        wait_until("a refresh of the entry", ms(5_500), || term() > before).await;
    }
    cluster.nodes()[0].resume();
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        drop(guard);
        release(within(MINUTE, "a turn", waiter).await.unwrap()).await;
    }
}
