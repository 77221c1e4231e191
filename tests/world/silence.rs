//! Requests arrive, or vanish, and no answer comes: rows N3, N12 and N13, in virtual time.

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
