//! The ways to say where Redis is and who asks.

use crate::prelude::*;

const PASSWORD: &str = "p%w:/?#[]@ä";
/// The same as a part of a url.
const IN_A_URL: &str = "p%25w%3A%2F%3F%23%5B%5D%40%C3%A4";

async fn at(url: impl Into<String>) -> Result<LockClient, Error> {
    soon("an answer", LockClient::connect(url)).await
}

/// Refused by the server, and not by the driver.
#[track_caller]
fn wrong(result: Result<LockClient, Error>, code: &str) {
    let error = result.expect_err("it was let in");
    let what = (error.kind(), error.outcome());
    assert_eq!(what, (ErrorKind::Server, Outcome::NotExecuted), "{error}");
    assert!(format!("{error:#}").contains(code), "{error}");
}

async fn is_good(client: &LockClient, server: &Server) {
    let guard = hold(&client.lock("good")).await;
    // By the client's own thread, which has a connection of its own.
    drop(guard);
    wait_until("the release", SOON, || !server.exists("good")).await;
}

/// How many connections are there as that user.
fn connections(server: &Server, user: &str) -> usize {
    let list: String = server.ask(&["CLIENT", "LIST"]);
    list.lines().filter(|line| line.contains(&format!(" user={user} "))).count()
}

#[tokio::test]
async fn a_password_alone_is_that_of_the_default_user() {
    let server = Server::start_with(&["--requirepass", "plain"]);
    is_good(&at(server.url()).await.unwrap(), &server).await;
    let here = format!("127.0.0.1:{}/", server.port());
    wrong(at(format!("redis://:other@{here}")).await, "WRONGPASS");
    wrong(at(format!("redis://{here}")).await, "NOAUTH");
    // An empty user is none, and another has no such password.
    wrong(at(format!("redis://plain@{here}")).await, "NOAUTH");
    wrong(at(format!("redis://somebody:plain@{here}")).await, "WRONGPASS");
}

#[tokio::test]
async fn a_user_and_a_password_with_all_that_has_a_meaning_in_a_url() {
    let server = Server::start();
    let user = ["ACL", "SETUSER", "ü@b", "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"];
    server.ask::<()>(&user);
    let here = format!("127.0.0.1:{}/", server.port());
    let client = at(format!("redis://%C3%BC%40b:{IN_A_URL}@{here}")).await.unwrap();
    is_good(&client, &server).await;
    assert_eq!(connections(&server, "ü@b"), 2, "both of the client's connections");
    wrong(at(format!("redis://%C3%BC%40b:wrong@{here}")).await, "WRONGPASS");
    server.ask::<()>(&["ACL", "SETUSER", "ü@b", "off"]);
    wrong(at(format!("redis://%C3%BC%40b:{IN_A_URL}@{here}")).await, "WRONGPASS");
}

#[tokio::test]
async fn a_password_that_is_wrong_by_now_is_told_and_a_right_one_heals_it() {
    let server = Server::start_with(&["--requirepass", "first"]);
    let client = at(server.url()).await.unwrap();
    let lock = client.lock("changed");
    let guard = hold(&lock).await;
    server.ask::<()>(&["CONFIG", "SET", "requirepass", "second"]);
    let cut = || server.ask::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(cut() >= 1);
    let error = soon("an answer", lock.is_locked()).await.expect_err("another password");
    assert_eq!(error.kind(), ErrorKind::Server, "{error}");
    assert!(format!("{error:#}").contains("WRONGPASS"), "{error}");
    server.ask::<()>(&["CONFIG", "SET", "requirepass", "first"]);
    assert!(soon("an answer", lock.is_locked()).await.expect("the first again"));
    release(guard).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_socket_is_as_good_as_a_port() {
    let dir = socket_dir();
    let path = dir.path().join("redis.sock");
    let path = path.to_str().expect("a path in UTF-8");
    let server = Server::start_with(&["--unixsocket", path, "--requirepass", "plain"]);
    server.ask::<()>(&["ACL", "SETUSER", "app", "on", ">p&w", "~*", "&*", "+@all"]);
    for (at, scheme) in ["unix", "redis+unix", "valkey+unix"].iter().enumerate() {
        let url = format!("{scheme}://{path}?user=app&pass=p%26w&db={at}");
        let client = client_with(url, ms(3_000)).await;
        let lock = client.lock("good");
        let guard = hold(&lock).await;
        renewed(&guard).await;
        server.ask::<()>(&["SELECT", &at.to_string()]);
        assert!(server.exists("good"), "{scheme}");
        let list: String = server.ask(&["CLIENT", "LIST"]);
        let by_socket = list.lines().filter(|line| line.contains(&format!("{path}:0")));
        assert!(by_socket.count() >= 1, "{scheme}: {list}");
        server.ask::<()>(&["SELECT", "0"]);
        release(guard).await;
    }
    wrong(at(format!("unix:{path}")).await, "NOAUTH");
    wrong(at(format!("unix://{path}?pass=other")).await, "WRONGPASS");
    let error = at(format!("unix://{path}.gone")).await.expect_err("no such socket");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::NotExecuted));
}

#[tokio::test]
async fn the_same_name_in_two_databases_is_two_locks_with_one_channel() {
    let server = Server::start();
    let (first, second) = (at(server.url()).await.unwrap(), at(server.url() + "1").await.unwrap());
    let other = at(server.url() + "1").await.unwrap();
    let here = hold(&first.lock("both")).await;
    let there = hold(&second.lock("both")).await;
    assert_eq!(server.info("db0").map(|keys| keys.starts_with("keys=1,")), Some(true));
    assert_eq!(server.info("db1").map(|keys| keys.starts_with("keys=1,")), Some(true));

    // Redis tells a release in one database to those who wait in the other: they look, and go on
    // waiting.
    let waiter = waiting(&other, "both");
    wait_until("it parks", SOON, || server.subscribers("both") == 1).await;
    let listener = Listener::new(&server, &channel("both"));
    let before = server.calls("evalsha");
    release(here).await;
    wait_until("it looks", SOON, || server.calls("evalsha") >= before + 2).await;
    assert_eq!(listener.heard(&server), ["0"]);
    assert!(!waiter.is_finished() && !there.is_lost());
    assert!(!server.exists("both"), "it is in the first database");
    release(there).await;
    release(soon("the message", waiter).await.unwrap()).await;
    assert_eq!(server.info("db1"), None);
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused() {
    let server = Server::start_with(&["--databases", "4"]);
    is_good(&at(server.url() + "0").await.unwrap(), &server).await;
    wrong(at(server.url() + "4").await, "DB index is out of range");
    wrong(at(server.url() + "-1").await, "DB index is out of range");
}

#[tokio::test]
async fn a_ready_client_is_used_as_it_is() {
    let server = Server::start_with(&["--requirepass", "plain"]);
    let info: redis::ConnectionInfo = server.url().parse().expect("an address");
    // RESP2 is what a client of the driver speaks unless told otherwise.
    assert_eq!(info.redis_settings().protocol(), redis::ProtocolVersion::RESP2);
    let settings = info.redis_settings().clone().set_db(2).set_lib_name("app", "7");
    let client = redis::Client::open(info.set_redis_settings(settings)).expect("a client");
    let builder = LockClient::builder().client(client.clone()).name_prefix("shop:");
    let (mine, other) = (connected(builder).await, LockClient::builder().client(client));
    let other = connected(other.name_prefix("shop:")).await;
    let guard = hold(&mine.lock("till")).await;
    server.ask::<()>(&["SELECT", "2"]);
    assert!(server.exists("shop:till"));
    let waiter = waiting(&other, "till");
    wait_until("it parks", SOON, || server.subscribers("shop:till") == 1).await;
    release(guard).await;
    release(soon("the message", waiter).await.unwrap()).await;
}

#[cfg(not(feature = "rustls"))]
#[tokio::test]
async fn tls_takes_the_feature_rustls_and_nothing_is_tried_without_it() {
    let server = Server::start();
    let taken = || server.info("total_connections_received");
    let before = taken();
    let parts = |url: &str| redis::ConnectionAddr::TcpTls {
        host: url.to_owned(),
        port: server.port(),
        insecure: false,
        tls_params: None,
    };
    let info: redis::ConnectionInfo = server.url().parse().expect("an address");
    let client = redis::Client::open(info.set_addr(parts("127.0.0.1"))).expect("a client");
    let here = format!("user:secret@127.0.0.1:{}/", server.port());
    for builder in [
        LockClient::builder().url(format!("rediss://{here}")),
        LockClient::builder().url(format!("valkeys://{here}")),
        LockClient::builder().client(client),
    ] {
        let error = soon("an answer", builder.connect()).await.expect_err("no TLS");
        let what = (error.kind(), error.outcome());
        assert_eq!(what, (ErrorKind::InvalidArgument, Outcome::NotExecuted), "{error}");
        assert!(error.to_string().contains("feature `rustls`"), "{error}");
    }
    assert_eq!(taken(), before);
}
