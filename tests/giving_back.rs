//! A hold is given back by `unlock`, by dropping the guard wherever that happens, and by closing
//! the client. Nothing of it blocks, panics or needs a runtime.

mod support;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use redlatch::{ErrorKind, Lease, LockClient, LockGuard};
use support::{Proxy, SOON, Server, block_until, connect, hold, ms, release, soon, wait_until};
use tokio::runtime::{Builder, Runtime};

const MINUTE: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A guard whose runtime is somewhere else, or nowhere.
fn guard_of(runtime: &Runtime, server: &Server, name: &str) -> LockGuard {
    runtime.block_on(async { hold(&connect(server).await.lock(name)).await })
}

fn freed(server: &Server, name: &str) {
    block_until("a free lock", SOON, || !server.exists(name));
}

#[tokio::test]
async fn a_thousand_guards_dropped_at_once_all_free_their_locks() {
    let server = Server::start();
    let client = connect(&server).await;
    let locks: Vec<_> = (0..1000).map(|number| client.lock(format!("many:{number}"))).collect();
    let guards = soon("1000 locks", join_all(locks.iter().map(hold))).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 1000);
    let start = Instant::now();
    drop(guards);
    assert!(start.elapsed() < ms(2_000), "dropping took {:?}", start.elapsed());
    wait_until("1000 free locks", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}

#[test]
fn c6_a_guard_dropped_in_a_thread_without_a_runtime_frees_the_lock() {
    let server = Server::start();
    let runtime = runtime();
    let guard = guard_of(&runtime, &server, "thread");
    thread::spawn(move || drop(guard)).join().unwrap();
    freed(&server, "thread");
}

#[test]
fn c6_a_guard_dropped_while_its_runtime_stands_still_frees_the_lock() {
    let server = Server::start();
    let runtime = runtime();
    let guard = guard_of(&runtime, &server, "still");
    // The runtime exists, but nobody drives it.
    drop(guard);
    freed(&server, "still");
    drop(runtime);
}

#[test]
fn c5_a_guard_dropped_after_its_runtime_ended_frees_the_lock() {
    let server = Server::start();
    let first = runtime();
    let guard = guard_of(&first, &server, "ended");
    drop(first);
    drop(guard);
    freed(&server, "ended");

    let second = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let guard = guard_of(&second, &server, "shut down");
    second.shutdown_background();
    drop(guard);
    freed(&server, "shut down");
}

#[test]
fn a_guard_unlocked_in_another_runtime_than_its_own_frees_the_lock() {
    let server = Server::start();
    let first = runtime();
    let guard = guard_of(&first, &server, "moved");
    drop(first);
    runtime().block_on(release(guard));
    assert!(!server.exists("moved"));
}

#[test]
fn a_guard_is_kept_renewed_without_any_runtime_of_the_users() {
    let server = Server::start();
    let first = runtime();
    let guard = first.block_on(async {
        let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(1_500));
        hold(&builder.connect().await.unwrap().lock("kept")).await
    });
    drop(first);
    // Longer than a lease: it is still held only if it was renewed.
    thread::sleep(ms(2_200));
    assert!(!guard.is_lost());
    assert!(server.exists("kept"));
    drop(guard);
    freed(&server, "kept");
}

#[test]
fn c6_a_guard_dropped_by_a_panic_frees_the_lock() {
    let server = Server::start();
    let runtime = runtime();
    let guard = guard_of(&runtime, &server, "panic");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = guard;
        // Without the hook's noise in the output of the tests.
        std::panic::resume_unwind(Box::new("a panic of the user's"));
    }));
    assert!(panicked.is_err());
    freed(&server, "panic");
}

#[test]
fn c6_a_guard_dropped_with_its_threads_locals_frees_the_lock() {
    thread_local!(static KEPT: RefCell<Option<LockGuard>> = const { RefCell::new(None) });
    let server = Server::start();
    let runtime = runtime();
    let guard = guard_of(&runtime, &server, "local");
    thread::spawn(move || KEPT.set(Some(guard))).join().unwrap();
    freed(&server, "local");
}

#[tokio::test]
async fn when_the_last_of_a_client_is_gone_so_are_its_connections() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("last");
    server.hold_by_hand("busy", "somebody:1", MINUTE);
    // Makes every connection that a client may have.
    assert!(client.lock("busy").try_lock(ms(50), Lease::Watchdog).await.unwrap().is_none());
    let guard = hold(&lock).await;
    let connections = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1;
    drop((client, lock));
    assert!(connections() > 0, "a guard keeps what it needs");
    drop(guard);
    wait_until("the end of the connections", ms(3_000), || connections() == 0).await;
    assert!(!server.exists("last"));
}

#[tokio::test]
async fn closing_waits_until_dropped_guards_are_given_back() {
    let server = Server::start();
    for round in 0..20 {
        let client = connect(&server).await;
        let locks: Vec<_> = (0..20).map(|n| client.lock(format!("{round}:{n}"))).collect();
        drop(join_all(locks.iter().map(hold)).await);
        soon("closing", client.close()).await;
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
    }
}

#[tokio::test]
async fn every_call_after_close_says_that_the_client_is_closed() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("closed");
    soon("closing", client.close()).await;
    soon("closing again", client.close()).await;
    let errors = [
        lock.lock().await.map(drop).unwrap_err(),
        lock.lock_with_lease(MINUTE).await.map(drop).unwrap_err(),
        lock.try_lock(MINUTE, MINUTE).await.map(drop).unwrap_err(),
        lock.try_lock_now().await.map(drop).unwrap_err(),
        lock.is_locked().await.map(drop).unwrap_err(),
        lock.is_held().await.map(drop).unwrap_err(),
        lock.hold_count().await.map(drop).unwrap_err(),
        lock.remaining_lease().await.map(drop).unwrap_err(),
        lock.force_unlock().await.map(drop).unwrap_err(),
        client.lock("another").lock().await.map(drop).unwrap_err(),
        client.clone().lock("a clone's").lock().await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn a_guard_dropped_while_redis_is_down_is_released_when_it_is_back() {
    let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(2 * MINUTE);
    let guard = hold(&builder.connect().await.unwrap().lock("down")).await;
    server.kill();
    drop(guard);
    // Nothing can happen now; long enough for the first tries to be in vain.
    tokio::time::sleep(ms(300)).await;
    server.start_again();
    wait_until("a free lock", SOON, || !server.exists("down")).await;
}

#[tokio::test]
async fn guards_given_back_while_redis_is_out_of_reach_are_released_when_it_is_back() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(200));
    let client = builder.connect().await.unwrap();
    let names = ["cut:1", "cut:2"];
    let [dropped, unlocked] = names.map(|name| client.lock(name));
    let (dropped, unlocked) = (hold(&dropped).await, hold(&unlocked).await);
    proxy.refuse(true);
    proxy.cut_all();
    let before = proxy.attempts();
    drop(dropped);
    let error = soon("unlock gives up", unlocked.unlock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    wait_until("it tries in vain, and again", SOON, || proxy.attempts() >= before + 4).await;
    assert!(names.iter().all(|name| server.exists(name)));
    proxy.refuse(false);
    wait_until("free locks", SOON, || !names.iter().any(|name| server.exists(name))).await;
}
