//! The primary is another one all of a sudden: rows T1 to T4 and W26, with Sentinels.

mod cluster;
mod group;
mod looks;
pub(crate) mod nodes;
mod released;
mod strangers;

use group::{Group, failed_over};
use redlatch::simulation::State;

use crate::prelude::*;

/// Renewed every two seconds.
const WATCHDOG: Duration = Duration::from_secs(6);

const SEEDS: u64 = in_short(3, 10);

/// The holder, a waiter, and who asks for the lock only then. The new primary has not heard of the lock.
#[test]
fn t2_a_lock_that_a_failover_lost_is_told_lost_at_the_next_renewal_and_free_for_others_at_once() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let group = Group::new(scene);
            let options = || group.builder().watchdog_timeout(WATCHDOG);
            let holder = group.connect(options()).await;
            let (machine, waiter) = group.client(options()).await;
            let kept = holder.lock("kept").lock().await.expect("the lock");
            sleep(SECOND).await;
            group.lags(MINUTE);
            let lost = holder.lock("lost").lock().await.expect("the lock");
            let fenced = holder.fenced_lock("fenced").lock().await.expect("the lock");
            let next = waiting_for(&machine, waiter.lock("lost"));
            sleep(ms(10 + seed * 200)).await;
            group.kill(0);
            sleep(SECOND).await;
            let another = Instant::now();
            group.fail_over(1);
            let (successor, granted) = next.await.expect("no panic");
            assert!(granted - another < SECOND, "seed {seed}: {:?}", granted - another);
            let later = waiter.fenced_lock("fenced").lock().await.expect("the lock");
            assert!(later.token() > fenced.token(), "{} after {}", later.token(), fenced.token());
            lost.lost().await;
            fenced.lost().await;
            // The next renewal, or the one that was under way and is made again.
            let told = another.elapsed();
            assert!(told < WATCHDOG / 3 + SECOND, "seed {seed}: told after {told:?}");
            assert_eq!(lost.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
            sleep(WATCHDOG).await;
            assert!(!kept.is_lost() && !successor.is_lost() && !later.is_lost());
            kept.unlock().await.expect("a release");
            successor.unlock().await.expect("a release");
            later.unlock().await.expect("a release");
            group.is_empty();
        });
    }
}

/// It has the new configuration before any other one, and describes the old primary in it until it is done.
#[test]
fn t1_the_sentinel_that_leads_a_failover_sends_no_client_to_the_old_primary() {
    for killed in [false, true] {
        play(0, async |scene| {
            let group = Group::new(scene);
            let (machine, client) = group.client(group.builder()).await;
            // There and back: the address of the one is greater than that of the other.
            let there_and_back = [(0, 1), (1, 0)];
            let ways = if killed { &there_and_back[..1] } else { &there_and_back[..] };
            for &(old, new) in ways {
                sleep(SECOND).await;
                group.promote(new);
                if killed {
                    group.kill(old);
                }
                [1, 2].into_iter().for_each(|sentinel| group.repeat(sentinel));
                group.leads(0, old);
                // Each Sentinel is asked every ten seconds.
                for _ in 0..25 {
                    sleep(SECOND).await;
                    let guard = machine.run(client.lock("name").try_lock_now()).await;
                    let guard = guard.expect("an answer").expect("a free lock");
                    assert_eq!(group.ask::<u64>(new, &["EXISTS", "name"]), 1, "it went back");
                    machine.run(guard.unlock()).await.expect("a release");
                }
                group.repeat(0);
                if !killed {
                    group.demote(old, new);
                }
            }
        });
    }
}

/// The connections to the Sentinels have just broken, and a lease ends in less than a second.
#[test]
fn t1_a_failover_just_after_the_connections_to_the_sentinels_broke_costs_no_lock() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let options = group.builder().watchdog_timeout(ms(600));
        let (machine, client) = group.client(options).await;
        let kept = client.lock("kept").lock().await.expect("the lock");
        sleep(SECOND).await;
        group.sentinels.iter().for_each(|at| scene.network.cut(&machine, *at, true));
        sleep(ms(50)).await;
        group.fail_over(1);
        group.demote(0, 1);
        sleep(2 * SECOND).await;
        assert!(!kept.is_lost(), "nobody took it away");
        kept.unlock().await.expect("a release");
        group.is_empty();
    });
}

/// However short the leases are: the others say where the primary is.
#[test]
fn t4_a_sentinel_that_is_gone_is_dialled_once_a_second() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let _client = group.connect(group.builder().watchdog_timeout(ms(300))).await;
        sleep(SECOND).await;
        scene.network.kill(group.sentinels[2]);
        let before = scene.network.connections_made();
        sleep(10 * SECOND).await;
        let made = scene.network.connections_made() - before;
        assert!((9..=11).contains(&made), "{made} in ten seconds");
    });
}

/// Nothing was under way to the replica: nobody loses anything, and nobody is granted a lock twice.
#[test]
fn t1_renewals_go_on_at_the_new_primary_after_the_old_one_was_killed() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let group = Group::new(scene);
            let client = group.connect(group.builder().watchdog_timeout(WATCHDOG)).await;
            let (machine, other) = group.client(group.builder()).await;
            let guard = client.lock("kept").lock().await.expect("the lock");
            let nested = client.lock("kept").try_lock_now().await.expect("an answer");
            assert!(nested.is_none(), "another handle");
            let waiter = waiting_for(&machine, other.lock("kept"));
            sleep(ms(10 + seed * 300)).await;
            group.kill(0);
            sleep(SECOND).await;
            group.fail_over(1 + seed as usize % 2);
            sleep(2 * WATCHDOG).await;
            assert!(!guard.is_lost() && !waiter.is_finished());
            guard.unlock().await.expect("a release");
            let told = Instant::now();
            let (guard, granted) = waiter.await.expect("no panic");
            assert!(granted - told < ms(10), "seed {seed}: the waiter was not told");
            guard.unlock().await.expect("a release");
            group.is_empty();
        });
    }
}

#[test]
fn t1_the_order_of_a_fair_lock_is_that_of_before_at_the_new_primary() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let group = Group::new(scene);
            let holder = group.connect(group.builder()).await;
            let guard = holder.fair_lock("fair").lock().await.expect("the lock");
            let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
            for number in 0..5 {
                let (machine, client) = group.client(group.builder()).await;
                let (lock, told) = (client.fair_lock("fair"), told.clone());
                machine.spawn(async move {
                    let guard = lock.lock().await.expect("the lock");
                    told.send(number).expect("a test");
                    sleep(ms(5)).await;
                    guard.unlock().await.expect("a release");
                });
                sleep(ms(50)).await;
            }
            group.kill(0);
            sleep(ms(100 * seed)).await;
            group.fail_over(1);
            sleep(SECOND).await;
            guard.unlock().await.expect("a release");
            for number in 0..5 {
                let next = timeout(SECOND, order.recv()).await.expect("a grant");
                assert_eq!(next, Some(number), "seed {seed}");
            }
        });
    }
}

#[test]
fn t3_with_the_option_for_replicas_a_primary_that_comes_back_grants_nothing() {
    play(0, async |scene| {
        let group = Group::new(scene);
        // The only Sentinel that this client knows is away during the failover.
        let only = group.builder_of(&group.sentinels[..1]).replicas(1, ms(200));
        let (machine, careful) = group.client(only.command_timeout(SECOND)).await;
        release(hold(&careful.lock("idle")).await).await;
        scene.network.stop(group.sentinels[0]);
        scene.network.stop(group.servers[0]);
        group.fail_over(1);
        let holder = group.connect(group.builder_of(&group.sentinels[1..])).await;
        let guard = holder.lock("contended").lock().await.expect("the lock");
        scene.network.go_on(group.servers[0]);
        let asked = group.calls(0, "evalsha");
        for _ in 0..3 {
            let granted = careful.lock("contended").try_lock_now().await;
            let error = granted.expect_err("a primary of the past has not said that it is busy");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        assert!(group.calls(0, "evalsha") >= asked + 3, "it was not even asked");
        sleep(SECOND).await;
        assert_eq!(group.ask::<u64>(0, &["EXISTS", "contended"]), 0, "it was not given back");
        assert!(!guard.is_lost());
        // When it is told, the client finds the other one.
        group.demote(0, 1);
        scene.network.go_on(group.sentinels[0]);
        guard.unlock().await.expect("a release");
        let told = Instant::now();
        let guard = machine.run(careful.lock("contended").lock()).await.expect("the lock");
        assert!(told.elapsed() < 2 * SECOND, "{:?}", told.elapsed());
        assert_eq!(group.ask::<u64>(1, &["EXISTS", "contended"]), 1);
        guard.unlock().await.expect("a release");
    });
}

#[test]
fn t3_a_call_under_way_to_a_primary_that_stands_still_is_made_at_the_next_one() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let group = Group::new(scene);
            let (machine, client) = group.client(group.builder().command_timeout(MINUTE)).await;
            release(hold(&client.lock("before")).await).await;
            scene.network.stop(group.servers[0]);
            let lock = client.lock("called");
            let called = machine.spawn(async move { lock.try_lock_now().await });
            sleep(ms(1 + 400 * seed)).await;
            let another = Instant::now();
            group.fail_over(1);
            let guard = called.await.expect("no panic").expect("an answer").expect("a free lock");
            assert!(another.elapsed() < ms(100), "seed {seed}: {:?}", another.elapsed());
            assert_eq!(group.ask::<u64>(1, &["EXISTS", "called"]), 1);
            guard.unlock().await.expect("a release");
            // What it was sent before is too late for everybody.
            scene.network.go_on(group.servers[0]);
            group.demote(0, 1);
            sleep(SECOND).await;
            group.is_empty();
        });
    }
}

/// An earlier call cost the connection, which was silent: this one still waits on it.
#[test]
fn t3_a_call_on_a_connection_that_was_dropped_meanwhile_is_made_at_the_next_primary() {
    for is_taken in [false, true] {
        play(0, async |scene| {
            let group = Group::new(scene);
            let (machine, client) = group.client(group.builder().command_timeout(SECOND)).await;
            release(hold(&client.lock("before")).await).await;
            scene.network.stop(group.servers[0]);
            let stopped = Instant::now();
            let lock = client.lock("silent");
            let silent = machine.spawn(async move { lock.try_lock_now().await });
            sleep(ms(900)).await;
            let lock = client.lock("called");
            // No renewal tells of its loss.
            let called = machine.spawn(async move { lock.try_lock(Duration::ZERO, MINUTE).await });
            let error = silent.await.expect("no panic").expect_err("no answer");
            assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
            tokio::time::sleep_until(stopped + ms(1_500)).await;
            assert!(!called.is_finished(), "it has its time");
            group.fail_over(1);
            if is_taken {
                group.ask::<()>(1, &["HSET", "called", "somebody:1", "1"]);
                group.ask::<()>(1, &["PEXPIRE", "called", "60000"]);
            }
            sleep(ms(100)).await;
            let was_made = called.is_finished();
            // It is a primary still, and finds what it was sent before.
            scene.network.go_on(group.servers[0]);
            let granted = called.await.expect("no panic").expect("an answer");
            assert_eq!(granted.is_some(), !is_taken, "granted to two");
            assert!(was_made, "it was not made at the next primary");
            if let Some(guard) = granted {
                assert_eq!(group.ask::<u64>(1, &["EXISTS", "called"]), 1);
                guard.unlock().await.expect("a release");
                group.demote(0, 1);
                sleep(SECOND).await;
                group.is_empty();
            }
        });
    }
}

#[test]
fn t4_without_any_sentinel_locks_are_held_waited_for_and_taken_as_before() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let holder = group.connect(group.builder().watchdog_timeout(ms(1_500))).await;
        let (machine, waiter) = group.client(group.builder()).await;
        let guard = holder.lock("kept").lock().await.expect("the lock");
        let next = waiting_for(&machine, waiter.lock("kept"));
        sleep(ms(100)).await;
        group.sentinels.iter().for_each(|sentinel| scene.network.kill(*sentinel));
        for _ in 0..60 {
            release(hold(&waiter.lock("idle")).await).await;
            sleep(SECOND).await;
        }
        assert!(!guard.is_lost() && !next.is_finished());
        guard.unlock().await.expect("a release");
        next.await.expect("no panic").0.unlock().await.expect("a release");
        group.is_empty();
    });
}

#[test]
fn t1_a_failover_of_others_that_a_sentinel_watches_costs_it_no_question() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let (machine, _client) = group.client(group.builder()).await;
        sleep(MINUTE).await;
        let asked = || {
            let of = |sentinel: &ServerNumber| {
                scene.network.at(*sentinel, |sentinel, _| sentinel.calls("sentinel|master"))
            };
            group.sentinels.iter().map(of).sum::<u64>()
        };
        let others = |port| (0..100).for_each(|number| group.names_another(number, port));
        others(1);
        let before = asked();
        others(2);
        sleep(5 * SECOND).await;
        assert!(asked() <= before + 3, "{} questions", asked() - before);
        group.fail_over(1);
        sleep(SECOND).await;
        assert!(asked() > before + 3, "that one is its own");
        drop(machine);
    });
}

/// The second call wants the subscription before the client knows a server.
#[test]
fn calls_that_wait_before_the_primary_is_found_hear_of_a_release() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let holder = group.connect(group.builder()).await;
        let guard = holder.lock("busy").lock().await.expect("the lock");
        let machine = scene.machine(round_trip(ms(2)));
        let lazy = machine.run(async { group.builder().connect_lazy().expect("addresses") }).await;
        let waiters = [(); 2].map(|()| waiting_for(&machine, lazy.lock("busy")));
        sleep(SECOND).await;
        guard.unlock().await.expect("a release");
        let freed = Instant::now();
        for waiter in waiters {
            let (guard, granted) = waiter.await.expect("no panic");
            assert!(granted - freed <= ms(10), "{:?}", granted - freed);
            guard.unlock().await.expect("a release");
        }
        group.is_empty();
    });
}

#[test]
fn t4_the_log_says_when_no_sentinel_names_the_primary_and_when_one_does_again() {
    for lazy in [false, true] {
        let (log, ()) = logged(|| {
            play(0, async |scene| {
                let group = Group::new(scene);
                let kill = |sentinel: usize| scene.network.kill(group.sentinels[sentinel]);
                let (machine, _client);
                if lazy {
                    machine = scene.machine(round_trip(ms(2)));
                    kill(0);
                    let connect = group.builder();
                    let made = machine.run(async {
                        let client = connect.connect_lazy().expect("addresses");
                        release(hold(&client.lock("free")).await).await;
                        client
                    });
                    _client = made.await;
                } else {
                    (machine, _client) = group.client(group.builder()).await;
                    kill(0);
                }
                sleep(MINUTE).await;
                tracing::info!("two are left");
                kill(1);
                kill(2);
                sleep(MINUTE).await;
                scene.network.start(group.sentinels[1], |_, _| {});
                group.repeat(1);
                sleep(MINUTE).await;
                drop(machine);
            });
        });
        let place = |what: &str| {
            assert_eq!(log.matches(what).count(), 1, "{what}: {log}");
            log.find(what)
        };
        let silent = place("no sentinel names the primary");
        assert!(place("two are left") < silent, "{log}");
        assert!(silent < place("a sentinel names the primary again"), "{log}");
    }
}

/// A lazy client has no other sign of it.
#[test]
fn t4_a_call_that_finds_no_sentinel_leaves_the_reason_in_the_log() {
    let (log, ()) = logged(|| {
        play(0, async |scene| {
            let group = Group::new(scene);
            group.sentinels.iter().for_each(|sentinel| scene.network.kill(*sentinel));
            let machine = scene.machine(round_trip(ms(2)));
            let connect = group.builder();
            let asked = machine.run(async {
                let client = connect.connect_lazy().expect("addresses");
                client.lock("free").try_lock_now().await.map(drop)
            });
            let error = asked.await.expect_err("no primary");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        });
    });
    assert_eq!(log.matches("no sentinel names the primary").count(), 1, "{log}");
}

/// From Redis 7 on a new user has the right to no channel.
#[test]
fn t1_a_client_that_may_not_subscribe_at_the_sentinels_follows_a_failover_all_the_same() {
    let (log, ()) = logged(|| {
        play(0, async |scene| {
            let group = Group::new(scene);
            for sentinel in &group.sentinels {
                let rights = ["on", ">secret", "resetchannels", "+sentinel", "+subscribe"];
                let words = [&["ACL", "SETUSER", "watch"][..], &rights].concat();
                scene.ask_at::<()>(*sentinel, &words);
            }
            let options = group.builder().sentinel_credentials("watch", "secret");
            let client = group.connect(options.watchdog_timeout(WATCHDOG)).await;
            let guard = client.lock("kept").lock().await.expect("the lock");
            sleep(WATCHDOG).await;
            group.fail_over(1);
            group.demote(0, 1);
            release(hold(&client.lock("again")).await).await;
            sleep(2 * WATCHDOG).await;
            assert!(!guard.is_lost());
            release(guard).await;
            group.is_empty();
        });
    });
    assert_eq!(log.matches("a sentinel refuses the subscription").count(), 1, "{log}");
}

#[test]
fn t4_one_sentinel_of_three_is_enough_to_find_the_primary_again() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let client = group.connect(group.builder().watchdog_timeout(WATCHDOG)).await;
        let guard = client.lock("kept").lock().await.expect("the lock");
        scene.network.kill(group.sentinels[0]);
        scene.network.stop(group.sentinels[1]);
        let cut: u64 = group.ask(0, &["CLIENT", "KILL", "TYPE", "normal"]);
        assert!(cut >= 1, "no connection was cut");
        release(hold(&client.lock("again")).await).await;
        sleep(WATCHDOG).await;
        group.kill(0);
        group.fail_over(1);
        sleep(2 * WATCHDOG).await;
        assert!(!guard.is_lost());
        guard.unlock().await.expect("a release");
        group.is_empty();
    });
}

/// An operator had the others watch another server: their epochs begin anew.
#[test]
fn t4_sentinels_that_begin_anew_are_followed_when_one_is_gone_that_named_a_newer_configuration() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let (machine, client) = group.client(group.builder()).await;
        group.tell_of_epoch(0, 10);
        sleep(30 * SECOND).await;
        let before = machine.run(client.lock("before").lock()).await.expect("the lock");
        before.unlock().await.expect("a release");
        scene.network.kill(group.sentinels[0]);
        group.kill(0);
        group.follow(1, None);
        group.follow(2, Some(1));
        group.tell_of_epoch(1, 0);
        let begun = Instant::now();
        while let Err(error) = machine.run(client.lock("again").try_lock_now()).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(begun.elapsed() < MINUTE, "{error}");
            sleep(SECOND).await;
        }
        // Others may have found the old one since.
        assert!(begun.elapsed() > 25 * SECOND, "{:?}", begun.elapsed());
        sleep(SECOND).await;
        group.is_empty();
    });
}

/// A server that loads its data says so until it is done. Its scripts have to be sent again.
#[test]
fn a_new_primary_that_still_loads_and_knows_no_script_is_waited_for() {
    for seed in 0..SEEDS {
        play(seed, async |scene| {
            let group = Group::new(scene);
            let (machine, client) = group.client(group.builder()).await;
            let guard = client.lock("kept").lock().await.expect("the lock");
            group.kill(0);
            group.set(1, State::Loading, true);
            group.fail_over(1);
            let called = waiting_for(&machine, client.lock("called"));
            sleep(ms(100 + 100 * seed)).await;
            assert!(!called.is_finished(), "it was not to answer yet");
            group.set(1, State::Loading, false);
            let ready = Instant::now();
            let (called, granted) = called.await.expect("no panic");
            assert!(granted - ready < SECOND, "seed {seed}: {:?}", granted - ready);
            group.ask::<()>(1, &["SCRIPT", "FLUSH"]);
            called.unlock().await.expect("a release");
            guard.unlock().await.expect("a release");
            group.is_empty();
        });
    }
}

/// The old primary is a replica now, and nobody closes the connections to it.
#[test]
fn a_primary_that_became_a_replica_says_so_and_the_client_goes_to_the_new_one() {
    failed_over(async |group, client| {
        let guard = client.lock("kept").lock().await.expect("the lock");
        group.follow(1, None);
        group.follow(0, Some(1));
        // Only the servers know of it yet.
        let lock = client.lock("called");
        let called = Machine::spawn_here(async move { lock.lock().await });
        sleep(ms(100)).await;
        assert!(!called.is_finished(), "a replica has granted a lock");
        group.tell(1);
        let told = Instant::now();
        let called = called.await.expect("no panic").expect("riding it out");
        assert!(told.elapsed() < SECOND, "{:?}", told.elapsed());
        called.unlock().await.expect("a release");
        sleep(2 * WATCHDOG).await;
        guard.unlock().await.expect("a release");
        group.is_empty();
    });
}

/// Which of them is the primary is not decided yet.
#[test]
fn two_reported_servers_that_both_answer_as_replicas_are_dialled_in_turns_at_a_pace() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let client = group.connect(group.builder().watchdog_timeout(WATCHDOG)).await;
        group.names(0, 1, 8);
        group.names(1, 2, 9);
        group.names(2, 2, 9);
        group.kill(0);
        let begun = Instant::now();
        while begun.elapsed() < MINUTE {
            let refused = client.lock("undecided").try_lock_now().await;
            assert_eq!(refused.expect_err("no primary").kind(), ErrorKind::Unavailable);
        }
        let asked: u64 = [1, 2].map(|server| group.calls(server, "role")).iter().sum();
        // Each second two for the one report whose server is not dialled, and a dial after each pause of half a second or a
        // quarter less.
        assert!(asked < 60 * 2 + 60 * 8 / 3 + 60, "asked {asked} times in a minute");
        // Those that name it do not see it any more.
        group.sentinels[1..].iter().for_each(|sentinel| scene.network.stop(*sentinel));
        group.follow(2, None);
        let decided = Instant::now();
        let guard = hold(&client.lock("undecided")).await;
        assert!(decided.elapsed() < 2 * SECOND, "{:?}", decided.elapsed());
        // The one of the older configuration, too.
        group.follow(1, None);
        sleep(ms(20_000)).await;
        assert!(!guard.is_lost());
        release(guard).await;
        assert_eq!(group.calls(1, "evalsha"), 0, "the client went back to it");
    });
}

/// The client checks whether the server of a rejected report is the primary by now. It has stopped.
#[test]
fn a_client_that_checks_a_server_that_hangs_hears_of_another_primary_at_once() {
    play(0, async |scene| {
        let group = Group::new(scene);
        let client = group.connect(group.builder().command_timeout(3 * SECOND)).await;
        group.names(0, 1, 8);
        group.names(1, 2, 9);
        group.names(2, 2, 9);
        sleep(SECOND).await;
        let begun = Instant::now();
        while begun.elapsed() < 10 * SECOND {
            let refused = client.lock("undecided").try_lock_now().await;
            assert_eq!(refused.expect_err("no primary").kind(), ErrorKind::Unavailable);
        }
        group.sentinels[1..].iter().for_each(|sentinel| scene.network.stop(*sentinel));
        scene.network.stop(group.servers[1]);
        // It has the report checked.
        let refused = client.lock("undecided").try_lock_now().await;
        assert_eq!(refused.expect_err("no primary").kind(), ErrorKind::Unavailable);
        group.names(0, 0, 10);
        let named = Instant::now();
        release(hold(&client.lock("undecided")).await).await;
        assert!(named.elapsed() < SECOND, "{:?}", named.elapsed());
    });
}
