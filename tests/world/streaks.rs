//! Streaks of hand-offs: how long a client keeps a lock among its own waiters while others wait, too.

use std::sync::Mutex;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_test::task;

use crate::prelude::*;

const NAME: &str = "runs";
const AWAY: Duration = ms(2);
/// The most room that a client gives others: a quarter of the command timeout.
const ROOM: Duration = ms(750);
/// Longer than it takes to learn how much room others need.
const LONG: Duration = ms(20_000);
const HOLD: Duration = ms(5);

/// One turn: of which client, and when it began.
type Turn = (usize, Instant);

/// Four tasks of each client take turns for so long.
async fn take_turns(
    clients: &[(Machine, LockClient)],
    hold: Duration,
    time: Duration,
) -> Vec<Turn> {
    let (turns, end) = (Arc::new(Mutex::new(Vec::new())), Instant::now() + time);
    let mut tasks = JoinSet::new();
    for (number, (machine, client)) in clients.iter().enumerate() {
        for _ in 0..4 {
            let (lock, turns) = (client.lock(NAME), turns.clone());
            tasks.spawn(machine.run(async move {
                while Instant::now() < end {
                    let _guard = lock.lock().await.expect("the lock");
                    turns.lock().unwrap().push((number, Instant::now()));
                    sleep(hold).await;
                }
            }));
        }
    }
    tasks.join_all().await;
    std::mem::take(&mut turns.lock().unwrap())
}

/// How many turns each client had in a row, without the last row, which nobody cut short.
fn runs(turns: &[Turn]) -> Vec<usize> {
    let rows = turns.chunk_by(|one, next| one.0 == next.0).map(<[Turn]>::len);
    let mut rows: Vec<usize> = rows.collect();
    rows.pop();
    rows
}

async fn two_clients(scene: &Scene, options: LockClientBuilder) -> [(Machine, LockClient); 2] {
    [scene.client(AWAY, options.clone()).await, scene.client(AWAY, options).await]
}

/// Beside one that never comes the client gives room in vain, ever more, and keeps the lock for five
/// times as long after each.
fn is_kept_five_times_as_long(turns: &[Turn]) {
    let gaps: Vec<Duration> = turns.windows(2).map(|two| two[1].1 - two[0].1).collect();
    let longest = *gaps.iter().max().expect("turns");
    assert!(longest <= HOLD + ROOM + 4 * AWAY, "nobody had the lock for {longest:?}");
    let idle: Duration = gaps.into_iter().filter(|gap| *gap > HOLD + 2 * AWAY).sum();
    assert!(idle <= LONG / 4, "idle for {idle:?} of {LONG:?}");
}

#[test]
fn a_run_of_hand_offs_is_as_long_as_the_client_was_told() {
    for max in [1, 3, 10] {
        play(0, async |scene| {
            let options = LockClient::builder().max_handoffs(max).max_handoff_time(MINUTE);
            let clients = two_clients(scene, options).await;
            // Redis says who else waits before the next hand-off is due.
            let runs = runs(&take_turns(&clients, 2 * AWAY, ms(2_000)).await);
            assert!(runs.len() > 10, "{runs:?}");
            // The first holder, and those to whom it was handed off.
            let usual = runs.iter().filter(|run| **run == 1 + max as usize).count();
            assert!(usual * 10 >= runs.len() * 9, "{max}: {runs:?}");
        });
    }
}

#[test]
fn a_client_whose_streak_is_over_lets_others_come_first() {
    play(0, async |scene| {
        let options = LockClient::builder().max_handoffs(1).max_handoff_time(MINUTE);
        let clients = two_clients(scene, options).await;
        // Each in turn, because Redis tells one of the two first, always the same.
        for (first, other) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
            let lock = |at: usize| clients[at].1.lock(NAME);
            let guard = lock(first).lock().await.expect("the lock");
            let came = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = JoinSet::new();
            for client in [first, first, other] {
                let (lock, came) = (lock(client), came.clone());
                tasks.spawn(clients[client].0.run(async move {
                    let guard = lock.lock().await.expect("the lock");
                    came.lock().unwrap().push(client);
                    // Long enough for Redis to say that others wait.
                    sleep(2 * AWAY).await;
                    guard.unlock().await.expect("a release");
                }));
                sleep(8 * AWAY).await;
            }
            guard.unlock().await.expect("a release");
            tasks.join_all().await;
            assert_eq!(*came.lock().unwrap(), [first, other, first]);
        }
    });
}

#[test]
fn a_client_that_is_not_polled_any_more_leaves_the_lock_to_the_rest() {
    play(0, async |scene| {
        let [one, gone] = two_clients(scene, LockClient::builder()).await;
        let guard = one.1.lock(NAME).lock().await.expect("the lock");
        let lock = gone.1.lock(NAME);
        let mut waiting = task::spawn(async move { lock.lock().await }.boxed());
        for _ in 0..100 {
            assert!(waiting.poll().is_pending());
            sleep(ms(1)).await;
        }
        assert_eq!(scene.subscribers(NAME), 1);
        guard.unlock().await.expect("a release");
        // It has been woken. For as long as it is there, it counts as one who waits.
        let (all, published) = ([one], scene.calls("publish"));
        is_kept_five_times_as_long(&take_turns(&all, HOLD, LONG).await);
        assert!(scene.calls("publish") > published + 1, "it never stood back");
        drop(waiting);
        sleep(ms(500)).await;
        let turns = take_turns(&all, ms(1), ms(1_000)).await;
        let longest = turns.windows(2).map(|two| two[1].1 - two[0].1).max();
        assert!(longest <= Some(2 * AWAY), "{longest:?}");
    });
}

#[test]
fn without_permission_to_ask_who_listens_every_client_gets_its_share() {
    play(0, async |scene| {
        let user = ["ACL", "SETUSER", "deaf", "on", ">pass", "~*", "&*", "+@all", "-pubsub"];
        scene.ask::<()>(&user);
        let mut clients = Vec::new();
        for _ in 0..2 {
            let machine = scene.machine(round_trip(AWAY));
            let connect = LockClient::connect(format!("redis://deaf:pass@{ADDRESS}"));
            clients.push((machine.clone(), machine.run(connect).await.expect("a client")));
        }
        let granted = scene.calls("hset");
        let turns = take_turns(&clients, ms(1), ms(2_000)).await;
        let first = turns.iter().filter(|turn| turn.0 == 0).count();
        assert!((turns.len() * 2 / 5..=turns.len() * 3 / 5).contains(&first), "{first}");
        let longest = runs(&turns).into_iter().max().expect("runs");
        assert!(longest <= 20, "a client had {longest} turns in a row");
        let granted = (scene.calls("hset") - granted) as usize;
        assert!(granted < turns.len() * 3 / 4, "it was hardly handed off");
    });
}

/// The client asks Redis how many others wait once for a hand-off, and not again while the next holder works.
#[test]
fn without_any_time_for_hand_offs_the_next_holder_is_left_alone() {
    for time in [Duration::ZERO, Duration::from_nanos(1), ms(1)] {
        play(0, async |scene| {
            let options = LockClient::builder().max_handoff_time(time);
            let (machine, client) = scene.client(AWAY, options).await;
            let guard = client.lock(NAME).lock().await.expect("the lock");
            let next = waiting_for(&machine, client.lock(NAME));
            sleep(10 * AWAY).await;
            drop(guard);
            let (guard, _) = next.await.expect("no panic");
            sleep(10 * AWAY).await;
            let before = scene.calls("evalsha");
            sleep(ms(200)).await;
            assert_eq!(scene.calls("evalsha"), before, "{time:?}");
            guard.extend(Duration::from_secs(60)).await.expect("still held");
            guard.unlock().await.expect("a release");
            timeout(ms(100), client.close()).await.expect("closing is prompt");
        });
    }
}
