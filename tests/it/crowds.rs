//! Many tasks, handles and clients at one lock or a few: all get their turn, one at a time, and
//! nothing is left behind. Ported from Redisson's `RedissonLockTest` like `holding.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use crate::site::Site;
use crate::support::{SOON, Server, connect, hold, ms, release, soon, wait_until, within};

const MINUTE: Duration = Duration::from_secs(60);

// testSinglePubSub
pub(crate) async fn one_connection_serves_the_waiters_of_several_names(site: Site) {
    let client = site.connect().await;
    let rounds = (0..40).map(|round| {
        let lock = client.lock(["left", "right"][round % 2]);
        async move {
            let guard = lock.try_lock(SOON, MINUTE).await.unwrap().expect("in time");
            tokio::time::sleep(ms(1)).await;
            release(guard).await;
        }
    });
    soon("every round", join_all(rounds)).await;
    wait_until("no subscription", SOON, || site.subscribers("left") == 0).await;
}

// testConcurrencyTryLockUnLock
pub(crate) async fn tasks_that_share_a_handle_nest_in_any_interleaving(site: Site) {
    let client = site.client_with(site.stretch(ms(600))).await;
    let (lock, time) = (Arc::new(client.lock("shared")), site.stretch(ms(1_500)));
    let outer = hold(&lock).await;
    let start = Instant::now();
    let tasks = (0..16).map(|_| {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move {
            // Longer than the lease, so that a renewal which gets lost in the traffic shows.
            while start.elapsed() < time {
                let a = lock.try_lock_now().await.unwrap().expect("a lock of our own");
                let b = lock.lock().await.unwrap();
                release(a).await;
                drop(b);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for task in within(MINUTE, "the tasks", join_all(tasks)).await {
        task.unwrap();
    }
    assert!(!outer.is_lost());
    wait_until("only the outer hold", SOON, || site.holds("shared").get(outer.owner()) == Some(&1))
        .await;
    release(outer).await;
    assert!(!site.exists("shared"));
}

// testSubscriptionsPerConnection
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rounds_over_a_few_names_all_end_and_leave_nothing_behind() {
    let server = Server::start();
    let client = connect(&server).await;
    let tasks = (0..32).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            for round in 0..50 {
                let lock = client.lock(format!("few:{}", (task + round) % 5));
                release(lock.lock().await.unwrap()).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for task in within(MINUTE, "1600 rounds", join_all(tasks)).await {
        task.unwrap();
    }
    wait_until("no subscription", SOON, || {
        server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty()
    })
    .await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

// testConcurrency_SingleInstance
#[tokio::test]
async fn every_handle_of_one_client_gets_its_turn() {
    let site = Site::alone();
    let client = site.connect().await;
    let turns = (0..15).map(|_| async {
        let guard = client.lock("turns").lock().await.unwrap();
        let inside: u32 = site.ask("INCR", "inside", &[]);
        assert_eq!(inside, 1);
        tokio::task::yield_now().await;
        site.ask::<()>("DECR", "inside", &[]);
        release(guard).await;
    });
    soon("fifteen turns", join_all(turns)).await;
}

// testConcurrencyLoop_MultiInstance
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_take_turns_again_and_again() {
    let server = Arc::new(Server::start());
    let tasks = (0..16).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let client = connect(&server).await;
            for _ in 0..20 {
                let guard = hold(&client.lock("turns")).await;
                let count: u32 = server.ask::<Option<u32>>(&["GET", "sum"]).unwrap_or(0);
                tokio::time::sleep(ms(1)).await;
                server.ask::<()>(&["SET", "sum", &(count + 1).to_string()]);
                release(guard).await;
            }
            client.close().await;
        })
    });
    for task in within(MINUTE, "320 turns", join_all(tasks.collect::<Vec<_>>())).await {
        task.unwrap();
    }
    assert_eq!(server.ask::<u32>(&["GET", "sum"]), 320);
}

// testConcurrency_MultiInstance
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_all_get_the_lock_once() {
    let server = Arc::new(Server::start());
    let tasks = (0..100).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let client = connect(&server).await;
            let guard = within(MINUTE, "a turn", client.lock("once").lock()).await.unwrap();
            let count: u32 = server.ask::<Option<u32>>(&["GET", "sum"]).unwrap_or(0);
            server.ask::<()>(&["SET", "sum", &(count + 1).to_string()]);
            release(guard).await;
        })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        task.unwrap();
    }
    assert_eq!(server.ask::<u32>(&["GET", "sum"]), 100);
}
