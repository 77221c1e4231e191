//! Crowds: tasks of one client that come back for a lock as soon as they have released it. The last one leaves the lock
//! in a gap, until Redis has confirmed those before it.

use futures::FutureExt;
use redlatch::kind::LockKind;
use tokio::task::JoinSet;
use tokio_test::task::{self, Spawn};

use crate::prelude::*;

const NAME: &str = "crowd";
const TURNS: u32 = 20;
const AWAY: [Duration; 3] = [Duration::ZERO, ms(2), ms(100)];

/// How many round trips each turn of a crowd takes, and how many scripts.
async fn turns<K: LockKind>(
    scene: &Scene,
    away: Duration,
    tasks: u32,
    lock: fn(&LockClient) -> Lock<K>,
) -> (f64, f64) {
    let (machine, client) = scene.client(away, LockClient::builder()).await;
    let (begun, before) = (Instant::now(), scene.calls("evalsha"));
    let mut crowd = JoinSet::new();
    for _ in 0..tasks {
        let lock = lock(&client);
        crowd.spawn(machine.run(async move {
            for _ in 0..TURNS {
                lock.lock().await.expect("the lock").unlock().await.expect("a release");
            }
        }));
    }
    crowd.join_all().await;
    assert!(scene.holds(NAME).is_empty(), "something is left");
    let time = begun.elapsed().as_secs_f64() / away.as_secs_f64();
    let scripts = (scene.calls("evalsha") - before) as f64;
    (time / f64::from(TURNS), scripts / f64::from(TURNS))
}

/// Each turn takes so many round trips and scripts at most, in a crowd of so many tasks.
fn a_turn_takes<K: LockKind>(most: f64, crowds: &[u32], lock: fn(&LockClient) -> Lock<K>) {
    for away in [2, 100].map(ms) {
        for tasks in crowds {
            play(0, async |scene| {
                let (time, scripts) = turns(scene, away, *tasks, lock).await;
                let what = format!("{tasks} tasks at {away:?}: {time:.2}, {scripts:.2}");
                assert!(time < most && scripts < most, "{what}");
            });
        }
    }
}

/// It took two round trips and two scripts when the last one released the lock at once.
#[test]
fn a_turn_of_a_crowd_takes_one_round_trip_and_one_script() {
    a_turn_takes(1.25, &[2, 4, 16, 64, 200], |client| client.lock(NAME));
}

/// It needs tokens for all that come back.
#[test]
fn a_turn_of_a_crowd_takes_one_round_trip_with_fencing_tokens_too() {
    a_turn_takes(1.5, &[4, 16, 64, 200], |client| client.fenced_lock(NAME));
}

/// The last one releases the lock, and the first one that comes back asks: the order has no gap.
#[test]
fn a_turn_of_a_crowd_that_waits_in_order_takes_two_round_trips_and_two_scripts() {
    a_turn_takes(2.25, &[16, 64, 200], |client| client.fair_lock(NAME));
}

type Unlocking = JoinHandle<Result<(), Error>>;

/// Two holders of one client, one after the other. The first waits for its confirmation when the second has the lock.
async fn second_holder(
    machine: &Machine,
    client: &LockClient,
    away: Duration,
    lease: Option<Duration>,
) -> (Unlocking, LockGuard) {
    let guard = client.lock(NAME).lock().await.expect("the lock");
    let second = machine.spawn(lock_for(Arc::new(client.lock(NAME)), lease));
    sleep(8 * away + ms(10)).await;
    let first = machine.spawn(guard.unlock());
    (first, second.await.expect("no panic").expect("a hand-off"))
}

/// That unlock, after its first poll.
fn begin_to_unlock(
    machine: &Machine,
    guard: LockGuard,
) -> Spawn<futures::future::BoxFuture<'static, Result<(), Error>>> {
    let mut unlocking = task::spawn(machine.run(guard.unlock()).boxed());
    assert!(unlocking.poll().is_pending(), "no answer can be here yet");
    unlocking
}

#[test]
fn a_call_that_comes_in_the_gap_has_the_lock_at_once() {
    for away in [2, 100].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (first, second) = second_holder(&machine, &client, away, None).await;
            let owner = second.owner().to_owned();
            let unlocking = machine.spawn(second.unlock());
            tokio::task::yield_now().await;
            let begun = Instant::now();
            let third = client.lock(NAME).try_lock_now().await.expect("an answer");
            let third = third.expect("the lock, which is free");
            assert_eq!((begun.elapsed(), third.owner()), (Duration::ZERO, &*owner), "{away:?}");
            let fourth = waiting_for(&machine, client.lock(NAME));
            for ended in [first, unlocking] {
                ended.await.expect("no panic").expect("its hold was there");
            }
            third.unlock().await.expect("a release");
            let (fourth, _) = fourth.await.expect("no panic");
            assert_eq!(fourth.owner(), owner);
            fourth.unlock().await.expect("a release");
            assert!(scene.holds(NAME).is_empty(), "{away:?}: something is left");
        });
    }
}

/// If it does not come back either, its lock goes to another client a round trip later, polled or not.
#[test]
fn a_lock_that_was_left_in_a_gap_goes_to_another_client() {
    for (away, becomes) in
        AWAY.into_iter().flat_map(|away| ["polled", "parked", "dropped"].map(|how| (away, how)))
    {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (near, other) = scene.client(ms(2), LockClient::builder()).await;
            let (first, second) = second_holder(&machine, &client, away, None).await;
            let waiting = waiting_for(&near, other.lock(NAME));
            sleep(ms(8)).await;
            let begun = Instant::now();
            let unlocking = begin_to_unlock(&machine, second);
            let _parked = match becomes {
                "polled" => {
                    unlocking.await.expect("a release");
                    // Redis has released it by then.
                    let took = begun.elapsed();
                    assert!(took <= 2 * away + away / 8 + ms(2), "{away:?}: {took:?}");
                    None
                }
                "parked" => Some(unlocking),
                _ => None,
            };
            first.await.expect("no panic").expect("its hold was there");
            let (other, had) = timeout(ms(1_000), waiting).await.expect("soon").expect("no panic");
            // The confirmation, at worst a round trip for the call that is not polled, the release, and what the other
            // client needs.
            let took = had - begun;
            assert!(took <= 3 * away + ms(8), "{away:?}, {becomes}: {took:?}");
            other.unlock().await.expect("a release");
            timeout(2 * away + ms(10), client.close()).await.expect("closing is prompt");
        });
    }
}

/// Redis has said that both holds were there to their ends. The lease ends before the release comes there.
#[test]
fn a_hold_whose_lease_ends_in_the_gap_was_not_lost() {
    let (away, lease) = (ms(400), ms(3_000));
    for left in [250, 300, 350, 450, 650].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let first = client.lock(NAME).lock_with_lease(lease).await.expect("the lock");
            let second = client.lock(NAME);
            let second = machine.spawn(async move {
                second.lock_with_lease(lease).await.expect("the lock").unlock().await
            });
            sleep(first.remaining() - left).await;
            let (first, second) = (machine.spawn(first.unlock()), second);
            for unlocked in [first, second] {
                unlocked.await.expect("no panic").expect("its hold was there");
            }
            assert_eq!(client.stats().losses, 0, "{left:?}");
            assert!(scene.holds(NAME).is_empty(), "{left:?}: something is left");
        });
    }
}

/// No request comes through while the lock is in a gap, or no answer: who left it there hears so in time. When the network is
/// well again, Redis has nothing of it.
#[test]
fn an_outage_in_the_gap_leaves_nothing_behind() {
    for (away, lost) in
        AWAY.into_iter().flat_map(|away| [Direction::Up, Direction::Down].map(|lost| (away, lost)))
    {
        play(0, async |scene| {
            let limit = ms(1_000);
            let options = LockClient::builder().command_timeout(limit);
            let (machine, client) = scene.client(away, options).await;
            let (_, other) = scene.client(ms(2), LockClient::builder()).await;
            let (first, second) = second_holder(&machine, &client, away, None).await;
            scene.network.set_flow(&machine, scene.server, lost, Flow::Held);
            let begun = Instant::now();
            let error = machine.run(second.unlock()).await.expect_err("no answer");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
            assert!(begun.elapsed() <= limit + ms(1), "{:?}", begun.elapsed());
            let _ = first.await.expect("no panic");
            scene.network.set_flow(&machine, scene.server, lost, Flow::Open);
            // The longest pause of the background, and a dial.
            let guard = timeout(limit + 8 * away + ms(10), other.lock(NAME).lock()).await;
            let guard = guard.expect("the lock is free soon").expect("the lock");
            guard.unlock().await.expect("a release");
            let guard = machine.run(client.lock(NAME).lock()).await.expect("the lock");
            guard.unlock().await.expect("a release");
            assert!(scene.holds(NAME).is_empty(), "{away:?}: something is left");
            assert_eq!(client.stats().losses, 0);
        });
    }
}

/// Each request that is sent again would have Redis keep the lock for a whole lease, with no handle inside.
#[test]
fn a_request_in_the_gap_that_was_not_answered_is_not_sent_again() {
    for away in AWAY {
        play(0, async |scene| {
            let limit = ms(1_000);
            let options = LockClient::builder().command_timeout(limit);
            let (machine, client) = scene.client(away, options).await;
            let (near, other) = scene.client(ms(2), LockClient::builder()).await;
            let guard = client.lock(NAME).lock().await.expect("the lock");
            let second = client.lock(NAME);
            let second = machine
                .spawn(async move { second.lock().await.expect("a hand-off").unlock().await });
            let other = waiting_for(&near, other.lock(NAME));
            sleep(8 * away + ms(10)).await;
            let leases = scene.calls("pexpire");
            scene.network.set_flow(&machine, scene.server, Direction::Down, Flow::Held);
            machine.run(guard.unlock()).await.expect_err("no answer");
            second.await.expect("no panic").expect_err("no answer");
            scene.network.set_flow(&machine, scene.server, Direction::Down, Flow::Open);
            drop(other.await.expect("no panic"));
            assert_eq!(scene.calls("pexpire") - leases, 2, "{away:?}: that one, and a grant");
        });
    }
}

/// An explicit lease is about to end when its holder hands the lock on, and the next one as soon as it has it. Redis hears of
/// the lease of the one after that when it has answered twice.
#[test]
fn a_call_that_comes_behind_short_leases_has_the_lock_for_its_own_lease() {
    let (away, short) = (ms(150), ms(1_000));
    for (left, parks) in [150, 200, 250, 300, 400, 600]
        .into_iter()
        .flat_map(|left| [(ms(left), true), (ms(left), false)])
    {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let lock = client.lock(NAME);
            let guard = machine.run(lock.lock_with_lease(short)).await.expect("the lock");
            let hands_on = guard.remaining().saturating_sub(left);
            let second = machine.spawn(lock_for(Arc::new(client.lock(NAME)), Some(short)));
            let (third, calls) = (client.lock(NAME), if parks { ms(1) } else { hands_on + ms(40) });
            let third = machine.spawn(async move {
                sleep(calls).await;
                third.lock().await.expect("the lock")
            });
            sleep(hands_on).await;
            let first = machine.spawn(guard.unlock());
            let second = second.await.expect("no panic").expect("a hand-off");
            sleep(ms(20)).await;
            let second = machine.spawn(second.unlock());
            let third = third.await.expect("no panic");
            sleep(2 * short).await;
            assert!(!third.is_lost(), "{left:?}, {parks}: {:?}", third.loss());
            machine.run(third.unlock()).await.expect("a release");
            for ended in [first, second] {
                ended.await.expect("no panic").expect("its hold was there");
            }
        });
    }
}

/// Redis hears of the next holder when the lease of the one before has almost ended.
#[test]
fn a_call_that_waits_in_order_behind_a_short_lease_has_the_lock_for_its_own() {
    let (away, short) = (ms(200), ms(1_000));
    for left in [110, 150, 200, 300].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let lock = client.fair_lock(NAME);
            let guard = machine.run(lock.lock_with_lease(short)).await.expect("the lock");
            let next = machine.spawn(lock_for(Arc::new(client.fair_lock(NAME)), Some(short)));
            sleep(guard.remaining().saturating_sub(left)).await;
            machine.run(guard.unlock()).await.expect("its hold was there");
            let guard = next.await.expect("no panic").expect("the lock");
            sleep(short / 2).await;
            assert!(!guard.is_lost(), "{left:?}: {:?}", guard.loss());
            machine.run(guard.unlock()).await.expect("a release");
        });
    }
}

/// The client has handed off nothing yet, or thinks that Redis is nearer.
#[test]
fn an_unlock_is_answered_in_time_where_three_answers_take_longer_than_a_command_may() {
    for was_near in [false, true] {
        play(0, async |scene| {
            let (away, limit) = (ms(350), ms(1_000));
            let options = LockClient::builder().command_timeout(limit);
            let (machine, client) =
                scene.client(if was_near { ms(2) } else { away }, options).await;
            if was_near {
                let (first, second) = second_holder(&machine, &client, ms(2), None).await;
                machine.run(second.unlock()).await.expect("a release");
                first.await.expect("no panic").expect("a release");
                scene.network.set_distance_of(&machine, scene.server, round_trip(away));
            }
            let guard = machine.run(client.lock(NAME).lock()).await.expect("the lock");
            let others = [10, 20].map(|later| {
                let lock = client.lock(NAME);
                machine.spawn(async move {
                    let guard = lock.lock().await.expect("a hand-off");
                    sleep(ms(later)).await;
                    guard.unlock().await
                })
            });
            sleep(8 * away).await;
            machine.run(guard.unlock()).await.expect("a release");
            for other in others {
                other.await.expect("no panic").expect("a release");
            }
            assert!(scene.holds(NAME).is_empty(), "something is left");
        });
    }
}

/// With leases that end sooner than such an answer came, the client would hand off no lock any more.
#[test]
fn one_late_answer_does_not_end_the_hand_offs() {
    for away in [2, 100].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(ms(700), LockClient::builder()).await;
            let lease = Some(ms(1_400));
            let lock = Arc::new(client.lock(NAME));
            let late = machine.run(lock_for(lock.clone(), lease)).await.expect("the lock");
            scene.network.set_distance_of(&machine, scene.server, round_trip(away));
            machine.run(late.unlock()).await.expect("a release");
            let guard = machine.run(lock_for(lock, lease)).await.expect("the lock");
            let owner = guard.owner().to_owned();
            let next = machine.spawn(lock_for(Arc::new(client.lock(NAME)), lease));
            sleep(8 * away).await;
            machine.run(guard.unlock()).await.expect("a release");
            let next = next.await.expect("no panic").expect("the lock");
            assert_eq!(next.owner(), owner, "{away:?}: it was released");
            machine.run(next.unlock()).await.expect("a release");
        });
    }
}

/// A call that begins after that does not have the lock that is not there any more.
#[test]
fn no_call_has_a_lock_from_the_gap_after_an_operator_has_freed_it() {
    for away in [2, 100].map(ms) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (first, second) = second_holder(&machine, &client, away, None).await;
            let owner = second.owner().to_owned();
            let _parked = begin_to_unlock(&machine, second);
            sleep(away / 4).await;
            assert!(machine.run(client.lock(NAME).force_unlock()).await.expect("an answer"));
            let fourth = machine.run(client.lock(NAME).lock()).await.expect("the lock");
            assert_ne!(fourth.owner(), owner, "{away:?}");
            let _ = first.await.expect("no panic");
            fourth.unlock().await.expect("a release");
        });
    }
}

#[test]
fn a_client_that_ends_in_the_gap_releases_the_lock() {
    for (away, shuts_down) in AWAY.into_iter().flat_map(|away| [(away, false), (away, true)]) {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (first, second) = second_holder(&machine, &client, away, None).await;
            let unlocking = machine.spawn(second.unlock());
            tokio::task::yield_now().await;
            let begun = Instant::now();
            if shuts_down {
                let left = machine.run(client.shutdown(ms(5_000))).await;
                assert!(left.released.is_empty() && left.unreleased.is_empty(), "{left:?}");
            } else {
                machine.run(client.close()).await;
            }
            let took = begun.elapsed();
            assert!(took <= 3 * away + ms(2), "{away:?}: closed after {took:?}");
            assert!(scene.holds(NAME).is_empty(), "{away:?}: something is left");
            for ended in [first, unlocking] {
                ended.await.expect("no panic").expect("its hold was there");
            }
        });
    }
}
