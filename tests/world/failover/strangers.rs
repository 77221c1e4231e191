//! The address of a node leads to a server that is not of the cluster.

use super::WATCHDOG;
use super::nodes::Cluster;
use crate::prelude::*;

/// The server at the address of its node is not used, and no other node has its slot.
async fn is_refused(lock: &Lock) {
    let refused = lock.try_lock_now().await.expect_err("no node of the cluster has the slot");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let said = format!("{refused:#}");
    assert!(said.contains("not of the cluster") || said.contains("no answer"), "{said}");
}

/// A holder and another client. Then `strange` has the address of a node whose place another one takes a moment later.
fn with_stranger_at_the_first_node(names_it: bool, strange: impl Fn(&Cluster<'_>)) {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let urls: Vec<_> = cluster.urls().into_iter().skip(usize::from(!names_it)).collect();
        let options = || {
            let builder = LockClient::builder().cluster(urls.clone());
            builder.watchdog_timeout(WATCHDOG).command_timeout(SECOND)
        };
        let (_holding, holder) = cluster.client(options()).await;
        let (_asking, other) = cluster.client(options()).await;
        let [name, elsewhere] = [0, 1].map(|node| cluster.name_at(node, "held"));
        let guard = hold(&holder.lock(&name)).await;
        let second = hold(&holder.lock(&elsewhere)).await;
        let lock = other.lock(&name);
        assert!(lock.try_lock_now().await.expect("an answer").is_none());
        sleep(ms(10)).await;
        cluster.kill(0);
        strange(&cluster);
        is_refused(&lock).await;
        assert!(other.lock(&elsewhere).try_lock_now().await.expect("an answer").is_none());
        cluster.take_over_unheard(3);
        let asked = Instant::now();
        while !matches!(lock.try_lock_now().await, Ok(None)) {
            assert!(asked.elapsed() < 3 * SECOND, "it does not find the new node");
        }
        sleep(2 * WATCHDOG).await;
        assert!(!guard.is_lost() && !second.is_lost());
        let keys: Vec<String> = cluster.ask(0, &["KEYS", "*"]);
        assert_eq!(keys, [""; 0], "the stranger was used");
        release(guard).await;
        release(second).await;
        release(hold(&lock).await).await;
    });
}

/// The builder names all masters, the first node among them, or only others.
#[test]
fn a_node_of_another_cluster_at_the_address_of_one_that_is_gone_grants_nothing() {
    for names_it in [true, false] {
        with_stranger_at_the_first_node(names_it, |cluster| cluster.give_away(&[0]));
    }
}

/// It has no slots, and would grant every lock.
#[test]
fn a_server_without_a_cluster_at_the_address_of_a_node_that_is_gone_grants_nothing() {
    with_stranger_at_the_first_node(true, |cluster| cluster.replace_by_one_server(0));
}

/// A client that has a lock at the second node. The address of the first one, where its other lock is, leads to another
/// cluster.
async fn beside_stranger(cluster: &Cluster<'_>) -> (Machine, LockGuard, Lock) {
    let builder = cluster.builder().command_timeout(SECOND).watchdog_timeout(MINUTE);
    let (machine, client) = cluster.client(builder).await;
    let [lock, other] = [1, 0].map(|node| client.lock(cluster.name_at(node, "held")));
    let guard = hold(&lock).await;
    cluster.kill(0);
    cluster.give_away(&[0]);
    (machine, guard, other)
}

/// For that long no call for the lock has it.
async fn is_refused_for(lock: &Lock, long: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < long {
        let refused = lock.try_lock_now().await.expect_err("no node of the cluster answers");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }
}

/// The client finds the cluster that was made anew then.
async fn is_found_within(long: Duration, anew: Instant, lock: &Lock) {
    while lock.try_lock_now().await.is_err() {
        assert!(anew.elapsed() < long, "it does not find the new cluster");
    }
}

/// The other cluster was not used.
async fn is_kept(cluster: &Cluster<'_>, guard: LockGuard) {
    assert!(!guard.is_lost());
    release(guard).await;
    let keys: Vec<String> = cluster.ask(0, &["KEYS", "*"]);
    assert_eq!(keys, [""; 0], "the other cluster was used");
}

/// All of its nodes are out of sight for a while.
#[test]
fn a_cluster_that_is_out_of_sight_for_a_while_is_not_left_for_another() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (_machine, guard, other) = beside_stranger(&cluster).await;
        (1..6).for_each(|node| cluster.stop(node));
        is_refused_for(&other, 20 * SECOND).await;
        (1..6).for_each(|node| cluster.go_on(node));
        cluster.take_over_unheard(3);
        release(hold(&other).await).await;
        is_kept(&cluster, guard).await;
    });
}

/// Its nodes serve requests on the connections that are there, as behind a firewall that lets no new ones in.
#[test]
fn a_cluster_that_takes_no_new_connections_is_not_left_for_another() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (machine, guard, other) = beside_stranger(&cluster).await;
        for node in &cluster.nodes[1..] {
            scene.network.set_refusing(&machine, *node, true);
        }
        is_refused_for(&other, MINUTE).await;
        is_kept(&cluster, guard).await;
    });
}

/// The connections of before are there, and serve requests, but for those to one node.
#[test]
fn a_cluster_that_was_made_anew_in_its_processes_is_found_after_a_while() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let builder = cluster.builder().command_timeout(SECOND);
        let (machine, client) = cluster.client(builder).await;
        let [lock, other] = [0, 1].map(|node| client.lock(cluster.name_at(node, "anew")));
        release(hold(&lock).await).await;
        release(hold(&other).await).await;
        (3..6).for_each(|node| cluster.kill(node));
        cluster.make_anew(&[0, 1, 2]);
        scene.network.cut(&machine, cluster.nodes[0], true);
        let anew = Instant::now();
        is_refused_for(&lock, 20 * SECOND).await;
        is_found_within(40 * SECOND, anew, &lock).await;
    });
}

/// Each node has another id. A node of before is there, too, or not, which serves no requests.
#[test]
fn a_cluster_that_was_made_anew_at_the_addresses_of_the_builder_is_found_after_a_while() {
    for one_is_left in [false, true] {
        let (log, ()) = logged(|| {
            play(0, async |scene| {
                let cluster = Cluster::new(scene);
                let builder = cluster.builder().command_timeout(SECOND);
                let (_machine, client) = cluster.client(builder).await;
                let locks = [0, 1, 2].map(|node| client.lock(cluster.name_at(node, "anew")));
                cluster.take_over(3);
                for lock in &locks {
                    release(hold(lock).await).await;
                }
                let anew = Instant::now();
                let of_before = if one_is_left { vec![0, 1, 2, 4, 5] } else { (0..6).collect() };
                of_before.into_iter().for_each(|node| cluster.kill(node));
                if one_is_left {
                    cluster.fails(3);
                }
                cluster.give_away(&[0, 1, 2]);
                for lock in &locks {
                    is_found_within(40 * SECOND, anew, lock).await;
                }
                assert!(anew.elapsed() > 30 * SECOND, "left after {:?}", anew.elapsed());
            });
        });
        assert_eq!(log.matches("another cluster has the addresses").count(), 1, "{log}");
    }
}
