//! Multi locks over the nodes of a cluster, one of which does not answer.

use crate::failover::nodes::Cluster;
use crate::prelude::*;

const COMMAND: Duration = ms(1_000);

/// A name on a node that answers, and one on the node that will not.
fn names(cluster: &Cluster<'_>) -> [String; 2] {
    [cluster.name_at(0, "well"), cluster.name_at(1, "silent")]
}

fn silence(cluster: &Cluster<'_>, killed: bool) {
    if killed { cluster.kill(1) } else { cluster.stop(1) }
}

#[test]
fn a_call_that_finds_a_shard_silent_says_so_in_time_and_no_other_call_for_the_others() {
    for killed in [true, false] {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            let options = cluster.builder().command_timeout(COMMAND);
            // Further away than what is left of the command timeout of a call that waits behind the other one.
            let (machine, client) = cluster.client_away(ms(40), options).await;
            let [well, silent] = names(&cluster);
            silence(&cluster, killed);
            let all = client.multi_lock([&well, &silent]);
            let begun = Instant::now();
            let multi = machine.spawn(async move { (all.lock().await.map(drop), begun.elapsed()) });
            sleep(ms(10)).await;
            let single = client.lock(&well);
            let single = machine.spawn(async move { single.lock().await });
            let (result, took) = multi.await.expect("no panic");
            let error = result.expect_err("a shard does not answer");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
            assert!(took <= COMMAND + ms(1), "killed: {killed}: {took:?}");
            let single = timeout(ms(200), single).await.expect("in time").expect("no panic");
            single.expect("its node answers").unlock().await.expect("a release");
            assert!(!cluster.exists(&well));
        });
    }
}

#[test]
fn a_call_that_waits_rides_out_a_silent_shard_and_holds_up_nobody_at_the_others() {
    for killed in [true, false] {
        play(1, async |scene| {
            let cluster = Cluster::new(scene);
            let options = || cluster.builder().command_timeout(COMMAND);
            let (machine, client) = cluster.client(options()).await;
            let (_, other) = cluster.client(options()).await;
            let [well, silent] = names(&cluster);
            let guard = other.lock(&well).lock().await.expect("the lock");
            let all = client.multi_lock([&well, &silent]);
            let multi = machine.spawn(async move { all.lock().await });
            sleep(ms(100)).await;
            silence(&cluster, killed);
            guard.unlock().await.expect("a release");
            // Its first request may have the lock until it gives up.
            sleep(COMMAND + ms(20)).await;
            let single = client.lock(&well);
            let singles = async |most| {
                for lock in [&single, &other.lock(&well)] {
                    let begun = Instant::now();
                    lock.lock().await.expect("its node answers").unlock().await.expect("a release");
                    assert!(begun.elapsed() <= most, "killed: {killed}: {:?}", begun.elapsed());
                }
            };
            for _ in 0..50 {
                singles(ms(20)).await;
                sleep(ms(97)).await;
            }
            assert!(!multi.is_finished());
            if killed {
                cluster.start(1)
            } else {
                cluster.go_on(1)
            }
            let guard = timeout(ms(3_000), multi).await.expect("in time").expect("no panic");
            guard.expect("both").unlock().await.expect("a release");
            assert!(!cluster.exists(&well) && !cluster.exists(&silent));
        });
    }
}
