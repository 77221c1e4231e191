//! The fair lock in a cluster: shards that hang, and slots that move.

use super::*;

async fn client_of(cluster: &Cluster) -> LockClient {
    LockClient::builder().cluster(cluster.urls()).connect().await.unwrap()
}

/// A task that waits for the lock, and whose client stands in the queue by now.
async fn waiter(
    cluster: &Cluster,
    client: &LockClient,
    name: &str,
) -> tokio::task::JoinHandle<LockGuard> {
    let lock = client.fair_lock(name);
    let places = || cluster.ask_at::<u64>(name, &["ZCARD", &queue_keys(name)[0]]);
    let before = places();
    let task = tokio::spawn(async move { lock.lock().await.expect("a turn") });
    wait_until("a place in the queue", SOON, || places() > before).await;
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_at_a_shard_that_hangs_cost_no_place_at_the_others() {
    let cluster = Cluster::start_with(0, &["--cluster-require-full-coverage", "no"]);
    let (one, other) = (client_of(&cluster).await, client_of(&cluster).await);
    // The first in the order of slots are those that hang.
    let hanging = ["a", "b", "c"].map(|stem| cluster.name_at(0, stem));
    let healthy = cluster.name_at(1, "d");
    let mut guards = Vec::new();
    let mut waiters = Vec::new();
    for name in hanging.iter().chain([&healthy]) {
        guards.push(fair_hold(&one.fair_lock(name)).await);
        waiters.push(waiter(&cluster, &other, name).await);
    }
    let client = super::client_of(&other.fair_lock(&healthy));
    let [_, waiting] = queue_keys(&healthy);
    let term = || cluster.nodes()[1].ask::<u64>(&["HGET", &waiting, &format!("alive:{client}")]);
    cluster.pause_node(0);
    for _ in 0..2 {
        let before = term();
        wait_until("a refresh of the place", ms(5_500), || term() > before).await;
    }
    cluster.nodes()[0].resume();
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        drop(guard);
        release(within(MINUTE, "a turn", waiter).await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_moves_with_its_slot_and_its_order_with_it() {
    let cluster = Cluster::start();
    let clients = [client_of(&cluster).await, client_of(&cluster).await, client_of(&cluster).await];
    let name = cluster.name_at(0, "moves");
    let guard = fair_hold(&clients[0].fair_lock(&name)).await;
    let first = waiter(&cluster, &clients[2], &name).await;
    super::apart().await;
    let second = waiter(&cluster, &clients[1], &name).await;
    cluster.move_slot(cluster.slot_of(&name), 1);
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    assert!(!second.is_finished());
    release(guard).await;
    release(soon("the second", second).await.unwrap()).await;
    wait_until("a free lock", SOON, || !cluster.exists(&name)).await;
}
