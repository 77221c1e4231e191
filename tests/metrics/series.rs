//! Counters and histograms: an event is in the series of its kind and outcome, once, with its time.

use std::collections::BTreeMap;

use futures::future::join_all;
use redlatch::test_util::Redis;
use redlatch::{ErrorKind, Lease, LockClient};
use tokio::time::{sleep, timeout};

use crate::recorder::{Recorder, Value, expected};
use crate::support::ms;

const ACQUIRES: &str = "redlatch_acquire_duration_seconds";
const HOLDS: &str = "redlatch_hold_duration_seconds";
const LOSSES: &str = "redlatch_losses_total";

/// From now on the client is 20 ms from its server, and connected.
async fn away(redis: &Redis, client: &LockClient) {
    redis.delay(ms(20));
    client.lock("warm").try_lock_now().await.unwrap().unwrap().unlock().await.unwrap();
}

/// What has grown.
fn grown(all: BTreeMap<String, Value>) -> Vec<String> {
    let grown = all.into_iter().filter(|(_, value)| *value != Value::Counter(0));
    grown.map(|(labels, value)| format!("{labels}: {value:?}")).collect()
}

#[tokio::test(start_paused = true)]
async fn each_call_that_acquires_counts_once_by_its_outcome() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let (client, other) = (redis.client(), redis.client());
    let lock = client.lock("order");
    let guard = lock.lock().await.unwrap();
    assert!(other.lock("order").try_lock_now().await.unwrap().is_none());
    assert!(other.lock("order").try_lock(ms(250), Lease::Watchdog).await.unwrap().is_none());
    timeout(ms(70), other.lock("order").lock()).await.expect_err("it is held");
    let next = client.lock("order");
    let handed = tokio::spawn(async move { next.lock().await.unwrap() });
    sleep(ms(400)).await;
    guard.unlock().await.unwrap();
    handed.await.unwrap().unlock().await.unwrap();
    let _: () = redis.query(redis::cmd("SET").arg("text").arg("1")).unwrap();
    let error = client.lock("text").try_lock_now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotALock);
    let error = client.lock("").try_lock_now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    redis.stop();
    let far = redis.builder().command_timeout(ms(100)).connect_lazy().unwrap();
    let error = far.lock("order").try_lock_now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    client.close().await;
    assert_eq!(client.lock("order").lock().await.unwrap_err().kind(), ErrorKind::Closed);

    let all = recorder.millis(ACQUIRES);
    let counts: Vec<_> = all.iter().map(|(labels, times)| (&**labels, times.len())).collect();
    assert_eq!(
        counts,
        [
            ("kind=lock,outcome=busy", 2),
            ("kind=lock,outcome=cancelled", 1),
            ("kind=lock,outcome=closed", 1),
            ("kind=lock,outcome=granted", 1),
            ("kind=lock,outcome=handed_off", 1),
            ("kind=lock,outcome=not_a_lock", 1),
            ("kind=lock,outcome=unavailable", 1),
        ]
    );
    assert_eq!(all["kind=lock,outcome=busy"], [0, 250]);
    assert_eq!(all["kind=lock,outcome=cancelled"], [70]);
    assert_eq!(all["kind=lock,outcome=handed_off"], [400]);
}

#[tokio::test(start_paused = true)]
async fn each_kind_has_its_name() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.client();
    client.lock("a").lock().await.unwrap().unlock().await.unwrap();
    client.fenced_lock("a").lock().await.unwrap().unlock().await.unwrap();
    client.fair_lock("a").lock().await.unwrap().unlock().await.unwrap();
    client.fenced_fair_lock("a").lock().await.unwrap().unlock().await.unwrap();
    let config = client.read_write_lock("config");
    config.read().await.unwrap().unlock().await.unwrap();
    config.write().await.unwrap().unlock().await.unwrap();
    let fenced = client.fenced_read_write_lock("fenced");
    fenced.read().await.unwrap().unlock().await.unwrap();
    fenced.write().await.unwrap().unlock().await.unwrap();
    client.multi_lock(["x", "y"]).lock().await.unwrap().unlock().await.unwrap();

    let granted = recorder.millis(ACQUIRES);
    let kinds: Vec<&str> = granted.keys().map(|labels| labels.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "kind=fair,outcome=granted",
            "kind=fenced,outcome=granted",
            "kind=fenced_fair,outcome=granted",
            "kind=fenced_read,outcome=granted",
            "kind=fenced_write,outcome=granted",
            "kind=lock,outcome=granted",
            "kind=multi,outcome=granted",
            "kind=read,outcome=granted",
            "kind=write,outcome=granted",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn each_hold_counts_once_by_its_end_with_the_time_that_it_took() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
    let hold = async |name: &str, time: u64| {
        let guard = client.lock(name).lock().await.unwrap();
        sleep(ms(time)).await;
        guard
    };
    hold("a", 100).await.unlock().await.unwrap();
    drop(hold("b", 200).await);
    let ended = client.lock("c").lock_with_lease(ms(300)).await.unwrap();
    sleep(ms(700)).await;
    drop(ended);
    let gone = hold("d", 0).await;
    redis.lose("d");
    gone.lost().await;
    drop(gone);
    let taken = hold("e", 0).await;
    redis.give("e", "7d2e1c8a-0000-4000-8000-000000000001:1");
    taken.lost().await;
    taken.unlock().await.expect_err("another has it");
    // Its release finds it.
    let gone = hold("f", 0).await;
    redis.lose("f");
    gone.unlock().await.expect_err("it is gone");

    let holds = recorder.millis(HOLDS);
    let ends: Vec<&str> = holds.keys().map(|labels| labels.as_str()).collect();
    assert_eq!(
        ends,
        [
            "end=dropped,kind=lock",
            "end=key_gone,kind=lock",
            "end=lease_ended,kind=lock",
            "end=released,kind=lock",
            "end=taken_over,kind=lock",
        ]
    );
    assert_eq!(holds["end=released,kind=lock"], [100]);
    assert_eq!(holds["end=dropped,kind=lock"], [200]);
    assert_eq!(holds["end=lease_ended,kind=lock"], [700]);
    assert_eq!(holds["end=key_gone,kind=lock"].len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_loss_counts_when_the_client_finds_it_and_not_when_the_guard_goes() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
    let config = client.read_write_lock("config");
    let (guard, writes) = (client.lock("a").lock().await.unwrap(), config.write().await.unwrap());
    redis.lose("a");
    redis.lose("config");
    sleep(ms(3_000)).await;
    let all = recorder.of(LOSSES);
    assert_eq!(all.len(), 3 * 4, "each kind and cause is there before it happens: {all:?}");
    assert_eq!(
        grown(all),
        ["cause=key_gone,kind=lock: Counter(1)", "cause=key_gone,kind=write: Counter(1)"]
    );
    drop((guard, writes));
    let reads = config.read().await.unwrap();
    redis.lose("config");
    sleep(ms(3_000)).await;
    assert_eq!(grown(recorder.of(LOSSES)), ["cause=key_gone,kind=read: Counter(1)"]);
    drop(reads);
}

#[tokio::test(start_paused = true)]
async fn a_request_counts_by_what_it_asks_for_with_its_round_trip() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
    away(&redis, &client).await;
    recorder.all();
    let guard = client.lock("a").lock().await.unwrap();
    guard.execute::<()>(redis::pipe().cmd("SET").arg("x").arg(1).ignore()).await.unwrap();
    sleep(ms(1_100)).await;
    guard.unlock().await.unwrap();
    let times = recorder.millis("redlatch_command_duration_seconds");
    assert_eq!(
        times,
        expected(&[
            ("operation=acquire", vec![40]),
            ("operation=execute", vec![40]),
            ("operation=release", vec![40]),
            ("operation=renew", vec![40]),
        ])
    );
}

/// Sixteen calls at once are two requests that are sent at once, and a batch of the others.
#[tokio::test(start_paused = true)]
async fn the_requests_of_a_batch_count_once_for_each_operation() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.client();
    away(&redis, &client).await;
    recorder.all();
    let locks: Vec<_> = (0..16).map(|name| client.lock(format!("name-{name}"))).collect();
    let guards = join_all(locks.iter().map(|lock| async { lock.lock().await.unwrap() })).await;
    for unlocked in join_all(guards.into_iter().map(|guard| guard.unlock())).await {
        unlocked.unwrap();
    }
    let times = recorder.millis("redlatch_command_duration_seconds");
    let three = vec![40; 3];
    let each = [("operation=acquire", three.clone()), ("operation=release", three)];
    assert_eq!(times, expected(&each));
}

/// One of a batch fails, the first that Redis sees of it.
#[tokio::test(start_paused = true)]
async fn a_request_of_a_batch_that_fails_counts_beside_its_round_trip() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.client();
    away(&redis, &client).await;
    let () = redis.query(redis::cmd("SET").arg("name-2").arg("text")).unwrap();
    recorder.all();
    let locks: Vec<_> = (0..16).map(|name| client.lock(format!("name-{name}"))).collect();
    let answers = join_all(locks.iter().map(|lock| lock.try_lock_now())).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 15);
    assert_eq!(answers[2].as_ref().unwrap_err().kind(), ErrorKind::NotALock);
    let times = recorder.millis("redlatch_command_duration_seconds");
    let failed = ("error_type=not_a_lock,operation=acquire", vec![40]);
    assert_eq!(times, expected(&[("operation=acquire", vec![40; 3]), failed]));
}

/// What a thread has kept back does not get lost with a program that closes its client and ends.
#[tokio::test(start_paused = true)]
async fn closing_a_client_records_what_was_kept_back() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.client();
    let locks: Vec<_> = (0..10).map(|name| client.lock(format!("name-{name}"))).collect();
    drop(join_all(locks.iter().map(|lock| async { lock.lock().await.unwrap() })).await);
    client.close().await;
    let recorded = recorder.all().into_iter().filter(|(name, _)| !name.contains("command"));
    let times = |value: Value| if let Value::Histogram(times) = value { times.len() } else { 0 };
    assert_eq!(recorded.map(|(_, value)| times(value)).sum::<usize>(), 2 * 10);
}

/// Of a lease of 3 s, Redis confirms the renewal a third of it and a round trip after the acquire was sent.
#[tokio::test(start_paused = true)]
async fn the_margin_of_a_renewal_is_what_was_left_when_redis_confirmed_it() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
    redis.delay(ms(50));
    let begun = tokio::time::Instant::now();
    let guard = client.lock("a").lock().await.unwrap();
    let left = guard.remaining() + begun.elapsed();
    while client.stats().renewals == 0 {
        sleep(ms(1)).await;
    }
    let expected_margin = left - begun.elapsed();
    let margins = recorder.millis("redlatch_renewal_margin_seconds");
    let [margin] = margins[""][..] else { panic!("{margins:?}") };
    assert!(margin.abs_diff(expected_margin.as_millis() as u64) <= 2, "{margin}");
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_warning_counts_also_where_the_log_is_spared_it() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.builder().warn_waits_longer_than(ms(100)).connect().await.unwrap();
    let holder = redis.client().lock("a").lock().await.unwrap();
    for _ in 0..3 {
        let wait = client.lock("a").try_lock(ms(300), Lease::Watchdog).await;
        assert!(wait.unwrap().is_none());
    }
    let warnings = recorder.of("redlatch_usage_warnings_total");
    assert_eq!(warnings, expected(&[("reason=long_wait", Value::Counter(3))]));
    holder.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_warning_of_how_a_lock_is_used_counts_by_its_reason() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let builder = redis.builder().warn_waits_longer_than(ms(100)).watchdog_timeout(ms(3_000));
    let client = builder.max_hold(ms(5_000)).connect().await.unwrap();
    let shared = std::sync::Arc::new(client.lock("shared"));
    let inside = async |lock: &std::sync::Arc<redlatch::Lock>| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() }).await.unwrap()
    };
    drop((inside(&shared).await, inside(&shared).await));
    let warned = || grown(recorder.of("redlatch_usage_warnings_total"));
    assert_eq!(warned(), ["reason=shared_handle: Counter(1)"]);

    // Another handle of a task that holds it: the call waits for its own task.
    let waits = async |client: &LockClient| {
        assert!(client.lock("a").try_lock(ms(300), Lease::Watchdog).await.unwrap().is_none());
    };
    let itself = client.clone();
    let guard = tokio::spawn(async move {
        let guard = itself.lock("a").lock().await.unwrap();
        waits(&itself).await;
        guard
    });
    let guard = guard.await.unwrap();
    assert_eq!(warned(), ["reason=long_wait: Counter(1)", "reason=waits_for_itself: Counter(1)"]);
    // One of another task of the client waits for that task.
    let other = client.clone();
    tokio::spawn(async move { waits(&other).await }).await.unwrap();
    assert_eq!(warned(), ["reason=long_wait: Counter(1)"]);

    guard.lost().await;
    assert_eq!(warned(), ["reason=long_hold: Counter(1)"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_counts_by_its_kind_of_error() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.client();
    let config = client.read_write_lock("config");
    let other = redis.client().read_write_lock("config");
    let reads = (config.read().await.unwrap(), other.read().await.unwrap());
    assert_eq!(config.write().await.unwrap_err().kind(), ErrorKind::WouldDeadlock);
    drop(reads);
    let full = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).to_owned();
    let () = redis.query(&full).unwrap();
    assert_eq!(client.lock("b").try_lock_now().await.unwrap_err().kind(), ErrorKind::Server);

    let all = recorder.millis(ACQUIRES);
    let failed: Vec<_> = all.keys().filter(|labels| !labels.ends_with("=granted")).collect();
    assert_eq!(failed, ["kind=lock,outcome=server", "kind=write,outcome=would_deadlock"]);
}

#[tokio::test(start_paused = true)]
async fn what_only_some_programs_ask_for_counts_by_its_operation() {
    let recorder = Recorder::install();
    let redis = Redis::new();
    let client = redis.client();
    let fair = client.fair_lock("till");
    let guard = fair.lock().await.unwrap();
    let other = redis.client().fair_lock("till");
    assert!(other.try_lock(ms(300), Lease::Watchdog).await.unwrap().is_none());
    assert!(fair.is_locked().await.unwrap());
    assert!(fair.force_unlock().await.unwrap());
    drop(guard);
    let replicated = redis.builder().replicas(1, ms(50)).connect().await.unwrap();
    replicated.lock("a").try_lock_now().await.expect_err("there is no replica");
    let operations = recorder.of("redlatch_command_duration_seconds");
    let names: Vec<&str> = operations.keys().map(String::as_str).collect();
    for wanted in
        ["operation=queue", "operation=inspect", "operation=force_unlock", "operation=wait"]
    {
        assert!(names.iter().any(|name| name.ends_with(wanted)), "{wanted} is not in {names:?}");
    }
}
