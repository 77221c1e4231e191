//! An outage of Redis, as a program that collects `tracing` gets to see it: one warning when it
//! begins, one every ten seconds, and one when it is over, however many locks are concerned.
//!
//! ```sh
//! REDLATCH_OUTAGE=60 cargo test --release --test tracing -- --nocapture outages   # so many seconds
//! ```

use redlatch::LockGuard;
use tokio::task::JoinSet;

use super::*;

/// Fewer in a build without optimization, which has to renew them all the same.
const CROWD: usize = if cfg!(debug_assertions) { 200 } else { 1000 };

/// The most lines at warn, whether an outage lasts six seconds or sixty.
const MOST_WARNINGS: usize = 10;

fn length() -> Duration {
    let seconds = std::env::var("REDLATCH_OUTAGE").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(6))
}

/// So many locks that are held, each with a waiter. Half of the holders give back what they lost.
async fn crowd(client: &LockClient) -> JoinSet<Option<LockGuard>> {
    let mut all = JoinSet::new();
    let mut held = Vec::new();
    for number in 0..CROWD {
        held.push(hold(&client.lock(format!("lock {number}"))).await);
    }
    for (number, guard) in held.into_iter().enumerate() {
        all.spawn(async move {
            guard.lost().await;
            (number % 2 == 0).then_some(guard)
        });
        let waiter = client.lock(format!("lock {number}"));
        all.spawn(async move { waiter.lock().await.ok() });
    }
    all
}

/// What was logged at warn or above during an outage that `begin` begins and `end` ends.
async fn warnings(server: &Server, url: String, begin: impl Fn(), end: impl Fn()) -> Vec<Entry> {
    let length = length();
    let builder = LockClient::builder().url(url).watchdog_timeout(length / 2);
    let builder = builder.command_timeout(length / 10).outage_limit(length * 2 / 3);
    let client = connected(builder).await;
    let mut crowd = crowd(&client).await;
    let parked = || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len() == CROWD;
    wait_until("all wait", SOON, parked).await;
    assert!(entries(|entry| entry.level <= Level::INFO).is_empty(), "all is well yet");
    begin();
    tokio::time::sleep(length).await;
    end();
    told("the end", |entry| entry.says("Redis is available again")).await;
    let mut kept = Vec::new();
    within(2 * SOON, "the crowd", async {
        while let Some(one) = crowd.join_next().await {
            kept.push(one.expect("no panic"));
        }
    })
    .await;
    drop(kept);
    soon("closing", client.close()).await;
    entries(|entry| entry.level <= Level::WARN)
}

fn few_and_clear(warnings: &[Entry], server: &str, what: &str) {
    for warning in warnings {
        println!("{} {:?}", warning.level, warning.fields);
    }
    let seconds = length().as_secs() as usize;
    assert!(warnings.len() <= MOST_WARNINGS, "{} warnings: {warnings:#?}", warnings.len());
    let begins = warnings.iter().filter(|warning| warning.says("Redis is unavailable: "));
    let begins: Vec<_> = begins.collect();
    assert_eq!(begins.len(), 1, "{warnings:#?}");
    let first = &warnings[0];
    assert_eq!(first.field("server"), server, "{first:?}");
    assert!(first.field("error").contains(what), "{first:?}");
    assert_eq!(first.field("held_locks"), CROWD.to_string(), "{first:?}");
    assert!(first.field("message").contains("lost"), "what it means: {first:?}");
    let lasts = warnings.iter().filter(|warning| warning.says("Redis is still unavailable"));
    let lasts: Vec<_> = lasts.collect();
    // Each comes with a failure, and a failure may take the patience for an answer.
    let patience = seconds / 10;
    let expected = (seconds - patience) / (10 + patience)..=seconds / 10;
    assert!(expected.contains(&lasts.len()), "{expected:?}: {warnings:#?}");
    for (nth, warning) in lasts.iter().enumerate() {
        assert_eq!(warning.field("server"), server, "{warning:?}");
        let failed: usize = warning.field("failed_attempts").parse().expect("a number");
        assert!(failed > nth, "{warning:?}");
    }
    // A holder that lost its lock is named, unless too many are.
    let lost = warnings.iter().filter(|warning| warning.says("lost a lock")).count();
    assert!((1..=2).contains(&lost), "{warnings:#?}");
    let over = warnings.iter().filter(|warning| warning.says("Redis is available again"));
    let over: Vec<_> = over.collect();
    assert_eq!(over.len(), 1, "{warnings:#?}");
    assert_eq!(over[0].field("server"), server, "{over:?}");
}

#[tokio::test]
async fn an_outage_with_a_crowd_is_a_few_warnings_that_say_what_is_wrong_and_where() {
    alone(&[], async |server| {
        let proxy = Proxy::new(server);
        let begin = || {
            proxy.refuse(true);
            proxy.cut_all();
        };
        let warnings = warnings(server, proxy.url(server), begin, || proxy.refuse(false)).await;
        few_and_clear(&warnings, &format!("127.0.0.1:{}", proxy.port()), "");
    })
    .await;
}

#[tokio::test]
async fn so_is_one_of_a_server_that_hangs() {
    alone(&[], async |server| {
        let warnings = warnings(server, server.url(), || server.pause(), || server.resume()).await;
        few_and_clear(&warnings, &format!("127.0.0.1:{}", server.port()), "no answer");
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_is_replaced_at_once_is_no_outage() {
    alone(&[], async |server| {
        let proxy = Proxy::new(server);
        let client = client_with(proxy.url(server), Duration::from_secs(30)).await;
        release(hold(&client.lock("cut")).await).await;
        proxy.cut_all();
        let cut = told("the cut", |entry| entry.says("lost a connection")).await;
        assert_eq!(cut.level, Level::DEBUG, "{cut:?}");
        let again = || entries(|entry| entry.says("connected to Redis")).len() == 4;
        wait_until("both are connected again", SOON, again).await;
        release(hold(&client.lock("cut")).await).await;
        let loud = entries(|entry| entry.level <= Level::INFO);
        assert!(loud.is_empty(), "{loud:?}");
    })
    .await;
}
