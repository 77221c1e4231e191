//! What a person reads after a usual mistake: one line that says what is wrong, where, and what to do.

use std::error::Error as _;
use std::io::{Read, Write};

use super::*;

const EXPECTED: &str = "expected `redis://[[user]:password@]host[:port][/database]`, the same with \
    `rediss://` for TLS, or `unix://` and the path of a socket";

/// Each text of the chain is one line, and none repeats another.
#[track_caller]
fn is_clear(error: &Error) -> String {
    let mut chain = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        chain.push(cause.to_string());
        source = cause.source();
    }
    for (at, text) in chain.iter().enumerate() {
        assert!(!text.is_empty() && !text.contains('\n'), "{chain:#?}");
        let others = chain.iter().enumerate().filter(|(other, _)| *other != at);
        assert!(others.into_iter().all(|(_, other)| !other.contains(&**text)), "{chain:#?}");
    }
    assert_eq!(format!("{error:#}"), chain.join(": "));
    let shown = format!("{error:#} {error:?}");
    assert!(!shown.contains("s3cr3t") && !shown.contains("somebody"), "{shown}");
    println!("{}\n    {}", chain[0], chain[1..].join("\n    "));
    chain.swap_remove(0)
}

/// Returns of which kind the error is.
#[track_caller]
fn says(error: Option<Error>, expected: &str) -> ErrorKind {
    let error = error.expect("an error");
    assert_eq!(is_clear(&error), expected, "{error:#}");
    error.kind()
}

async fn unconnected(builder: LockClientBuilder) -> Option<Error> {
    soon("an answer", builder.command_timeout(ms(1_000)).connect()).await.err()
}

fn at(url: impl Into<String>) -> LockClientBuilder {
    LockClient::builder().url(url)
}

/// Answers everybody with the same bytes.
fn answering(bytes: &'static [u8]) -> u16 {
    let listener = listen();
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(bytes);
        }
    });
    port
}

#[tokio::test]
async fn a_url_that_is_none_is_answered_with_the_form_of_one() {
    for (url, wrong) in [
        ("", "is empty"),
        (" ", "is empty"),
        ("foo", "has no scheme"),
        ("127.0.0.1:6379", "has no scheme"),
        ("localhost:6379", "has no scheme"),
        ("somebody:s3cr3t@127.0.0.1:6379", "has no scheme"),
        ("http://127.0.0.1:6379", "is not usable"),
        ("redis://", "is not usable"),
        ("redis://somebody:s3cr3t@127.0.0.1:port/", "is not usable"),
        ("redis://somebody:s3cr3t@127.0.0.1/database", "is not usable"),
    ] {
        let expected = format!("the url of Redis {wrong}; {EXPECTED}");
        assert_eq!(says(unconnected(at(url)).await, &expected), ErrorKind::InvalidArgument);
    }
    let error = unconnected(LockClient::builder()).await.expect("an error");
    assert_eq!((error.lock_name(), error.is_retryable()), (None, false), "{error}");
    let kind = says(Some(error), "where is Redis? Set url, client, sentinel or cluster");
    assert_eq!(kind, ErrorKind::InvalidArgument);
    let client = redis::Client::open("redis://127.0.0.1:1/").expect("a client");
    let both = at("redis://127.0.0.1:1/").client(client).connect().await;
    assert_eq!(both.expect_err("one of them").kind(), ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn what_is_not_redis_or_not_there_is_named_with_its_address() {
    let not_redis = "what answers there is not Redis, or it asks for TLS (`rediss://`)";
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    // The second is what a server says that asks for TLS.
    for answer in [&http[..], b"\x15\x03\x03\x00\x02\x02\x46"] {
        let port = answering(answer);
        says(
            unconnected(at(format!("redis://somebody:s3cr3t@127.0.0.1:{port}/"))).await,
            &format!("could not connect to Redis at 127.0.0.1:{port}: {not_redis}"),
        );
    }
    let port = free_port(); // Nobody listens there.
    let nobody = "nothing listens there; start Redis, or correct host and port";
    says(
        unconnected(at(format!("redis://somebody:s3cr3t@127.0.0.1:{port}/"))).await,
        &format!("could not connect to Redis at 127.0.0.1:{port}: {nobody}"),
    );
    let url = format!("redis://127.0.0.1:{port}/");
    says(
        unconnected(LockClient::builder().sentinel("main", [&*url])).await,
        &format!("could not ask the Sentinel at 127.0.0.1:{port}: {nobody}"),
    );
    says(
        unconnected(LockClient::builder().cluster([url])).await,
        &format!("could not connect to Redis at 127.0.0.1:{port}: {nobody}"),
    );
    // A password may stand where the host belongs. This one is too long for a name server to be asked.
    let host = format!("s3cr3t{}", "x".repeat(64));
    says(
        unconnected(at(format!("redis://{host}:6379/"))).await,
        "could not connect to Redis: no name server knows the host; correct it in the url",
    );
    #[cfg(unix)]
    says(
        unconnected(at("unix:///nowhere/redis.sock?pass=s3cr3t")).await,
        "could not connect to Redis at /nowhere/redis.sock: \
         there is no such socket; start Redis, or correct the path",
    );
}

#[tokio::test]
async fn a_user_who_is_not_let_in_or_may_not_do_a_thing_reads_which() {
    let server = Server::start_with(&["--requirepass", "right-s3cr3t"]);
    let (port, redis) = (server.port(), format!("Redis at 127.0.0.1:{}", server.port()));
    for user in [":wrong-s3cr3t@", "somebody:wrong-s3cr3t@"] {
        let kind = says(
            unconnected(at(format!("redis://{user}127.0.0.1:{port}/"))).await,
            &format!(
                "{redis} refused the connection: \
                 user name or password is wrong; correct them in the url"
            ),
        );
        assert_eq!(kind, ErrorKind::Server);
    }
    says(
        unconnected(at(format!("redis://127.0.0.1:{port}/"))).await,
        &format!(
            "{redis} refused the connection: \
             it asks for a password; add it to the url: `redis://[user]:password@host`"
        ),
    );
    for (rule, what) in [
        (&["~*", "&*", "+@all", "-evalsha"][..], "run `evalsha`"),
        (&["~mine:*", "&*", "+@all"], "use the key of the lock, or of a command under it"),
    ] {
        let user = [&["ACL", "SETUSER", "app", "reset", "on", ">s3cr3t"], rule].concat();
        server.ask::<()>(&user);
        let client = connected(at(format!("redis://app:s3cr3t@127.0.0.1:{port}/"))).await;
        says(
            client.lock("order").try_lock_now().await.err(),
            &format!(
                "{redis} refused `order`: the user may not {what}; \
                 the guide (deployment) lists the permissions that redlatch needs"
            ),
        );
    }
}

#[tokio::test]
async fn a_server_of_another_kind_than_the_option_says_is_named() {
    let server = Server::start();
    let (url, redis) = (server.url(), format!("Redis at 127.0.0.1:{}", server.port()));
    says(
        unconnected(LockClient::builder().sentinel("main", [&*url])).await,
        &format!(
            "the Sentinel at 127.0.0.1:{} refused to name the primary `main`: \
             it is not a Sentinel; correct the port",
            server.port()
        ),
    );
    says(
        unconnected(LockClient::builder().cluster([url])).await,
        &format!(
            "{redis} refused the connection: \
             it is in no cluster; name it with `url`, not with `cluster`"
        ),
    );
    let sentinel =
        Server::start_sentinel(&format!("sentinel monitor main 127.0.0.1 {} 99\n", server.port()));
    says(
        unconnected(LockClient::builder().sentinel("mian", [sentinel.url()])).await,
        &format!(
            "the Sentinel at 127.0.0.1:{} refused to name the primary `mian`: \
             it watches no primary of that name; `SENTINEL MASTERS` lists the names",
            sentinel.port()
        ),
    );
    let cluster = Cluster::start();
    let (first, port) = (connect(&cluster.nodes()[0]).await, cluster.nodes()[0].port());
    says(
        first.lock(cluster.name_at(1, "order")).try_lock_now().await.err(),
        &format!(
            "Redis at 127.0.0.1:{port} is a node of a cluster, and sent the client on to another \
             one; name the nodes with `cluster`, not with `url`"
        ),
    );
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &server.port().to_string()]);
    let client = connect(&replica).await;
    let error = soon("an answer", client.lock("order").try_lock_now()).await.err();
    says(
        error,
        &format!(
            "Redis at 127.0.0.1:{} cannot serve `order` now: \
             it is a replica; name the primary, or use `sentinel`",
            replica.port()
        ),
    );
}

#[tokio::test]
async fn a_call_that_cannot_work_says_why_and_what_would() {
    let (server, proxy) = proxied();
    let redis = format!("Redis at 127.0.0.1:{}", proxy.port());
    let client = connected(at(proxy.url(&server)).command_timeout(ms(1_000))).await;
    server.ask::<()>(&["HSET", "user:42", "name", "bob"]);
    says(
        client.lock("user:42").try_lock_now().await.err(),
        &format!(
            "the key `user:42` in {redis} holds something that is not a lock; \
             give the lock another name, or the client a `name_prefix`"
        ),
    );
    says(client.lock("").try_lock_now().await.err(), "a lock needs a name");
    let lock = client.lock("order");
    says(
        lock.lock_with_lease(Duration::ZERO).await.err(),
        "a lease of zero would end before it began",
    );
    says(lock.lock_with_lease(Duration::MAX).await.err(), "a lease may be at most 100 years");
    says(
        at(server.url()).watchdog_timeout(ms(1)).connect().await.err(),
        "watchdog_timeout is 1ms; it must be from 30ms to 86400s",
    );
    server.fill();
    says(
        lock.try_lock_now().await.err(),
        &format!("{redis} refused `order`: its memory is full; raise `maxmemory`, or delete data"),
    );
    server.make_room();
    let guard = hold(&lock).await;
    server.ask::<()>(&["DEL", "order"]);
    says(guard.unlock().await.err(), "the lock `order` was lost: its key is gone");
    server.pause();
    says(lock.try_lock(ms(1), MINUTE).await.err(), &format!("no answer from {redis} for `order`"));
    server.resume();
    server.ask::<()>(&["DEL", "user:42"]);
    soon("closing", client.close()).await;
    says(lock.try_lock_now().await.err(), "the lock client is closed: connect another one");
}
