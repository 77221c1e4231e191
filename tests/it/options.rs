//! Every option at its bounds and beyond works, or is refused before anything is sent (W13).

use std::fmt::Debug;
use std::panic;
use std::slice;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::prelude::*;

const NANOSECOND: Duration = Duration::from_nanos(1);

/// What may come of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Refused,
    Works,
    /// It works, and on a busy machine or in an outage a call may fail because of it.
    MayFail,
}

struct Setting {
    what: String,
    expected: Expected,
    set: Box<dyn Fn(LockClientBuilder) -> LockClientBuilder>,
}

/// One option with each of these values.
fn each<V: Copy + Debug + 'static, const N: usize>(
    option: &str,
    set: fn(LockClientBuilder, V) -> LockClientBuilder,
    values: [(V, Expected); N],
) -> Vec<Setting> {
    let setting = |(value, expected)| Setting {
        what: format!("{option}({value:?})"),
        expected,
        set: Box::new(move |builder| set(builder, value)),
    };
    values.map(setting).into()
}

/// Each setting, and what has to come of it.
fn settings() -> Vec<Setting> {
    use Expected::{MayFail, Refused, Works};
    type Builder = LockClientBuilder;
    let (none, forever) = (Duration::ZERO, Duration::MAX);
    let watchdogs = [
        (none, Refused),
        (NANOSECOND, Refused),
        (ms(30) - NANOSECOND, Refused),
        (ms(30), MayFail),
        (DAY, Works),
        (DAY + NANOSECOND, Refused),
        (forever, Refused),
    ];
    let commands = [
        (none, Refused),
        (NANOSECOND, Refused),
        (ms(10) - NANOSECOND, Refused),
        (ms(10), MayFail),
        (HOUR, Works),
        (HOUR + NANOSECOND, Refused),
        (forever, Refused),
    ];
    let outages = [(none, MayFail), (NANOSECOND, MayFail), (forever, Works)];
    let all_work = [(none, Works), (NANOSECOND, Works), (forever, Works)];
    let graces = [(ms(9), Refused), (ms(10), Works), (ms(10_000), Works), (ms(10_001), Refused)];
    let waits = [(ms(10) - NANOSECOND, Refused), (ms(10), Works), (forever, Works)];
    let replicas = [
        ((0, ms(1)), Refused),
        ((1, none), Refused),
        ((1, NANOSECOND), Refused),
        // There are no replicas here.
        ((1, ms(1)), MayFail),
        ((u32::MAX, ms(1)), MayFail),
        ((1, 15 * SECOND + NANOSECOND), Refused),
        ((u32::MAX, forever), Refused),
    ];
    // Neither limit ends a run of hand-offs.
    let endless = |builder: Builder, time| {
        builder.max_handoffs(u32::MAX).max_handoff_time(time).outage_limit(Duration::MAX)
    };
    let all = [
        each("watchdog_timeout", Builder::watchdog_timeout, watchdogs),
        each("command_timeout", Builder::command_timeout, commands),
        each("outage_limit", Builder::outage_limit, outages),
        each("max_hold", Builder::max_hold, all_work),
        each("fair_grace", Builder::fair_grace, graces),
        each("fair_turn", Builder::fair_turn, all_work),
        each("warn_waits_longer_than", Builder::warn_waits_longer_than, waits),
        each("max_handoffs", Builder::max_handoffs, [0, 1, u32::MAX].map(|most| (most, Works))),
        each("max_handoff_time", Builder::max_handoff_time, all_work),
        each("max_handoffs(MAX), max_handoff_time", endless, all_work),
        each("replicas", |builder, (count, timeout)| builder.replicas(count, timeout), replicas),
    ];
    all.into_iter().flatten().collect()
}

/// How often a thread of a client has panicked: nobody awaits its tasks.
fn panics_of_clients() -> usize {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    static COUNT: Once = Once::new();
    COUNT.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some("redlatch") {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
    PANICS.load(Ordering::SeqCst)
}

#[tokio::test]
async fn w13_every_option_at_its_bounds_works_or_is_refused_before_any_io() {
    let before = panics_of_clients();
    let (server, proxy) = proxied();
    for Setting { what, expected, set } in settings() {
        let attempts = proxy.attempts();
        let builder = set(LockClient::builder().url(proxy.url(&server)));
        let client = soon(&what, builder.connect()).await;
        if expected == Expected::Refused {
            let error = client.expect_err(&what);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
            assert_eq!(error.outcome(), Outcome::NotExecuted, "{what}: {error}");
            let option = what.split('(').next().expect("a name");
            assert!(error.to_string().contains(option), "{error} does not name {option}");
            assert_eq!(proxy.attempts(), attempts, "{what}: it was connected");
            continue;
        }
        let used = match client {
            Ok(client) => use_it(&what, &server, &proxy, client).await,
            Err(error) => Err(error),
        };
        match used {
            Ok(()) => {}
            Err(error) if expected == Expected::MayFail => {
                let kinds = [ErrorKind::Unavailable, ErrorKind::Lost];
                assert!(kinds.contains(&error.kind()), "{what}: {error}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
        wait_until(&what, SOON, || !server.exists("lock")).await;
        assert_eq!(panics_of_clients(), before, "{what}: the client's thread has panicked");
    }
}

async fn take_a_turn(client: LockClient) -> Result<(), Error> {
    client.lock("lock").lock().await?.unlock().await
}

/// Hand-offs while another client waits, an outage, turns of a fair lock, and a close. Where a lease is so short that it
/// may end meanwhile, a turn may be over before it is seen to wait.
async fn use_it(
    what: &str,
    server: &Server,
    proxy: &Proxy,
    client: LockClient,
) -> Result<(), Error> {
    let other = soon(what, LockClient::connect(server.url())).await.expect("connecting");
    let parked = async |many, turns: &[JoinHandle<Result<(), Error>>]| {
        let is_over = || turns.iter().any(JoinHandle::is_finished);
        wait_until(what, SOON, || server.subscribers("lock") >= many || is_over()).await;
    };

    let guard = client.lock("lock").lock().await?;
    let turns = (0..4).map(|_| tokio::spawn(take_a_turn(client.clone())));
    let mut turns: Vec<_> = turns.collect();
    turns.push(tokio::spawn(take_a_turn(other.clone())));
    parked(2, &turns).await;
    guard.unlock().await?;
    for turn in soon(what, join_all(turns)).await {
        turn.unwrap_or_else(|panic| panic!("{what}: {panic}"))?;
    }

    let guard = other.lock("lock").lock_with_lease(MINUTE).await.expect("the lock");
    let waiting = tokio::spawn(take_a_turn(client.clone()));
    parked(1, slice::from_ref(&waiting)).await;
    let attempts = proxy.attempts();
    proxy.refuse(true);
    proxy.cut_all();
    wait_until("a try to connect", SOON, || proxy.attempts() > attempts).await;
    proxy.refuse(false);
    soon(what, guard.unlock()).await.expect("unlocking");
    soon(what, waiting).await.unwrap_or_else(|panic| panic!("{what}: {panic}"))?;

    let guard = soon(what, client.fair_lock("lock").lock()).await?;
    let turns = [&client, &client, &other].map(|client| {
        let fair = client.fair_lock("lock");
        tokio::spawn(async move { fair.lock().await?.unlock().await })
    });
    let queue = ["ZCARD", "redlatch_queue:{lock}"];
    let waits = || server.ask::<u64>(&queue) > 1 || turns.iter().any(|turn| turn.is_finished());
    wait_until(what, SOON, waits).await;
    soon(what, guard.unlock()).await?;
    for turn in soon(what, join_all(turns)).await {
        turn.unwrap_or_else(|panic| panic!("{what}: {panic}"))?;
    }

    let guard = client.lock("lock").lock().await?;
    let waiting = tokio::spawn(take_a_turn(client.clone()));
    parked(1, slice::from_ref(&waiting)).await;
    soon(what, client.close()).await;
    match soon(what, waiting).await.unwrap_or_else(|panic| panic!("{what}: {panic}")) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{what}"),
        Ok(()) => assert!(guard.is_lost(), "{what}: it had its turn beside the holder"),
    }
    soon(what, guard.unlock()).await
}
