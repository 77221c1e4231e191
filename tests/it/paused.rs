//! Under paused time (`start_paused`, `tokio::time::pause`): Redis takes its real time all the same, so
//! every wait of the library does, too. It neither gives up early nor spins.

use std::pin::pin;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::prelude::*;

/// For how long this thread was busy. Each test has one, on which all tasks of its runtime run.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below a second"))
}

/// What a wait of about that time comes to. It is not polled often, and leaves its thread idle.
async fn takes<T>(least: Duration, future: impl Future<Output = T>) -> T {
    let (mut future, mut polls, begun, before) = (pin!(future), 0, Instant::now(), busy());
    let value = std::future::poll_fn(|cx| {
        polls += 1;
        future.as_mut().poll(cx)
    });
    let value = value.await;
    let (took, busy) = (begun.elapsed(), busy() - before);
    assert!((least..least + ms(5_000)).contains(&took), "{took:?}");
    assert!(polls < 60, "polled {polls} times in {took:?}");
    assert!(busy < took / 4, "busy for {busy:?} of {took:?}");
    value
}

async fn client(server: &Server) -> LockClient {
    LockClient::connect(server.url()).await.expect("connecting")
}

#[tokio::test(start_paused = true)]
async fn a_client_connects_and_locks_under_paused_time() {
    let server = Server::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let lock = client.lock("lock");
    for _ in 0..20 {
        lock.lock().await.expect("the lock").unlock().await.expect("its release");
    }
    let lazy = LockClient::builder().url(server.url()).connect_lazy().expect("a client");
    let guard = lazy.lock("lock").lock().await.expect("the lock");
    assert!(other.lock("lock").try_lock_now().await.expect("an answer").is_none());
    assert!(!guard.is_lost() && guard.remaining() > MINUTE / 3);
    guard.unlock().await.expect("its release");
    client.close().await;
}

#[tokio::test]
async fn a_wait_that_is_paused_takes_its_real_time_and_does_not_spin() {
    let server = Server::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let held = client.lock("lock").lock_with_lease(MINUTE).await.expect("the lock");
    tokio::time::pause();
    let asked = server.calls("evalsha");
    let lock = other.lock("lock");
    let granted = takes(ms(600), lock.try_lock(ms(600), MINUTE)).await;
    assert!(granted.expect("an answer").is_none());
    let asked = server.calls("evalsha") - asked;
    assert!(asked <= 3, "asked {asked} times");
    held.unlock().await.expect("its release");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_lock_as_soon_as_it_is_free() {
    let server = Arc::new(Server::start());
    let (client, other) = (client(&server).await, client(&server).await);
    let held = client.lock("lock").lock_with_lease(MINUTE).await.expect("the lock");
    let lock = other.lock("lock");
    let releases = std::thread::spawn({
        let server = server.clone();
        move || {
            block_until("it parks", SOON, || server.subscribers("lock") == 1);
            // For long enough to spin.
            std::thread::sleep(ms(400));
            drop(held);
        }
    });
    let guard = takes(ms(400), lock.lock()).await;
    releases.join().expect("no panic");
    guard.expect("the lock").unlock().await.expect("its release");
}

#[tokio::test(start_paused = true)]
async fn a_loss_comes_at_its_real_deadline() {
    let server = Server::start();
    let client = client(&server).await;
    let begun = Instant::now();
    let guard = client.lock("lock").lock_with_lease(ms(1_400)).await.expect("the lock");
    takes(ms(200), guard.lost()).await;
    assert!(begun.elapsed() >= ms(1_380), "{:?}", begun.elapsed());
    assert_eq!(guard.loss(), Some(Loss::LeaseEnded));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_its_real_time() {
    let (server, proxy) = proxied();
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let client = builder.connect().await.expect("connecting");
    let lock = client.lock("lock");
    lock.lock().await.expect("the lock").unlock().await.expect("its release");
    server.pause();
    let error = takes(ms(980), lock.try_lock_now()).await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.resume();
}
