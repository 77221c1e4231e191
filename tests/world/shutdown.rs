//! A client is shut down: its holders may finish, and then the others have its locks, not after a lease.

use futures::FutureExt;
use redlatch::Loss;
use tokio_test::task;

use crate::prelude::*;

const NAME: &str = "shuts-down";
const NEAR: Duration = ms(2);
const AWAY: [Duration; 3] = [Duration::ZERO, ms(2), ms(100)];
const PATIENCE: Duration = ms(400);
/// Its holder is killed by nobody, and the lease is the default one.
const SOON: Duration = ms(1_000);

/// A client so far away that has the lock, and another one beside the server that waits for it.
async fn holder_and_waiter(
    scene: &Scene,
    away: Duration,
) -> (Machine, LockClient, LockGuard, JoinHandle<(LockGuard, Instant)>) {
    let (machine, client) = scene.client(away, LockClient::builder()).await;
    let (near, other) = scene.client(NEAR, LockClient::builder()).await;
    let guard = machine.run(client.lock(NAME).lock()).await.expect("the lock");
    let waiter = waiting_for(&near, other.lock(NAME));
    while scene.subscribers(NAME) == 0 {
        sleep(ms(1)).await;
    }
    sleep(NEAR * 2).await;
    (machine, client, guard, waiter)
}

#[test]
fn a_holder_that_is_not_done_in_time_loses_the_lock_and_another_has_it_within_round_trips() {
    for away in AWAY {
        play(0, async |scene| {
            let (machine, client, guard, waiter) = holder_and_waiter(scene, away).await;
            let begun = Instant::now();
            let told = machine.spawn(async move {
                guard.lost().await;
                (Instant::now(), guard.loss(), guard)
            });
            let left = machine.run(client.shutdown(PATIENCE)).await;
            let ended = Instant::now();
            assert!(left.released == [NAME] && left.unreleased.is_empty(), "{left:?}");
            let (told, loss, guard) = told.await.expect("no panic");
            let (_guard, had) = timeout(SOON, waiter).await.expect("soon").expect("no panic");
            assert_eq!((told, loss), (begun + PATIENCE, Some(Loss::Closed)));
            assert!(told <= had, "its holder hears of it first");
            let took = had - begun - PATIENCE;
            assert!(took <= away + NEAR * 2, "{away:?}: another one had it after {took:?}");
            assert!(ended - begun - PATIENCE <= away + ms(1), "{away:?}: {:?}", ended - begun);
            let error = machine.run(guard.unlock()).await.expect_err("it is lost");
            assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(Loss::Closed)));
            assert_eq!(error.outcome(), Outcome::NotExecuted);
        });
    }
}

#[test]
fn a_holder_that_is_done_in_time_ends_the_wait_and_nothing_is_left() {
    for (away, unlocks) in AWAY.into_iter().flat_map(|away| [(away, false), (away, true)]) {
        play(0, async |scene| {
            let (machine, client, guard, waiter) = holder_and_waiter(scene, away).await;
            let begun = Instant::now();
            let holder = machine.spawn(async move {
                sleep(PATIENCE / 2).await;
                if unlocks {
                    guard.unlock().await.expect("it was there to its end");
                } else {
                    drop(guard);
                }
            });
            let left = machine.run(client.shutdown(PATIENCE * 10)).await;
            let took = begun.elapsed() - PATIENCE / 2;
            assert!(left.is_clean() && took <= away + ms(1), "{away:?}: {took:?}, {left:?}");
            holder.await.expect("no panic");
            drop(timeout(NEAR * 4, waiter).await.expect("soon").expect("no panic"));
        });
    }
}

#[test]
fn new_calls_are_refused_at_once_and_waiting_ones_go_home() {
    play(0, async |scene| {
        let (machine, client, guard, _waiter) = holder_and_waiter(scene, ms(100)).await;
        let (same, other) = (client.lock(NAME), client.fair_lock("another"));
        let waits = machine.spawn(async move { same.lock().await.map(drop) });
        sleep(ms(500)).await;
        let shutdown = {
            let client = client.clone();
            machine.spawn(async move { client.shutdown(PATIENCE).await })
        };
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let error = waits.await.expect("no panic").expect_err("it goes home");
        assert_eq!((error.kind(), begun.elapsed()), (ErrorKind::Closed, Duration::ZERO));
        let error = machine.run(other.lock()).await.expect_err("it comes too late");
        assert_eq!((error.kind(), begun.elapsed()), (ErrorKind::Closed, Duration::ZERO));
        // What a guard can do, it can do still.
        machine.run(guard.extend(SOON)).await.expect("it is held");
        machine.run(guard.unlock()).await.expect("it is held");
        assert!(shutdown.await.expect("no panic").is_clean());
    });
}

/// A grant that is on its way while the client is shut down is a lock that nobody releases.
#[test]
fn a_call_that_is_granted_meanwhile_keeps_the_lock_from_nobody() {
    for away in AWAY {
        for step in 0..=6 {
            play(0, async |scene| {
                let (machine, client) = scene.client(away, LockClient::builder()).await;
                let lock = client.lock(NAME);
                let call = machine.spawn(async move { lock.lock().await });
                tokio::task::yield_now().await;
                sleep(away * step / 4).await;
                let left = machine.run(client.shutdown(Duration::ZERO)).await;
                assert!(left.unreleased.is_empty(), "{away:?}, {step}: {left:?}");
                if let Ok(guard) = call.await.expect("no panic") {
                    assert_eq!(left.released, [NAME]);
                    assert_eq!(guard.loss(), Some(Loss::Closed));
                }
                assert!(scene.holds(NAME).is_empty(), "{away:?}, {step}");
            });
        }
    }
}

/// A call that is polled no more has its request under way for as long as it is there.
#[test]
fn one_that_waits_for_a_call_takes_back_what_another_one_is_granted_meanwhile() {
    const OTHERS: [&str; 4] = ["a", "b", "c", "d"];
    play(0, async |scene| {
        let away = ms(100);
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        drop(machine.run(client.lock(NAME).lock()).await.expect("the lock"));
        let stuck = client.lock("stuck");
        let mut stuck =
            task::spawn(machine.run(async move { stuck.lock().await.map(drop) }).boxed());
        assert!(stuck.poll().is_pending());
        let calls = OTHERS.map(|name| {
            let lock = client.lock(name);
            machine.spawn(async move { lock.lock().await.expect("its request was sent before") })
        });
        sleep(away / 2).await;
        let begun = Instant::now();
        let shutdown = machine.spawn(async move { client.shutdown(Duration::ZERO).await });
        for guard in join_all(calls).await {
            let guard = guard.expect("no panic");
            guard.lost().await;
            assert_eq!(guard.loss(), Some(Loss::Closed));
        }
        assert!(begun.elapsed() <= away, "{:?}: when they were granted", begun.elapsed());
        let left = shutdown.await.expect("no panic");
        assert!(left.released == OTHERS && left.unreleased == ["stuck"], "{left:?}");
        drop(stuck);
    });
}

#[test]
fn a_server_that_does_not_answer_holds_it_up_for_the_command_timeout() {
    play(0, async |scene| {
        let (machine, client, guard, waiter) = holder_and_waiter(scene, NEAR).await;
        let dropped = machine.run(client.lock("dropped").lock()).await.expect("the lock");
        let command_timeout = Duration::from_secs(3);
        let stall = scene.stall(&machine, PATIENCE + command_timeout + SOON);
        let begun = Instant::now();
        let shutdown = async {
            drop(dropped);
            let left = machine.run(client.shutdown(PATIENCE)).await;
            assert_eq!(left.unreleased, ["dropped", NAME]);
            assert!(left.released.is_empty() && guard.is_lost());
            begun.elapsed()
        };
        let (took, ()) = tokio::join!(shutdown, stall);
        assert!(took <= PATIENCE + command_timeout + ms(1), "{took:?}");
        // The background goes on for as long as the process lives.
        drop(timeout(SOON, waiter).await.expect("soon").expect("no panic"));
    });
}

#[test]
fn one_that_is_dropped_half_way_leaves_the_guards_to_their_holders() {
    play(0, async |scene| {
        let builder = LockClient::builder().watchdog_timeout(SOON);
        let (machine, client) = scene.client(NEAR, builder).await;
        let guard = machine.run(client.lock(NAME).lock()).await.expect("the lock");
        let cut_off = timeout(PATIENCE, machine.run(client.shutdown(SOON))).await;
        cut_off.expect_err("it waits for the holder");
        sleep(10 * SOON).await;
        assert!(!guard.is_lost(), "its lease is renewed");
        let error = machine.run(client.lock("another").lock()).await.expect_err("no new call");
        assert_eq!(error.kind(), ErrorKind::Closed);
        let left = machine.run(client.shutdown(PATIENCE)).await;
        assert_eq!(left.released, [NAME]);
        assert_eq!(guard.loss(), Some(Loss::Closed));
        assert!(machine.run(client.shutdown(PATIENCE)).await.is_clean(), "nothing is left");
        drop(guard);
        assert!(scene.holds(NAME).is_empty());
    });
}

#[test]
fn several_at_once_wait_each_for_its_own_time_and_the_first_ends_the_holders() {
    play(0, async |scene| {
        let (machine, client, guard, _waiter) = holder_and_waiter(scene, NEAR).await;
        let begun = Instant::now();
        let shut = |patience| {
            let client = client.clone();
            machine.spawn(async move { (client.shutdown(patience).await, Instant::now()) })
        };
        let both = join_all([shut(PATIENCE * 10), shut(PATIENCE)]).await;
        let [long, short] = &both[..] else { unreachable!() };
        let (long, short) = (long.as_ref().expect("no panic"), short.as_ref().expect("no panic"));
        assert!(long.0.is_clean() && short.0.released == [NAME], "{long:?}, {short:?}");
        for (_, ended) in [long, short] {
            assert!(*ended - begun <= PATIENCE + NEAR + ms(1), "{:?}", *ended - begun);
        }
        assert!(guard.is_lost());
    });
}

#[test]
fn guards_of_every_kind_are_told_and_every_name_is_free() {
    for away in AWAY {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            machine
                .run(async {
                    let several = client.multi_lock(["a", "b"]).lock().await.expect("a lock");
                    let (fair, fenced) = (client.fair_lock("fair"), client.fenced_lock("fenced"));
                    let (fair, fenced) = (fair.lock().await, fenced.lock().await);
                    let (fair, fenced) = (fair.expect("a lock"), fenced.expect("a lock"));
                    let (outer, inner) = (client.lock("nested"), ms(60_000));
                    let inner = outer.lock_with_lease(inner).await.expect("a lock");
                    let outer = outer.lock().await.expect("a lock");
                    let here = client.read_write_lock("both");
                    let (writes, reads) = (here.write().await, here.read().await);
                    let (writes, reads) = (writes.expect("a lock"), reads.expect("a lock"));
                    let readers = [client.read_write_lock("read"), client.read_write_lock("read")];
                    let one = readers[0].read().await.expect("a lock");
                    let other = readers[1].read().await.expect("a lock");
                    let begun = Instant::now();
                    let left = client.shutdown(PATIENCE).await;
                    let took = begun.elapsed();
                    assert!(took <= PATIENCE + 2 * away + ms(1), "{took:?}");
                    let all = ["a", "b", "both", "fair", "fenced", "nested", "read"];
                    assert!(left.released == all && left.unreleased.is_empty(), "{left:?}");
                    assert!(several.is_lost() && fair.is_lost() && fenced.is_lost());
                    assert!(outer.is_lost() && inner.is_lost());
                    assert!(writes.is_lost() && reads.is_lost());
                    assert!(one.is_lost() && other.is_lost());
                    for name in all {
                        assert_eq!(scene.ask::<u32>(&["EXISTS", name]), 0, "{name}");
                    }
                })
                .await;
        });
    }
}

/// Redis grants a lock that is taken in order to the next client by itself, and tells it.
#[test]
fn a_guard_that_came_with_a_message_counts_as_any_other() {
    play(0, async |scene| {
        let (machine, client) = scene.client(NEAR, LockClient::builder()).await;
        let (_, other) = scene.client(NEAR, LockClient::builder()).await;
        let before = other.fair_lock("lock").lock().await.expect("the lock");
        let waiting = waiting_for(&machine, client.fair_lock("lock"));
        sleep(SOON).await;
        before.unlock().await.expect("a release");
        let (guard, _) = waiting.await.expect("no panic");
        let owner = scene.holds("lock").into_keys().next().expect("an owner");
        assert!(owner.contains(":-"), "Redis has to grant it by itself: that is the point");
        assert_eq!(client.stats().held, 1);
        let begun = Instant::now();
        let left = machine.run(client.shutdown(PATIENCE)).await;
        assert_eq!(left.released, ["lock"]);
        assert!(begun.elapsed() >= PATIENCE && guard.is_lost());
        assert!(scene.holds("lock").is_empty());
    });
}

#[test]
fn a_lock_that_is_to_stay_stays_and_a_guard_that_is_lost_holds_nobody_up() {
    play(0, async |scene| {
        let (machine, client) = scene.client(NEAR, LockClient::builder()).await;
        let stays = machine.run(client.lock("stays").lock()).await.expect("the lock");
        stays.hold_at_least(SOON * 10);
        let lost = machine.run(client.lock("lost").lock_with_lease(SOON)).await.expect("the lock");
        sleep(2 * SOON).await;
        let begun = Instant::now();
        let left = machine.run(client.shutdown(PATIENCE)).await;
        assert_eq!(left.released, ["stays"]);
        assert!(begun.elapsed() >= PATIENCE && lost.loss() == Some(Loss::LeaseEnded));
        let rest = scene.pttl("stays");
        assert!((7_000..8_000).contains(&rest), "{rest}");

        let client = scene.client(NEAR, LockClient::builder()).await.1;
        let _lost = client.lock("lost").lock_with_lease(SOON).await.expect("the lock");
        let begun = Instant::now();
        // Longer than that guard is valid.
        assert!(client.shutdown(10 * SOON).await.is_clean());
        assert!(begun.elapsed() <= SOON, "{:?}", begun.elapsed());
    });
}

/// It is the `shutdown` that has taken the lock from under the guard, and whose release Redis may execute yet.
#[test]
fn an_unlock_under_a_shutdown_cannot_tell_while_redis_is_silent() {
    play(0, async |scene| {
        let (machine, client) = scene.client(NEAR, LockClient::builder()).await;
        let guard = machine.run(client.lock(NAME).lock()).await.expect("the lock");
        scene.network.stop(scene.server);
        let shutdown = machine.spawn(async move { client.shutdown(Duration::ZERO).await });
        guard.lost().await;
        let error = machine.run(guard.unlock()).await.expect_err("it is lost");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Lost, Outcome::Unknown));
        assert_eq!(shutdown.await.expect("no panic").unreleased, [NAME]);
        scene.network.go_on(scene.server);
        sleep(ms(1_000)).await;
        assert!(scene.holds(NAME).is_empty(), "it was not executed");
    });
}

/// Redis was away for longer than the lease, and has nothing of that hold. The handle lives on, and is not used again.
#[test]
fn a_release_that_the_client_has_given_up_is_pending_no_more() {
    play(0, async |scene| {
        let (machine, client) = scene.client(NEAR, LockClient::builder()).await;
        let lock = client.lock(NAME);
        let guard = machine.run(lock.lock()).await.expect("the lock");
        scene.network.kill(scene.server);
        drop(guard);
        sleep(ms(1_000)).await;
        assert_eq!(client.health().pending_releases, 1);
        sleep(ms(60_000)).await;
        scene.network.start(scene.server, |_, _| ());
        sleep(ms(10_000)).await;
        assert_eq!(client.health().pending_releases, 0, "the lease is over");
        let begun = Instant::now();
        let left = machine.run(client.shutdown(PATIENCE * 10)).await;
        assert!(left.is_clean() && begun.elapsed() <= NEAR * 2, "{:?}: {left:?}", begun.elapsed());
        drop(lock);
    });
}
