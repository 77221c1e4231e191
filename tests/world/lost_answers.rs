//! One command's way there or back is lost (rows N1, N2, N6, N7 and N9), or its
//! caller gives up when its answer comes (C1 and C3). Whatever the server has done by
//! then, the caller's count and Redis's count agree in the end, and no error is told that did not happen.

use tokio_test::task;

use crate::outages::{AWAY, NAME, RECOVERY, Way, play_with};
use crate::prelude::*;

/// Before the server has it, and after the server has executed it.
const FATES: [Fate; 2] = [Fate::Lost, Fate::AnswerLost];

fn for_each_fate(scenario: impl AsyncFn(&Way<'_>, Fate)) {
    for fate in FATES {
        play_with(2 * MINUTE, async |way| {
            scenario(way, fate).await;
            assert_eq!(way.scene.network.remove_traps(&way.machine, way.scene.server), 0);
        });
    }
}

impl Way<'_> {
    /// The next request of the client has that fate.
    fn trap(&self, fate: Fate) {
        self.scene.trap(&self.machine, fate);
    }

    /// The server has forgotten its scripts, and the next time that the client loads one has that fate.
    fn trap_load(&self, fate: Fate) {
        self.scene.ask::<()>(&["SCRIPT", "FLUSH"]);
        let load = "SCRIPT\r\n$4\r\nLOAD";
        self.scene.network.set_trap(&self.machine, self.scene.server, load, 0, fate);
    }

    fn count(&self, name: &str) -> u32 {
        self.scene.holds(name).values().sum()
    }
}

#[track_caller]
fn failed<T>(result: Result<T, Error>) -> (ErrorKind, Outcome) {
    let Err(error) = result else { panic!("Redis could not be reached") };
    (error.kind(), error.outcome())
}

#[test]
fn n1_an_acquire_that_was_executed_and_not_answered_is_granted_once_by_the_retry() {
    for_each_fate(async |way, fate| {
        let (lock, before) = (way.client.lock(NAME), way.scene.calls("evalsha"));
        way.trap(fate);
        let outer = lock.lock().await.expect("the lock");
        let executions = if fate == Fate::AnswerLost { 2 } else { 1 };
        assert_eq!(way.scene.calls("evalsha") - before, executions);
        assert_eq!(way.count(NAME), 1);
        way.trap(fate);
        let inner = lock.lock().await.expect("a nested hold");
        assert_eq!(way.count(NAME), 2, "{fate:?}");
        inner.unlock().await.expect("a release");
        assert_eq!(way.count(NAME), 1, "{fate:?}");
        outer.unlock().await.expect("a release");
        assert!(way.scene.keys().is_empty(), "{fate:?}");
    });
}

/// Their scripts are others. The token of the hold is the last one that was drawn.
#[test]
fn n1_a_fair_or_a_fenced_lock_is_held_once_and_given_back_once() {
    for_each_fate(async |way, fate| {
        let (fair, fenced) = (way.client.fair_lock(NAME), way.client.fenced_lock("fenced"));
        way.trap(fate);
        let guard = fair.lock().await.expect("the lock");
        assert_eq!(way.count(NAME), 1, "{fate:?}");
        way.trap(fate);
        guard.unlock().await.expect("a release");
        for _ in 0..2 {
            way.trap(fate);
            let guard = fenced.lock().await.expect("the lock");
            let last: u64 = way.scene.ask(&["GET", "redisson_lock_token:{fenced}"]);
            assert_eq!((way.count("fenced"), guard.token().get()), (1, last), "{fate:?}");
            guard.unlock().await.expect("a release");
        }
        assert_eq!(way.scene.keys(), ["redisson_lock_token:{fenced}"], "{fate:?}");
    });
}

/// The refusal to the second sending says nothing of what the first one was granted.
#[test]
fn n1_locks_that_were_granted_together_are_undone_if_the_retry_is_refused() {
    play_with(MINUTE, async |way| {
        let all = way.client.multi_lock([NAME, "second"]);
        way.refuse(true);
        way.trap(Fate::AnswerLost);
        let tried = way.machine.spawn(async move { all.try_lock_now().await });
        sleep(2 * AWAY).await;
        assert_eq!((way.count(NAME), way.count("second")), (1, 1));
        way.scene.ask::<()>(&["DEL", NAME]);
        way.hold_by_hand(MINUTE);
        way.refuse(false);
        assert!(tried.await.expect("no panic").expect("an answer").is_none());
        way.is_free_within(4 * AWAY, &["second"]).await;
        assert_eq!(Vec::from_iter(way.scene.holds(NAME)), [("somebody:1".to_owned(), 1)]);
    });
}

#[test]
fn n2_an_acquire_that_never_arrived_and_cannot_be_retried_leaves_no_key() {
    play_with(MINUTE, async |way| {
        let (lock, other) = (way.client.lock(NAME), way.client.lock("other"));
        way.refuse(true);
        way.trap(Fate::Lost);
        // It was sent. How far it came, nobody here can know.
        assert_eq!(failed(lock.try_lock_now().await), (ErrorKind::Unavailable, Outcome::Unknown));
        // This one is not sent at all, because the connection is known to be gone.
        let made = way.made();
        let error = failed(other.try_lock_now().await);
        assert_eq!(error, (ErrorKind::Unavailable, Outcome::NotExecuted));
        assert!(way.made() > made, "it did not try to connect");
        assert!(way.scene.keys().is_empty());
        way.refuse(false);
        for lock in [lock, other] {
            lock.lock().await.expect("the lock").unlock().await.expect("a release");
        }
        assert!(way.scene.keys().is_empty());
    });
}

#[test]
fn n6_a_lost_release_is_no_error_and_frees_once() {
    for_each_fate(async |way, fate| {
        let lock = way.client.lock(NAME);
        let [outer, middle, inner] =
            [lock.lock().await.unwrap(), lock.lock().await.unwrap(), lock.lock().await.unwrap()];
        let published = way.scene.calls("publish");
        way.trap(fate);
        inner.unlock().await.expect("a release");
        assert_eq!(way.count(NAME), 2, "{fate:?}");
        way.trap(fate);
        drop(middle);
        sleep(RECOVERY).await;
        assert_eq!(way.count(NAME), 1, "{fate:?}");
        assert_eq!(way.scene.calls("publish"), published);
        assert!(!outer.is_lost());
        way.trap(fate);
        outer.unlock().await.expect("the lock was held and is free");
        assert!(way.scene.keys().is_empty(), "{fate:?}");
        assert_eq!(way.scene.calls("publish"), published + 1, "{fate:?}");
    });
}

#[test]
fn n6_a_release_that_is_made_again_behind_a_new_owner_is_no_error_and_harms_nobody() {
    play_with(MINUTE, async |way| {
        let guard = way.hold(NAME).await;
        way.refuse(true);
        way.trap(Fate::AnswerLost);
        let unlocking = way.machine.spawn(guard.unlock());
        sleep(2 * AWAY).await;
        assert!(way.scene.keys().is_empty(), "it was executed: that is the point");
        way.hold_by_hand(MINUTE);
        way.refuse(false);
        let unlocked = unlocking.await.expect("no panic");
        unlocked.expect("what the retry finds is no news of this hold");
        assert_eq!(Vec::from_iter(way.scene.holds(NAME)), [("somebody:1".to_owned(), 1)]);
    });
}

#[test]
fn n7_a_lost_renewal_is_made_again_and_loses_nothing() {
    for fate in FATES {
        play_with(ms(3_000), async |way| {
            let (guard, made) = (way.hold(NAME).await, way.made());
            way.trap(fate);
            // The lease that was in force has ended by then.
            assert!(timeout(ms(3_000), guard.lost()).await.is_err(), "{fate:?}");
            assert_eq!(way.made(), made + 1, "no renewal was lost");
            guard.unlock().await.expect("a release");
            assert!(way.scene.keys().is_empty());
        });
    }
}

/// That which tells Redis of a hand-off: then the next holder has a lease of its own. If there is no answer, the client
/// cannot say that the first hold was there to its end.
#[test]
fn a_hand_off_whose_request_fails_is_told_to_redis_again() {
    for fate in [Fate::Lost, Fate::AnswerLost, Fate::HeldFor(MINUTE)] {
        play_with(2 * MINUTE, async |way| {
            let guard = way.client.lock(NAME).lock_with_lease(ms(15_000)).await.expect("the lock");
            let next = way.parked(Duration::MAX).await;
            let theirs = tokio::spawn({
                let lock = way.other.lock(NAME);
                async move { lock.lock().await }
            });
            sleep(10 * AWAY).await;
            way.trap(fate);
            let unlocked = guard.unlock().await;
            let guard = next.await.expect("no panic").0.expect("an answer").expect("a hand-off");
            match fate {
                Fate::HeldFor(_) => {
                    assert_eq!(failed(unlocked), (ErrorKind::Unavailable, Outcome::Unknown));
                }
                _ => unlocked.expect("it is sent again"),
            }
            sleep(RECOVERY).await;
            assert!(guard.remaining() > ms(20_000), "{fate:?}: {:?}", guard.remaining());
            assert!(way.count(NAME) == 1 && !theirs.is_finished(), "{fate:?}");
            guard.unlock().await.expect("a release");
            theirs.await.expect("no panic").expect("their turn").unlock().await.expect("a release");
            assert!(way.scene.keys().is_empty(), "{fate:?}");
        });
    }
}

#[test]
fn n9_a_lost_subscription_is_made_again() {
    for_each_fate(async |way, fate| {
        way.hold_by_hand(MINUTE);
        let made = way.made();
        way.scene.network.set_trap(&way.machine, way.scene.server, "SUBSCRIBE", 0, fate);
        let waiter = waiting_for(&way.machine, way.client.lock(NAME));
        sleep(ms(500)).await;
        assert!(way.made() > made && way.scene.subscribers(NAME) == 1, "{fate:?}");
        way.free_by_hand();
        let (guard, _) = timeout(4 * AWAY, waiter).await.expect("its turn").expect("no panic");
        guard.unlock().await.expect("a release");
    });
}

#[test]
fn n12_a_wait_that_ends_in_an_outage_is_unknown_if_one_of_its_tries_was_executed() {
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(ms(1_000)).outage_limit(ms(3_000));
        let (machine, client) = scene.client(AWAY, options).await;
        let way = Way { scene, machine, other: client.clone(), client };
        // It asks before it takes the silence for an outage.
        way.hold_by_hand(ms(1_200));
        let waiting = way.parked(Duration::MAX).await;
        way.flow(Direction::Down, Flow::Held);
        let error = failed(waiting.await.expect("no panic").0);
        assert_eq!(error, (ErrorKind::Unavailable, Outcome::Unknown));
        assert_eq!(way.count(NAME), 1, "no try was executed");
        way.recover();
        way.is_free_within(RECOVERY, &[NAME]).await;
    });
}

#[test]
fn a_call_under_way_at_a_close_finds_a_new_connection_after_a_cut() {
    play_with(MINUTE, async |way| {
        let guard = way.hold(NAME).await;
        way.trap(Fate::AnswerLost);
        let unlocking = way.machine.spawn(guard.unlock());
        sleep(AWAY / 2).await;
        way.client.close().await;
        assert!(!unlocking.is_finished(), "its answer is not lost yet: that is the point");
        unlocking.await.expect("no panic").expect("it was sent again");
        assert!(way.scene.keys().is_empty());
    });
}

/// An undo that waited for the answer would come too late.
#[test]
fn c1_an_acquire_dropped_while_its_answer_is_on_its_way_leaves_the_lock_free() {
    play_with(MINUTE, async |way| {
        let lock = way.client.lock(NAME);
        way.flow(Direction::Down, Flow::Held);
        let mut call = task::spawn(way.machine.run(lock.lock()));
        assert!(call.poll().is_pending());
        sleep(2 * AWAY).await;
        assert_eq!(way.count(NAME), 1, "it has to be granted: that is the point");
        drop(call);
        way.is_free_within(2 * AWAY, &[NAME]).await;
        way.flow(Direction::Down, Flow::Open);
        // The handle is none the worse for it.
        lock.lock().await.expect("the lock").unlock().await.expect("a release");
        assert!(way.scene.keys().is_empty());
    });
}

/// A request that Redis has refused because it does not know the script has done nothing, whatever becomes of loading it.
#[test]
fn n6_a_lost_lock_is_not_called_released_if_the_connection_breaks_while_a_script_is_loaded() {
    let names = ["a", "b", "c", "d", "e", "f"];
    // One goes alone, and several share a call.
    for many in [1, names.len()] {
        for_each_fate(async |way, fate| {
            let mut guards = Vec::new();
            for name in &names[..many] {
                guards.push(way.hold(name).await);
            }
            way.scene.ask::<()>(&["FLUSHALL"]);
            way.trap_load(fate);
            let unlocked =
                way.machine.run(join_all(guards.into_iter().map(LockGuard::unlock))).await;
            let kinds = unlocked.into_iter().map(|unlocked| unlocked.map_err(|error| error.kind()));
            assert_eq!(Vec::from_iter(kinds), vec![Err(ErrorKind::Lost); many], "{fate:?}");
        });
    }
}

#[test]
fn n6_what_redis_has_refused_is_executed_once_if_the_connection_breaks_while_the_script_is_loaded()
{
    for_each_fate(async |way, fate| {
        let guard = way.hold(NAME).await;
        way.trap_load(fate);
        let increase = redis::pipe().incr("written", 1).clone();
        let written: (u32,) = guard.execute(&increase).await.expect("an answer");
        assert_eq!(written, (1,), "{fate:?}");
    });
}

/// The lock is free, or its holder gives it back while the call asks.
#[test]
fn c3_a_call_that_loses_a_race_at_its_grant_has_a_guard_or_leaves_the_name_free() {
    for (away, is_held) in [(2, false), (2, true), (100, false), (100, true)] {
        let (away, mut granted, mut undone) = (ms(away), 0, 0);
        for patience in moments(8 * away, 64) {
            play(0, async |scene| {
                let (machine, client) = scene.client(away, LockClient::builder()).await;
                let (lock, other) = (client.lock(NAME), client.lock(NAME));
                let holder = match is_held {
                    true => Some(machine.run(other.lock()).await.expect("the lock")),
                    false => None,
                };
                machine.spawn(async move {
                    sleep(away / 4).await;
                    drop(holder);
                });
                let case = format!("{away:?}, {is_held}, {patience:?}");
                if let Ok(guard) = timeout(patience, machine.run(lock.lock())).await {
                    granted += 1;
                    let guard = guard.expect("the lock");
                    assert!(scene.holds(NAME).into_values().eq([1]), "{case}");
                    guard.unlock().await.expect("a release");
                } else {
                    sleep(2 * away).await;
                    undone += scene.calls("hset") - u64::from(is_held);
                }
                assert!(scene.holds(NAME).is_empty(), "{case}");
                let again =
                    timeout(2 * away, machine.run(lock.try_lock_now())).await.expect("in time");
                again.expect("an answer").expect("it is free").unlock().await.expect("a release");
            });
        }
        assert!(granted > 0 && (is_held || undone > 0), "no race: {granted}, {undone}");
    }
}

/// Sent again, it would free the hold of the owner that has the lock by then.
#[test]
fn n2_a_force_unlock_that_was_executed_and_not_answered_is_not_sent_again() {
    for kind in ["plain", "fair", "read-write"] {
        play_with(2 * MINUTE, async |way| {
            let owned_by = |owner: &str| {
                let fields: &[&str] = match kind {
                    "read-write" => &["mode", "write", owner, "1"],
                    _ => &[owner, "1"],
                };
                way.scene.ask::<()>(&[&["HSET", NAME], fields].concat());
            };
            owned_by("dead:1");
            way.trap(Fate::AnswerLost);
            let client = way.client.clone();
            let forcing = way.machine.spawn(async move {
                match kind {
                    "plain" => client.lock(NAME).force_unlock().await,
                    "fair" => client.fair_lock(NAME).force_unlock().await,
                    _ => client.read_write_lock(NAME).force_unlock().await,
                }
            });
            while !way.scene.keys().is_empty() {
                sleep(ms(1)).await;
            }
            owned_by("alive:2");
            let forced = forcing.await.expect("no panic");
            assert_eq!(failed(forced), (ErrorKind::Unavailable, Outcome::Unknown), "{kind}");
            sleep(RECOVERY).await;
            assert_eq!(way.scene.keys(), [NAME], "{kind}: the next owner has lost it");
            assert_eq!(way.scene.network.remove_traps(&way.machine, way.scene.server), 0);
        });
    }
}
