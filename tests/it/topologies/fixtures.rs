//! That the groups of servers on which the other tests stand do what these think they do.

use std::time::Duration;

use crate::support::cluster::{is_master, subscribers_at};
use crate::support::replicas::is_primary;
use crate::support::{Cluster, Replicated, Sentinels, channel};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_replica_has_what_the_primary_has_unless_it_is_detached() {
    let group = Replicated::start(2);
    let (primary, replica) = (group.primary(), group.replica());
    primary.hold_by_hand("copied", "somebody:1", MINUTE);
    group.in_step();
    assert!(group.replicas().all(|replica| replica.exists("copied")));
    assert_eq!(primary.ask::<u64>(&["WAIT", "2", "0"]), 2);

    group.detach(replica);
    primary.hold_by_hand("missed", "somebody:1", MINUTE);
    assert_eq!(primary.ask::<u64>(&["WAIT", "2", "100"]), 1);
    let refused = replica.try_ask::<()>(&["DEL", "copied"]).expect_err("a replica");
    assert_eq!(refused.code(), Some("READONLY"));
    group.promote(replica);
    assert_eq!(group.primary().port(), replica.port());
    assert!(is_primary(primary) && is_primary(replica));
    assert!(replica.exists("copied") && !replica.exists("missed"));
    replica.ask::<()>(&["SET", "told later", ""]);
    group.attach(primary);
    assert!(primary.exists("told later") && !primary.exists("missed"));
}

#[test]
fn a_paused_replica_is_waited_for_in_vain() {
    let group = Replicated::start(1);
    group.replica().pause();
    group.primary().ask::<()>(&["SET", "key", ""]);
    assert_eq!(group.primary().ask::<u64>(&["WAIT", "1", "50"]), 0);
    group.replica().resume();
    assert_eq!(group.primary().ask::<u64>(&["WAIT", "1", "0"]), 1);
}

#[test]
fn a_planned_failover_of_a_pair_changes_the_roles_and_loses_nothing() {
    let group = Replicated::start(1);
    let old = group.primary();
    old.ask::<()>(&["SET", "kept", ""]);
    let new = group.failover();
    assert_ne!(old.port(), new.port());
    assert!(new.exists("kept"));
    new.ask::<()>(&["SET", "later", ""]);
    group.in_step();
    assert!(old.exists("later") && !is_primary(old));
}

#[test]
fn sentinels_fail_over_when_told_to_and_when_the_primary_is_killed() {
    let set = Sentinels::start();
    assert_eq!(set.replicas().count(), 2);
    let first = set.master();
    first.hold_by_hand("kept", "somebody:1", MINUTE);
    assert_eq!(first.ask::<u64>(&["WAIT", "2", "5000"]), 2);
    let second = set.failover();
    assert_ne!(first.port(), second.port());
    assert!(second.exists("kept"));

    second.ask::<()>(&["SET", "replicated", ""]);
    assert_eq!(second.ask::<u64>(&["WAIT", "2", "5000"]), 2);
    set.detach_replicas();
    second.ask::<()>(&["SET", "lost", ""]);
    assert_eq!(set.kill_master().port(), second.port());
    set.reattach_replicas();
    let third = set.master_after(second);
    assert!(third.exists("kept") && third.exists("replicated") && !third.exists("lost"));
}

#[test]
fn a_cluster_sends_each_key_to_its_node_and_a_slot_can_move() {
    let cluster = Cluster::start();
    for master in 0..3 {
        let name = cluster.name_at(master, "key");
        assert_eq!(cluster.node_of(&name), master);
        cluster.hold_by_hand(&name, "somebody:1", MINUTE);
        assert!(cluster.nodes()[master].exists(&name));
        assert!((50_000..=60_000).contains(&cluster.pttl(&name)));
        assert_eq!(cluster.holds(&name)["somebody:1"], 1);
    }
    assert_eq!(cluster.size(), 3);

    let name = cluster.name_at(0, "key");
    let other = format!("{{{name}}}:new");
    let slot = cluster.slot_of(&name);
    assert_eq!(slot, cluster.slot_of(&other));
    let move_ = cluster.begin_move(slot, 2);
    assert_eq!((move_.from, move_.to, move_.slot), (0, 2, slot));
    assert!(cluster.nodes()[0].exists(&name));
    // What is new comes into being at the target, and is found there.
    cluster.hold_by_hand(&other, "somebody:1", MINUTE);
    assert!(cluster.exists(&other));
    assert_eq!(cluster.nodes()[0].ask::<u64>(&["DBSIZE"]), 1);
    move_.migrate_keys();
    assert_eq!(cluster.nodes()[0].ask::<u64>(&["DBSIZE"]), 0);
    assert!(cluster.exists(&name), "asked for on its way");
    assert_eq!(cluster.node_of(&name), 0);
    move_.finish();
    assert_eq!(cluster.node_of(&name), 2);
    assert_eq!(cluster.holds(&name)["somebody:1"], 1);
    assert_eq!(cluster.size(), 4);
}

#[test]
fn a_replica_of_a_cluster_takes_over_when_told_to() {
    let cluster = Cluster::start_with(1, &[]);
    let name = cluster.name_at(1, "key");
    cluster.hold_by_hand(&name, "somebody:1", MINUTE);
    let replica = cluster.replica_of(1);
    cluster.failover_to(replica);
    assert_eq!(cluster.node_of(&name), replica);
    assert!(cluster.exists(&name) && !is_master(&cluster.nodes()[1]));
    assert_eq!(cluster.holds(&name)["somebody:1"], 1);
}

#[test]
fn subscribers_of_either_kind_are_counted_wherever_they_are() {
    let cluster = Cluster::start();
    let name = cluster.name_at(1, "key");
    let mut here = cluster.nodes()[1].connection().unwrap();
    let mut there = cluster.nodes()[2].connection().unwrap();
    let mut here = here.as_pubsub();
    here.subscribe(channel(&name)).unwrap();
    assert_eq!(cluster.subscribers(&name), 1);
    redis::cmd("SUBSCRIBE").arg(channel(&name)).exec(&mut there).unwrap();
    assert_eq!(cluster.subscribers(&name), 2);
    assert_eq!(subscribers_at(&cluster.nodes()[0], &name), 0);
    let mut sharded = cluster.nodes()[1].connection().unwrap();
    let knows = redis::cmd("SSUBSCRIBE").arg(channel(&name)).exec(&mut sharded).is_ok();
    assert_eq!(cluster.subscribers(&name), 2 + u64::from(knows));
}
