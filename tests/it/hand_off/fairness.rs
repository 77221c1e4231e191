//! Other clients wait, too.

use std::sync::Mutex;

use super::*;
use crate::support::{Listener, channel};

/// One turn: of which client, and when it began.
type Turn = (usize, Instant);

/// Several tasks of each client take turns at one name for so long; a turn does nothing.
async fn take_turns(clients: &[LockClient], name: &str, tasks: usize, time: Duration) -> Vec<Turn> {
    let turns = Arc::new(Mutex::new(Vec::new()));
    let end = Instant::now() + time;
    let crowd: Vec<_> = (0..clients.len() * tasks)
        .map(|number| {
            let client = number % clients.len();
            let (lock, turns) = (clients[client].lock(name), turns.clone());
            tokio::spawn(async move {
                while Instant::now() < end {
                    let guard = hold(&lock).await;
                    turns.lock().unwrap().push((client, Instant::now()));
                    tokio::task::yield_now().await;
                    drop(guard);
                }
            })
        })
        .collect();
    for task in crowd {
        soon("the last turn", task).await.unwrap();
    }
    std::mem::take(&mut turns.lock().unwrap())
}

/// One if all have the same, `1 / n` if one has all (Jain).
fn fairness(clients: usize, turns: &[Turn]) -> f64 {
    let mut shares = vec![0.0_f64; clients];
    for (client, _) in turns {
        shares[*client] += 1.0;
    }
    let sum: f64 = shares.iter().sum();
    sum * sum / (clients as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// Turns that are shared fairly: a busy machine may spoil one try.
async fn fair_turns(clients: &[LockClient], name: &str, tasks: usize) -> Vec<Turn> {
    let mut tries = Vec::new();
    for _ in 0..3 {
        let turns = take_turns(clients, name, tasks, ms(1_500)).await;
        tries.push(fairness(clients.len(), &turns));
        if tries.last() >= Some(&0.9) {
            return turns;
        }
    }
    panic!("not fair: {tries:.3?}");
}

/// The runs of one client's turns, without the last, which nobody else cut short: how long each
/// took, and how many turns it had.
fn runs(turns: &[Turn]) -> Vec<(Duration, usize)> {
    let mut runs = Vec::new();
    let mut begin = 0;
    for at in 1..turns.len() {
        if turns[at].0 != turns[begin].0 {
            runs.push((turns[at].1 - turns[begin].1, at - begin));
            begin = at;
        }
    }
    runs.sort();
    runs
}

async fn every_client_gets_its_share(clients: usize) {
    let scene = Scene::new().await;
    let mut all = Vec::new();
    for _ in 0..clients {
        all.push(scene.other().await);
    }
    let turns = fair_turns(&all, "shared", 4).await;
    let runs = runs(&turns);
    // A run ends after 10 ms; how long it takes beyond that is for the machine to say.
    let (median, longest) = (runs[runs.len() / 2].0, runs[runs.len() - 1].0);
    assert!(median < ms(100), "a client keeps the lock for {median:?}");
    assert!(longest < ms(1_000), "a client kept the lock for {longest:?}");
    assert!(scene.server.calls("hdel") as usize > turns.len() / 4, "it was hardly handed off");
    scene.until_gone("shared").await;
}

#[tokio::test]
async fn each_of_two_clients_gets_its_share() {
    every_client_gets_its_share(2).await;
}

#[tokio::test]
async fn each_of_four_clients_gets_its_share() {
    every_client_gets_its_share(4).await;
}

#[tokio::test]
async fn a_run_of_hand_offs_is_as_long_as_the_client_was_told() {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let brief = |options: LockClientBuilder| options.max_handoffs(3).max_handoff_time(MINUTE);
    let clients = [connect_with(url.clone(), brief).await, connect_with(url, brief).await];
    let turns = take_turns(&clients, "brief", 4, ms(1_500)).await;
    let runs = runs(&turns);
    assert!(runs.len() > 20, "{} runs", runs.len());
    // Four holders: the first, and three to whom it was handed off. The client may get the lock
    // again behind that, if nobody else comes in time.
    let mut lengths: Vec<usize> = runs.iter().map(|(_, length)| *length).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= 8, "{median} turns in a row: {lengths:?}");
    assert!(lengths.iter().any(|length| *length > 1), "it was never handed off");
    scene.until_gone("brief").await;
}

#[tokio::test]
async fn a_client_whose_run_is_over_lets_others_come_first() {
    const ROUNDS: usize = 20;
    let brief = |options: LockClientBuilder| options.max_handoffs(1).max_handoff_time(MINUTE);
    let scene = Scene::new().await;
    let url = scene.server.url();
    // Each in turn, because Redis tells one of the two first, always the same.
    let clients = [connect_with(url.clone(), brief).await, connect_with(url, brief).await];
    let mut first = 0;
    for round in 0..ROUNDS {
        let name = format!("run:{round}");
        let (client, other) = (&clients[round % 2], &clients[1 - round % 2]);
        let guard = hold(&client.lock(&name)).await;
        let mut next = Waiter::of(client.lock(&name), LOCK);
        park(&scene.server, &name, &mut next.task).await;
        let behind = Waiter::behind(client, &name, LOCK);
        let mut theirs = Waiter::of(other.lock(&name), LOCK);
        park(&scene.server, &name, &mut theirs.task).await;
        // Confirmed: the client knows by now that another one waits.
        wait_until("both listen", SOON, || scene.server.subscribers(&name) == 2).await;
        release(guard).await;
        release(next.has()).await;
        // Its own is polled first, which would have the lock for itself if both asked at once.
        let (ours, theirs) = tokio::join!(
            async {
                let guard = behind.gets().await;
                (Instant::now(), release(guard).await).0
            },
            async {
                let guard = theirs.gets().await;
                (Instant::now(), release(guard).await).0
            },
        );
        first += usize::from(theirs < ours);
        scene.until_gone(&name).await;
    }
    // A busy machine may be late for some.
    assert!(first >= ROUNDS * 3 / 4, "the other client was first {first} times of {ROUNDS}");
}

#[tokio::test]
async fn who_only_listens_costs_a_moment_and_no_more() {
    let scene = Scene::new().await;
    // Subscribed, but it will never ask for the lock.
    let listener = Listener::new(&scene.server, &channel("alone"));
    let start = Instant::now();
    let turns = take_turns(std::slice::from_ref(&scene.client), "alone", 8, ms(1_000)).await;
    assert!(start.elapsed() < ms(3_000));
    let gap = turns.windows(2).map(|two| two[1].1 - two[0].1).max().unwrap();
    assert!(gap < ms(700), "nobody had the lock for {gap:?}");
    assert!(turns.len() > 200, "{} turns in a second", turns.len());
    assert!(listener.heard(&scene.server).len() > 1, "it never stood back");
    scene.until_gone("alone").await;
}

#[tokio::test]
async fn a_client_that_goes_leaves_the_lock_to_the_rest() {
    let scene = Scene::new().await;
    let gone = scene.other().await;
    let waiting = task::spawn({
        let lock = gone.lock("gone");
        let guard = hold(&scene.client.lock("gone")).await;
        let mut waiting = task::spawn(async move { lock.lock().await }.boxed());
        assert!(waiting.poll().is_pending());
        let start = Instant::now();
        while scene.server.subscribers("gone") == 0 {
            assert!(start.elapsed() < SOON);
            assert!(waiting.poll().is_pending());
            tokio::time::sleep(ms(2)).await;
        }
        drop(guard);
        waiting.into_inner()
    });
    // It has been woken, and is not polled: for as long as it is there, it counts as one who waits.
    let all = [scene.client.clone()];
    let turns = take_turns(&all, "gone", 4, ms(700)).await;
    let with_it = turns.len();
    drop(waiting);
    let turns = take_turns(&all, "gone", 4, ms(700)).await;
    let without = turns.len();
    assert!(with_it > 100 && without > 100, "{with_it} turns, then {without}");
    scene.until_gone("gone").await;
}

#[tokio::test]
async fn without_permission_to_ask_who_listens_every_client_gets_its_share() {
    let scene = Scene::new().await;
    let user = ["ACL", "SETUSER", "deaf", "on", ">pass", "~*", "&*", "+@all", "-pubsub"];
    scene.server.ask::<()>(&user);
    let url = format!("redis://deaf:pass@127.0.0.1:{}/", scene.server.port());
    let clients = [
        connect_with(url.clone(), |options| options).await,
        connect_with(url, |options| options).await,
    ];
    let turns = fair_turns(&clients, "deaf", 4).await;
    assert!(scene.server.errors_in_scripts("NOPERM") > 0, "it was permitted");
    assert!(scene.server.calls("hdel") as usize > turns.len() / 4, "it was hardly handed off");
    scene.until_gone("deaf").await;
}
