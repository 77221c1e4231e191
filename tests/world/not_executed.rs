//! A request that was said not to have been executed is never executed (W12).

use crate::prelude::*;
use crate::unpolled::park;

/// So many calls share one or a few, and the deadline of each is this much after that of the one
/// before. All have begun well before the first deadline passes.
const MANY: u32 = 24;
const APART: Duration = ms(30);
const TIMEOUT: Duration = ms(2 * 24 * 30);

/// What of a shared call is held up until some deadlines have passed: its script, as it is loaded, or its first
/// sending, behind the two requests that leave at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldUp {
    Load,
    Call,
}

/// The server has forgotten the script of shared calls when some arrive, and knows it again when so many deadlines have
/// passed. A call has requests on both sides of one of these, if it has two or more.
fn flushed_under_shared_calls(held_up: HeldUp) {
    for too_late in [8, 11] {
        play(0, async |scene| {
            let options = LockClient::builder().command_timeout(TIMEOUT);
            let (machine, client) = scene.client(ms(4), options).await;
            let Scene { network, server, .. } = scene;
            // All wait for a connection that finds all scripts there, and leave one right after the other.
            for _ in 0..2 {
                network.set_trap(&machine, *server, "SCRIPT", 0, Fate::HeldFor(APART * MANY));
            }
            let looks = scene.calls("script|exists");
            network.cut(&machine, *server, false);
            let (begun, name) = (Instant::now(), |number| format!("lock:{number}"));
            let tasks = (0..MANY).map(|number| {
                let lock = client.lock(name(number));
                machine.spawn(async move {
                    sleep(APART * number).await;
                    lock.try_lock_now().await
                })
            });
            let tasks: Vec<_> = tasks.collect();
            wait_until("both looks", MINUTE, || scene.calls("script|exists") == looks + 2).await;
            // Those of single requests the server knows again.
            scene.ask::<()>(&["SCRIPT", "FLUSH"]);
            for script in [scripts::acquire(), scripts::release()] {
                scene.ask::<()>(&["SCRIPT", "LOAD", &script]);
            }
            let (granted, loads) = (scene.calls("hset"), scene.calls("script|load"));
            let (what, passes) = match held_up {
                HeldUp::Load => ("SCRIPT\r\n$4\r\nLOAD", 0),
                HeldUp::Call => ("EVALSHA", 2),
            };
            let fate = Fate::HeldFor(TIMEOUT + APART * too_late - APART * 5 / 6 - begun.elapsed());
            network.set_trap(&machine, *server, what, passes, fate);
            sleep(ms(50)).await;
            // If the client gave this connection up, another would have it closed.
            network.set_refusing(&machine, *server, true);
            let (mut guards, mut refused, mut unknown) = (Vec::new(), Vec::new(), 0);
            for (number, answer) in (0..).zip(join_all(tasks).await) {
                match answer.expect("no panic") {
                    Ok(guard) => guards.push(guard.expect("a free lock")),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                        match error.outcome() {
                            Outcome::NotExecuted => refused.push(name(number)),
                            Outcome::Unknown => unknown += 1,
                            outcome => panic!("{outcome:?}: {error}"),
                        }
                    }
                }
            }
            network.set_refusing(&machine, *server, false);
            assert!(scene.calls("script|load") > loads, "no call met a server that had forgotten");
            sleep(ms(200)).await;
            for name in &refused {
                assert!(scene.holds(name).is_empty(), "{name} was said not to be executed");
            }
            // Nor was it executed and undone. (An undo closes the connection, and what was under way there
            // is sent a second time: then the count says nothing.)
            let (granted, locks) = (scene.calls("hset") - granted, guards.len() as u64);
            assert!(unknown > 0 || granted == locks, "{granted} for {locks} locks");
            let case = format!("{held_up:?}: {locks} locks, {} refused, {unknown}", refused.len());
            let (over, other) = match held_up {
                HeldUp::Load => (refused.len(), unknown),
                HeldUp::Call => (unknown, refused.len()),
            };
            assert!(over as u32 >= too_late / 2 && other == 0 && locks > 6, "{case}");
            for unlocked in join_all(guards.into_iter().map(LockGuard::unlock)).await {
                unlocked.expect("a release");
            }
            sleep(ms(2_000)).await;
            assert!(scene.keys().is_empty(), "what is unknown is undone");
        });
    }
}

#[test]
fn w12_a_call_that_is_not_executed_by_its_deadline_is_not_executed_after_it() {
    flushed_under_shared_calls(HeldUp::Load);
}

/// The undo of a request whose deadline has passed is behind the call that did not execute it. Behind the undo
/// the call is sent again: with that request in it, there would be a lock that nobody holds.
#[test]
fn w12_a_call_that_is_undone_before_its_script_is_known_is_not_sent_again() {
    flushed_under_shared_calls(HeldUp::Call);
}

/// A waiter that is not polled is handed a lock, whose lease ends before it is. Redis may still carry the hand-off out when
/// the waiter is told that Redis is out of reach.
#[test]
fn w12_a_wait_that_ends_in_an_outage_says_unknown_of_a_hand_off_that_is_under_way() {
    const LEASE: Duration = ms(1_000);
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(LEASE).outage_limit(2 * LEASE);
        let (machine, client) = scene.client(ms(4), options).await;
        let Scene { network, server, .. } = scene;
        let [old, new] = [(); 2].map(|()| Arc::new(client.lock("handed off")));
        let guard = old.lock_with_lease(LEASE).await.expect("the lock");
        let waiter = park(&machine, ms(4), lock_for(new, Some(LEASE))).await;
        scene.trap_script(&machine, &scripts::update(), Fate::HeldFor(10 * LEASE));
        drop(guard);
        wait_until("the hand-off", MINUTE, || network.fates().held == 1).await;
        network.set_refusing(&machine, *server, true);
        network.cut(&machine, *server, false);
        sleep(LEASE).await;
        let error = waiter.await.expect_err("Redis is out of reach");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
        network.set_refusing(&machine, *server, false);
        sleep(10 * LEASE).await;
        assert!(scene.keys().is_empty(), "nothing is left");
    });
}
