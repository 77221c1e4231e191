//! What a client says of itself: `stats` and `health`.

use redlatch::Stats;

use crate::prelude::*;

/// The counts of calls since `before`: acquired, handed off, busy, failed, cancelled and waited.
fn counts(client: &LockClient, before: Stats) -> [u64; 6] {
    let Stats { acquired, handed_off, busy, failed, cancelled, waited, .. } =
        client.stats() - before;
    [acquired, handed_off, busy, failed, cancelled, waited]
}

#[tokio::test]
async fn a_call_counts_once_under_its_outcome() {
    let server = Server::start();
    let client = connect(&server).await;
    let [lock, other] = [client.lock("counted"), client.lock("counted")];
    assert_eq!(client.stats(), Stats::default());
    let (mut before, guard) = (Stats::default(), hold(&lock).await);
    let mut since = |client: &LockClient| {
        let counts = counts(client, before);
        before = client.stats();
        counts
    };
    assert_eq!(since(&client), [1, 0, 0, 0, 0, 0]);
    let nested = hold(&lock).await;
    assert_eq!(since(&client), [1, 0, 0, 0, 0, 0]);
    assert!(other.try_lock_now().await.unwrap().is_none());
    assert_eq!(since(&client), [0, 0, 1, 0, 0, 0]);
    assert!(other.try_lock(ms(30), Lease::Watchdog).await.unwrap().is_none());
    assert_eq!(since(&client), [0, 0, 1, 0, 0, 1]);
    other.lock_with_lease(Duration::ZERO).await.expect_err("no lease");
    assert_eq!(since(&client), [0, 0, 0, 1, 0, 0]);
    assert!(tokio::time::timeout(ms(30), other.lock()).await.is_err());
    assert_eq!(since(&client), [0, 0, 0, 0, 1, 0]);
    // Another holder of this client hands it off.
    let waiter = tokio::spawn(async move { hold(&other).await });
    wait_until("a call waits", SOON, || client.stats().waiting == 1).await;
    // It may ask once more when it is subscribed, and takes no hand-off until it has the answer.
    let (mut asked, mut quiet) = (0, 0);
    wait_until("it rests", SOON, || {
        let last = std::mem::replace(&mut asked, server.calls("evalsha"));
        quiet += 1;
        if last != asked || server.subscribers("counted") != 1 {
            quiet = 0;
        }
        quiet >= 30
    })
    .await;
    wait_until("it has waited", SOON, || client.stats().oldest_wait >= ms(20)).await;
    release(nested).await;
    release(guard).await;
    let guard = soon("the lock", waiter).await.expect("no panic");
    assert_eq!(since(&client), [1, 1, 0, 0, 0, 1]);
    let Stats { held, waiting, oldest_wait, wait_time, .. } = client.stats();
    assert_eq!((held, waiting, oldest_wait), (1, 0, Duration::ZERO));
    assert!(wait_time >= ms(50), "{wait_time:?}: of two calls that waited for 30 and 20 ms");
    release(guard).await;
    wait_until("the release is known", SOON, || client.stats().pending_releases == 0).await;
    assert_eq!(client.stats().held, 0);
}

#[tokio::test]
async fn several_locks_are_one_call_and_the_readers_of_a_client_one_lock() {
    let server = Server::start();
    // So long is the second one let in beside the first.
    let builder = LockClient::builder().url(server.url()).max_handoff_time(MINUTE);
    let client = connected(builder).await;
    let several = client.multi_lock(["a", "b", "c"]);
    let guard = several.lock().await.unwrap();
    assert_eq!(counts(&client, Stats::default()), [1, 0, 0, 0, 0, 0]);
    assert_eq!(client.stats().held, 3);
    guard.unlock().await.unwrap();
    let [first, second] = [client.read_write_lock("rw"), client.read_write_lock("rw")];
    let before = client.stats();
    let readers = (first.read().await.unwrap(), second.read().await.unwrap());
    assert_eq!(counts(&client, before), [2, 1, 0, 0, 0, 0]);
    assert_eq!(client.stats().held, 1);
    drop(readers);
    wait_until("it is released", SOON, || client.stats().held == 0).await;
}

#[tokio::test]
async fn a_guard_that_is_lost_and_lives_on_is_seen_until_it_is_dropped() {
    let server = Server::start();
    let client = connect(&server).await;
    assert!(client.health().is_live(Duration::ZERO));
    let (gone, ended) = (client.lock("gone"), client.lock("ended"));
    let (outer, inner) = (hold(&gone).await, gone.lock_with_lease(MINUTE).await.unwrap());
    let short = ended.lock_with_lease(ms(500)).await.unwrap();
    soon("the end of the lease", short.lost()).await;
    let (before, health, after) = (outer.remaining(), client.health(), outer.remaining());
    assert_eq!((health.lost_guards, health.held), (1, 1));
    let valid = health.tightest_validity.expect("a valid guard");
    assert!((after..=before).contains(&valid), "{valid:?}, and {before:?} to {after:?}");
    // Redis has forgotten the other lock: each of its guards is lost.
    server.ask::<()>(&["DEL", "gone"]);
    inner.extend(MINUTE).await.expect_err("it is gone");
    assert_eq!(client.stats().lost_guards, 3);
    assert_eq!((client.stats().losses, client.stats().held), (1, 0));
    let is_lost_for = |time| client.health().lost_for.is_some_and(|lost| lost >= time);
    wait_until("it is lost for a while", SOON, || is_lost_for(ms(20))).await;
    let health = client.health();
    assert!(!health.is_live(ms(20)) && health.is_live(MINUTE), "{health:?}");
    assert!(health.is_ready() && health.tightest_validity.is_none(), "{health:?}");
    drop(short);
    assert_eq!((client.stats().lost_guards, client.stats().losses), (2, 2));
    drop(outer);
    assert_eq!(client.stats().lost_guards, 1);
    inner.unlock().await.expect_err("it is lost");
    let health = client.health();
    assert!(health.lost_guards == 0 && health.is_live(Duration::ZERO), "{health:?}");
}

#[tokio::test]
async fn a_renewal_counts_and_says_when_it_was() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(2_400));
    let client = builder.connect().await.unwrap();
    let guards = join_all(["a", "b"].map(|name| client.lock(name)).iter().map(hold)).await;
    assert!(client.health().last_renewal.is_none() && client.stats().renewals == 0);
    for guard in &guards {
        renewed(guard).await;
    }
    wait_until("it counts", SOON, || client.stats().renewals >= 2).await;
    assert!(client.health().last_renewal.is_some_and(|ago| ago < SOON));
    server.pause();
    wait_until("a renewal fails", SOON, || client.stats().failed_renewals > 0).await;
    server.resume();
}

#[tokio::test]
async fn a_client_is_ready_while_a_server_is_up_and_it_is_not_closed() {
    let server = Server::start();
    let builder = || LockClient::builder().url(server.url()).command_timeout(ms(1_500));
    let client = builder().connect().await.unwrap();
    let lazy = builder().connect_lazy().unwrap();
    // To ask is what has it connect: a service that is not ready gets no requests.
    server.pause();
    assert!(!lazy.health().is_ready());
    server.resume();
    wait_until("the lazy one is ready", SOON, || lazy.health().is_ready()).await;
    for client in [&client, &lazy] {
        let health = client.health();
        let [node] = &*health.nodes else { panic!("{health:?}") };
        assert_eq!(node.address, format!("127.0.0.1:{}", server.port()));
        assert!(node.is_up && node.round_trip.is_some_and(|time| time < SOON), "{node:?}");
    }
    server.kill();
    wait_until("not ready", SOON, || !client.health().is_ready()).await;
    let health = client.health();
    assert!(health.is_live(Duration::ZERO), "{health:?}");
    assert!(health.nodes.iter().all(|node| !node.is_up && node.round_trip.is_none()));
    server.start_again();
    wait_until("ready again", SOON, || client.health().is_ready()).await;
    soon("closing", client.close()).await;
    assert!(!client.health().is_ready() && client.health().is_closed);
}

/// Its connection has ended, and nothing reads that.
#[test]
fn a_client_is_not_ready_by_the_connection_of_a_runtime_that_nothing_drives() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(connect(&server));
    runtime.block_on(async { release(hold(&client.lock("name")).await).await });
    assert!(client.health().is_ready());
    server.kill();
    block_until("not ready", SOON, || !client.health().is_ready());
    server.start_again();
    block_until("ready again", SOON, || client.health().is_ready());
}

#[tokio::test]
async fn each_server_of_a_topology_is_a_node() {
    let (sentinel, cluster) = (Setup::sentinel(), Setup::cluster());
    let (sentinel, cluster) = (sentinel.connect().await, cluster.connect().await);
    assert_eq!(sentinel.health().nodes.len(), 1);
    assert!(sentinel.health().is_ready() && cluster.health().is_ready());
    assert!(cluster.health().nodes.len() > 1, "{:?}", cluster.health());
}
