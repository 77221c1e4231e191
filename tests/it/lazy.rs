//! `connect_lazy`: a client that does no I/O before its first call, and connects in the background
//! from then on.

use std::io;

use crate::prelude::*;
use crate::support::sentinel::MASTER;

fn lazy(builder: LockClientBuilder) -> LockClient {
    builder.command_timeout(ms(1_000)).connect_lazy().expect("usable options")
}

#[track_caller]
fn not_executed<T>(result: Result<T, Error>) {
    let Err(error) = result else { panic!("Redis is down") };
    let told = (error.kind(), error.outcome());
    assert_eq!(told, (ErrorKind::Unavailable, Outcome::NotExecuted), "{error}");
}

/// What anybody does with a client.
async fn works(client: &LockClient, name: &str) {
    let lock = client.lock(name);
    let guard = hold(&lock).await;
    let waiter = waiting(client, name);
    renewed(&guard).await;
    release(guard).await;
    release(soon("the lock", waiter).await.expect("no panic")).await;
}

/// How many connections there are, but for that which asks.
fn clients(server: &Server) -> usize {
    let list: String = server.ask(&["CLIENT", "LIST"]);
    let is_client = |line: &&str| line.contains(" flags=N ") || line.contains(" flags=P ");
    list.lines().filter(is_client).count() - 1
}

#[test]
fn it_needs_no_runtime_and_does_no_io_before_its_first_call() {
    let listener = listen();
    listener.set_nonblocking(true).expect("a listener");
    let address = listener.local_addr().expect("an address").to_string();
    let builder = || LockClient::builder().command_timeout(ms(500));
    let url = format!("redis://{address}/");
    let clients = [
        lazy(builder().url(&url)),
        lazy(builder().sentinel(MASTER, [&url])),
        lazy(builder().cluster([&url])),
    ];
    let locks: Vec<_> = clients.iter().map(|client| client.lock("idle").clone()).collect();
    assert!(locks.iter().all(|lock| lock.name() == "idle"));
    std::thread::sleep(ms(300));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for client in &clients[..2] {
        // It waits for nothing, and what comes after it connects nothing.
        runtime.block_on(async { soon("closing", client.close()).await });
        let error = runtime.block_on(client.lock("closed").lock()).expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
    std::thread::sleep(ms(100));
    let none = listener.accept().expect_err("a connection before the first call");
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    not_executed(runtime.block_on(clients[2].lock("idle").is_locked()));
    assert!(listener.accept().is_ok(), "no connection with the first call");
}

#[tokio::test]
async fn a_client_that_is_dropped_unused_takes_its_thread_along() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
        let name = |task: io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.expect("a thread").path().join("comm")).unwrap_or_default()
        };
        tasks.map(name).filter(|name| name.trim() == "redlatch").count()
    };
    crate::support::child::alone(
        "lazy::a_client_that_is_dropped_unused_takes_its_thread_along",
        || {
            let client = lazy(LockClient::builder().url("redis://127.0.0.1:1/"));
            let lock = client.lock("unused");
            assert_eq!(threads(), 1);
            drop((client, lock));
            crate::support::block_until("the end of the thread", SOON, || threads() == 0);
        },
    );
}

#[tokio::test]
async fn it_works_like_any_other_client() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(2_400));
    let client = builder.connect_lazy().expect("usable options");
    works(&client, "at once").await;
    // As many connections as one that has connected.
    let connected = connect(&server).await;
    assert_eq!(clients(&server), 4);
    drop(connected);
    client.close().await;
}

#[tokio::test]
async fn calls_before_redis_is_up_behave_as_in_an_outage_and_the_client_goes_on_connecting() {
    let server = Server::start();
    server.kill();
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(2_400));
    let client = lazy(builder);
    let lock = client.lock("early");
    not_executed(soon("an error", lock.try_lock_now()).await);
    not_executed(soon("an error", lock.lock()).await);
    not_executed(soon("an error", lock.is_locked()).await);
    not_executed(soon("an error", lock.force_unlock()).await);
    server.start_again();
    // Of this runtime and of the thread, with no call in between.
    wait_until("the connections", SOON, || clients(&server) == 2).await;
    works(&client, "early").await;
}

#[tokio::test]
async fn a_client_that_is_closed_before_redis_is_up_connects_no_more() {
    // Where Redis does not answer, the dial for which the client's thread waited is in its middle.
    let outages: [[fn(&Server); 2]; 2] =
        [[Server::kill, Server::start_again], [Server::pause, Server::resume]];
    for [begins, ends] in outages {
        let server = Server::start();
        begins(&server);
        let client = lazy(LockClient::builder().url(server.url()));
        not_executed(soon("an error", client.lock("closed").lock()).await);
        soon("closing", client.close()).await;
        ends(&server);
        wait_until("the end of the connections", SOON, || clients(&server) == 0).await;
        tokio::time::sleep(ms(2_000)).await;
        assert_eq!(clients(&server), 0, "{}", server.ask::<String>(&["CLIENT", "LIST"]));
    }
}

#[tokio::test]
async fn a_call_that_is_under_way_when_redis_comes_up_succeeds() {
    let server = Server::start();
    server.kill();
    let builder = LockClient::builder().url(server.url()).command_timeout(SOON);
    let client = builder.connect_lazy().expect("usable options");
    let lock = client.lock("patient");
    let call = tokio::spawn(async move { lock.lock().await });
    tokio::time::sleep(ms(100)).await;
    server.start_again();
    release(soon("the lock", call).await.expect("no panic").expect("the lock")).await;
}

#[tokio::test]
async fn what_a_server_refuses_is_the_error_of_the_call() {
    let server = Server::start();
    let url = format!("redis://u:no@127.0.0.1:{}/", server.port());
    let client = lazy(LockClient::builder().url(url).watchdog_timeout(ms(2_400)));
    let error = soon("an error", client.lock("refused").lock()).await.expect_err("refused");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Server, Outcome::NotExecuted));
    server.ask::<()>(&["ACL", "SETUSER", "u", "on", ">no", "~*", "&*", "+@all"]);
    works(&client, "refused").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_may_come_up_later() {
    let set = Sentinels::start();
    set.kill_sentinels();
    let builder = LockClient::builder().sentinel(MASTER, set.urls()).watchdog_timeout(ms(2_400));
    let client = lazy(builder);
    not_executed(soon("an error", client.lock("early").lock()).await);
    for sentinel in set.sentinels() {
        Sentinels::start_again(sentinel);
    }
    // With no call in between: the client tries again each second, as long as a call may take here.
    let primary = format!("127.0.0.1:{}", set.master().port());
    wait_until("the primary", SOON, || format!("{client:?}").contains(&primary)).await;
    works(&client, "early").await;
    set.failover();
    works(&client, "later").await;
}

#[tokio::test]
async fn nothing_goes_to_a_sentinel_that_is_for_the_primary() {
    let set = Sentinels::start();
    for server in set.servers() {
        server.ask::<()>(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"]);
    }
    // The Sentinels would refuse that user.
    let urls = set.urls().into_iter().map(|url| url.replace("redis://", "redis://app:pw@"));
    let builder = LockClient::builder().sentinel(MASTER, urls).watchdog_timeout(ms(2_400));
    works(&builder.connect_lazy().expect("usable options"), "user").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_may_come_up_later_and_its_channels_are_known_before_they_are_needed() {
    let cluster = Cluster::start();
    let name = "early";
    let proxy = Proxy::new(&cluster.nodes()[0]);
    proxy.refuse(true);
    let seed = format!("redis://127.0.0.1:{}/", proxy.port());
    let client = lazy(LockClient::builder().cluster([&seed]).watchdog_timeout(ms(2_400)));
    not_executed(soon("an error", client.lock(name).lock()).await);
    proxy.refuse(false);
    wait_until("the connections", SOON, || cluster.nodes().iter().all(|node| clients(node) >= 1))
        .await;
    works(&client, name).await;

    // The first call of a client wakes whoever waits.
    let other = LockClient::builder().cluster(cluster.urls()).connect().await.expect("connecting");
    cluster.hold_by_hand(name, "somebody:1", MINUTE);
    let waiter = waiting(&other, name);
    wait_until("a waiter", SOON, || cluster.subscribers(name) == 1).await;
    let first = lazy(LockClient::builder().cluster(cluster.urls()));
    assert!(soon("forcing", first.lock(name).force_unlock()).await.expect("an answer"));
    release(soon("the lock", waiter).await.expect("no panic")).await;
}

#[tokio::test]
async fn what_can_never_work_is_an_error_at_once() {
    let builder = LockClient::builder;
    let (none, url): ([String; 0], _) = ([], "redis://127.0.0.1/");
    for (what, builder) in [
        ("no address", builder()),
        ("nothing", builder().url("")),
        ("no scheme", builder().url("127.0.0.1:6379")),
        ("another scheme", builder().url("http://127.0.0.1/")),
        ("another port", builder().url("redis://127.0.0.1:port/")),
        ("no sentinel", builder().sentinel(MASTER, none.clone())),
        ("no master", builder().sentinel("", ["redis://127.0.0.1/"])),
        ("no node", builder().cluster(none)),
        ("a database", builder().cluster(["redis://127.0.0.1/1"])),
        ("a Sentinel without a scheme", builder().sentinel(MASTER, ["somewhere"])),
        ("a url and a cluster", builder().url(url).cluster([url])),
        ("a Sentinel and a url", builder().sentinel(MASTER, [url]).url(url)),
        ("a Sentinel and a cluster", builder().sentinel(MASTER, [url]).cluster([url])),
        ("credentials of no Sentinel", builder().url(url).sentinel_credentials("watch", "secret")),
        ("an option", builder().url(url).command_timeout(ms(1))),
    ] {
        let lazy = builder.clone().connect_lazy().expect_err(what);
        for error in [lazy, soon("connecting", builder.connect()).await.expect_err(what)] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
        }
    }
}
