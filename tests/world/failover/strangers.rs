//! The address of a node leads to a node of another cluster.

use super::WATCHDOG;
use super::nodes::Cluster;
use crate::prelude::*;

/// How many connections and calls there were, so that the client has each reason to ask the first node for the map.
async fn is_refused(lock: &Lock) {
    let refused = lock.try_lock_now().await.expect_err("no node of the cluster has the slot");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let said = format!("{refused:#}");
    assert!(said.contains("of another cluster") || said.contains("no answer"), "{said}");
}

/// The seeds are all masters, the first node among them, or only others.
#[test]
fn a_node_of_another_cluster_at_the_address_of_one_that_is_gone_grants_nothing() {
    for names_it in [true, false] {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            let urls = cluster.urls().into_iter().skip(usize::from(!names_it));
            let urls: Vec<_> = urls.collect();
            let options = || {
                let builder = LockClient::builder().cluster(urls.clone());
                builder.watchdog_timeout(WATCHDOG).command_timeout(SECOND)
            };
            let (_holding, holder) = cluster.client(options()).await;
            let (_asking, other) = cluster.client(options()).await;
            let [name, elsewhere] = [0, 1].map(|node| cluster.name_at(node, "held"));
            let [guard, second] =
                [hold(&holder.lock(&name)).await, hold(&holder.lock(&elsewhere)).await];
            let lock = other.lock(&name);
            assert!(lock.try_lock_now().await.expect("an answer").is_none());
            sleep(ms(10)).await;
            cluster.kill(0);
            cluster.give_away(&[0]);
            is_refused(&lock).await;
            // It hears of a map only from the others.
            assert!(other.lock(&elsewhere).try_lock_now().await.expect("an answer").is_none());
            cluster.take_over_unheard(3);
            let asked = Instant::now();
            while !matches!(lock.try_lock_now().await, Ok(None)) {
                assert!(asked.elapsed() < 3 * SECOND, "it does not find the new node");
            }
            sleep(2 * WATCHDOG).await;
            assert!(!guard.is_lost() && !second.is_lost());
            let keys: Vec<String> = cluster.ask(0, &["KEYS", "*"]);
            assert_eq!(keys, [""; 0], "the other cluster was used");
            release(guard).await;
            release(second).await;
            release(hold(&lock).await).await;
        });
    }
}

/// Each node has another id. Nobody else answers.
#[test]
fn a_cluster_that_was_made_anew_at_the_addresses_of_the_builder_is_found() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (_machine, client) = cluster.client(cluster.builder()).await;
        let locks = [0, 1, 2].map(|node| client.lock(cluster.name_at(node, "anew")));
        for lock in &locks {
            release(hold(lock).await).await;
        }
        (0..6).for_each(|node| cluster.kill(node));
        sleep(SECOND).await;
        cluster.give_away(&[0, 1, 2]);
        let anew = Instant::now();
        for lock in &locks {
            release(hold(lock).await).await;
        }
        assert!(anew.elapsed() < 3 * SECOND, "found after {:?}", anew.elapsed());
    });
}
