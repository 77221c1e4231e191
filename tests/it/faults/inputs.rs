//! Rows I: inputs and scale. Waits and names that are odd are in `bad_input.rs`, losing a lock and locking it
//! again is in `losses.rs`, the memory of a waiter in `tests/allocations.rs`.

use std::time::Instant;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};

use super::*;

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Of every size, most of them near a bound.
fn durations() -> impl Strategy<Value = Duration> {
    let nanos = |from: u64, to| (from..to).prop_map(Duration::from_nanos);
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        nanos(0, 2_000_000),
        nanos(0, 5_000_000_000),
        (0..2_000_u64).prop_map(|by| CENTURY - ms(1_000) + ms(by)),
        (0..2_000_u64).prop_map(|by| ms(i64::MAX as u64 - 1_000 + by)),
        any::<Duration>(),
    ]
}

#[test]
fn i1_any_lease_is_refused_before_any_io_or_rounded_up_and_has_an_end() {
    let ((server, proxy), runtime) = (proxied(), runtime());
    let client = runtime.block_on(LockClient::connect(proxy.url(&server))).expect("a server");
    let (lock, held) = (client.lock("lock"), client.lock("held"));
    let outer = runtime.block_on(held.lock_with_lease(HOUR)).expect("a free lock");
    let slack = i64::try_from(SOON.as_millis()).expect("bounded");
    let case = async |(lease, wait): (Duration, Duration)| {
        // What was sent before is counted when this is answered.
        lock.is_locked().await.expect("an answer");
        proxy.forget_commands();
        let taken = soon("locking", lock.try_lock(wait, lease)).await;
        if lease.is_zero() || lease > CENTURY {
            let error = taken.expect_err("it can never work");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert_eq!(error.outcome(), Outcome::NotExecuted, "{error}");
            assert!(error.to_string().contains("lease"), "{error}");
            let nested = held.lock_with_lease(lease).await.expect_err("it can never work");
            assert_eq!(nested.kind(), ErrorKind::InvalidArgument, "{nested}");
            assert!(!lock.is_locked().await.expect("an answer"));
            assert_eq!(proxy.commands(), [("EVALSHA".to_owned(), 1)].into(), "{lease:?}");
            return;
        }
        let guard = taken.expect("an answer").expect("a free lock");
        let whole = i64::try_from(lease.as_nanos().div_ceil(1_000_000)).expect("bounded");
        match server.pttl("lock") {
            -2 => assert!(whole < slack, "{lease:?} has ended already"),
            left => assert!(left >= 0 && left <= whole && left > whole - slack, "{left} ms"),
        }
        // Lost if its lease has ended, which is none of this test's business.
        let _ = soon("unlocking", guard.unlock()).await;
        assert!(!server.exists("lock"));
    };
    let config = Config { failure_persistence: None, ..Config::default() };
    let cases = TestRunner::new(config).run(&(durations(), durations()), |input| {
        runtime.block_on(case(input));
        Ok(())
    });
    cases.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(server.holds("held"), [(outer.owner().to_owned(), 1)].into());
}

/// How long a cycle takes is a figure of a release build: see `benches/watchdog.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_thousands_of_locks_are_renewed_in_few_commands_none_of_them_long() {
    let _busy = machine::busy();
    // Fewer in a build without optimization.
    const MANY: usize = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    const TASKS: usize = 8;
    let lease = ms(24_000);
    let server = Server::start_with(&["--slowlog-log-slower-than", "5000"]);
    let client = client_with(server.url(), lease).await;
    let tasks = (0..TASKS).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut guards = Vec::with_capacity(MANY / TASKS);
            for n in 0..MANY / TASKS / 100 {
                let names = (0..100).map(|k| format!("many:{task}:{n}:{k}"));
                let locks: Vec<_> = names.map(|name| client.lock(name)).collect();
                guards.extend(join_all(locks.iter().map(hold)).await);
            }
            guards
        })
    });
    let tasks = within(MINUTE, "all locks", join_all(tasks.collect::<Vec<_>>())).await;
    let guards: Vec<_> = tasks.into_iter().flat_map(|guards| guards.expect("locks")).collect();
    assert_eq!(server.ask::<usize>(&["DBSIZE"]), MANY);
    let deadlines = || guards.iter().map(|guard| Instant::now() + guard.remaining());
    let before: Vec<_> = deadlines().collect();
    server.reset_stats();
    server.ask::<()>(&["SLOWLOG", "RESET"]);
    let start = Instant::now();
    while !deadlines().zip(&before).all(|(now, before)| now > *before + ms(500)) {
        assert!(start.elapsed() < MINUTE, "they are not all renewed");
        // Looking is work, too.
        tokio::time::sleep(ms(50)).await;
    }
    let cycles = start.elapsed().div_duration_f64(lease / 3).ceil() + 1.0;
    let info: String = server.ask(&["INFO", "commandstats"]);
    let figures = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let (calls, rest) = figures.expect("renewals").split_once(",usec=").expect("a time");
    let (calls, micros): (f64, f64) =
        (calls.parse().unwrap(), rest.split_once(',').expect("more").0.parse().unwrap());
    let long: f64 = server.ask(&["SLOWLOG", "LEN"]);
    println!("{calls} commands, {micros} us, {long} long, in {:?}", start.elapsed());
    assert!(calls / cycles < MANY as f64 / 50.0, "{calls} commands in {cycles} cycles");
    assert!(micros / cycles < 3e6, "{micros} us of the server in {cycles} cycles");
    // On a busy machine a script may wait for a processor; all would be long if they had too many locks.
    assert!(long <= calls / 2.0, "{long} of {calls} took over 5 ms");
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_eq!(server.ask::<usize>(&["DBSIZE"]), MANY);
    let start = Instant::now();
    drop(guards);
    wait_until("free locks", MINUTE, || server.ask::<usize>(&["DBSIZE"]) == 0).await;
    println!("freed in {:?}", start.elapsed());
}
