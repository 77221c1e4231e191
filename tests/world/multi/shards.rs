//! Multi locks over the nodes of a cluster: rows T5 and T8.

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
fn t8_a_call_that_finds_a_shard_silent_says_so_in_time_and_no_other_call_for_the_others() {
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
            let single = waiting_for(&machine, client.lock(&well));
            let (result, took) = multi.await.expect("no panic");
            let error = result.expect_err("a shard does not answer");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
            assert!(took <= COMMAND + ms(1), "killed: {killed}: {took:?}");
            let (single, _) = timeout(ms(200), single).await.expect("in time").expect("no panic");
            single.unlock().await.expect("a release");
            assert!(!cluster.exists(&well));
        });
    }
}

#[test]
fn t8_a_call_that_waits_rides_out_a_silent_shard_and_holds_up_nobody_at_the_others() {
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

/// One of its locks is taken again and again, and the node of the other one has gone for good.
#[test]
fn t8_a_call_that_is_refused_at_one_shard_gives_up_when_another_was_silent_for_too_long() {
    play(4, async |scene| {
        let cluster = Cluster::new(scene);
        let limit = 10 * SECOND;
        let options = || cluster.builder().command_timeout(SECOND).outage_limit(limit);
        let ((machine, client), (other, others)) =
            (cluster.client(options()).await, cluster.client(options()).await);
        let (well, silent) = (cluster.name_at(0, "well"), cluster.name_at(1, "silent"));
        let (all, lock) = (client.multi_lock([&well, &silent]), others.lock(&well));
        let busy = other.spawn(async move {
            loop {
                let guard = lock.lock().await.expect("its node answers");
                sleep(ms(20)).await;
                guard.unlock().await.expect("a release");
            }
        });
        // The call begins while it is taken.
        while !cluster.exists(&well) {
            sleep(ms(1)).await;
        }
        cluster.stop(1);
        let begun = Instant::now();
        let call = machine.spawn(async move { all.lock().await.map(drop) });
        let ended = timeout(2 * limit, call).await.expect("the outage limit").expect("no panic");
        assert_eq!(ended.expect_err("no answer").kind(), ErrorKind::Unavailable);
        assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
        busy.abort();
    });
}

/// While a slot moves, Redis answers no request about several of its keys.
#[test]
fn t5_several_locks_of_a_slot_are_kept_while_it_moves_and_had_when_it_has_moved() {
    play(2, async |scene| {
        let cluster = Cluster::new(scene);
        let options = || cluster.builder().watchdog_timeout(Duration::from_secs(6));
        let ((machine, client), (_, other)) =
            (cluster.client(options()).await, cluster.client(options()).await);
        let held = ["{moves}:a", "{moves}:b", "{moves}:c"];
        let free = ["{moves}:d", "{moves}:e"];
        let guard = client.multi_lock(held).lock().await.expect("all");
        let from = cluster.node_of(held[0]);
        cluster.begin_move(held[0], (from + 1) % 3);
        cluster.migrate(&held[..1]);
        let refused = || (0..3).map(|node| cluster.errors(node, "TRYAGAIN")).sum::<u64>();
        let before = refused();
        let waits = other.multi_lock(free);
        let waits = machine.spawn(async move { waits.lock().await });
        sleep(ms(2_500)).await;
        assert!(refused() > before && !guard.is_lost() && !waits.is_finished());
        let keys = |node| cluster.ask::<Vec<String>>(node, &["KEYS", "*"]);
        assert_eq!((0..3).flat_map(keys).count(), held.len(), "a part of them is taken");
        cluster.migrate(&held[1..]);
        cluster.finish_move();
        let others = timeout(SECOND, waits).await.expect("in time").expect("no panic");
        others.expect("all").unlock().await.expect("a release");
        sleep(Duration::from_secs(12)).await;
        assert!(!guard.is_lost());
        guard.unlock().await.expect("a release");
        assert!(held.iter().chain(&free).all(|name| !cluster.exists(name)));
    });
}

/// The log speaks of an outage only if a server does not serve.
#[test]
fn t5_that_redis_cannot_serve_several_locks_of_a_slot_that_moves_is_no_outage() {
    let (log, error) = logged(|| {
        play(2, async |scene| {
            let cluster = Cluster::new(scene);
            let options = cluster.builder().command_timeout(COMMAND);
            let (machine, client) = cluster.client(options).await;
            let free = ["{moves}:d", "{moves}:e"];
            cluster.begin_move(free[0], (cluster.node_of(free[0]) + 1) % 3);
            let all = client.multi_lock(free);
            machine
                .run(async move { all.try_lock_now().await })
                .await
                .expect_err("half of it moves")
        })
    });
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(!log.contains("Redis is unavailable"), "{log}");
}

#[test]
fn t5_a_read_write_lock_moves_with_the_leases_of_its_readers_and_its_queue() {
    play(3, async |scene| {
        let cluster = Cluster::new(scene);
        let options = || cluster.builder().watchdog_timeout(Duration::from_secs(6));
        let ((_, client), (machine, other)) =
            (cluster.client(options()).await, cluster.client(options()).await);
        let reading = client.read_write_lock("moves").read().await.expect("to read");
        let waits = other.read_write_lock("moves");
        let waits = machine.spawn(async move { waits.write().await });
        sleep(ms(100)).await;
        let lease = format!("{{moves}}:{}:rwlock_timeout:1", reading.owner());
        let queue = ["redlatch_rw_queue:{moves}", "redlatch_rw_waiting:{moves}"];
        let to = (cluster.node_of("moves") + 1) % 3;
        cluster.begin_move("moves", to);
        cluster.migrate(&["moves", queue[0]]);
        sleep(ms(100)).await;
        cluster.migrate(&[&lease, queue[1]]);
        cluster.finish_move();
        sleep(Duration::from_secs(12)).await;
        assert!(!reading.is_lost() && !waits.is_finished());
        assert!(cluster.node_of("moves") == to && cluster.exists(&lease));
        let freed = Instant::now();
        reading.unlock().await.expect("a release");
        let guard = waits.await.expect("no panic").expect("to write");
        assert!(freed.elapsed() < ms(20), "{:?}", freed.elapsed());
        guard.unlock().await.expect("a release");
        assert!(!cluster.exists("moves") && !cluster.exists(&lease));
    });
}
