//! A release that the old primary confirmed and the new one has not heard of: row W26.

use super::group::{Group, failed_over};
use crate::in_memory::PanicsAt;
use crate::prelude::*;

/// Another client, of which the first knows nothing, has the lock soon.
async fn another_gets(group: &Group<'_>, name: &str) {
    let other = group.connect(group.builder()).await;
    // After a grant by a release the client waits for as long as its message may be on its way.
    let soon = if name == "turn" { 2 * SECOND } else { SECOND };
    let guard = timeout(soon, other.lock(name).lock()).await.expect("the lock, soon");
    guard.expect("the lock").unlock().await.expect("a release");
}

/// The replicas have heard of all up to now, and of nothing from here on.
async fn replicas_are_cut_off(group: &Group<'_>) {
    sleep(ms(10)).await;
    group.lags(MINUTE);
}

#[test]
fn w26_a_release_that_the_new_primary_missed_keeps_nobody_out() {
    failed_over(async |group, client| {
        let [kept, dropped] = [client.lock("kept"), client.lock("dropped")];
        let guards = [kept.lock().await.unwrap(), dropped.lock().await.unwrap()];
        replicas_are_cut_off(group).await;
        for guard in guards {
            guard.unlock().await.expect("a release");
        }
        // Of this handle nothing is left in the client but the name.
        drop(dropped);
        group.fail_over(1);
        assert_eq!(group.ask::<u64>(1, &["EXISTS", "kept", "dropped"]), 2, "it has heard of it");
        another_gets(group, "kept").await;
        another_gets(group, "dropped").await;
    });
}

/// What the task had to do is done by no other.
#[test]
fn w26_a_client_whose_look_for_missed_releases_has_panicked_is_closed() {
    let _on = PanicsAt::on(|said| said.contains("has missed a release"));
    failed_over(async |group, client| {
        let guard = client.lock("kept").lock().await.unwrap();
        replicas_are_cut_off(group).await;
        guard.unlock().await.expect("a release");
        group.fail_over(1);
        sleep(5 * SECOND).await;
        assert!(client.health().is_closed);
    });
}

/// Redis has made the ids of these possessions: the new primary knows the last one, or one before that.
#[test]
fn w26_a_missed_release_of_a_fair_lock_that_came_with_a_message_keeps_nobody_out() {
    for releases in [1, 2] {
        failed_over(async |group, client| {
            let other = group.connect(group.builder()).await;
            for release in 0..releases {
                let before = other.fair_lock("turn").lock().await.unwrap();
                let lock = client.fair_lock("turn");
                let waiter = Machine::spawn_here(async move { lock.lock().await });
                sleep(ms(100)).await;
                before.unlock().await.expect("a release");
                let guard = waiter.await.expect("no panic").expect("the lock");
                if release == 0 {
                    replicas_are_cut_off(group).await;
                }
                guard.unlock().await.expect("a release");
            }
            group.fail_over(1);
            let holder: Vec<String> = group.ask(1, &["HKEYS", "turn"]);
            assert!(holder.concat().contains(":-"), "granted by a release: {holder:?}");
            another_gets(group, "turn").await;
        });
    }
}

/// Those of other clients stay.
#[test]
fn w26_a_missed_release_of_one_of_many_readers_keeps_no_writer_out() {
    failed_over(async |group, client| {
        let mut others = Vec::new();
        for _ in 0..8 {
            let other = group.connect(group.builder()).await;
            others.push(other.read_write_lock("config").read().await.expect("to read"));
        }
        let guard = client.read_write_lock("config").read().await.expect("to read");
        let owner = guard.owner().to_owned();
        replicas_are_cut_off(group).await;
        guard.unlock().await.expect("a release");
        group.fail_over(1);
        assert!(group.ask::<bool>(1, &["HEXISTS", "config", &owner]), "it has heard of it");
        sleep(SECOND).await;
        let fields: Vec<String> = group.ask(1, &["HKEYS", "config"]);
        assert!(!fields.contains(&owner) && fields.len() == 9, "{fields:?}");
        for other in others {
            other.unlock().await.expect("a release");
        }
        let lock = client.read_write_lock("config");
        let writer = timeout(SECOND, lock.write()).await.expect("the lock, soon");
        writer.expect("the lock").unlock().await.expect("a release");
    });
}

/// The new primary still counts the hold, and its handle is gone.
#[test]
fn a_lock_that_stays_until_a_time_stays_until_then_at_a_primary_that_missed_its_release() {
    failed_over(async |group, client| {
        let names = ["noticed", "asked for"];
        let guards = [client.lock(names[0]).lock().await, client.lock(names[1]).lock().await];
        replicas_are_cut_off(group).await;
        for guard in guards {
            let guard = guard.unwrap();
            guard.hold_at_least(MINUTE);
            guard.unlock().await.expect("a release");
        }
        let released = Instant::now();
        group.fail_over(1);
        let tried = client.lock(names[1]).try_lock_now().await;
        assert!(!tried.is_ok_and(|guard| guard.is_some()), "this client did not wait");
        sleep(SECOND).await;
        for name in names {
            let left: u64 = group.ask(1, &["PTTL", name]);
            let rest = MINUTE - released.elapsed();
            assert!(ms(left).abs_diff(rest) < SECOND, "{name}: {left} ms, {rest:?} of the minute");
        }
    });
}

/// A call of the same client came meanwhile, and was dropped when it had asked.
#[test]
fn a_lock_that_stays_until_a_time_is_not_cut_short_by_a_call_that_gave_up() {
    failed_over(async |group, client| {
        let guard = client.lock("stays").lock().await.unwrap();
        guard.hold_at_least(MINUTE);
        guard.unlock().await.expect("a release");
        let released = Instant::now();
        let other = client.lock("stays");
        let mut call = Box::pin(other.lock());
        assert!(futures::poll!(&mut call).is_pending());
        drop(call);
        sleep(SECOND).await;
        group.fail_over(1);
        sleep(SECOND).await;
        let left: u64 = group.ask(1, &["PTTL", "stays"]);
        let rest = MINUTE - released.elapsed();
        assert!(ms(left).abs_diff(rest) < SECOND, "{left} ms, {rest:?} of the minute");
    });
}

#[test]
fn w26_a_hand_off_of_which_the_new_primary_never_heard_loses_nothing() {
    failed_over(async |group, client| {
        let first = client.lock("handed").lock().await.unwrap();
        let owner = first.owner().to_owned();
        replicas_are_cut_off(group).await;
        let second = client.lock("handed");
        let waiter = Machine::spawn_here(async move { second.lock().await });
        sleep(ms(100)).await;
        first.unlock().await.expect("a release");
        let second = waiter.await.expect("no panic").expect("the lock");
        assert_eq!(second.owner(), owner, "it was to be handed off");
        group.fail_over(1);
        sleep(MINUTE).await;
        assert!(!second.is_lost(), "the new primary has it for the same owner");
        second.unlock().await.expect("a release");
        another_gets(group, "handed").await;
    });
}

#[test]
fn w26_a_hold_that_the_new_primary_knows_stays() {
    failed_over(async |group, client| {
        let lock = client.lock("held");
        lock.lock().await.unwrap().unlock().await.expect("a release");
        let guard = lock.lock().await.unwrap();
        replicas_are_cut_off(group).await;
        group.fail_over(1);
        sleep(SECOND).await;
        assert!(group.calls(1, "hrandfield") >= 1, "nobody has looked");
        let tried = client.lock("held").try_lock_now().await.expect("an answer");
        assert!(tried.is_none(), "a hold that somebody has was released");
        guard.unlock().await.expect("a release");
        group.is_empty();
    });
}

/// Each turn is a new handle's, so that none finds a hold of its own at the new primary. What was written
/// last never reaches it.
#[test]
fn w26_busy_names_go_on_soon_after_a_failover() {
    for seed in 0..in_short(1, 3) {
        play(seed, async |scene| {
            let group = Group::new(scene);
            let end = Instant::now() + 3 * SECOND;
            let mut turns = Vec::new();
            for number in 0..4 {
                let options = group.builder().watchdog_timeout(MINUTE);
                let (machine, client) = group.client(options).await;
                turns.push(machine.spawn(async move {
                    let name = format!("busy:{}", number % 2);
                    let (mut last, mut longest) = (Instant::now(), ms(0));
                    while last < end {
                        // Lost, or out of reach, while the primaries change.
                        if let Ok(Some(guard)) = client.lock(&name).try_lock(MINUTE, MINUTE).await {
                            longest = longest.max(last.elapsed());
                            last = Instant::now();
                            sleep(ms(1)).await;
                            let _ = guard.unlock().await;
                        }
                    }
                    (name, longest)
                }));
            }
            sleep(SECOND).await;
            group.lags(ms(20 * seed));
            sleep(ms(100)).await;
            group.fail_over(1);
            group.demote(0, 1);
            for turn in turns {
                let (name, longest) = turn.await.expect("no panic");
                assert!(longest < 2 * SECOND, "seed {seed}: {name} was blocked for {longest:?}");
            }
        });
    }
}

#[test]
fn w26_a_missed_release_of_a_reader_or_a_writer_keeps_nobody_out() {
    for writes in [true, false] {
        failed_over(async |group, client| {
            let lock = client.read_write_lock("config");
            let guard = Side::of(&lock, writes).await;
            replicas_are_cut_off(group).await;
            guard.unlock().await;
            group.fail_over(1);
            assert_eq!(group.ask::<u64>(1, &["EXISTS", "config"]), 1, "it has heard of it");
            let other = group.connect(group.builder()).await.read_write_lock("config");
            let guard = timeout(SECOND, other.write()).await.expect("the lock, soon");
            guard.expect("the lock").unlock().await.expect("a release");
        });
    }
}
