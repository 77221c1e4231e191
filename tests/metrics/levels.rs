//! Gauges: what the client has now.

use std::collections::BTreeMap;
use std::time::Duration;

use redlatch::test_util::Redis;
use redlatch::{LockClient, LockGuard};
use rustix::process::{WaitOptions, waitpid};
use tokio::time::{sleep, timeout};

use crate::recorder::{Recorder, Value};
use crate::support::forks::{self, fork};
use crate::support::ms;

/// The recorder sets gauges back to zero with each look at them, and clients only add to these: this has the sums.
struct Levels {
    recorder: Recorder,
    sums: BTreeMap<String, f64>,
}

impl Levels {
    fn new() -> Self {
        Self { recorder: Recorder::install(), sums: BTreeMap::new() }
    }

    /// After the client has looked.
    async fn look(&mut self) {
        sleep(LOOKED).await;
        for (series, value) in self.recorder.all() {
            if let Value::Gauge(more) = value {
                *self.sums.entry(series).or_default() += more;
            }
        }
    }

    fn of(&self, series: &str) -> f64 {
        *self.sums.get(series).unwrap_or_else(|| panic!("no {series} in {:?}", self.sums))
    }
}

/// After that, the client has looked.
const LOOKED: Duration = ms(1_100);

/// Two clients without a label share the series: it is their sum.
#[tokio::test(start_paused = true)]
async fn what_is_held_and_waits_is_seen_and_goes_away() {
    let mut recorder = Levels::new();
    let redis = Redis::new();
    let (client, other) = (redis.client(), redis.client());
    let (a, b) = (client.lock("a").lock().await.unwrap(), other.lock("b").lock().await.unwrap());
    let reads = client.read_write_lock("config").read().await.unwrap();
    let waiting = other.lock("a");
    let waits = tokio::spawn(async move {
        timeout(ms(5_000), waiting.lock()).await.expect_err("it is held");
    });
    recorder.look().await;
    assert_eq!(recorder.of("redlatch_held{kind=lock}"), 2.0);
    assert_eq!(recorder.of("redlatch_held{kind=read}"), 1.0);
    assert_eq!(recorder.of("redlatch_held{kind=write}"), 0.0);
    assert_eq!(recorder.of("redlatch_waiting{kind=lock}"), 1.0);
    assert_eq!(recorder.of("redlatch_connections{state=up}"), 2.0);
    waits.await.unwrap();
    a.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    recorder.look().await;
    assert_eq!(recorder.of("redlatch_held{kind=lock}"), 1.0);
    assert_eq!(recorder.of("redlatch_held{kind=read}"), 0.0);
    assert_eq!(recorder.of("redlatch_waiting{kind=lock}"), 0.0);
    drop((b, other));
    recorder.look().await;
    assert_eq!(recorder.of("redlatch_connections{state=up}"), 1.0, "a client takes its part along");
}

/// Redis grants a fair lock to the next client by itself, and its message names no kind.
#[tokio::test(start_paused = true)]
async fn a_lock_that_came_with_a_message_is_held_as_its_kind() {
    let mut recorder = Levels::new();
    let redis = Redis::new();
    let (client, other) = (redis.client(), redis.client());
    let before = other.fair_lock("a").lock().await.unwrap();
    let lock = std::sync::Arc::new(client.fair_lock("a"));
    let waiting = lock.clone();
    let waiting = tokio::spawn(async move { waiting.lock().await.unwrap() });
    sleep(ms(500)).await;
    before.unlock().await.unwrap();
    let guard = waiting.await.unwrap();
    for guard in [Some(guard), None] {
        let guard = match guard {
            Some(guard) => guard,
            // In the memory of what came with the message.
            None => lock.lock().await.unwrap(),
        };
        recorder.look().await;
        assert_eq!(recorder.of("redlatch_held{kind=fair}"), 1.0);
        guard.unlock().await.unwrap();
        recorder.look().await;
        assert_eq!(recorder.of("redlatch_held{kind=fair}"), 0.0);
    }
}

/// A client with a recorder, and the holder of a lock. That one is made before there is a recorder: clients of one
/// recorder share a series unless a label tells them apart.
async fn beside_a_holder() -> (Redis, LockGuard, Recorder, LockClient) {
    let redis = Redis::new();
    let holder = redis.client().lock("a").lock().await.unwrap();
    let recorder = Recorder::install();
    let client = redis.client();
    (redis, holder, recorder, client)
}

#[tokio::test(start_paused = true)]
async fn the_oldest_wait_is_the_time_of_the_one_that_came_first() {
    let (_redis, holder, recorder, client) = beside_a_holder().await;
    let waits = tokio::spawn(async move { client.lock("a").lock().await.unwrap() });
    sleep(ms(10_000)).await;
    let Value::Gauge(oldest) = recorder.all()["redlatch_oldest_wait_seconds{}"] else {
        panic!("no gauge")
    };
    assert!((8.9..=10.0).contains(&oldest), "{oldest}");
    holder.unlock().await.unwrap();
    waits.await.unwrap().unlock().await.unwrap();
}

/// No other client would set it back.
#[tokio::test(start_paused = true)]
async fn the_oldest_wait_of_a_client_that_has_ended_is_none() {
    let (_redis, _holder, recorder, client) = beside_a_holder().await;
    timeout(ms(10_000), client.lock("a").lock()).await.expect_err("it is held");
    drop(client);
    sleep(LOOKED).await;
    assert_eq!(recorder.all()["redlatch_oldest_wait_seconds{}"], Value::Gauge(0.0));
}

/// A thread that is not in the fork may have locked what the recorder locks.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_a_forked_child_records_nothing() {
    let (_redis, _holder, recorder, client) = beside_a_holder().await;
    let lock = client.lock("a");
    let mut waits = Box::pin(lock.lock());
    timeout(ms(2_000), &mut waits).await.expect_err("it is held");
    let Some(fork) = fork() else {
        drop(waits);
        let all = recorder.all();
        let waiting = all["redlatch_waiting{kind=lock}"] == Value::Gauge(1.0);
        let ended = all.keys().any(|series| series.contains("cancelled"));
        forks::end(waiting && !ended);
    };
    let ended = waitpid(Some(fork), WaitOptions::empty()).expect("a child of this process");
    assert!(ended.is_some_and(|(_, status)| forks::went_well(status)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_lives_on_after_its_loss_is_a_zombie() {
    let mut recorder = Levels::new();
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    recorder.look().await;
    assert_eq!(recorder.of("redlatch_zombie_guards{}"), 0.0);
    redis.lose("a");
    guard.lost().await;
    recorder.look().await;
    assert_eq!(recorder.of("redlatch_zombie_guards{}"), 1.0);
    drop(guard);
    recorder.look().await;
    assert_eq!(recorder.of("redlatch_zombie_guards{}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_comes_back_is_counted() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    redis.delay(ms(1));
    let client = redis.builder().connect().await.unwrap();
    sleep(LOOKED).await;
    let all = recorder.all();
    assert_eq!(all["redlatch_reconnects_total{}"], Value::Counter(0), "the first ones are none");
    assert_eq!(all["redlatch_connections{state=up}"], Value::Gauge(1.0));
    redis.stop();
    sleep(ms(3_000)).await;
    let all = recorder.all();
    assert_eq!(all["redlatch_connections{state=up}"], Value::Gauge(-1.0), "one fewer");
    assert_eq!(all["redlatch_connections{state=dialing}"], Value::Gauge(1.0));
    redis.start();
    sleep(ms(10_000)).await;
    let again = &recorder.all()["redlatch_reconnects_total{}"];
    assert_eq!(*again, Value::Counter(2), "that of commands, and the thread's own");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_dials_no_server_though_a_handle_lives_on() {
    let mut recorder = Levels::new();
    let redis = Redis::new();
    let client = redis.client();
    let lock = client.lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    recorder.look().await;
    assert_eq!(recorder.of("redlatch_connections{state=up}"), 1.0);
    client.close().await;
    drop(client);
    recorder.look().await;
    for state in ["up", "dialing"] {
        assert_eq!(recorder.of(&format!("redlatch_connections{{state={state}}}")), 0.0, "{state}");
    }
    drop(lock);
}
