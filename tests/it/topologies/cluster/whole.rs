//! A cluster that is well: all that a lock can do, in every shard.

use super::*;

#[tokio::test]
async fn one_node_is_enough_to_find_the_others() {
    let cluster = shared();
    let urls = cluster.urls();
    for seeds in [vec![urls[1].clone()], vec!["redis://127.0.0.1:1/".into(), urls[2].clone()]] {
        let client = connected(LockClient::builder().cluster(seeds)).await;
        for master in 0..3 {
            let name = cluster.name_at(master, "found");
            let guard = hold(&client.lock(&name)).await;
            assert!(cluster.nodes()[master].exists(&name));
            release(guard).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_for_many_locks_at_a_time_never_touches_two_slots() {
    let cluster = shared();
    let client = client_of(&cluster, ms(1_500)).await;
    let held = (0..60).map(|number| client.lock(format!("many:{number}")));
    let held: Vec<_> = held.collect();
    let guards = join_all(held.iter().map(hold)).await;
    renewed(&guards[0]).await;
    renewed(&guards[59]).await;
    // Far more than a connection sends one by one.
    let tasks = (0..64).map(|number| {
        let lock = client.lock(format!("task:{number}"));
        tokio::spawn(async move {
            for _ in 0..10 {
                release(hold(&lock).await).await;
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    join_all(guards.into_iter().map(release)).await;
    let refused: u64 = cluster.nodes().iter().map(|node| node.errors("CROSSSLOT")).sum();
    assert_eq!(refused, 0);
}

#[tokio::test]
async fn what_was_dropped_in_every_shard_is_given_back_when_the_client_is_closed() {
    let cluster = shared();
    let client = client_of(&cluster, MINUTE).await;
    let names = [0, 1, 2].map(|master| cluster.name_at(master, "closed"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(hold(&client.lock(name)).await);
    }
    assert!(names.iter().all(|name| cluster.exists(name)));
    drop(guards);
    soon("closing", client.close()).await;
    assert!(names.iter().all(|name| !cluster.exists(name)));
    let error = client.lock(&names[0]).try_lock_now().await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
}
