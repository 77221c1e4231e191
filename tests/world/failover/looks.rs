//! A look at locks of a cluster whose slots move, and whose masters are replaced.

use std::collections::BTreeSet;

use super::nodes::Cluster;
use crate::prelude::*;
use crate::who_holds::found;

#[test]
fn each_lock_is_found_while_its_slot_moves_and_after_that() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (_, holder) = cluster.client(cluster.builder()).await;
        let (machine, watcher) = cluster.client(cluster.builder()).await;
        let moving = ["{moves}:gone", "{moves}:stays"];
        let names: BTreeSet<String> = (0..3)
            .map(|node| cluster.name_at(node, "elsewhere"))
            .chain(moving.map(str::to_owned))
            .collect();
        let locks: Vec<_> = names.iter().map(|name| holder.lock(name)).collect();
        let guards = join_all(locks.iter().map(hold)).await;
        assert_eq!(found(&machine, &watcher).await, names);
        cluster.begin_move(moving[0], (cluster.node_of(moving[0]) + 1) % 3);
        cluster.migrate(&moving[..1]);
        assert_eq!(found(&machine, &watcher).await, names);
        // The keys beside it are on neither side: a command about several of them would be refused.
        for name in moving {
            let begun = Instant::now();
            let seen = machine.run(watcher.inspect(name)).await.expect("an answer");
            assert_eq!(seen.expect("it is held").holders.len(), 1);
            assert!(begun.elapsed() <= ms(100), "{name}: {:?}", begun.elapsed());
        }
        cluster.migrate(&moving[1..]);
        cluster.finish_move();
        assert_eq!(found(&machine, &watcher).await, names);
        join_all(guards.into_iter().map(LockGuard::unlock)).await;
    });
}

/// A client that only looks sends no request that leads it to the new master, and its connection to the old one stays.
#[test]
fn each_lock_is_found_where_a_replica_has_taken_over_from_a_master_that_lives_or_hangs() {
    for hangs in [false, true] {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            let (_, holder) = cluster.client(cluster.builder()).await;
            let (machine, watcher) = cluster.client(cluster.builder()).await;
            let names: BTreeSet<String> =
                (0..3).map(|node| cluster.name_at(node, "held")).collect();
            let locks: Vec<_> = names.iter().map(|name| holder.lock(name)).collect();
            let guards = join_all(locks.iter().map(hold)).await;
            assert_eq!(found(&machine, &watcher).await, names);
            sleep(SECOND).await;
            if hangs {
                cluster.stop(0);
            }
            cluster.take_over(3);
            assert_eq!(found(&machine, &watcher).await, names);
            drop(guards);
        });
    }
}
