//! A Redis that is far away, or a network that stalls or breaks: rows W1, W2, W3 and W27, in virtual
//! time.

use std::sync::OnceLock;

use tokio::task::JoinSet;

use crate::prelude::*;

/// Round trips, and the watchdog timeouts of clients that are so far away.
const CASES: [(Duration, Duration); 8] = [
    (ms(0), ms(400)),
    (ms(2), ms(30)),
    (ms(6), ms(200)),
    (ms(60), ms(360)),
    (ms(120), ms(720)),
    (ms(120), ms(1_000)),
    (ms(350), ms(2_100)),
    (ms(350), ms(3_000)),
];

#[test]
fn w1_a_third_of_a_lease_is_enough_for_a_renewal_at_any_distance_up_to_a_sixth_of_it() {
    for (away, lease) in CASES {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(lease);
            let (machine, client) = scene.client(away, options).await;
            let lock = client.lock("far away");
            for number in 0..3 {
                let asked = Instant::now();
                let guard = machine.run(lock.lock()).await.expect("a guard");
                assert!(asked.elapsed() >= away, "the network is nearer than it should be");
                let lost = timeout(3 * lease, guard.lost()).await;
                assert!(lost.is_err(), "{away:?}, {lease:?}: hold {number} was lost");
                machine.run(guard.unlock()).await.expect("a release");
            }
        });
    }
}

#[test]
fn w1_connecting_loads_the_scripts_and_a_flush_costs_one_renewal_more_round_trips() {
    let (away, lease) = (ms(40), ms(240));
    play(0, async |scene| {
        let options = LockClient::builder().watchdog_timeout(lease);
        let (machine, client) = scene.client(away, options).await;
        let lock = client.lock("loaded");
        let asked = Instant::now();
        let guard = machine.run(lock.lock()).await.expect("a guard");
        assert_eq!(asked.elapsed(), away, "a script was not there");
        scene.network.at(scene.server, |server, _| server.flush_scripts());
        assert!(timeout(3 * lease, guard.lost()).await.is_err(), "lost after a flush");
        let asked = Instant::now();
        machine.run(guard.unlock()).await.expect("a release");
        assert_eq!(asked.elapsed(), 3 * away, "a refusal, a script, and the release");
    });
}

/// Calls of one task, one after the other, until one succeeds that began when the fault was over. Returns
/// how long after that; `None` if none does before `end`, or none did before the fault.
async fn calls(
    client: LockClient,
    name: String,
    patience: Duration,
    (over, end): (Arc<OnceLock<Instant>>, Instant),
) -> Option<Duration> {
    let mut succeeded = false;
    while Instant::now() < end {
        let (begun, lock) = (Instant::now(), client.lock(&name));
        match timeout(patience, lock.try_lock_now()).await {
            Ok(Ok(Some(guard))) => {
                if guard.unlock().await.is_ok() {
                    match over.get() {
                        Some(over) if begun >= *over => return succeeded.then(|| begun - *over),
                        Some(_) => {}
                        None => succeeded = true,
                    }
                }
            }
            // A refusal that comes at once is no reason to ask at once.
            Ok(_) => sleep(ms(5)).await,
            Err(_) => {}
        }
    }
    None
}

/// How long after a fault each of so many tasks has a call that succeeds, at the latest; `None` if one
/// never has one again.
fn until_all_succeed(
    (away, command_timeout): (Duration, Duration),
    (tasks, patience): (usize, Duration),
    fault: impl AsyncFnOnce(&Scene, &Machine),
) -> Option<Duration> {
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(command_timeout);
        let (machine, client) = scene.client(away, options).await;
        let distance = Distance { jitter: ms(2), ..round_trip(away) };
        scene.network.set_distance_of(&machine, scene.server, distance);
        let (over, end) = (Arc::new(OnceLock::new()), Instant::now() + 20 * SECOND);
        let (mut all, mut random) = (JoinSet::new(), Random::new(tasks as u64));
        for task in 0..tasks {
            let (client, over, begins) = (client.clone(), over.clone(), random.up_to(ms(300)));
            // Not all at the same time: a crowd is no choir.
            let work = async move {
                sleep(begins).await;
                calls(client, format!("own {task}"), patience, (over, end)).await
            };
            all.spawn(machine.run(work));
        }
        sleep(SECOND).await;
        fault(scene, &machine).await;
        over.set(Instant::now()).expect("once");
        all.join_all().await.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
    })
}

#[test]
fn w2_callers_who_give_up_after_two_round_trips_are_served_again_after_a_cut() {
    for tasks in [1, 40] {
        for arrives in [true, false] {
            let (away, command_timeout) = (ms(30), 3 * SECOND);
            let distance = (away, command_timeout);
            let served = until_all_succeed(distance, (tasks, ms(68)), async |scene, machine| {
                scene.network.cut(machine, scene.server, arrives);
            });
            // A dial is four round trips.
            let served = served.expect("served again");
            assert!(served <= 8 * away, "{tasks} tasks: after {served:?}");
        }
    }
}

#[test]
fn w2_a_command_timeout_of_two_round_trips_is_enough_to_connect_and_after_a_cut() {
    let away = ms(30);
    let served = until_all_succeed((away, 2 * away), (1, SECOND), async |scene, machine| {
        scene.network.cut(machine, scene.server, true);
    });
    assert!(served.expect("served again") <= 8 * away);
}

#[test]
fn w9_a_call_that_waits_for_a_connection_waits_for_one_dial_though_its_client_closes() {
    let away = ms(20);
    // How long the first call of another runtime takes, if the client closes after so long.
    let takes = |closes: Option<Duration>| {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (runtime, lock, begun) =
                (machine.start_runtime(), client.lock("dialed"), Instant::now());
            let call =
                runtime.spawn(async move { lock.try_lock_now().await.map(|_| begun.elapsed()) });
            if let Some(closes) = closes {
                sleep(closes).await;
                machine.run(client.close()).await;
            }
            call.await.expect("a task").expect("an answer")
        })
    };
    let alone = takes(None);
    for closes in [away / 2, 3 * away / 2, 5 * away / 2] {
        // The connections of the client's thread and of the first runtime are stale then, which takes another
        // round trip.
        assert!(takes(Some(closes)) <= alone + away, "{closes:?}: {:?}", takes(Some(closes)));
    }
}

#[test]
fn w3_an_idle_client_has_its_connections_back_before_anybody_calls() {
    for away in [2, 40, 100].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let lock = client.lock("idle");
            lock.lock().await.expect("the lock").unlock().await.expect("a release");
            let open = || scene.network.connections(&machine, scene.server);
            let (before, made) = (open(), scene.network.connections_made());
            scene.network.cut(&machine, scene.server, true);
            // The cut, a dial, and the pause before one.
            sleep(6 * away + ms(100)).await;
            let kills = scene.calls("client|kill");
            let broke = scene.network.connections_made() - made;
            assert_eq!((open(), broke), (before, before as u64), "more were made than broke");
            lock.lock().await.expect("the lock").unlock().await.expect("a release");
            assert_eq!(scene.network.connections_made(), made + broke, "a caller made one");
            assert_eq!(scene.calls("client|kill"), kills, "a caller had the broken ones closed");
        });
    }
}

/// What is true for one caller is true for a crowd.
#[test]
fn w3_a_stall_that_is_longer_than_the_command_timeout_is_over_soon_after_its_end() {
    for away in [60, 90, 120, 140] {
        for tasks in [1, 40, 200] {
            let distance = (ms(away), ms(300));
            let served = until_all_succeed(distance, (tasks, SECOND), async |scene, machine| {
                scene.stall(machine, ms(400)).await;
            });
            println!("{away} ms, {tasks} tasks: served again after {served:?}");
            let served = served.unwrap_or(Duration::MAX);
            assert!(served <= 2 * SECOND, "{away} ms, {tasks} tasks: after {served:?}");
        }
    }
}

/// One request after the other, so that each third one has less time left than a round trip takes.
#[test]
fn w3_calls_of_one_handle_that_run_out_of_time_cost_no_connection() {
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(ms(300));
        let (machine, client) = scene.client(ms(120), options).await;
        let (lock, made) = (Arc::new(client.lock("of all")), scene.network.connections_made());
        let end = Instant::now() + 10 * SECOND;
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let lock = lock.clone();
            tasks.spawn(machine.run(async move {
                let mut failed = 0;
                while Instant::now() < end {
                    match lock.try_lock_now().await {
                        Ok(Some(guard)) => failed += usize::from(guard.unlock().await.is_err()),
                        Ok(None) => {}
                        Err(_) => failed += 1,
                    }
                }
                failed
            }));
        }
        let failed: usize = tasks.join_all().await.into_iter().sum();
        assert!(failed >= 8, "only {failed} calls ran out of time");
        assert_eq!(scene.network.connections_made(), made);
    });
}

/// Round trips, and a command timeout that is right for each.
const DISTANCES: [(Duration, Duration); 3] =
    [(ms(0), ms(800)), (ms(2), ms(800)), (ms(100), ms(1_000))];

/// A client waits for a lock of somebody else and does nothing else, `meanwhile` something happens, and
/// then the lock is freed. Returns how long after that the client has it.
fn parked(
    (away, command_timeout): (Duration, Duration),
    meanwhile: impl AsyncFnOnce(&Scene, &Machine),
) -> Duration {
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(command_timeout);
        let (machine, client) = scene.client(away, options).await;
        scene.ask::<()>(&["HSET", "parked", "somebody:1", "1"]);
        scene.ask::<()>(&["PEXPIRE", "parked", "60000"]);
        let waiter = waiting_for(&machine, client.lock("parked"));
        sleep(8 * away + ms(10)).await;
        meanwhile(scene, &machine).await;
        let freed = Instant::now();
        scene.ask::<()>(&["DEL", "parked"]);
        scene.ask::<()>(&["PUBLISH", &channel("parked"), "0"]);
        let (guard, had) = waiter.await.expect("no panic");
        machine.run(guard.unlock()).await.expect("a release");
        had - freed
    })
}

#[test]
fn w27_a_parked_client_keeps_a_connection_that_answers_however_far_it_is() {
    for (away, command_timeout) in DISTANCES {
        let took = parked((away, command_timeout), async |scene, machine| {
            let count = || {
                let calls = (scene.calls("evalsha"), scene.calls("client|info"));
                (scene.network.connections(machine, scene.server), calls)
            };
            let before = count();
            sleep(6 * command_timeout).await;
            let after = count();
            assert_eq!(after.0, before.0, "a connection was given up");
            assert_eq!(after.1.0, before.1.0, "it asked for the lock");
            // Every one and a half command timeouts, and the way.
            let signs = after.1.1 - before.1.1;
            assert!((3..=4).contains(&signs), "{signs} signs of life in six timeouts");
        });
        // The message, and the acquire.
        assert_eq!(took, away / 2 + away, "{away:?}");
    }
}

#[test]
fn w27_a_parked_client_gives_a_connection_up_that_does_not_answer() {
    for (away, command_timeout) in DISTANCES {
        let took = parked((away, command_timeout), async |scene, machine| {
            let (stalled, made) = (Instant::now(), scene.network.connections_made());
            let gives_up = async {
                while scene.network.connections_made() == made {
                    sleep(ms(1)).await;
                }
                stalled.elapsed()
            };
            let stall = scene.stall(machine, 9 * command_timeout);
            let (given_up, ()) = tokio::join!(gives_up, stall);
            // The sign of life that is due next, and the five command timeouts that it has.
            let (least, most) = (5 * command_timeout, 13 * command_timeout / 2 + away + ms(1));
            assert!((least..=most).contains(&given_up), "given up after {given_up:?}");
            // A dial, a subscription, and the pause between two dials.
            sleep(8 * away + ms(600)).await;
        });
        assert_eq!(took, away / 2 + away, "{away:?}: it listens again");
    }
}
