//! Row T8: the node that has the slot is dead, or does not answer.

use std::time::Instant;

use super::*;

/// The others go on when a master is gone.
const PARTIAL: [&str; 2] = ["--cluster-require-full-coverage", "no"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t8_a_shard_that_stands_still_costs_its_own_locks_and_no_others() {
    const LEASE: Duration = Duration::from_secs(4);
    let cluster = Cluster::start_with(0, &PARTIAL);
    let client = client_of(&cluster, LEASE).await;
    // Some on each, so that all are due at the same time all the time.
    let mut well = Vec::new();
    for number in 0..10 {
        for master in [0, 1] {
            let name = cluster.name_at(master, &format!("well{number}"));
            well.push((hold(&client.lock(&name)).await, name));
        }
    }
    let (dead, far) = (cluster.name_at(2, "dead"), cluster.name_at(2, "far"));
    // These are due at other times, so that somebody waits for the dead shard at any time.
    let mut others = Vec::new();
    for number in 0..4 {
        tokio::time::sleep(LEASE / 15).await;
        others.push(hold(&client.lock(cluster.name_at(2, &format!("dead{number}")))).await);
    }
    let guard = hold(&client.lock(&dead)).await;
    let mut fixed = client.lock(&far).lock_with_lease(MINUTE).await.unwrap();
    renewed(&guard).await;
    cluster.pause_node(2);
    // An answer that was on its way may still have come.
    tokio::time::sleep(ms(50)).await;
    let ends = deadline(&guard);
    let start = Instant::now();
    let healthy = async {
        // Past the lease: a renewal that waits for the dead shard comes late, or too late.
        while start.elapsed() < LEASE * 3 / 2 {
            for (guard, name) in &well {
                assert!(!guard.is_lost(), "{name} was lost, and its node is well");
                // A third of it has gone when the next renewal is due, and a busy machine is late.
                let left = guard.remaining();
                assert!(left > LEASE / 3, "{name}: {left:?}");
            }
            // Nor does a call wait for it.
            let asked = Instant::now();
            let guard = client.lock(cluster.name_at(0, "call")).try_lock_now().await;
            release(guard.expect("an answer of a node that is well").expect("free")).await;
            assert!(passed(asked) < ms(2_000), "{:?}", passed(asked));
            tokio::time::sleep(ms(20)).await;
        }
    };
    let (told, ()) = tokio::join!(lost_at(&guard, ends), healthy);
    // What a busy machine may take.
    assert!(told < ends + LEASE / 2, "told {:?} after the deadline", told - ends);
    assert!(others.iter().all(LockGuard::is_lost));
    drop(others);
    assert!(!fixed.is_lost() && fixed.remaining() > Duration::from_secs(40));
    let error = guard.unlock().await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost);

    cluster.nodes()[2].resume();
    cluster.agrees();
    release(fixed).await;
    fixed = client.lock(&far).lock_with_lease(MINUTE).await.unwrap();
    release(fixed).await;
    for (guard, _) in well {
        assert!(!guard.is_lost());
        release(guard).await;
    }
    wait_until("free locks", SOON, || cluster.size() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t8_a_cluster_that_is_down_refuses_and_is_ridden_out() {
    let cluster = Cluster::start();
    let holder = client_of(&cluster, ms(3_000)).await;
    let short = connected(of(&cluster).command_timeout(ms(1_000))).await;
    let patient = connected(of(&cluster).command_timeout(3 * SOON)).await;
    let name = cluster.name_at(0, "down");
    let other = cluster.name_at(1, "waited");
    let guard = hold(&holder.lock(&name)).await;
    cluster.hold_by_hand(&other, "somebody:1", MINUTE);
    let waiter = waiting(&short, &other);
    parked(&cluster, &other).await;
    cluster.kill_node(2);
    cluster.is_missed(2);
    let down = || cluster.nodes()[..2].iter().map(|node| node.errors("CLUSTERDOWN")).sum::<u64>();
    let before = down();
    // Of a node that is well, in a cluster that is not.
    let error = short.lock(&name).try_lock_now().await.expect_err("a cluster that is down");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(format!("{error:#}").contains("cluster is down"), "{error}");
    assert!(down() > before, "no node has said so");
    soon("the loss", guard.lost()).await;
    let called = waiting(&patient, &cluster.name_at(0, "called"));
    let before = down();
    wait_until("more who are refused", SOON, || down() > before + 2).await;
    assert!(!called.is_finished() && !waiter.is_finished());

    cluster.nodes()[2].start_again();
    cluster.agrees();
    release(gets(called, SOON).await).await;
    cluster.free_by_hand(&other);
    release(gets(waiter, SOON).await).await;
    assert_eq!(guard.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
    release(hold(&short.lock(&name)).await).await;
    wait_until("free locks", SOON, || cluster.size() == 0).await;
}
