//! W11: an `unlock` that is polled once, and then parked for ever, dropped, or forgotten.

use std::task::Poll;

use futures::FutureExt;
use redlatch::Loss;
use redlatch::simulation::Fates;
use tokio::time::sleep_until;
use tokio_test::task;

use crate::prelude::*;

const LEASE: Duration = ms(3_000);

fn an_unlock_is_polled_once(away: Duration, becomes: &str) {
    let (name, case) = ("once", format!("{away:?}, {becomes}"));
    play(0, async |scene| {
        let (machine, client) =
            scene.client(away, LockClient::builder().watchdog_timeout(LEASE)).await;
        let (old, new) = (client.lock(name), client.lock(name));
        let guard = old.lock().await.expect("the lock");
        let owner = guard.owner().to_owned();
        let taking = machine.spawn(async move { (new.lock().await, new) });
        sleep(8 * away + ms(10)).await;
        assert_eq!(scene.subscribers(name), 1, "it is parked");

        let mut unlocking = task::spawn(guard.unlock().boxed());
        assert!(matches!(unlocking.poll(), Poll::Pending), "no answer can be here yet");
        let _parked = match becomes {
            "parked" => Some(unlocking),
            "dropped" => {
                drop(unlocking);
                None
            }
            _ => {
                std::mem::forget(unlocking);
                None
            }
        };
        let (guard, new) = taking.await.expect("no panic");
        let guard = guard.expect("the lock");
        sleep(2 * away + ms(10)).await;
        for _ in 0..30 {
            assert!(!guard.is_lost(), "{case}: the new holder lost it");
            assert_eq!(Vec::from_iter(scene.holds(name)), [(owner.clone(), 1)], "{case}");
            sleep(LEASE / 20).await;
        }
        guard.unlock().await.expect("a release");
        // Both handles are of use, again and again.
        for lock in [&old, &new, &old, &new] {
            lock.lock().await.expect("the lock").unlock().await.expect("a release");
        }
        assert!(scene.holds(name).is_empty(), "{case}: something is left");
        timeout(4 * away + ms(100), client.close()).await.expect("closing is prompt");
    });
}

#[test]
fn w11_an_unlock_that_is_polled_once_hands_the_lock_over_however_far_redis_is() {
    for away in [0, 2, 100].map(ms) {
        for becomes in ["parked", "dropped", "forgotten"] {
            an_unlock_is_polled_once(away, becomes);
        }
    }
}

/// It waits for the answer about a hand-off before it, and nobody polls it any more.
#[test]
fn w11_an_unlock_that_is_polled_once_behind_a_hand_off_keeps_the_lock_from_nobody() {
    for away in [2, 100].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (beside, other) = scene.client(away, LockClient::builder()).await;
            let guard = machine.run(client.fair_lock("turn").lock()).await.expect("the lock");
            let next = client.fair_lock("turn");
            let next = machine.spawn(async move { next.lock().await.expect("the lock") });
            sleep(4 * away).await;
            let waits = waiting_for(&beside, other.fair_lock("turn"));
            sleep(4 * away).await;
            let first = machine.spawn(guard.unlock());
            let guard = next.await.expect("no panic");
            // The request about the hand-off is under way.
            sleep(away / 2).await;
            let mut unlocking = task::spawn(guard.unlock().boxed());
            assert!(unlocking.poll().is_pending(), "there was nothing to wait for");
            let unlocked = Instant::now();
            let (guard, had) = waits.await.expect("no panic");
            assert!(had - unlocked <= 4 * away, "{away:?}: {:?}", had - unlocked);
            first.await.expect("no panic").expect("its hold was there");
            unlocking.await.expect("its hold was there");
            beside.run(guard.unlock()).await.expect("a release");
        });
    }
}

/// The request about a hand-off is late by so much that its possession has ended. The next one has another owner.
#[test]
fn what_is_late_about_a_hand_off_changes_no_later_hold() {
    let (name, away) = ("late", ms(10));
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(ms(200));
        let (machine, client) = scene.client(away, options).await;
        let (first, next) = (client.lock(name), client.lock(name));
        let guard = first.lock().await.expect("the lock");
        let next = machine.spawn(async move { next.lock_with_lease(ms(150)).await });
        sleep(8 * away).await;
        scene.trap_script(&machine, &scripts::update(), Fate::HeldFor(ms(900)));
        drop(guard);
        let next = next.await.expect("no panic").expect("the lock");
        wait_until("the request is on its way", MINUTE, || scene.network.fates().held == 1).await;
        drop(next);
        let guard = loop {
            if let Ok(Some(guard)) = first.try_lock_now().await {
                break guard;
            }
        };
        let held = Fates { held: 1, ..Fates::default() };
        assert_eq!(scene.network.fates(), held, "no request was late");
        // Nor does it carry those along to whom the lock goes from there.
        let last = waiting_for(&machine, client.lock(name));
        sleep(8 * away).await;
        drop(guard);
        let (guard, _) = last.await.expect("no panic");
        while scene.network.fates() == held {
            sleep(ms(10)).await;
        }
        sleep(away).await;
        assert_eq!(Vec::from_iter(scene.holds(name)), [(guard.owner().to_owned(), 1)]);
        assert!(scene.pttl(name) > 10_000, "{} ms", scene.pttl(name));
        guard.unlock().await.expect("a release");
    });
}

/// Redis does not answer the first request about a hand-off. When it answers the second, the lease has ended that the
/// first one left to a nested hold. So the client cannot tell whether the outer hold was there to its end.
#[test]
fn a_hold_that_may_have_been_there_to_its_end_is_not_called_lost() {
    let (name, away) = ("twice", ms(20));
    play(0, async |scene| {
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        let (first, next) = (client.lock(name), client.lock(name));
        let guard = first.lock().await.expect("the lock");
        let next = machine.spawn(async move {
            let outer = next.lock().await.expect("the lock");
            let inner = next.lock_with_lease(ms(60)).await.expect("a nested hold");
            (outer.unlock().await, inner.unlock().await)
        });
        sleep(8 * away).await;
        scene.trap_script(&machine, &scripts::update(), Fate::AnswerLost);
        let first = guard.unlock().await;
        let (outer, inner) = next.await.expect("no panic");
        for (which, unlocked) in [("the first hold", first), ("the outer hold", outer)] {
            let error = unlocked.expect_err(which);
            let expected = (ErrorKind::Unavailable, Outcome::Unknown);
            assert_eq!((error.kind(), error.outcome()), expected, "{which}: {error:#}");
        }
        assert_eq!(inner.expect_err("its lease has ended").kind(), ErrorKind::Lost);
        assert_eq!(client.stats().losses, 1, "of the inner hold, and it knows of no other");
        assert_eq!(scene.network.remove_traps(&machine, scene.server), 0, "each answer came");
    });
}

/// Redis does not answer a release that leaves a nested hold. The next request comes when the lease of that has ended: what
/// it finds says nothing of the outer hold.
#[test]
fn n6_a_hold_is_not_called_lost_behind_an_unanswered_release_that_leaves_a_shorter_one() {
    let (name, away) = ("shorter", ms(40));
    for is_dropped in [true, false] {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let lock = client.lock(name);
            let outer = lock.lock().await.expect("the lock");
            let inner = lock.lock_with_lease(ms(60)).await.expect("a nested hold");
            scene.trap_script(&machine, &scripts::update(), Fate::AnswerLost);
            let unlocking = machine.spawn(async move { outer.unlock().await });
            sleep(away / 4).await;
            let kept = if is_dropped { None } else { Some(inner) };
            unlocking.await.expect("no panic").expect("its release was executed");
            let losses = u64::from(kept.is_some_and(|inner| inner.is_lost()));
            assert_eq!(client.stats().losses, losses, "it counts a loss that it does not know of");
            assert_eq!(scene.network.remove_traps(&machine, scene.server), 0, "each answer came");
            assert!(scene.holds(name).is_empty());
        });
    }
}

/// The lease of the next holder ends before Redis has heard that it has the lock, and its guard lives on. Who gave the lock
/// back before has the answer to the release.
#[test]
fn an_unlock_hears_of_its_hold_although_the_next_one_has_run_out() {
    let (name, away) = ("runs out", ms(300));
    play(0, async |scene| {
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        let [first, second, third] = [(); 3].map(|()| client.lock(name));
        let guard = first.lock().await.expect("the lock");
        let waiting = waiting_for(&machine, second);
        sleep(4 * away).await;
        let last = machine.spawn(async move { third.lock_with_lease(ms(200)).await });
        sleep(4 * away).await;
        let first = machine.spawn(guard.unlock());
        let (guard, _) = waiting.await.expect("no panic");
        sleep(ms(10)).await;
        let begun = Instant::now();
        let second = machine.spawn(guard.unlock());
        let kept = last.await.expect("no panic").expect("a turn");
        first.await.expect("no panic").expect("its hold was there");
        second.await.expect("no panic").expect("its hold was there");
        assert!(begun.elapsed() <= 3 * away, "{:?}", begun.elapsed());
        drop(kept);
    });
}

/// It waits with a request for a nested hold until Redis has heard that the lock went to the other call of its handle.
#[test]
fn a_call_that_is_handed_the_lock_while_it_is_about_to_nest_takes_that() {
    for away in [20, 100].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let guard = client.lock("nests").lock().await.expect("the lock");
            let owner = guard.owner().to_owned();
            let lock = Arc::new(client.lock("nests"));
            let call =
                |lock: Arc<Lock>| async move { (lock.lock().await.unwrap(), Instant::now()) };
            let mut first = task::spawn(machine.run(call(lock.clone())).boxed());
            assert!(first.poll().is_pending());
            sleep(10 * away).await;
            assert!(first.poll().is_pending());
            let second = machine.spawn(call(lock));
            sleep(10 * away).await;

            let begun = Instant::now();
            let unlocking = machine.spawn(guard.unlock());
            sleep(away / 4).await;
            let Poll::Ready((guard, _)) = first.poll() else {
                panic!("it was not handed the lock")
            };
            sleep(away / 4).await;
            guard.unlock().await.expect("a release");
            let (guard, granted) = second.await.expect("no panic");
            assert!(granted - begun < away, "{away:?}: it asked, after {:?}", granted - begun);
            unlocking.await.expect("no panic").expect("a release");
            sleep(4 * away).await;
            assert_eq!(Vec::from_iter(scene.holds("nests")), [(owner, 1)], "{away:?}");
            guard.unlock().await.expect("a release");
            assert!(scene.holds("nests").is_empty());
        });
    }
}

/// Somebody deletes the key, a renewal finds that out, and the request about the hand-off is never answered: no answer says
/// that the hold was there to its end.
#[test]
fn an_unlock_fails_if_a_renewal_finds_the_lock_gone_beside_the_hand_off() {
    let (name, away) = ("gone", ms(20));
    for moment in (890..950).map(ms) {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(LEASE);
            let (machine, client) = scene.client(away, options).await;
            let (old, new) = (client.lock(name), client.lock(name));
            let begun = Instant::now();
            let guard = old.lock().await.expect("the lock");
            let next = machine.spawn(async move { new.lock().await });
            sleep_until(begun + moment - ms(5)).await;
            scene.ask::<()>(&["DEL", name]);
            scene.trap_script(&machine, &scripts::update(), Fate::HeldFor(ms(2_000)));
            sleep_until(begun + moment).await;
            let error = guard.unlock().await.expect_err("an error");
            let next = next.await.expect("no panic").expect("a hand-off");
            next.lost().await;
            let said = (error.kind(), error.outcome());
            assert_eq!(said, (ErrorKind::Unavailable, Outcome::Unknown), "{moment:?}");
            assert_eq!(next.loss(), Some(Loss::KeyGone), "{moment:?}: the renewal found it");
        });
    }
}

/// The first of two hand-offs is not answered, and the request after that is about both. A renewal finds out that the key is
/// gone, which an operator deleted before the second call gave its hold back.
#[test]
fn an_unlock_fails_if_a_renewal_finds_the_lock_gone_beside_the_second_of_two_hand_offs() {
    let (name, away) = ("gone", ms(20));
    for moment in (20..1_400).step_by(20).map(ms) {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(LEASE);
            let (machine, client) = scene.client(away, options).await;
            let [first, second, third] = [(); 3].map(|()| client.lock(name));
            let begun = Instant::now();
            let guard = first.lock().await.expect("the lock");
            let next = machine.spawn(async move { second.lock().await });
            sleep(ms(1)).await;
            let last = machine.spawn(async move { third.lock().await });
            for _ in 0..4 {
                scene.trap_script(&machine, &scripts::update(), Fate::HeldFor(ms(10_000)));
            }
            sleep_until(begun + moment).await;
            let first = machine.spawn(guard.unlock());
            let guard = next.await.expect("no panic").expect("a hand-off");
            sleep(ms(300)).await;
            scene.ask::<()>(&["DEL", name]);
            let second = machine.spawn(guard.unlock());
            let guard = last.await.expect("no panic").expect("a hand-off");
            guard.lost().await;
            let _ = first.await.expect("no panic");
            let unlocked = second.await.expect("no panic");
            assert!(unlocked.is_err(), "{moment:?}");
        });
    }
}
