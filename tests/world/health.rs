//! What a client says of itself: of its guards what code has, of its releases what Redis has yet to hear.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_test::task::{self, Spawn};

use crate::prelude::*;

const NAME: &str = "seen";
const LEASE: Duration = ms(3_000);

type Call<T> = Spawn<BoxFuture<'static, Result<T, Error>>>;

/// A client of that server.
fn client_of(redis: &Redis) -> LockClient {
    redis.builder().watchdog_timeout(LEASE).connect_lazy().expect("a client")
}

/// Polls a call until it is parked, and then no more.
async fn park<T>(
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
    client: &LockClient,
) -> Call<T> {
    let (mut call, waiting) = (task::spawn(call.boxed()), client.stats().waiting);
    while client.stats().waiting == waiting {
        assert!(call.poll().is_pending());
        sleep(ms(1)).await;
    }
    // It asks again once it has subscribed.
    for _ in 0..10 {
        assert!(call.poll().is_pending());
        sleep(ms(1)).await;
    }
    call
}

#[tokio::test(start_paused = true)]
async fn a_guard_whose_lease_has_ended_is_no_release_that_is_pending() {
    let client = client_of(&Redis::new());
    let lock = client.lock(NAME);
    let guard = lock.lock_with_lease(LEASE).await.unwrap();
    guard.lost().await;
    assert_eq!((client.stats().pending_releases, client.stats().lost_guards), (0, 1));
    // What is given back is, until Redis answers.
    drop(client.lock("other").lock_with_lease(LEASE).await.unwrap());
    assert_eq!(client.stats().pending_releases, 1);
    sleep(ms(10)).await;
    drop(guard);
    sleep(ms(10)).await;
    assert_eq!((client.stats().pending_releases, client.stats().lost_guards), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_undoes_an_acquire_or_ends_a_client_is_a_release_that_is_pending() {
    let redis = Redis::new();
    let client = client_of(&redis);
    let guard = client.lock("held").lock().await.unwrap();
    redis.hang();
    let error = client.lock(NAME).try_lock_now().await.unwrap_err();
    assert_eq!((error.outcome(), client.stats().pending_releases), (Outcome::Unknown, 1));
    sleep(ms(10)).await;
    assert_eq!(client.stats().pending_releases, 1);
    let left = client.shutdown(ms(100)).await;
    assert_eq!((left.unreleased.len(), client.stats().pending_releases), (2, 2));
    redis.resume();
    sleep(ms(1_000)).await;
    assert_eq!(client.stats().pending_releases, 0);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_no_call_takes_is_no_guard_that_is_lost() {
    let client = client_of(&Redis::new());
    let guard = client.lock(NAME).lock().await.unwrap();
    let next = client.lock(NAME);
    let late = park(async move { next.lock().await }, &client).await;
    guard.unlock().await.unwrap();
    assert!(client.health().held == 1, "it was not handed off");
    sleep(2 * LEASE).await;
    let health = client.health();
    assert_eq!((health.lost_guards, health.lost_for), (0, None));
    assert!(health.is_live(Duration::ZERO) && health.tightest_validity.is_none());
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_was_let_in_and_does_not_go_on_is_no_guard_that_is_lost() {
    let redis = Redis::new();
    let client = client_of(&redis);
    let [writer, one, other] = [(); 3].map(|()| client.read_write_lock(NAME));
    let writing = writer.write().await.unwrap();
    let mut reading = park(async move { one.read().await }, &client).await;
    let late = park(async move { other.read().await }, &client).await;
    writing.unlock().await.unwrap();
    let reading = (&mut reading).await.unwrap();
    sleep(2 * LEASE).await;
    assert!(late.is_woken(), "it was not let in");
    assert_eq!((reading.is_lost(), client.health().lost_guards), (false, 0));
    // Redis has lost it: one guard is there to hear of that.
    redis.lose(NAME);
    reading.lost().await;
    assert_eq!(client.health().lost_guards, 1);
    drop(late);
}

/// Redis has made it the turn of a call of this client. No other one of this client has left it the lock.
#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_with_a_message_is_no_hand_off() {
    let redis = Redis::new();
    let (client, other) = (client_of(&redis), client_of(&redis));
    let before = other.fair_lock(NAME).lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..2 {
        let lock = client.fair_lock(NAME);
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        sleep(ms(100)).await;
    }
    before.unlock().await.unwrap();
    for (waiter, handed_off) in waiters.into_iter().zip([0, 1]) {
        let guard = waiter.await.unwrap();
        assert_eq!(client.stats().handed_off, handed_off);
        guard.unlock().await.unwrap();
    }
    assert_eq!(client.stats().acquired, 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hands_nothing_off_draws_no_tokens_for_others() {
    let redis = Redis::new();
    let client = redis.builder().max_handoffs(0).connect_lazy().unwrap();
    let calls = (0..100).map(|_| {
        let lock = client.fenced_lock(NAME);
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            let token = guard.token().get();
            guard.unlock().await.unwrap();
            token
        })
    });
    let mut tokens: Vec<u64> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    tokens.sort_unstable();
    let [time, micros]: [u64; 2] = redis.query(&redis::cmd("TIME")).unwrap();
    // One for each of them, from when the first one came.
    let now = time * 1_000_000 + micros;
    assert!(tokens[99] < now.max(tokens[0] + 100) + 1_000, "{:?} at {now}", &tokens[90..]);
    assert!(tokens.windows(2).all(|two| two[0] < two[1]));
}
