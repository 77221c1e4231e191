//! What users test their code with: `redlatch::test_util::Redis`, `LockClient::in_memory` and
//! `memory://`.

use redlatch::Loss;

use crate::prelude::*;

#[tokio::test(start_paused = true)]
async fn a_test_sees_who_holds_a_lock_and_how_many_clients_wait_for_it() {
    let redis = Redis::new();
    let (one, other) = (redis.client().lock("order"), redis.client().fair_lock("order"));
    assert!(redis.holders("order").is_empty());
    let guard = one.lock().await.unwrap();
    let nested = one.lock().await.unwrap();
    let first = guard.owner().to_owned();
    assert_eq!(Vec::from_iter(redis.holders("order")), [(first.clone(), 2)]);
    let waiter = tokio::spawn(async move { other.lock().await.unwrap().owner().to_owned() });
    while redis.waiting("order") == 0 {
        sleep(ms(1)).await;
    }
    assert_eq!(redis.waiting("order"), 1);
    drop(nested);
    guard.unlock().await.unwrap();
    let owner = waiter.await.unwrap();
    assert_ne!(owner, first);
}

#[tokio::test(start_paused = true)]
async fn a_test_sees_who_reads_and_who_writes_and_gives_a_read_write_lock_away() {
    let redis = Redis::new();
    let (one, other) = (redis.client(), redis.client());
    let here = one.read_write_lock("config");
    let (reading, too) = (here.read().await.unwrap(), here.read().await.unwrap());
    assert_eq!(Vec::from_iter(redis.holders("config")), [(reading.owner().to_owned(), 1)]);
    let waits = other.read_write_lock("config");
    let writer = tokio::spawn(async move { waits.write().await.unwrap() });
    while redis.waiting("config") == 0 {
        sleep(ms(1)).await;
    }
    reading.unlock().await.unwrap();
    assert!(!writer.is_finished());
    too.unlock().await.unwrap();
    let writing = writer.await.unwrap();
    assert!(writing.owner().ends_with(":write"));
    assert_eq!(Vec::from_iter(redis.holders("config")), [(writing.owner().to_owned(), 1)]);

    redis.give_to_reader("config", "another:1");
    assert_eq!(Vec::from_iter(redis.holders("config")), [("another:1".to_owned(), 1)]);
    assert_eq!(writing.unlock().await.unwrap_err().loss(), Some(Loss::TakenOver));
    assert!(here.is_read_locked().await.unwrap() && here.try_write_now().await.unwrap().is_none());
    let beside = here.read().await.unwrap();
    redis.give_to_writer("config", "another:2:write");
    assert!(here.is_write_locked().await.unwrap());
    timeout(Duration::from_secs(11), beside.lost()).await.expect("told at the next renewal");
    assert!(one.read_write_lock("config").try_read_now().await.unwrap().is_none());
    redis.lose("config");
    // Who waits is told by nobody, and looks when the lease could have ended.
    let again = timeout(Duration::from_secs(31), one.read_write_lock("config").write()).await;
    again.expect("free again").unwrap().unlock().await.unwrap();
    assert!(redis.holders("config").is_empty());
}

/// The channel of a lock can begin as that of another one does.
#[tokio::test(start_paused = true)]
async fn clients_that_wait_for_a_lock_with_braces_are_counted_for_that_one_alone() {
    let redis = Redis::new();
    let names = ["a{b}", "a{b}:c"];
    let holder = redis.client();
    let (one, other) = (holder.lock(names[0]), holder.fair_lock(names[1]));
    let _guards = (one.lock().await.unwrap(), other.lock().await.unwrap());
    let waits = redis.client();
    let (one, other) = (waits.lock(names[0]), waits.fair_lock(names[1]));
    let _waiters = [
        tokio::spawn(async move { one.lock().await.is_ok() }),
        tokio::spawn(async move { other.lock().await.is_ok() }),
    ];
    while names.iter().any(|name| redis.waiting(name) == 0) {
        sleep(ms(1)).await;
    }
    assert_eq!(names.map(|name| redis.waiting(name)), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_hour_takes_no_time_and_leases_are_renewed_or_end() {
    let begun = std::time::Instant::now();
    let client = LockClient::in_memory();
    let watched = client.lock("job").lock().await.unwrap();
    let leased = client.lock("order").lock_with_lease(HOUR).await.unwrap();
    let start = Instant::now();
    leased.lost().await;
    assert!(start.elapsed() <= HOUR && start.elapsed() >= HOUR * 98 / 100, "{:?}", start.elapsed());
    assert_eq!(leased.loss(), Some(Loss::LeaseEnded));
    sleep(HOUR).await;
    assert!(!watched.is_lost());
    watched.unlock().await.unwrap();
    // Two hours in a hundredth of their time would be more than a minute.
    assert!(begun.elapsed() < 2 * HOUR / 100, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_unavailable_and_keeps_its_locks() {
    let redis = Redis::new();
    redis.stop();
    let client = redis.client();
    let lock = client.lock("order");
    assert_eq!(lock.try_lock_now().await.unwrap_err().kind(), ErrorKind::Unavailable);
    redis.start();
    let guard = lock.lock().await.unwrap();
    redis.stop();
    sleep(Duration::from_secs(5)).await;
    redis.start();
    sleep(HOUR).await;
    assert!(!guard.is_lost(), "it was renewed when the server was back");
    redis.restart_empty();
    timeout(Duration::from_secs(11), guard.lost()).await.expect("told at the next renewal");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_started_while_it_runs_resets_its_connections_and_keeps_its_locks() {
    let (redis, begun) = (Redis::new(), Instant::now());
    let client = redis.client();
    let guard = client.lock("order").lock().await.unwrap();
    redis.start();
    guard.unlock().await.unwrap();
    assert!(begun.elapsed() < ms(1_000), "{:?}: on the connection of before", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_endlessly_far_away_does_not_answer() {
    let (redis, begun) = (Redis::new(), Instant::now());
    redis.delay(Duration::MAX);
    let error = redis.client().lock("order").try_lock_now().await.unwrap_err();
    assert_eq!(error.to_string(), "could not connect to Redis for `order`");
    assert!(begun.elapsed() < ms(4_000), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_starts_again_has_none_of_its_old_connections() {
    let redis = Redis::new();
    let (client, other) = (redis.client(), redis.client());
    let _guard = client.lock("order").lock().await.unwrap();
    let lock = other.lock("order");
    let waits = tokio::spawn(async move { lock.lock().await.map(drop) });
    while redis.waiting("order") == 0 {
        sleep(ms(1)).await;
    }
    redis.stop();
    assert_eq!(redis.waiting("order"), 0);
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    redis.start();
    assert_eq!(redis.waiting("order"), 0);
}

#[tokio::test]
async fn the_address_memory_is_one_server_for_the_process() {
    let one = LockClient::connect("memory://").await.unwrap();
    let other = LockClient::builder().url("memory://").name_prefix("").connect_lazy().unwrap();
    let guard = one.fenced_lock("memory").lock().await.unwrap();
    assert!(other.lock("memory").try_lock_now().await.unwrap().is_none());
    let waits = tokio::spawn(async move { other.fenced_lock("memory").lock().await });
    let token = guard.token();
    drop(guard);
    assert!(waits.await.unwrap().unwrap().token() > token);
    let error = LockClient::connect("memory://elsewhere").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn memory_warns_of_itself_once_there_is_a_client_and_not_of_one_that_is_refused() {
    let warnings = |builder: LockClientBuilder| {
        let (log, made) = logged(|| builder.connect_lazy().is_ok());
        (made, log.matches("no other process sees them").count())
    };
    let memory = || LockClient::builder().url("memory://");
    assert_eq!(warnings(memory()), (true, 1));
    assert_eq!(warnings(memory().cluster(["redis://127.0.0.1/"])), (false, 0));
}

/// A client outlives the runtime that connected it, and real time goes on without any.
#[test]
fn a_server_that_is_made_outside_of_a_runtime_has_real_time_and_threads() {
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect_lazy().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime().block_on(client.lock("order").lock()).unwrap();
    let mut last = guard.remaining();
    block_until("a renewal by the client's thread", SOON, || {
        let before = std::mem::replace(&mut last, guard.remaining());
        before < last
    });
    assert!(!guard.is_lost());
    runtime().block_on(guard.unlock()).unwrap();
    let again = runtime().block_on(client.lock("order").try_lock(HOUR, HOUR)).unwrap();
    assert!(again.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_as_long_as_was_said_however_much_time_has_passed() {
    let redis = Redis::new();
    let _guard = redis.client().lock("busy").lock_with_lease(10 * HOUR).await.unwrap();
    let other = redis.client().lock("busy");
    for _ in 0..3 {
        let begun = Instant::now();
        assert!(other.try_lock(ms(600), HOUR).await.unwrap().is_none());
        assert_eq!(begun.elapsed(), ms(600));
        sleep(HOUR).await;
    }
}

/// What each request takes, a microsecond, is seen in no time that is left.
#[tokio::test(start_paused = true)]
async fn the_clock_of_a_redis_begins_with_a_whole_millisecond() {
    for _ in 0..5 {
        let redis = Redis::new();
        let (_, micros): (u64, u64) = redis.query(&::redis::cmd("TIME")).unwrap();
        assert!(micros % 1_000 < 10, "{micros}");
    }
}

/// The client is older than the hold, by virtual time alone.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_to_stay_for_a_time_stays_for_that_time_from_its_acquire() {
    let redis = Redis::new();
    let client = redis.builder().connect().await.unwrap();
    sleep(HOUR).await;
    let guard = client.lock("job").lock().await.unwrap();
    let acquired = Instant::now();
    // One of the same client, to which the lock would be handed off, and one of another.
    let waiters = [&client, &redis.client()].map(|client| {
        let lock = client.lock("job");
        tokio::spawn(async move {
            lock.lock().await.unwrap().unlock().await.unwrap();
            acquired.elapsed()
        })
    });
    sleep(ms(10_000)).await;
    for time in [1_000, 60_000, 20_000].map(ms) {
        guard.hold_at_least(time);
    }
    guard.unlock().await.unwrap();
    let left: u64 = redis.query(redis::cmd("PTTL").arg("job")).unwrap();
    assert_eq!(left, 50_000);
    for waited in join_all(waiters).await {
        let waited = waited.unwrap();
        assert!((ms(60_000)..ms(60_100)).contains(&waited), "{waited:?}");
    }
}

#[test]
#[should_panic(expected = "ended with the runtime in which it was made")]
fn a_server_that_is_made_in_a_runtime_ends_with_it_and_says_so() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let redis = first.block_on(async { Redis::new() });
    assert!(first.block_on(redis.client().lock("order").try_lock_now()).unwrap().is_some());
    drop(first);
    drop(runtime().block_on(async { redis.client() }));
}

/// A client on a thread of its own tries to come between, again and again.
#[test]
fn a_lock_that_is_given_away_has_one_owner_at_a_time() {
    let redis = Redis::new();
    redis.give("ends", "other:1");
    let client = redis.client();
    let takes = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let lock = client.lock("order");
            while client.lock("ends").is_locked().await.unwrap_or(true) {
                drop(lock.try_lock_now().await);
            }
        });
    });
    for _ in 0..3_000 {
        redis.give("order", "other:1");
        assert_eq!(Vec::from_iter(redis.holders("order")), [("other:1".to_owned(), 1)]);
        redis.lose("order");
    }
    redis.lose("ends");
    takes.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_answers_nothing_and_carries_out_what_came_when_it_goes_on() {
    let redis = Redis::new();
    let (holder, other) = (redis.client(), redis.client());
    let guard = holder.lock("order").lock().await.unwrap();
    let begun = Instant::now();
    redis.hang();
    let error = other.lock("another").try_lock_now().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    timeout(Duration::from_secs(31), guard.lost()).await.expect("its lease has ended");
    assert!(begun.elapsed() > ms(19_000), "{:?}", begun.elapsed());
    sleep(ms(1_000)).await;
    assert_eq!(redis.holders("order").len(), 0, "the server's clock goes on");
    redis.resume();
    assert!(other.lock("order").try_lock_now().await.unwrap().is_some());
}

/// As of a server that runs beside the program: what it has written with `EXAT`, say, ends when it should.
#[tokio::test(start_paused = true)]
async fn the_clock_of_a_server_is_that_of_this_machine() {
    let unix = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_secs()
    };
    let (before, redis) = (unix(), Redis::new());
    let (seconds, _): (u64, u64) = redis.query(&::redis::cmd("TIME")).unwrap();
    assert!((before..=unix()).contains(&seconds), "{seconds}");
    sleep(HOUR).await;
    let (later, _): (u64, u64) = redis.query(&::redis::cmd("TIME")).unwrap();
    assert!((3_600..=3_601).contains(&(later - seconds)), "{}", later - seconds);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_as_late_as_can_be_is_no_overflow() {
    let redis = Redis::new();
    let mut set = redis::cmd("SET");
    redis.query::<()>(set.arg("key").arg(1).arg("PXAT").arg(i64::MAX)).unwrap();
    assert!(redis.query::<i64>(redis::cmd("EXPIRETIME").arg("key")).unwrap() > 0);
    sleep(HOUR).await;
    redis.client().lock("order").lock().await.unwrap().unlock().await.unwrap();
    // As long as a wait can be.
    let _guard = redis.client().lock("busy").lock().await.unwrap();
    let waits = redis.client();
    let wait = async move { waits.lock("busy").try_lock(Duration::MAX / 4, HOUR).await };
    assert!(timeout(HOUR, wait).await.is_err());
}

/// The time of a test is paused, and the server's is not: as beside a real one. A runtime that is never idle would not
/// end a sleep.
#[test]
fn in_real_time_a_paused_runtime_is_idle_beside_a_lock() {
    let (ends, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            sleep(HOUR).await;
            let client = LockClient::connect("memory://").await.unwrap();
            let guard = client.lock("idle").lock().await.unwrap();
            sleep(HOUR).await;
            assert!(!guard.is_lost());
            guard.unlock().await.unwrap();
        });
        ends.send(()).unwrap();
    });
    ended.recv_timeout(SOON).expect("an hour that takes no time");
}

/// No runtime of a caller is needed for what is under way to arrive.
#[test]
fn in_real_time_renewals_arrive_while_no_runtime_runs() {
    let redis = Redis::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = redis.builder().watchdog_timeout(ms(900)).connect_lazy().unwrap();
    let guard = runtime.block_on(client.lock("order").lock()).unwrap();
    redis.delay(ms(1));
    let mut last = guard.remaining();
    block_until("a renewal", SOON, || {
        let before = std::mem::replace(&mut last, guard.remaining());
        before < last
    });
    drop(runtime);
    drop(guard);
    block_until("its release", SOON, || redis.holders("order").is_empty());
}

thread_local! {
    static KEPT: std::cell::RefCell<Option<LockGuard>> = const { std::cell::RefCell::new(None) };
}

/// The thread is there no more, as far as variables go, when it drops its guard.
#[test]
fn a_guard_that_a_thread_drops_behind_all_its_variables_is_given_back() {
    let redis = Redis::new();
    let client = redis.client();
    let ends = std::thread::spawn(move || {
        // Its destructor is registered before any of the client.
        KEPT.set(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        KEPT.set(Some(runtime.block_on(client.lock("order").lock()).unwrap()));
        client
    });
    let client = ends.join().expect("it ends");
    block_until("its release", SOON, || redis.holders("order").is_empty());
    drop(client);
}

/// Hears of the events of a client, and panics at some of them.
pub(crate) struct PanicsAt(fn(&str) -> bool);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for PanicsAt {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut said = String::new();
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            said += &format!("{value:?}");
        });
        assert!(!(self.0)(&said), "cannot write to the log");
    }
}

impl PanicsAt {
    /// On this thread, until that is dropped.
    pub(crate) fn on(
        said: fn(&str) -> bool,
    ) -> (tracing::subscriber::DefaultGuard, tracing::Dispatch) {
        use tracing_subscriber::prelude::*;
        // While there is only one, another thread that comes to an event first would switch that off for all.
        let another = tracing::Dispatch::new(tracing_subscriber::registry());
        (tracing_subscriber::registry().with(Self(said)).set_default(), another)
    }
}

/// The thread of a client has ended by a panic of what hears of its events: nothing would renew what it grants.
#[tokio::test(start_paused = true)]
async fn a_client_whose_thread_has_panicked_is_closed() {
    // Not where this test drops its guards.
    let _on = PanicsAt::on(|said| said.contains("lost a lock") && !said.contains("was dropped"));
    // The watchdog looks at a lease that has ended, or hears of a key that is gone. Beside a plain lock, one to read is
    // renewed by a request of its own.
    for (is_silent, lost) in [(true, "order"), (false, "order"), (false, "config")] {
        let redis = Redis::new();
        let client = redis.client();
        let order = client.lock("order").lock().await.unwrap();
        let config = client.read_write_lock("config").read().await.unwrap();
        if is_silent {
            redis.hang();
        } else {
            redis.lose(lost);
        }
        if lost == "order" {
            order.lost().await;
        } else {
            config.lost().await;
        }
        sleep(ms(5_000)).await;
        redis.resume();
        assert!(client.health().is_closed && !client.health().is_ready(), "{is_silent}, {lost}");
        let refused = client.lock("another").lock().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_ends_that_is_dropped_behind_its_guards_however_many_there_are() {
    let redis = Redis::new();
    let connections = || {
        let list: String = redis.query(redis::cmd("CLIENT").arg("LIST")).expect("a list");
        list.lines().count()
    };
    let none = connections();
    for many in 1..=64 {
        let client = redis.client();
        let locks: Vec<_> = (0..many).map(|name| client.lock(name.to_string())).collect();
        let guards = join_all(locks.iter().map(hold)).await;
        assert!(connections() > none);
        drop((guards, locks, client));
        sleep(ms(10_000)).await;
        assert_eq!(connections(), none, "{many} guards");
    }
}

/// So has a task of it, and no other does what that had to do.
#[tokio::test(start_paused = true)]
async fn a_client_of_which_a_task_has_panicked_is_closed() {
    let _on = PanicsAt::on(|said| {
        said.contains("rely on timers alone") || said.contains("released in the background")
    });
    let redis = Redis::new();
    let (holds, waits) = (redis.client(), redis.client());
    let guard = holds.lock("order").lock().await.unwrap();
    // The driver of its subscriptions.
    let forbid = ["SETUSER", "default", "resetchannels"];
    redis.query::<()>(redis::cmd("ACL").arg(&forbid)).unwrap();
    let refused = timeout(HOUR, waits.lock("order").lock()).await.expect("an answer").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    // A release in the background.
    drop(guard);
    sleep(ms(5_000)).await;
    assert!(holds.health().is_closed);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_follows_one_out_of_reach_takes_no_writes() {
    let redis = Redis::new();
    let client = redis.client();
    release(hold(&client.lock("order")).await).await;
    let follow = |host: &str, port: &str| {
        redis.query::<()>(redis::cmd("REPLICAOF").arg(host).arg(port)).expect("OK");
    };
    follow("10.0.0.9", "6379");
    let error = redis.query::<()>(redis::cmd("SET").arg("k").arg("v")).expect_err("a replica");
    assert_eq!(error.code(), Some("READONLY"));
    let error = client.lock("order").try_lock_now().await.expect_err("a replica");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    follow("NO", "ONE");
    release(hold(&client.lock("order")).await).await;
}
