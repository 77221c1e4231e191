//! Waits that are longer than they have to be.

use redlatch::{Lease, Loss};

use crate::prelude::*;

const NAME: &str = "waits";

/// The message of a release is on its way to its own client when that unsubscribes. It does not take the
/// message of another client for that one a second later, and leave the lock free meanwhile.
#[test]
fn a_client_that_missed_its_own_message_takes_no_other_for_it() {
    let (away, linger) = (ms(20), ms(200));
    play(0, async |scene| {
        let (near, one) = scene.client(away, LockClient::builder()).await;
        let (far, other) = scene.client(away, LockClient::builder()).await;
        let (one, other) = (one.lock(NAME), other.lock(NAME));
        let mut theirs = far.run(other.lock()).await.expect("a guard");
        for held in [ms(50), linger - away / 2] {
            let ours = waiting_for(&near, one.clone());
            sleep(5 * away).await;
            far.run(theirs.unlock()).await.expect("a release");
            let (guard, _) = ours.await.expect("no panic");
            let next = waiting_for(&far, other.clone());
            sleep(held).await;
            near.run(guard.unlock()).await.expect("a release");
            theirs = next.await.expect("no panic").0;
        }
        sleep(ms(1_000)).await;
        let waits = waiting_for(&near, one);
        sleep(5 * away).await;
        far.run(theirs.unlock()).await.expect("a release");
        let freed = Instant::now();
        let (_guard, came) = waits.await.expect("no panic");
        assert!(came - freed <= 2 * away, "free for {:?}", came - freed);
    });
}

/// All that comes while the first call asks waits behind it, and costs Redis nothing; a turn costs less than a command.
#[test]
fn i6_a_crowd_on_a_name_that_is_new_to_the_client_asks_as_often_as_one_call() {
    const CROWD: u64 = 10_000;
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(20), LockClient::builder()).await;
        scene.ask::<()>(&["HSET", NAME, "other:1", "1"]);
        let before = scene.calls("evalsha");
        let calls: Vec<_> = (0..CROWD)
            .map(|_| {
                let lock = client.lock(NAME);
                machine.spawn(async move { lock.lock().await.expect("a guard").unlock().await })
            })
            .collect();
        sleep(ms(1_000)).await;
        // The first request, and the one after the client has subscribed.
        assert_eq!(scene.calls("evalsha") - before, 2);
        scene.ask::<()>(&["DEL", NAME]);
        scene.ask::<()>(&["PUBLISH", &channel(NAME), "0"]);
        for call in calls {
            call.await.expect("no panic").expect("an unlock");
        }
        let asked = scene.calls("evalsha") - before;
        assert!(asked <= CROWD, "{asked} commands for {CROWD} turns");
        assert!(scene.holds(NAME).is_empty());
    });
}

/// Before the first answer it is unknown whether the lock is busy; with it, the calls whose wait is over end.
#[test]
fn a_wait_that_is_shorter_than_a_round_trip_ends_with_the_answer_to_the_call_before_it() {
    let away = ms(300);
    play(0, async |scene| {
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        scene.ask::<()>(&["HSET", NAME, "other:1", "1"]);
        let (first, second) = (client.lock(NAME), client.lock(NAME));
        let begun = Instant::now();
        let _waits = machine.spawn(async move { first.lock().await.map(drop) });
        // It is the first in the queue.
        sleep(ms(1)).await;
        let busy = machine.run(second.try_lock(ms(50), ms(10_000))).await.expect("an answer");
        assert!(busy.is_none());
        let took = begun.elapsed();
        assert!((away..away + ms(2)).contains(&took), "{took:?}");
    });
}

/// A far server is not silent where a near one would be.
#[test]
fn a_wait_that_is_over_before_a_far_server_can_answer_has_found_the_lock_busy() {
    let (away, wait) = (ms(350), ms(5_000));
    for (left, answers) in [(ms(250), true), (ms(1_000), false)] {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            scene.ask::<()>(&["HSET", NAME, "other:1", "1"]);
            let (lock, begun) = (client.lock(NAME), Instant::now());
            let waits = machine.spawn(async move { lock.try_lock(wait, MINUTE).await });
            sleep(wait - left - away / 2).await;
            let asked = scene.calls("evalsha");
            scene.ask::<()>(&["PUBLISH", &channel(NAME), "0"]);
            sleep(away / 2 + ms(10)).await;
            if !answers {
                scene.flow(&machine, Flow::Held);
            }
            let tried = waits.await.expect("no panic");
            let took = begun.elapsed();
            assert!((wait..wait + ms(2)).contains(&took), "{took:?}");
            if answers {
                assert!(tried.expect("an answer").is_none());
                sleep(away).await;
                assert!(scene.calls("evalsha") > asked, "the question was under way");
            } else {
                assert_eq!(tried.expect_err("silent").kind(), ErrorKind::Unavailable);
            }
        });
    }
}

/// Redis refuses all channels of a command of which one is forbidden.
#[test]
fn a_channel_that_is_forbidden_keeps_no_other_from_its_messages() {
    const FORBIDDEN: &str = "forbidden";
    // With the last one, the answers of two round trips take longer than one may.
    for (away, patience) in [(0, 3_000), (2, 3_000), (100, 3_000), (100, 150)] {
        let (away, patience) = (ms(away), ms(patience));
        play(0, async |scene| {
            let rights = ["~*", "resetchannels", "&redisson_lock__channel:*", "+@all"];
            scene.ask::<()>(&[&["ACL", "SETUSER", "narrow", "on", ">pass"], &rights[..]].concat());
            let (near, other) = scene.client(ms(2), LockClient::builder()).await;
            let machine = scene.machine(round_trip(away));
            let url = format!("redis://narrow:pass@{ADDRESS}");
            let connect = LockClient::builder().url(url).command_timeout(patience).connect();
            let client = machine.run(connect).await.expect("a client");
            let writing = other.read_write_lock(FORBIDDEN).write().await.expect("the lock");
            let mut by_time = None;
            for after in [0, 300, 1_100, 2_600].map(ms) {
                sleep(after).await;
                let guard = near.run(other.lock(NAME).lock()).await.expect("the lock");
                let (next, theirs) = (client.lock(NAME), client.read_write_lock(FORBIDDEN));
                by_time.get_or_insert_with(|| {
                    machine.spawn(async move { theirs.write().await.map(drop) })
                });
                let next = machine.spawn(async move { (next.lock().await, Instant::now()) });
                sleep(5 * away + ms(20)).await;
                guard.unlock().await.expect("a release");
                let freed = Instant::now();
                let (guard, came) = next.await.expect("no panic");
                assert!(came - freed <= 2 * away + ms(2), "{away:?}: {:?}", came - freed);
                guard.expect("the lock").unlock().await.expect("a release");
            }
            let denied = scene.network.at(scene.server, |server, _| server.errors("NOPERM"));
            assert!(denied > 1, "that is the point");
            writing.unlock().await.expect("a release");
            by_time.expect("a call").abort();
        });
    }
}

#[test]
fn a_channel_that_was_forbidden_is_asked_for_again() {
    play(0, async |scene| {
        let allow = |channels: &str| {
            let user = ["ACL", "SETUSER", "narrow", "on", ">pass", "~*", channels, "+@all"];
            scene.ask::<()>(&user);
        };
        allow("resetchannels");
        let (_, other) = scene.client(ms(2), LockClient::builder()).await;
        let machine = scene.machine(round_trip(ms(2)));
        let connect = LockClient::connect(format!("redis://narrow:pass@{ADDRESS}"));
        let client = machine.run(connect).await.expect("a client");
        let guard = other.lock(NAME).lock().await.expect("the lock");
        let waiter = waiting_for(&machine, client.lock(NAME));
        sleep(ms(500)).await;
        assert_eq!(scene.subscribers(NAME), 0);
        allow("allchannels");
        // The first pause is one of a second.
        sleep(ms(600)).await;
        assert_eq!(scene.subscribers(NAME), 1);
        guard.unlock().await.expect("a release");
        let freed = Instant::now();
        let (guard, granted) = waiter.await.expect("no panic");
        assert!(granted - freed <= ms(4), "{:?}", granted - freed);
        guard.unlock().await.expect("a release");
    });
}

/// A request finds the key gone that was deleted by hand (W20). Nothing was published, so nothing else wakes a waiter of the
/// client before the lease could have ended.
fn wakes_a_waiter(
    options: LockClientBuilder,
    (lease, holds): (Lease, usize),
    within: Duration,
    finds: impl AsyncFnOnce(&Lock, Vec<LockGuard>) -> Vec<LockGuard>,
) {
    let name = "gone";
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(4), options).await;
        let lock = client.lock(name);
        let mut guards = Vec::new();
        for _ in 0..holds {
            guards.extend(lock.try_lock(Duration::ZERO, lease).await.expect("an answer"));
        }
        let waiter = waiting_for(&machine, client.lock(name));
        sleep(ms(100)).await;
        assert_eq!((guards.len(), scene.subscribers(name)), (holds, 1));
        scene.ask::<()>(&["DEL", name]);
        let guards = finds(&lock, guards).await;
        assert!(guards.iter().all(LockGuard::is_lost));
        let (guard, _) = timeout(within, waiter).await.expect("it is woken").expect("no panic");
        guard.unlock().await.expect("a release");
    });
}

#[test]
fn w20_a_renewal_that_finds_the_key_gone_wakes_a_waiter() {
    let options = LockClient::builder().watchdog_timeout(ms(6_000));
    wakes_a_waiter(options, (Lease::Watchdog, 1), ms(50), async |_, guards| {
        guards[0].lost().await;
        assert_eq!(guards[0].loss(), Some(Loss::KeyGone), "not found by a renewal");
        guards
    });
}

#[test]
fn w20_a_release_that_finds_the_key_gone_wakes_a_waiter() {
    for (holds, is_dropped) in [(1, false), (1, true), (2, false)] {
        // Without hand-offs a release goes to Redis.
        let options = LockClient::builder().max_handoffs(0);
        wakes_a_waiter(options, (MINUTE.into(), holds), ms(50), async |_, mut guards| {
            let guard = guards.pop().expect("a guard");
            if is_dropped {
                drop(guard);
            } else {
                let error = guard.unlock().await.expect_err("a lost lock");
                assert_eq!(error.kind(), ErrorKind::Lost);
            }
            guards
        });
    }
}

#[test]
fn w20_a_nested_hold_that_finds_the_key_gone_wakes_a_waiter() {
    let lease = ms(600);
    let options = LockClient::builder();
    wakes_a_waiter(options, (MINUTE.into(), 1), lease + ms(50), async |lock, guards| {
        // It becomes a first hold, whose lease is what the waiter has to wait for from now on. Nobody
        // gives it back, so nothing is published at its end.
        std::mem::forget(lock.lock_with_lease(lease).await.expect("the lock"));
        guards
    });
}

/// Its token key holds something else, say. A client asks for tokens for those that wait, and the holder goes on.
#[test]
fn a_redis_that_cannot_draw_tokens_is_not_asked_again_and_again() {
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
        let first = machine.run(client.lock("name").lock()).await.expect("the lock");
        let second = waiting_for(&machine, client.lock("name"));
        sleep(ms(50)).await;
        let fenced = client.fenced_lock("name");
        let third = machine.spawn(async move { fenced.lock().await.map(drop) });
        sleep(ms(50)).await;
        scene.ask::<()>(&["SET", "redisson_lock_token:{name}", "a text"]);
        machine.run(first.unlock()).await.expect("a release");
        let (guard, _) = second.await.expect("no panic");
        let before = scene.calls("evalsha");
        sleep(ms(1_000)).await;
        let asked = scene.calls("evalsha") - before;
        assert!(asked <= 5, "{asked} scripts in a second");
        machine.run(guard.extend(MINUTE)).await.expect("no request keeps it from that");
        machine.run(guard.unlock()).await.expect("a release");
        third.abort();
    });
}
