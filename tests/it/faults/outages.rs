//! A server that remembers, connections that are half open, and faults under a crowd. What takes how long
//! is in `tests/world/outages.rs`. Single lost answers are in `lost_answers.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{
    Proxy, SOON, Server, block_until, connect, hold, ms, release, soon, wait_until, within,
};
use futures::future::join_all;
use redlatch::LockClient;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn s3_a_lock_outlives_a_restart_of_a_server_that_remembers() {
    let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(3_000));
    let client = builder.connect().await.unwrap();
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
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let lock = soon("connecting", client.connect()).await.expect("connecting").lock("lock");
    server.hold_by_hand("lock", "somebody:1", ms(3_000));
    let waiter = tokio::spawn(async move { lock.lock().await });
    wait_until("a subscription", SOON, || server.subscribers("lock") == 1).await;
    proxy.settled(ms(200)).await;
    // The caller's connection, and the one that is subscribed.
    assert_eq!(proxy.freeze_all(), 2);
    server.ask::<()>(&["DEL", "lock"]);
    let heard: u64 = server.ask(&["PUBLISH", &crate::support::channel("lock"), "0"]);
    assert_eq!(heard, 1, "for the server the subscription is still there");
    // It would be 30 s if it went by the cap, and for ever if it counted on the message.
    let guard = within(SOON, "the lock", waiter).await.expect("a waiter that ends well");
    release(guard.expect("the lock")).await;
    assert!(!server.exists("lock"));
}

/// Does something to the server again and again, beside the runtime of the test.
struct Nemesis {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Nemesis {
    /// `act` says whether it took effect.
    fn new(server: Arc<Server>, act: impl Fn(&Server) -> bool + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut effects = 0;
            while !stopped.load(Ordering::Relaxed) {
                effects += u64::from(act(&server));
                std::thread::sleep(ms(20));
            }
            effects
        });
        Self { stop, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the nemesis failed")
    }
}

/// Tasks of two clients add up in Redis while the nemesis is at work; no call may notice it.
async fn rounds_under(nemesis: impl Fn(&Server) -> bool + Send + 'static) -> u64 {
    let server = Arc::new(Server::start());
    let stop = Instant::now() + Duration::from_secs(2);
    let clients = [connect(&server).await, connect(&server).await];
    let nemesis = Nemesis::new(Arc::clone(&server), nemesis);
    let tasks = (0..8).map(|task| {
        let (client, server) = (clients[task % 2].clone(), Arc::clone(&server));
        tokio::spawn(async move {
            let mut rounds = 0_u64;
            while Instant::now() < stop {
                let lock = client.lock(["left", "right"][task / 2 % 2]);
                let guard = soon("a turn", lock.lock()).await.expect("a call noticed it");
                let total = format!("total:{}", lock.name());
                let sum: Option<u64> = server.ask(&["GET", &total]);
                tokio::task::yield_now().await;
                server.ask::<()>(&["SET", &total, &(sum.unwrap_or(0) + 1).to_string()]);
                soon("unlocking", guard.unlock()).await.expect("a release noticed it");
                rounds += 1;
            }
            rounds
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let rounds = within(MINUTE, "an end", join_all(tasks)).await;
    let rounds: u64 = rounds.into_iter().map(Result::unwrap).sum();
    let effects = nemesis.end();
    assert!(effects > 10, "only {effects} faults took effect");
    let totals = ["total:left", "total:right"].map(|key| server.ask::<u64>(&["GET", key]));
    assert_eq!(totals.iter().sum::<u64>(), rounds, "an update was lost");
    wait_until("free locks", SOON, || !server.exists("left") && !server.exists("right")).await;
    rounds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_notices_that_connections_are_killed() {
    let rounds = rounds_under(|server| {
        let normal: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        let pubsub: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        normal + pubsub > 0
    })
    .await;
    assert!(rounds > 20, "only {rounds} rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_no_call_notices_that_the_scripts_are_flushed() {
    let rounds = rounds_under(|server| server.try_ask::<()>(&["SCRIPT", "FLUSH"]).is_ok()).await;
    assert!(rounds > 100, "only {rounds} rounds");
}

#[test]
fn a_runtime_made_after_an_outage_is_served_like_the_first() {
    let server = Server::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime().block_on(connect(&server));
    let seen = Mutex::new(0);
    for _ in 0..3 {
        server.restart();
        runtime().block_on(async {
            release(hold(&client.lock("runtimes")).await).await;
            *seen.lock().unwrap() += 1;
        });
    }
    assert_eq!(*seen.lock().unwrap(), 3);
    block_until("a free lock", SOON, || !server.exists("runtimes"));
}
