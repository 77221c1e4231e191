//! A replica takes the place of its master: rows T1, T2 and T8 in a cluster.

use super::*;
use crate::support::cluster::is_master;

/// Long enough for a takeover that nobody has asked for.
const LONG: Duration = Duration::from_secs(18);

fn replicated(master: &Server) {
    assert_eq!(master.ask::<u64>(&["WAIT", "1", "10000"]), 1, "a replica that lags behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_planned_takeover_in_a_cluster_costs_nobody_anything() {
    let cluster = Cluster::start_with(1, &[]);
    let (holder, other) = (client_of(&cluster, ms(3_000)).await, client_of(&cluster, MINUTE).await);
    let name = cluster.name_at(0, "kept");
    let idle = cluster.name_at(0, "idle");
    let lock = holder.lock(&name);
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    release(hold(&other.lock(&idle)).await).await;
    let waiter = waiting(&other, &name);
    parked(&cluster, &name).await;
    let names = (0..8).map(|number| cluster.name_at(0, &format!("busy{number}")));
    let busy = Busy::with(names.map(|name| other.lock(name)));
    busy.goes_on().await;
    let new = cluster.replica_of(0);
    cluster.failover_to(new);
    assert_eq!(cluster.node_of(&name), new);
    busy.goes_on().await;
    let errors = busy.end().await;
    assert!(errors.is_empty(), "{errors:?}");
    renewed(&outer).await;
    renewed(&outer).await;
    assert!(!outer.is_lost() && !inner.is_lost() && !waiter.is_finished());
    assert_eq!(cluster.holds(&name)[outer.owner()], 2);
    release(hold(&other.lock(&idle)).await).await;
    release(inner).await;
    release(outer).await;
    release(gets(waiter, ms(3_000)).await).await;
    wait_until("free locks", SOON, || cluster.size() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t8_after_a_replica_took_over_locks_go_on_and_calls_work() {
    let cluster = Cluster::start_with(1, &[]);
    let holder = client_of(&cluster, LONG).await;
    let short = connected(of(&cluster).command_timeout(ms(1_000))).await;
    let patient = connected(of(&cluster).command_timeout(LONG)).await;
    let [kept, called, refused] =
        ["kept", "called", "refused"].map(|stem| cluster.name_at(0, stem));
    let lock = holder.lock(&kept);
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    let waiter = waiting(&short, &kept);
    parked(&cluster, &kept).await;
    replicated(&cluster.nodes()[0]);
    cluster.kill_node(0);
    // The others have not even noticed yet.
    let error = short.lock(&refused).try_lock_now().await.expect_err("a dead node");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let lock_called = patient.lock(&called);
    let calling = tokio::spawn(async move { lock_called.lock().await });
    let new = cluster.replica_of(0);
    wait_until("a replica that takes over", LONG, || is_master(&cluster.nodes()[new])).await;
    let guard = within(SOON, "the lock", calling).await.unwrap().expect("riding it out");
    // Until then another node may say that the cluster is down.
    cluster.is_master_now(new);
    assert!(cluster.exists(&called));
    release(guard).await;
    assert!(!outer.is_lost() && !inner.is_lost() && !waiter.is_finished());
    assert_eq!(cluster.holds(&kept)[outer.owner()], 2);
    release(inner).await;
    release(outer).await;
    release(gets(waiter, SOON).await).await;
    release(hold(&short.lock(&refused)).await).await;
    for name in [&kept, &called, &refused] {
        until_gone(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_in_a_cluster_the_replicas_of_the_locks_own_shard_are_waited_for() {
    let cluster = Cluster::start_with(1, &[]);
    let timeout = ms(1_000);
    let client = connected(of(&cluster).replicas(1, timeout)).await;
    let names = [0, 1, 2].map(|master| cluster.name_at(master, "copied"));
    (0..3).for_each(|master| replicated(&cluster.nodes()[master]));
    for (master, name) in names.iter().enumerate() {
        let guard = hold(&client.lock(name)).await;
        assert!(cluster.nodes()[master].calls("wait") >= 2, "nobody waited for the replica");
        release(guard).await;
    }
    let replica = cluster.replica_of(1);
    cluster.pause_node(replica);
    let error = soon("an answer", client.lock(&names[1]).try_lock_now()).await;
    let error = error.expect_err("a replica that stands still");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    until_gone(&cluster, &names[1]).await;
    for name in [&names[0], &names[2]] {
        release(hold(&client.lock(name)).await).await;
    }
    cluster.nodes()[replica].resume();
    release(hold(&client.lock(&names[1])).await).await;
    wait_until("free locks", SOON, || cluster.size() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t5_in_a_slot_on_its_way_the_replicas_of_where_it_goes_are_waited_for() {
    let cluster = Cluster::start_with(1, &[]);
    let client = connected(of(&cluster).replicas(1, ms(1_000))).await;
    (0..3).for_each(|master| replicated(&cluster.nodes()[master]));
    let name = cluster.name_at(0, "on its way");
    let move_ = cluster.begin_move(cluster.slot_of(&name), 2);
    let guard = hold(&client.lock(&name)).await;
    move_.finish();
    assert!(cluster.nodes()[2].exists(&name));
    release(guard).await;
    until_gone(&cluster, &name).await;
}
