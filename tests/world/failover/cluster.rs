//! A replica takes the place of its master, and slots move: rows T2, T5, T8 and W27.

use super::nodes::Cluster;
use super::{SEEDS, WATCHDOG};
use futures::future::try_join_all;

use crate::prelude::*;

/// Stands in line in a task of its own. Returns when it is parked.
async fn parked(machine: &Machine, lock: Lock) -> JoinHandle<(LockGuard, Instant)> {
    let waiter = waiting_for(machine, lock);
    sleep(ms(100)).await;
    assert!(!waiter.is_finished(), "granted to two");
    waiter
}

/// A client that is parked for a lock at the first node.
async fn parked_at_the_first(
    cluster: &Cluster<'_>,
) -> (Machine, String, JoinHandle<(LockGuard, Instant)>) {
    let (machine, client) = cluster.client(cluster.builder()).await;
    let name = cluster.name_at(0, "parked");
    cluster.hold_by_hand(&name);
    let waiter = parked(&machine, client.lock(&name)).await;
    (machine, name, waiter)
}

/// How long after its release the waiter has the lock. It gives that back.
async fn comes_after_the_release(
    cluster: &Cluster<'_>,
    waiter: JoinHandle<(LockGuard, Instant)>,
    name: &str,
) -> Duration {
    assert!(!waiter.is_finished(), "granted to two");
    cluster.free_by_hand(name);
    let freed = Instant::now();
    let (guard, granted) = waiter.await.expect("no panic");
    guard.unlock().await.expect("a release");
    assert!(!cluster.exists(name));
    granted - freed
}

#[test]
fn t2_a_lock_that_a_takeover_lost_is_told_lost_at_the_next_renewal_and_free_for_others_at_once() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let cluster = Cluster::new(scene);
            let options = || cluster.builder().watchdog_timeout(WATCHDOG);
            let ((_, holder), (machine, other)) =
                (cluster.client(options()).await, cluster.client(options()).await);
            let [kept, lost, fenced] =
                ["kept", "lost", "fenced"].map(|stem| cluster.name_at(0, stem));
            let elsewhere = holder.lock(cluster.name_at(1, "kept")).lock().await.expect("the lock");
            let kept = holder.lock(kept).lock().await.expect("the lock");
            sleep(SECOND).await;
            cluster.lags(MINUTE);
            let first = holder.lock(&lost).lock().await.expect("the lock");
            let token = holder.fenced_lock(&fenced).lock().await.expect("the lock");
            let waiter = parked(&machine, other.lock(&lost)).await;
            sleep(ms(200 * seed)).await;
            cluster.kill(0);
            sleep(SECOND).await;
            let another = Instant::now();
            cluster.take_over(3);
            let (successor, granted) = waiter.await.expect("no panic");
            assert!(granted - another < 2 * SECOND, "seed {seed}: {:?}", granted - another);
            let later = other.fenced_lock(&fenced).lock().await.expect("the lock");
            assert!(later.token() > token.token());
            first.lost().await;
            token.lost().await;
            let told = another.elapsed();
            assert!(told < WATCHDOG / 3 + SECOND, "seed {seed}: told after {told:?}");
            assert_eq!(first.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
            sleep(WATCHDOG).await;
            assert!(!kept.is_lost() && !successor.is_lost() && !later.is_lost());
            assert!(!elsewhere.is_lost());
            for guard in [kept, successor, elsewhere] {
                guard.unlock().await.expect("a release");
            }
            later.unlock().await.expect("a release");
            assert!(!cluster.exists(&lost));
        });
    }
}

/// Its connections to the old node stay open, and nothing comes on them.
#[test]
fn w27_a_parked_client_hears_of_a_release_where_a_replica_took_over_from_a_stopped_node() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let cluster = Cluster::new(scene);
            let (_machine, name, waiter) = parked_at_the_first(&cluster).await;
            cluster.stop(0);
            sleep(ms(700 * seed)).await;
            cluster.take_over(3);
            let late = comes_after_the_release(&cluster, waiter, &name).await;
            assert!(late < 5 * SECOND, "seed {seed}: {late:?}");
        });
    }
}

/// As long as a handle is kept, its thread looks for the nodes.
#[test]
fn a_client_that_is_closed_before_its_cluster_is_up_keeps_no_connection_to_it() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        (0..3).for_each(|node| cluster.kill(node));
        let machine = scene.machine(round_trip(ms(2)));
        let lock = machine.run(async {
            let client = cluster.builder().connect_lazy().expect("addresses");
            let lock = client.lock("closed");
            assert_eq!(lock.lock().await.expect_err("down").kind(), ErrorKind::Unavailable);
            client.close().await;
            lock
        });
        let lock = lock.await;
        (0..3).for_each(|node| cluster.start(node));
        sleep(MINUTE).await;
        for node in 0..3 {
            let has_connections =
                || cluster.ask::<String>(node, &["CLIENT", "LIST"]).contains("redlatch:");
            let mut looks = 0..100;
            while has_connections() {
                // A look is over at some of these times.
                assert!(looks.next().is_some(), "node {node}");
                sleep(ms(37)).await;
            }
        }
        drop(lock);
    });
}

/// It is another one than at the first look.
#[test]
fn the_log_says_why_a_cluster_that_is_up_by_now_serves_no_lazy_client() {
    let (log, ()) = logged(|| {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            (0..3).for_each(|node| cluster.kill(node));
            let machine = scene.machine(round_trip(ms(2)));
            let client = async { cluster.builder().connect_lazy().expect("addresses") };
            let client = machine.run(client).await;
            let refused = machine.run(client.lock("a").lock()).await;
            assert_eq!(refused.expect_err("down").kind(), ErrorKind::Unavailable);
            for node in 0..3 {
                cluster.start(node);
                let user = ["ACL", "SETUSER", "default", "resetpass", ">another"];
                cluster.ask::<()>(node, &user);
            }
            sleep(MINUTE).await;
        });
    });
    let said = |why: &str| log.lines().filter(|line| line.contains(why)).count();
    assert_eq!(said("no node of the cluster reports the slots"), 2, "{log}");
    assert_eq!(said("NOAUTH"), 1, "{log}");
}

#[test]
fn a_node_that_hangs_keeps_no_lazy_client_from_the_others_that_come_up_behind_it() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        cluster.stop(0);
        (1..3).for_each(|node| cluster.kill(node));
        let machine = scene.machine(round_trip(ms(2)));
        let client = async { cluster.builder().connect_lazy().expect("addresses") };
        let client = machine.run(client).await;
        let name = cluster.name_at(1, "one");
        let begun = Instant::now();
        let lock = client.lock(&name);
        let first = machine.spawn(async move { lock.try_lock_now().await });
        sleep(ms(500)).await;
        (1..3).for_each(|node| cluster.start(node));
        cluster.take_over(3);
        let guard = first.await.expect("no panic").expect("an answer").expect("a free lock");
        assert!(begun.elapsed() < 2 * SECOND, "{:?}", begun.elapsed());
        let dials = scene.network.connections_made();
        assert!(dials < 30, "{dials} dials");
        release(guard).await;
    });
}

/// None of the others had that channel before, and none is new.
#[test]
fn a_parked_client_hears_of_a_release_where_another_master_got_the_slots_of_a_dead_node() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let cluster = Cluster::new(scene);
            let (_machine, name, waiter) = parked_at_the_first(&cluster).await;
            cluster.kill(0);
            sleep(ms(700 * seed)).await;
            cluster.give_slots(0, 1);
            cluster.hold_by_hand(&name);
            sleep(5 * SECOND).await;
            let late = comes_after_the_release(&cluster, waiter, &name).await;
            assert!(late < ms(10), "seed {seed}: {late:?}");
        });
    }
}

/// The old one lives: as a replica it confirms the subscriptions of a client that has yet to hear of the new one. An
/// `ASK` has led to it, when it had slots or was to get its first one. The map and the look at the subscriptions each do
/// for this.
#[test]
fn a_parked_client_listens_where_a_replica_took_over_from_a_node_to_which_ask_led() {
    for (seed, is_first) in (0..SEEDS).flat_map(|seed| [(seed, false), (seed, true)]) {
        play(seed, async |scene| {
            let cluster = Cluster::new(scene);
            if is_first {
                cluster.give_slots(0, 1);
            }
            let (machine, client) = cluster.client(cluster.builder()).await;
            let moves = cluster.name_at(1, "moves");
            cluster.begin_move(&moves, 0);
            release(hold(&client.lock(&moves)).await).await;
            assert!(cluster.errors(1, "ASK") > 0, "it was not sent on");
            cluster.finish_move();
            sleep(ms(700 * seed)).await;
            let name = if is_first { moves } else { cluster.name_at(0, "parked") };
            cluster.hold_by_hand(&name);
            let waiter = parked(&machine, client.lock(&name)).await;
            cluster.take_over(3);
            sleep(SECOND).await;
            assert_eq!(cluster.listeners(3, &name), 1, "seed {seed}, first: {is_first}");
            let late = comes_after_the_release(&cluster, waiter, &name).await;
            assert!(late < ms(10), "seed {seed}, first: {is_first}: {late:?}");
        });
    }
}

/// The old node has other slots, too, and nothing comes from it: no word that it has dropped the subscription. The new one
/// has a subscription of this client already.
#[test]
fn a_parked_client_listens_where_a_slot_went_from_a_node_that_cannot_be_heard() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let cluster = Cluster::new(scene);
            let (machine, client) = cluster.client(cluster.builder()).await;
            let [name, stays] = [0, 1].map(|node| cluster.name_at(node, "parked"));
            [&name, &stays].into_iter().for_each(|name| cluster.hold_by_hand(name));
            let waiter = parked(&machine, client.lock(&name)).await;
            let other = parked(&machine, client.lock(&stays)).await;
            scene.network.set_flow(&machine, cluster.nodes[0], Direction::Down, Flow::Held);
            sleep(ms(700 * seed)).await;
            cluster.begin_move(&name, 1);
            cluster.migrate(&[&name]);
            cluster.finish_move();
            // It looks for news each ten seconds.
            sleep(12 * SECOND).await;
            assert_eq!(cluster.listeners(1, &name), 1, "seed {seed}");
            assert_eq!(cluster.calls(1, "ssubscribe"), 2, "the other one stays as it is");
            let late = comes_after_the_release(&cluster, waiter, &name).await;
            assert!(late < ms(10), "seed {seed}: {late:?}");
            comes_after_the_release(&cluster, other, &stays).await;
        });
    }
}

/// The first node stands still, and a call waits for a new connection to it when a replica takes its place.
struct Dials {
    client: LockClient,
    /// Of the call.
    name: String,
    call: JoinHandle<Result<Option<LockGuard>, Error>>,
    /// Who listens at the node and hears nothing. So the client asks for the map again and again.
    waiter: JoinHandle<(LockGuard, Instant)>,
    waits_for: String,
}

impl Dials {
    async fn begin(cluster: &Cluster<'_>, take_over: impl FnOnce()) -> Self {
        let (machine, client) = cluster.client(cluster.builder().command_timeout(SECOND)).await;
        let [waits_for, silent, name] =
            ["waits for", "silent", "called"].map(|stem| cluster.name_at(0, stem));
        cluster.hold_by_hand(&waits_for);
        let waiter = parked(&machine, client.lock(&waits_for)).await;
        cluster.stop(0);
        let stopped = Instant::now();
        let lock = client.lock(silent);
        let silent = machine.spawn(async move { lock.try_lock_now().await });
        let error = silent.await.expect("no panic").expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // By now it asks for the map.
        tokio::time::sleep_until(stopped + ms(1_900)).await;
        let lock = client.lock(&name);
        let call = machine.spawn(async move { lock.try_lock_now().await });
        sleep(ms(200)).await;
        assert!(!call.is_finished(), "there was a connection");
        take_over();
        Self { client, name, call, waiter, waits_for }
    }

    /// The waiter has its turn.
    async fn end(cluster: &Cluster<'_>, waiter: JoinHandle<(LockGuard, Instant)>, name: &str) {
        assert!(!waiter.is_finished(), "granted to two");
        cluster.free_by_hand(name);
        waiter.await.expect("no panic").0.unlock().await.expect("a release");
    }
}

#[test]
fn t2_a_call_that_waits_for_a_connection_is_made_where_a_replica_took_over_meanwhile() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let Dials { client, name, call, waiter, waits_for } =
            Dials::begin(&cluster, || cluster.take_over(3)).await;
        let guard = call.await.expect("no panic").expect("an answer").expect("a free lock");
        assert!(cluster.exists(&name));
        guard.unlock().await.expect("a release");
        // It knows the new node now, and so does each other call.
        release(hold(&client.lock(&name)).await).await;
        Dials::end(&cluster, waiter, &waits_for).await;
    });
}

/// It has not heard yet that it was replaced.
#[test]
fn t2_a_node_that_comes_back_while_a_call_waits_for_a_connection_to_it_grants_nothing() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let Dials { client, name, call, waiter, waits_for } =
            Dials::begin(&cluster, || cluster.take_over_unheard(3)).await;
        cluster.hold_by_hand(&name);
        sleep(ms(600)).await;
        cluster.go_on(0);
        let granted = call.await.expect("no panic").expect("an answer");
        assert!(granted.is_none(), "granted to two");
        assert!(client.lock(&name).try_lock_now().await.expect("an answer").is_none());
        assert_eq!(cluster.ask::<u64>(0, &["EXISTS", &name]), 0, "it was asked");
        Dials::end(&cluster, waiter, &waits_for).await;
    });
}

/// There was a dial under way to it, too, of which nobody hears any more.
#[test]
fn t2_the_outage_of_a_node_is_over_when_a_replica_has_taken_over() {
    let (log, ()) = logged(|| {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            let Dials { client, name, call, waiter, waits_for } =
                Dials::begin(&cluster, || cluster.take_over(3)).await;
            let guard = call.await.expect("no panic").expect("an answer").expect("a free lock");
            guard.unlock().await.expect("a release");
            // Longer than between two warnings.
            sleep(12 * SECOND).await;
            release(hold(&client.lock(&name)).await).await;
            Dials::end(&cluster, waiter, &waits_for).await;
        });
    });
    assert_eq!(log.matches("Redis is unavailable").count(), 1, "{log}");
    assert!(!log.contains("Redis is still unavailable"), "{log}");
}

#[test]
fn t5_a_slot_that_moves_while_waited_for_keeps_no_waiter_waiting() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let cluster = Cluster::new(scene);
            let (_, client) = cluster.client(cluster.builder()).await;
            let (machine, other) = cluster.client(cluster.builder()).await;
            let [ours, theirs] = ["{moves}:ours", "{moves}:theirs"];
            let guard = client.lock(ours).lock().await.expect("the lock");
            cluster.hold_by_hand(theirs);
            let ours_waits = parked(&machine, other.lock(ours)).await;
            let theirs_waits = parked(&machine, other.lock(theirs)).await;
            cluster.begin_move(ours, (cluster.node_of(ours) + 1) % 3);
            cluster.migrate(&[ours, theirs]);
            cluster.finish_move();
            // At once, whether they have settled at the new node or not.
            sleep(ms(seed)).await;
            let freed = Instant::now();
            guard.unlock().await.expect("a release");
            let (guard, granted) = ours_waits.await.expect("no panic");
            assert!(granted - freed < SECOND, "seed {seed}: {:?}", granted - freed);
            guard.unlock().await.expect("a release");
            sleep(SECOND).await;
            assert!(!theirs_waits.is_finished(), "granted to two");
            // A client of another make tells those who listen where the slot is now.
            cluster.free_by_hand(theirs);
            let freed = Instant::now();
            let (guard, granted) = theirs_waits.await.expect("no panic");
            assert!(granted - freed < ms(10), "seed {seed}: {:?}", granted - freed);
            guard.unlock().await.expect("a release");
        });
    }
}

#[test]
fn t5_a_release_in_a_slot_on_its_way_is_told_where_its_waiters_listen() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (_, one) = cluster.client(cluster.builder()).await;
        let (machine, other) = cluster.client(cluster.builder()).await;
        let name = "{told aside}";
        let from = cluster.node_of(name);
        cluster.begin_move(name, (from + 1) % 3);
        for _ in 0..3 {
            // At the target, where nobody can listen yet.
            let asks = cluster.errors(from, "ASK");
            let guard = one.lock(name).lock().await.expect("the lock");
            assert!(cluster.errors(from, "ASK") > asks, "nobody was sent on");
            let waiter = parked(&machine, other.lock(name)).await;
            let freed = Instant::now();
            guard.unlock().await.expect("a release");
            let (guard, granted) = waiter.await.expect("no panic");
            assert!(granted - freed < ms(20), "{:?}", granted - freed);
            guard.unlock().await.expect("a release");
        }
        cluster.finish_move();
        assert!(!cluster.exists(name));
    });
}

/// The first in the queue listens on the common channel, where its client is still at the source.
#[test]
fn t5_who_is_first_in_a_queue_in_a_slot_on_its_way_does_not_hear_itself() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (_, one) = cluster.client(cluster.builder()).await;
        let (machine, other) = cluster.client(cluster.builder()).await;
        let guard = one.fair_lock("moves").lock().await.expect("the lock");
        let waiter = waiting_for(&machine, other.fair_lock("moves"));
        sleep(ms(100)).await;
        let from = cluster.node_of("moves");
        cluster.begin_move("moves", (from + 1) % 3);
        cluster.migrate(&["moves", "redlatch_queue:{moves}", "redlatch_waiting:{moves}"]);
        let asks = cluster.errors(from, "ASK");
        // As Redisson does, where the lock was.
        let told: u64 = cluster.ask(from, &["SPUBLISH", "redisson_lock__channel:{moves}", "0"]);
        assert_eq!(told, 1);
        sleep(3 * SECOND).await;
        let asks = cluster.errors(from, "ASK") - asks;
        assert!((1..=3).contains(&asks), "asked {asks} times");
        cluster.finish_move();
        guard.unlock().await.expect("a release");
        waiter.await.expect("no panic").0.unlock().await.expect("a release");
    });
}

#[test]
fn t5_locks_of_one_slot_are_renewed_while_half_of_them_have_moved() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (_, client) = cluster.client(cluster.builder().watchdog_timeout(WATCHDOG)).await;
        let names = ["{half way}:a", "{half way}:b", "{half way}:c"];
        let mut guards = Vec::new();
        for name in names {
            guards.push(client.lock(name).lock().await.expect("the lock"));
        }
        let from = cluster.node_of(names[0]);
        cluster.begin_move(names[0], (from + 1) % 3);
        cluster.migrate(&names[..1]);
        // A command about more than one of them is refused now, by both nodes.
        let refused = cluster.errors(from, "TRYAGAIN");
        sleep(4 * WATCHDOG).await;
        assert!(cluster.errors(from, "TRYAGAIN") > refused, "they were not renewed together");
        assert!(guards.iter().all(|guard| !guard.is_lost()));
        // Each is where it is.
        for guard in guards {
            guard.unlock().await.expect("a release");
        }
        cluster.finish_move();
        assert!(names.iter().all(|name| !cluster.exists(name)));
    });
}

/// A command about several of them is refused. Divided, a hundred locks take a few round trips, and not one for each.
#[test]
fn t5_a_hundred_locks_of_one_slot_are_renewed_from_afar_while_half_of_them_have_moved() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let options = cluster.builder().watchdog_timeout(WATCHDOG);
        let (_, client) = cluster.client_away(WATCHDOG / 60, options).await;
        let names: Vec<_> = (0..100).map(|number| format!("{{half way}}:{number}")).collect();
        let locks: Vec<_> = names.iter().map(|name| client.lock(name)).collect();
        let guards = try_join_all(locks.iter().map(Lock::lock)).await.expect("the locks");
        let from = cluster.node_of(&names[0]);
        cluster.begin_move(&names[0], (from + 1) % 3);
        let half: Vec<_> = names.iter().step_by(2).map(String::as_str).collect();
        cluster.migrate(&half);
        sleep(4 * WATCHDOG).await;
        let lost = guards.iter().filter(|guard| guard.is_lost()).count();
        assert_eq!(lost, 0, "nothing was wrong but that the slot moves");
    });
}

#[test]
fn the_first_call_of_a_lazy_client_goes_on_as_soon_as_the_map_is_there() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let machine = scene.machine(Distance::default());
        for node in &cluster.nodes {
            scene.network.set_distance_of(&machine, *node, Distance::default());
        }
        let builder = cluster.builder();
        let client = machine.run(async move { builder.connect_lazy() }).await.expect("a client");
        let (lock, begun) = (client.lock("first"), Instant::now());
        let guard = machine.spawn(async move { lock.lock().await }).await.expect("no panic");
        let took = begun.elapsed();
        assert!(took < ms(5), "{took:?} beside the nodes");
        guard.expect("the lock").unlock().await.expect("a release");
    });
}

/// Two replicas take over. One of them answers nobody, and the client has released many names there.
#[test]
fn w26_a_missed_release_at_one_node_does_not_wait_for_another_node_that_is_silent() {
    for [silent, other] in [[0, 1], [1, 0]] {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            let (_machine, client) = cluster.client(cluster.builder()).await;
            // Another client, of which the first knows nothing.
            let (_, waits) = cluster.client(cluster.builder()).await;
            let missed = cluster.name_at(other, "missed");
            let guard = hold(&client.lock(&missed)).await;
            for number in 0..1000 {
                let name = cluster.name_at(silent, &format!("silent:{number}"));
                release(hold(&client.lock(name)).await).await;
            }
            cluster.lags(MINUTE);
            release(guard).await;
            for node in [silent, other] {
                cluster.kill(node);
                cluster.take_over(node + 3);
            }
            cluster.stop(silent + 3);
            assert!(cluster.exists(&missed), "the replica has heard of its release");
            let lock = waits.lock(&missed);
            let guard = timeout(SECOND, lock.lock()).await.expect("the lock, soon").unwrap();
            release(guard).await;
        });
    }
}

/// Its machine has died without a word, or it lives on and follows the replica: no connection of the client breaks.
#[test]
fn w26_a_client_that_has_nothing_to_ask_finds_a_release_that_the_new_primary_has_missed() {
    for dies in [true, false] {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            let (_machine, client) = cluster.client(cluster.builder()).await;
            let [freed, stays] = ["freed", "stays"].map(|stem| cluster.name_at(0, stem));
            let guard = client.lock(&freed).lock_with_lease(10 * MINUTE).await.expect("the lock");
            let kept = hold(&client.lock(&stays)).await;
            sleep(ms(10)).await;
            cluster.lags(MINUTE);
            release(guard).await;
            kept.hold_at_least(10 * MINUTE);
            release(kept).await;
            if dies {
                cluster.stop(0);
                cluster.take_over_unheard(3);
            } else {
                cluster.take_over(3);
            }
            assert!(cluster.exists(&freed), "the replica has heard of its release");
            // It asks another node every ten seconds.
            sleep(21 * SECOND).await;
            assert!(!cluster.exists(&freed));
            let left: i64 = cluster.ask(3, &["PTTL", &stays]);
            assert!(left > 9 * 60_000, "{dies}: {left}");
        });
    }
}

/// In another place, say, whose operator has them take over.
#[test]
fn t2_a_client_finds_the_replicas_when_all_masters_and_all_urls_are_gone() {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (machine, client) = cluster.client(cluster.builder().outage_limit(MINUTE)).await;
        let name = cluster.name_at(0, "name");
        release(hold(&client.lock(&name)).await).await;
        for node in 0..3 {
            cluster.kill(node);
        }
        (3..6).for_each(|replica| cluster.take_over(replica));
        let waiter = waiting_for(&machine, client.lock(&name));
        let (guard, _) = timeout(10 * SECOND, waiter).await.expect("the lock").expect("no panic");
        release(guard).await;
    });
}

/// The node says so unasked while the request for another one is under way, and counts as the answer to that.
#[test]
fn t5_a_subscription_whose_slot_moves_while_another_one_is_asked_for_moves_with_it() {
    play(0, async |scene| {
        let (cluster, away) = (Cluster::new(scene), ms(100));
        let (machine, client) = cluster.client_away(away, cluster.builder()).await;
        // In this order they are asked for.
        let [other, moves] = ["a", "b"].map(|stem| cluster.name_at(0, stem));
        for name in [&other, &moves] {
            cluster.hold_by_hand(name);
        }
        let waiter = waiting_for(&machine, client.lock(&moves));
        sleep(8 * away).await;
        let other = waiting_for(&machine, client.lock(other));
        // It was refused, and has sent its subscription.
        sleep(away * 6 / 5).await;
        cluster.begin_move(&moves, 1);
        cluster.migrate(&[&moves]);
        cluster.finish_move();
        sleep(20 * away).await;
        cluster.free_by_hand(&moves);
        let freed = Instant::now();
        let (guard, came) = waiter.await.expect("no panic");
        assert!(came - freed <= 4 * away, "{:?}", came - freed);
        release(guard).await;
        other.abort();
    });
}

/// It reports its slots as those of before, and answers first.
#[test]
fn t2_a_client_far_away_goes_by_no_map_of_a_node_that_is_cut_off_from_the_others() {
    for away in [2, 100, 200].map(ms) {
        play(0, async |scene| {
            let cluster = Cluster::new(scene);
            let (_machine, client) = cluster.client_away(away, cluster.builder()).await;
            let lock = client.lock(cluster.name_at(0, "cut off"));
            release(hold(&lock).await).await;
            cluster.take_over_cut_off(3);
            release(lock.try_lock_now().await.expect("an answer").expect("a free lock")).await;
        });
    }
}

/// Each look takes a new connection, and all clients of a cluster look at the nodes that are left.
#[test]
fn looks_at_the_nodes_that_are_left_become_fewer_while_a_shard_is_down_and_are_spread() {
    for hangs in [false, true] {
        looks_become_fewer(hangs);
    }
}

fn looks_become_fewer(hangs: bool) {
    play(0, async |scene| {
        let cluster = Cluster::new(scene);
        let (many, time) = (10, 20);
        let (name, mut callers) = (cluster.name_at(0, "name"), Vec::new());
        for _ in 0..many {
            let (machine, client) = cluster.client(cluster.builder()).await;
            let lock = client.lock(&name);
            callers.push(machine.spawn(async move {
                loop {
                    drop(lock.try_lock_now().await);
                    sleep(ms(50)).await;
                }
            }));
        }
        sleep(SECOND).await;
        match hangs {
            true => cluster.stop(0),
            false => cluster.kill(0),
        }
        // A request that is not answered takes a command timeout, and so does a dial.
        sleep(12 * SECOND).await;
        let looks = || [1, 2].map(|node| cluster.calls(node, "cluster|info"));
        let before = looks();
        sleep(time * SECOND).await;
        let after = looks();
        callers.iter().for_each(JoinHandle::abort);
        let seen = [0, 1].map(|node| after[node] - before[node]);
        let all = seen.iter().sum::<u64>();
        // Half a second lies between two of them.
        assert!(all <= 2 * many * u64::from(time), "{seen:?}");
        assert!(seen.iter().all(|its| 4 * its >= all), "{seen:?}");
    });
}
