//! Requests arrive, or vanish, and no answer comes: rows N3, N4, N8, N12, N13, S20, S21 and I12, in virtual time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::outages::{AWAY, NAME, RECOVERY, play_with, unknown};
use crate::prelude::*;

#[test]
fn n3_a_grant_whose_answer_is_black_holed_is_unknown_and_given_back_on_recovery() {
    play_with(MINUTE, async |way| {
        let lock = way.client.lock(NAME);
        way.black_hole_answers();
        unknown(lock.try_lock_now()).await;
        // The server did grant it, and cannot hear of a release: that is the point.
        assert_eq!(Vec::from_iter(way.scene.holds(NAME).into_values()), [1]);
        assert!(way.other.lock(NAME).try_lock_now().await.expect("an answer").is_none());
        way.recover();
        way.is_free_within(RECOVERY, &[NAME]).await;
        lock.lock().await.expect("the lock").unlock().await.expect("a release");
    });
}

#[test]
fn n3_a_grant_nobody_heard_of_keeps_others_out_for_its_lease_and_no_longer() {
    let lease = ms(1_500);
    play_with(MINUTE, async |way| {
        let lock = way.client.lock(NAME);
        way.black_hole_answers();
        let asked = Instant::now();
        unknown(lock.lock_with_lease(lease)).await;
        let guard = way.other.lock(NAME).lock().await.expect("the lock");
        let blocked = asked.elapsed();
        assert!(blocked >= lease, "let in after {blocked:?}: the grant did not happen");
        assert!(blocked <= lease + ms(50) + 2 * AWAY, "kept out for {blocked:?}");
        // The release that could not be sent must do nothing to whoever came after.
        way.recover();
        sleep(RECOVERY).await;
        // A call of the same handle comes after the release that it owes.
        assert!(lock.try_lock_now().await.expect("an answer").is_none());
        assert!(!guard.is_lost());
        guard.unlock().await.expect("a release");
    });
}

#[test]
fn n12_a_release_that_arrives_while_no_answer_does_is_unknown_and_happens_once() {
    play_with(MINUTE, async |way| {
        let guard = way.hold(NAME).await;
        way.flow(Direction::Down, Flow::Held);
        unknown(guard.unlock()).await;
        assert!(way.scene.holds(NAME).is_empty(), "it has to arrive: that is the point");
        // Another owner comes in, and the release is made again behind it.
        let successor = way.other.lock(NAME).lock().await.expect("the lock");
        way.flow(Direction::Down, Flow::Open);
        let tried = way.client.lock(NAME).try_lock_now().await.expect("an answer");
        sleep(RECOVERY).await;
        assert!(tried.is_none() && !successor.is_lost() && way.scene.holds(NAME).len() == 1);
        successor.unlock().await.expect("a release");
    });
}

#[test]
fn n13_calls_on_a_half_open_connection_fail_in_time_and_the_next_one_works() {
    play_with(ms(6_000), async |way| {
        let kept = way.hold("kept").await;
        let (lock, made) = (way.client.lock(NAME), way.made());
        way.scene.trap(&way.machine, Fate::HeldFor(MINUTE));
        tokio::join!(unknown(lock.is_locked()), unknown(lock.try_lock_now()));
        assert!(way.scene.holds(NAME).is_empty(), "it has to vanish: that is the point");
        // The undo of what may have happened goes first, and over a connection that works.
        lock.lock().await.expect("the lock").unlock().await.expect("a release");
        assert_eq!(way.made(), made + 1, "the dead connection is used no more");
        // The watchdog has a connection of its own, on which nothing happened.
        assert!(timeout(ms(12_000), kept.lost()).await.is_err());
        kept.unlock().await.expect("a release");
    });
}

#[test]
fn n13_a_renewal_on_a_half_open_connection_is_made_again_on_another() {
    play_with(ms(4_500), async |way| {
        let (guard, made) = (way.hold(NAME).await, way.made());
        way.scene.trap(&way.machine, Fate::HeldFor(MINUTE));
        assert!(timeout(ms(9_000), guard.lost()).await.is_err());
        assert_eq!((way.made(), way.scene.network.fates().held), (made + 1, 1));
        guard.unlock().await.expect("a release");
    });
}

/// Its lease has ended when the answer comes, to a first try or to one after a message.
fn a_grant_that_is_late_is_no_lock(waits: bool) {
    let lease = ms(300);
    play_with(MINUTE, async |way| {
        if waits {
            way.hold_by_hand(MINUTE);
        }
        let lock = way.client.lock(NAME);
        let call = way.machine.spawn(async move { lock.lock_with_lease(lease).await });
        if waits {
            sleep(10 * AWAY).await;
            way.free_by_hand();
            // The message has come, and its request has not arrived.
            sleep(AWAY * 3 / 4).await;
        }
        way.flow(Direction::Down, Flow::Held);
        sleep(2 * AWAY).await;
        assert_eq!(way.scene.holds(NAME).len(), 1, "it has to be granted: that is the point");
        sleep(lease).await;
        way.flow(Direction::Down, Flow::Open);
        match call.await.expect("no panic") {
            Ok(guard) => assert!(guard.is_lost(), "it ended before anybody heard of it"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost),
        }
    });
}

#[test]
fn n4_a_grant_that_arrives_after_its_lease_is_no_lock() {
    a_grant_that_is_late_is_no_lock(false);
}

#[test]
fn i12_a_lease_that_ended_while_its_waiter_was_woken_is_no_lock() {
    a_grant_that_is_late_is_no_lock(true);
}

/// What keeps the renewals of one client, or whatever any client sends, from having an effect or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    NoRequest,
    NoAnswer,
    WritesPaused,
    ServerStopped,
}

/// It lasts for longer than a default and an explicit lease. Another client waits for both locks.
fn costs_the_lock_before_anybody_else_has_it(silence: Silence) {
    const LEASE: Duration = ms(3_000);
    play_with(LEASE, async |way| {
        let Scene { network, server, .. } = way.scene;
        let default = way.hold("default").await;
        sleep(LEASE * 2 / 5).await;
        let explicit = way.client.lock("explicit").lock_with_lease(LEASE).await.expect("the lock");
        let guards = [default, explicit].map(Arc::new);
        let successors = guards.clone().map(|before| {
            let lock = way.other.lock(before.name());
            tokio::spawn(async move {
                let guard = lock.lock().await.expect("riding out");
                assert!(before.is_lost(), "two holders");
                guard
            })
        });
        sleep(10 * AWAY).await;
        assert!(guards[0].remaining() > LEASE * 4 / 5, "it has been renewed");
        let deadlines = guards.each_ref().map(|guard| Instant::now() + guard.remaining());
        match silence {
            Silence::NoRequest => way.flow(Direction::Up, Flow::Held),
            Silence::NoAnswer => way.flow(Direction::Down, Flow::Held),
            Silence::WritesPaused => way.scene.ask(&["CLIENT", "PAUSE", "6000", "WRITE"]),
            Silence::ServerStopped => network.stop(*server),
        }
        for (guard, deadline) in guards.iter().zip(deadlines) {
            timeout(2 * LEASE, guard.lost()).await.expect("it is told");
            let late = Instant::now().checked_duration_since(deadline).expect("not before it");
            assert!(late <= ms(1), "{late:?}");
            if silence == Silence::NoAnswer && guard.name() == "default" {
                assert!(way.scene.pttl("default") > 500, "Redis has renewed it: that is the point");
                // The answers that were under way change nothing.
                way.flow(Direction::Down, Flow::Open);
            }
        }
        sleep(ms(6_000) - LEASE).await;
        let is_served = matches!(silence, Silence::NoRequest | Silence::NoAnswer);
        assert!(successors.iter().all(|successor| successor.is_finished() == is_served));
        way.scene.flow(&way.machine, Flow::Open);
        network.go_on(*server);
        sleep(RECOVERY).await;
        for (before, successor) in guards.into_iter().zip(successors) {
            let guard = timeout(ms(0), successor).await.expect("in time").expect("no panic");
            assert!(before.is_lost() && !guard.is_lost());
            let before = Arc::into_inner(before).expect("the only one");
            assert_eq!(before.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
            assert_eq!(way.scene.holds(guard.name()).len(), 1);
            guard.unlock().await.expect("a release");
        }
        assert!(way.scene.keys().is_empty());
    });
}

#[test]
fn n8_when_no_renewal_arrives_the_loss_is_known_before_anybody_else_has_the_lock() {
    costs_the_lock_before_anybody_else_has_it(Silence::NoRequest);
}

#[test]
fn n12_renewals_that_arrive_while_no_answer_does_do_not_count() {
    costs_the_lock_before_anybody_else_has_it(Silence::NoAnswer);
}

#[test]
fn s20_writes_paused_for_longer_than_the_lease_cost_the_lock_before_anybody_has_it() {
    costs_the_lock_before_anybody_else_has_it(Silence::WritesPaused);
}

#[test]
fn s21_a_server_stopped_for_longer_than_the_lease_costs_the_lock_before_anybody_has_it() {
    costs_the_lock_before_anybody_else_has_it(Silence::ServerStopped);
}

/// The request was in its buffers for longer than its lease and all tries to release it.
#[test]
fn s21_a_request_that_a_server_executes_when_it_goes_on_keeps_the_lock_from_nobody() {
    play_with(MINUTE, async |way| {
        let Scene { network, server, .. } = way.scene;
        for lease in [ms(5_000), ms(20_000)] {
            network.stop(*server);
            let lock = way.client.lock(NAME);
            unknown(lock.lock_with_lease(lease)).await;
            drop(lock);
            sleep(2 * lease).await;
            network.go_on(*server);
            sleep(AWAY).await;
            assert_eq!(way.scene.holds(NAME).len(), 1, "it has not executed it");
            way.is_free_within(RECOVERY, &[NAME]).await;
            let guard = way.other.lock(NAME).try_lock_now().await.expect("an answer");
            guard.expect("a free lock").unlock().await.expect("a release");
        }
    });
}

/// The undo pauses before its next try, long after its lease. It leaves the release to the call.
#[test]
fn s21_a_call_after_a_long_standstill_waits_for_no_pause_of_an_undo() {
    play_with(MINUTE, async |way| {
        let Scene { network, server, .. } = way.scene;
        let lock = way.client.lock(NAME);
        for after in moments(ms(5_000), 25) {
            network.stop(*server);
            unknown(lock.lock_with_lease(ms(1_000))).await;
            sleep(ms(20_000) + after).await;
            network.go_on(*server);
            while way.client.lock("warm").try_lock_now().await.is_err() {}
            let begun = Instant::now();
            let guard = lock.lock_with_lease(ms(1_000)).await.expect("the lock");
            // A try of the undo that began before may wait for the next dial: for half a second at most.
            assert!(begun.elapsed() <= ms(500) + 4 * AWAY, "{after:?}: {:?}", begun.elapsed());
            guard.unlock().await.expect("a release");
        }
    });
}

/// Each undo that goes on tries again and again: the client has places for so many.
#[test]
fn s21_of_the_requests_of_a_standstill_so_many_are_undone_and_the_others_last_for_their_leases() {
    const MANY: usize = 1_100;
    const PLACES: usize = 1_024;
    let lease = ms(10_000);
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(SECOND);
        let (machine, client) = scene.client(AWAY, options).await;
        scene.network.stop(scene.server);
        let call = |number: usize| {
            let lock = client.lock(number.to_string());
            async move { unknown(lock.lock_with_lease(lease)).await }
        };
        machine.run(join_all((0..MANY).map(call))).await;
        sleep(2 * lease).await;
        scene.network.go_on(scene.server);
        sleep(RECOVERY).await;
        assert_eq!(scene.keys().len(), MANY - PLACES);
        sleep(lease).await;
        assert_eq!(scene.keys(), [""; 0]);
    });
}

/// A standstill may last for ten minutes, and the client is gone.
#[test]
fn s21_the_thread_of_a_client_that_was_dropped_in_a_standstill_ends_with_the_lease() {
    play(0, async |scene| {
        let (machine, client) = scene.client(AWAY, LockClient::builder()).await;
        scene.network.stop(scene.server);
        let lock = client.lock(NAME);
        let call = async { lock.lock_with_lease(ms(1_000)).await.map(drop) };
        machine.run(call).await.expect_err("no answer");
        drop((lock, client));
        sleep(ms(15_000)).await;
        let made = scene.network.connections_made();
        sleep(ms(60_000)).await;
        assert_eq!(scene.network.connections_made(), made, "it connects and connects");
    });
}

/// The server is silent, and one deadline after the other passes.
#[test]
fn calls_whose_deadlines_pass_one_by_one_do_not_wake_each_other() {
    play(0, async |scene| {
        let many: usize = 400;
        let options = LockClient::builder().command_timeout(SECOND);
        let (machine, client) = scene.client(ms(2), options).await;
        // Not in a batch, which has one deadline.
        let lock = Arc::new(client.fair_lock("silent"));
        assert!(!lock.is_locked().await.expect("an answer"));
        let polls = Arc::new(AtomicUsize::new(0));
        scene.network.stop(scene.server);
        let mut calls = Vec::new();
        for _ in 0..many {
            let (lock, polls) = (lock.clone(), polls.clone());
            calls.push(machine.spawn(async move {
                let mut call = pin!(lock.is_locked());
                let counted = poll_fn(|cx| {
                    polls.fetch_add(1, Relaxed);
                    call.as_mut().poll(cx)
                });
                counted.await.map_err(|error| error.kind())
            }));
            sleep(ms(1)).await;
        }
        for call in calls {
            assert_eq!(call.await.expect("no panic"), Err(ErrorKind::Unavailable));
        }
        let each = polls.load(Relaxed) / many;
        assert!(each <= 10, "each was polled {each} times");
    });
}
