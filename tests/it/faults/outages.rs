//! A server that remembers, connections that are half open, and faults under a crowd. What takes how long
//! is in `tests/world/outages.rs`. Single lost answers are in `tests/world/lost_answers.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

#[tokio::test]
async fn s3_a_lock_outlives_a_restart_of_a_server_that_remembers() {
    let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let client = client_with(server.url(), ms(3_000)).await;
    let lock = client.lock("kept");
    let outer = hold(&lock).await;
    let inner = hold(&lock).await;
    server.restart();
    assert!(server.exists("kept"), "the server has to remember");
    tokio::time::sleep(ms(3_500)).await;
    assert!(!outer.is_lost() && !inner.is_lost());
    release(inner).await;
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    release(outer).await;
    assert!(!server.exists("kept"));
}

#[tokio::test]
async fn n13_a_waiter_whose_connections_are_half_open_goes_by_the_holders_lease() {
    let (server, proxy) = proxied();
    let client = impatient(proxy.url(&server), ms(1_000)).await;
    server.hold_by_hand("lock", "somebody:1", ms(3_000));
    let waiter = parked(&server, &client, "lock").await;
    proxy.settled(ms(200)).await;
    // The caller's connection, and the one that is subscribed.
    assert_eq!(proxy.freeze_all(), 2);
    server.ask::<()>(&["DEL", "lock"]);
    let heard: u64 = server.ask(&["PUBLISH", &channel("lock"), "0"]);
    assert_eq!(heard, 1, "for the server the subscription is still there");
    // It would be 30 s if it went by the cap, and for ever if it counted on the message.
    has_its_turn(waiter).await;
    assert!(!server.exists("lock"));
}

/// Tasks of two clients add up in Redis while something is done to it again and again; no call may
/// notice it. `act` says whether it took effect.
///
/// How long a call waits meanwhile says nothing: a client whose subscription is cut each time before it can hear of a
/// release has no turn while the other one hands its lock from task to task. When all is over, each call that waits has its
/// turn soon.
async fn no_call_notices(act: impl Fn(&Server) -> bool + Send + 'static) {
    const ROUNDS: u64 = 200;
    const EFFECTS: u64 = 20;
    let server = Arc::new(Server::start());
    let clients = [connect(&server).await, connect(&server).await];
    let (rounds, effects) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (round, effect) = (rounds.clone(), effects.clone());
    let is_over = move || {
        round.load(Ordering::Relaxed) >= ROUNDS && effect.load(Ordering::Relaxed) >= EFFECTS
    };
    let nemesis = {
        let (server, effects, is_over) = (server.clone(), effects.clone(), is_over.clone());
        let rounds = rounds.clone();
        std::thread::spawn(move || {
            let mut last = 0;
            while !is_over() {
                std::thread::sleep(ms(20));
                // Not so often that no connection lives for as long as a round takes on this machine.
                let now = rounds.load(Ordering::Relaxed);
                if std::mem::replace(&mut last, now) != now {
                    effects.fetch_add(act(&server).into(), Ordering::Relaxed);
                }
            }
        })
    };
    let tasks = (0..8).map(|task| {
        let (client, server) = (clients[task % 2].clone(), Arc::clone(&server));
        let (rounds, is_over) = (rounds.clone(), is_over.clone());
        tokio::spawn(async move {
            while !is_over() {
                let lock = client.lock(["left", "right"][task / 2 % 2]);
                let guard = lock.lock().await.expect("a call noticed it");
                let total = format!("total:{}", lock.name());
                let sum: Option<u64> = server.ask(&["GET", &total]);
                tokio::task::yield_now().await;
                server.ask::<()>(&["SET", &total, &(sum.unwrap_or(0) + 1).to_string()]);
                soon("unlocking", guard.unlock()).await.expect("a release noticed it");
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    wait_until("the rounds, with effects", MINUTE, || {
        is_over() || tasks.iter().any(JoinHandle::is_finished)
    })
    .await;
    for task in soon("the last turns", join_all(tasks)).await {
        task.expect("a task that did not fail");
    }
    nemesis.join().expect("the nemesis failed");
    let totals = ["total:left", "total:right"].map(|key| server.ask::<u64>(&["GET", key]));
    let rounds = rounds.load(Ordering::Relaxed);
    assert_eq!(totals.iter().sum::<u64>(), rounds, "an update was lost");
    wait_until("free locks", SOON, || !server.exists("left") && !server.exists("right")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_notices_that_connections_are_killed() {
    no_call_notices(|server| {
        let normal: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        let pubsub: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        normal + pubsub > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_no_call_notices_that_the_scripts_are_flushed() {
    no_call_notices(|server| server.try_ask::<()>(&["SCRIPT", "FLUSH"]).is_ok()).await;
}

#[test]
fn a_runtime_made_after_an_outage_is_served_like_the_first() {
    let server = Server::start();
    let client = runtime().block_on(connect(&server));
    for _ in 0..3 {
        server.restart();
        runtime().block_on(async { release(hold(&client.lock("runtimes")).await).await });
    }
    block_until("a free lock", SOON, || !server.exists("runtimes"));
}
