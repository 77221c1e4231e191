//! Redis goes away and comes back. A call says so in time; who waits already rides it out; who
//! holds keeps the lock as long as its lease allows. Single lost answers are in `lost_answers.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{
    Proxy, SOON, Server, block_until, connect, hold, ms, release, soon, wait_until, within,
};
use futures::future::join_all;
use redlatch::{Error, ErrorKind, Lease, LockClient, Outcome};

const MINUTE: Duration = Duration::from_secs(60);

async fn impatient(url: String) -> LockClient {
    let builder = LockClient::builder().url(url).command_timeout(ms(500));
    soon("connecting", builder.connect()).await.expect("connecting")
}

fn refused<T>(result: Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("Redis is out of reach"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_call_while_redis_is_down_says_so_after_the_command_timeout() {
    let server = Server::start();
    let client = impatient(server.url()).await;
    let lock = client.lock("down");
    let guard = hold(&client.lock("held")).await;
    server.kill();
    let start = Instant::now();
    let errors = tokio::join!(
        async { refused(lock.lock().await) },
        async { refused(lock.try_lock(ms(100), MINUTE).await) },
        async { refused(lock.try_lock_now().await) },
        async { refused(lock.is_locked().await) },
        async { refused(lock.is_held().await) },
        async { refused(lock.hold_count().await) },
        async { refused(lock.remaining_lease().await) },
        async { refused(lock.force_unlock().await) },
        async { refused(guard.unlock().await) },
    );
    let took = start.elapsed();
    assert!(took < ms(3_000), "{took:?} with a command timeout of 500 ms");
    let (a, b, c, d, e, f, g, h, i) = errors;
    for error in [a, b, c, d, e, f, g, h, i] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn an_error_says_whether_the_command_can_have_been_executed() {
    let server = Server::start();
    let client = impatient(server.url()).await;
    let lock = client.lock("outcome");
    release(hold(&lock).await).await;
    server.pause();
    let start = Instant::now();
    let error = refused(within(SOON, "an answer", lock.try_lock_now()).await);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    assert!(start.elapsed() >= ms(450), "it has to give the server its time");
    server.resume();
    // What it may have done is undone.
    wait_until("a free lock", SOON, || !server.exists("outcome")).await;

    server.kill();
    // The connection has to be known as dead, or the command was sent into the void.
    let _ = lock.is_locked().await;
    let error = refused(within(SOON, "an answer", lock.try_lock_now()).await);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::NotExecuted));
}

#[tokio::test]
async fn a_call_during_a_short_outage_succeeds_when_it_is_over() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("short");
    release(hold(&lock).await).await;
    server.kill();
    let (guard, ()) = tokio::join!(lock.lock(), async {
        tokio::time::sleep(ms(300)).await;
        server.start_again();
    });
    release(guard.expect("the outage was shorter than the command timeout")).await;
}

#[tokio::test]
async fn n14_parked_waiters_ride_out_a_restart() {
    let server = Server::start();
    let client = impatient(server.url()).await;
    server.hold_by_hand("restart", "somebody:1", MINUTE);
    let waiting = (0..4).map(|number| {
        let lock = client.lock("restart");
        tokio::spawn(async move {
            let guard = match number % 2 {
                0 => lock.lock().await.expect("riding out"),
                _ => lock.try_lock(MINUTE, MINUTE).await.expect("riding out").expect("in time"),
            };
            release(guard).await;
        })
    });
    let waiting: Vec<_> = waiting.collect();
    wait_until("a subscription", SOON, || server.subscribers("restart") == 1).await;
    server.kill();
    // Longer than the command timeout, which is a matter of calls that begin in the outage.
    tokio::time::sleep(ms(1_200)).await;
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    // It comes back empty: the lock is free, and nobody will say so.
    server.start_again();
    for waiter in within(Duration::from_secs(5), "four turns", join_all(waiting)).await {
        waiter.unwrap();
    }
}

#[tokio::test]
async fn lock_gives_up_when_an_outage_outlasts_the_limit() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).command_timeout(ms(300));
    let client = builder.outage_limit(ms(1_000)).connect().await.unwrap();
    server.hold_by_hand("limit", "somebody:1", MINUTE);
    let waiter = {
        let lock = client.lock("limit");
        tokio::spawn(async move { lock.lock().await.map(drop) })
    };
    wait_until("a subscription", SOON, || server.subscribers("limit") == 1).await;
    let start = Instant::now();
    server.kill();
    let error = refused(within(SOON, "the end of the limit", waiter).await.unwrap());
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() >= ms(800), "gave up after {:?}", start.elapsed());
    assert!(start.elapsed() < ms(3_000), "gave up after {:?}", start.elapsed());
}

#[tokio::test]
async fn n14_a_try_whose_wait_ends_in_an_outage_cannot_tell() {
    let server = Server::start();
    let client = impatient(server.url()).await;
    server.hold_by_hand("unknown", "somebody:1", MINUTE);
    let start = Instant::now();
    let waiter = {
        let lock = client.lock("unknown");
        tokio::spawn(async move { lock.try_lock(ms(1_500), Lease::Watchdog).await.map(drop) })
    };
    wait_until("a subscription", SOON, || server.subscribers("unknown") == 1).await;
    server.kill();
    let error = refused(within(SOON, "the end of the wait", waiter).await.unwrap());
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() >= ms(1_450));
    assert!(start.elapsed() < ms(3_500));
}

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
async fn a_release_that_redis_could_not_hear_is_made_good() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = impatient(proxy.url(&server)).await;
    let (unlocked, dropped) =
        (hold(&client.lock("unlocked")).await, hold(&client.lock("dropped")).await);
    proxy.refuse(true);
    proxy.cut_all();
    drop(dropped);
    assert_eq!(refused(unlocked.unlock().await).kind(), ErrorKind::Unavailable);
    assert!(server.exists("unlocked") && server.exists("dropped"));
    proxy.refuse(false);
    wait_until("free locks", Duration::from_secs(5), || server.ask::<u64>(&["DBSIZE"]) == 0).await;
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

#[tokio::test]
async fn callers_and_waiters_together_do_not_storm_a_server_that_is_down() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_500));
    let client = builder.connect().await.unwrap();
    server.hold_by_hand("busy", "somebody:1", MINUTE);
    let guards = [hold(&client.lock("a")).await, hold(&client.lock("b")).await];
    let waiters = (0..50).map(|_| {
        let lock = client.lock("busy");
        tokio::spawn(async move { lock.lock().await.map(drop) })
    });
    let waiters: Vec<_> = waiters.collect();
    wait_until("a subscription", SOON, || server.subscribers("busy") == 1).await;
    // All of them parked: a first try in an outage is a call that begins in it.
    proxy.settled(ms(200)).await;
    let before = proxy.attempts();
    proxy.refuse(true);
    proxy.cut_all();
    drop(guards);
    let callers = (0..50).map(|number| {
        let lock = client.lock(format!("caller:{number}"));
        async move { refused(lock.lock().await).kind() }
    });
    let start = Instant::now();
    let kinds = soon("fifty errors", join_all(callers)).await;
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::Unavailable));
    tokio::time::sleep(ms(2_000).saturating_sub(start.elapsed())).await;
    let attempts = proxy.attempts() - before;
    assert!(attempts >= 2, "nobody tried to come back");
    assert!(attempts < 60, "{attempts} attempts in two seconds");
    proxy.refuse(false);
    wait_until("releases", SOON, || !server.exists("a") && !server.exists("b")).await;
    server.free_by_hand("busy");
    for waiter in soon("the waiters", join_all(waiters)).await {
        waiter.unwrap().expect("riding out");
    }
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

#[tokio::test]
async fn an_outage_limit_without_end_is_no_overflow() {
    let server = Server::start();
    let client = LockClient::builder().url(server.url()).outage_limit(Duration::MAX);
    let client = client.connect().await.unwrap();
    server.hold_by_hand("patient", "somebody:1", MINUTE);
    let waiter = {
        let lock = client.lock("patient");
        tokio::spawn(async move { lock.lock().await.map(drop) })
    };
    wait_until("a subscription", SOON, || server.subscribers("patient") == 1).await;
    server.kill();
    tokio::time::sleep(ms(200)).await;
    server.start_again();
    soon("the lock", waiter).await.unwrap().expect("riding out");
}

// testRedisFailed
#[tokio::test]
async fn a_try_while_redis_is_down_is_an_error_and_no_hang() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).command_timeout(ms(300));
    let client = builder.connect().await.unwrap();
    let lock = client.lock("down");
    server.kill();
    let tried = lock.try_lock(Duration::from_secs(5), Duration::from_secs(10));
    let error = within(Duration::from_secs(3), "an error", tried).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

// testLockAfterTimeout
#[tokio::test]
async fn after_a_restart_the_old_hold_is_lost_and_a_new_one_is_renewed() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(600));
    let client = soon("connecting", builder.connect()).await.expect("connecting");
    let lock = client.lock("restart");
    let guard = hold(&lock).await;
    server.restart();
    soon("the loss", guard.lost()).await;
    let error = guard.unlock().await.expect_err("the server forgot the lock");
    assert_eq!(error.kind(), ErrorKind::Lost);

    let guard = hold(&lock).await;
    // More than two leases: without renewals it would have ended twice.
    tokio::time::sleep(ms(1_500)).await;
    assert!(!guard.is_lost());
    assert!(lock.is_held().await.unwrap());
    release(guard).await;
}
