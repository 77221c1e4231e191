//! What can never work is refused by name, soon, and before anything is sent; what is merely odd
//! (a name with a brace, a lease below a millisecond, a wait of centuries) works.

use std::error::Error as _;
use std::net::TcpListener;
use std::time::Instant;

use crate::prelude::*;

#[track_caller]
fn refused<T>(what: &str, result: Result<T, Error>, kind: ErrorKind) -> Error {
    match result {
        Ok(_) => panic!("{what}: not refused"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{what}: {error}");
            error
        }
    }
}

#[track_caller]
fn invalid<T>(what: &str, result: Result<T, Error>) -> Error {
    let error = refused(what, result, ErrorKind::InvalidArgument);
    assert_eq!(error.outcome(), Outcome::NotExecuted, "{what}");
    error
}

/// An address at which nobody listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("redis://{}/", listener.local_addr().expect("an address"))
}

#[tokio::test]
async fn i3_an_empty_name_is_refused_by_every_call_and_nothing_is_sent() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let plain = soon("connecting", LockClient::connect(proxy.url(&server))).await.unwrap();
    let builder = LockClient::builder().url(proxy.url(&server)).name_prefix("app:");
    let prefixed = soon("connecting", builder.connect()).await.unwrap();
    for client in [plain, prefixed] {
        let lock = client.lock("");
        proxy.forget_commands();
        invalid("lock", lock.lock().await);
        invalid("lock_with_lease", lock.lock_with_lease(MINUTE).await);
        invalid("try_lock", lock.try_lock(ms(1), MINUTE).await);
        let error = invalid("try_lock_now", lock.try_lock_now().await);
        assert!(error.to_string().contains("name"), "{error}");
        invalid("is_locked", lock.is_locked().await);
        invalid("is_held", lock.is_held().await);
        invalid("hold_count", lock.hold_count().await);
        invalid("remaining_lease", lock.remaining_lease().await);
        invalid("force_unlock", lock.force_unlock().await);
        assert!(proxy.commands().is_empty(), "{:?}", proxy.commands());
    }
}

#[tokio::test]
async fn i1_a_lease_of_zero_or_beyond_a_hundred_years_is_refused_and_nothing_is_sent() {
    let setup = Setup::alone();
    let proxy = setup.proxy();
    let client = setup.client_through(&proxy).await;
    let free = client.lock("free");
    let held = client.lock("held");
    let guard = hold(&held).await;
    let attempts = proxy.attempts();
    proxy.forget_commands();
    for lease in [Duration::ZERO, DAY * 36_501, Duration::from_secs(u64::MAX), Duration::MAX] {
        // Held by this very handle, or by nobody: the argument is what is wrong.
        for lock in [&free, &held] {
            let error = invalid("lock_with_lease", lock.lock_with_lease(lease).await);
            assert!(error.to_string().contains("lease"), "{error}");
            invalid("try_lock", lock.try_lock(MINUTE, lease).await);
            invalid("one try", lock.try_lock(Duration::ZERO, Lease::Fixed(lease)).await);
        }
    }
    assert!(proxy.commands().is_empty(), "{:?}", proxy.commands());
    assert_eq!(proxy.attempts(), attempts);
    assert_eq!(held.hold_count().await.unwrap(), 1, "a refused nested call changed the outer one");
    release(guard).await;
    let longest = soon("locking", free.lock_with_lease(DAY * 36_500)).await.expect("100 years");
    assert!(setup.pttl("free") > 36_499 * 24 * 60 * 60 * 1000);
    release(longest).await;
}

#[tokio::test]
async fn i1_a_lease_with_a_fraction_of_a_millisecond_is_rounded_up() {
    let server = Server::start();
    let client = connect(&server).await;
    release(hold(&client.lock("warm-up")).await).await;
    server.ask::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    for (lease, asked) in [(1, "1"), (999_999, "1"), (1_000_000, "1"), (60_000_000_001, "60001")] {
        let lock = client.lock(format!("tiny:{lease}"));
        let guard = soon("locking", lock.lock_with_lease(Duration::from_nanos(lease))).await;
        let guard = guard.expect("short, but a lease");
        assert_ne!(server.pttl(lock.name()), -1, "a lock without an end");
        // An acquire has seven words: the lease is the sixth.
        type Entry = (i64, i64, i64, Vec<String>, String, String);
        let log: Vec<Entry> = server.ask(&["SLOWLOG", "GET", "128"]);
        let words: Vec<_> = log.iter().map(|entry| &entry.3).collect();
        let sent = words.iter().find(|words| words.len() == 7 && words[3] == lock.name());
        assert_eq!(sent.expect("the acquire in the log")[5], asked, "for {lease} ns");
        drop(guard);
        wait_until("a free lock", SOON, || !server.exists(lock.name())).await;
    }
}

#[tokio::test]
async fn i3_odd_names_are_locked_waited_for_and_handed_off() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let long = "x".repeat(100 * 1024);
    let names = [
        "{",
        "}",
        "{}",
        "a{b",
        "a}b",
        "}{",
        "{tag}rest",
        " ",
        "two words",
        "two\nlines",
        "\r\n",
        "nul\0nul",
        "🔒 Schloß",
        "quotes \"'`\\",
        "*[?]",
        "redisson_lock__channel:{x}",
        &long,
    ];
    for name in names {
        let what = name.chars().take(30).collect::<String>();
        let (lock, waiting) = (client.lock(name), other.lock(name));
        assert_eq!(lock.name(), name);
        let listener = Listener::new(&server, &channel(name));
        let guard = hold(&lock).await;
        assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [name], "{what:?}");
        let waiter = tokio::spawn(async move { waiting.lock().await });
        // The listener, and the one who waits.
        wait_until(&what, SOON, || server.subscribers(name) == 2).await;
        release(guard).await;
        // Long before the lease of 30 s could have ended.
        let guard = soon(&what, waiter).await.unwrap().expect("the lock");
        release(guard).await;
        assert_eq!(listener.heard(&server), ["0", "0"], "{what:?}");
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "{what:?}");
    }
}

#[tokio::test]
async fn s8_a_key_that_holds_something_else_is_not_a_lock_and_stays_as_it_is() {
    let server = Server::start();
    let client = connect(&server).await;
    let others: [&[&str]; 5] = [
        &["SET", "other", "a string"],
        &["SET", "other", "7"],
        &["RPUSH", "other", "a", "list"],
        &["SADD", "other", "a", "set"],
        &["ZADD", "other", "1", "a sorted set"],
    ];
    for make in others {
        server.ask::<redis::Value>(make);
        let before: Vec<u8> = server.ask(&["DUMP", "other"]);
        let lock = client.lock("other");
        let listener = Listener::new(&server, &channel("other"));
        let is_not = |what: &str, error: Option<Error>| {
            let error = error.unwrap_or_else(|| panic!("{what} on {make:?}: not refused"));
            assert_eq!(error.kind(), ErrorKind::NotALock, "{what} on {make:?}: {error}");
            assert_eq!(error.outcome(), Outcome::NotExecuted, "{what} on {make:?}");
            assert!(error.to_string().contains("other"), "{error} does not say which key");
        };
        is_not("lock", soon("lock", lock.lock()).await.err());
        is_not("lock_with_lease", soon("lock", lock.lock_with_lease(MINUTE)).await.err());
        is_not("try_lock", soon("try_lock", lock.try_lock(MINUTE, MINUTE)).await.err());
        is_not("try_lock_now", soon("try_lock_now", lock.try_lock_now()).await.err());
        is_not("is_locked", lock.is_locked().await.err());
        is_not("is_held", lock.is_held().await.err());
        is_not("hold_count", lock.hold_count().await.err());
        is_not("remaining_lease", lock.remaining_lease().await.err());
        is_not("force_unlock", lock.force_unlock().await.err());
        assert_eq!(server.ask::<Vec<u8>>(&["DUMP", "other"]), before, "{make:?} was changed");
        assert_eq!(server.pttl("other"), -1, "{make:?} was given an end");
        assert!(listener.heard(&server).is_empty(), "{make:?} was released");
        server.ask::<()>(&["DEL", "other"]);
        // And nothing was remembered: the name is as good as any.
        assert!(is_free(&client, "other").await);
    }
}

#[tokio::test]
async fn s8_a_waiter_whose_lock_becomes_something_else_is_told() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    setup.hold_by_hand("became", "somebody:1", MINUTE);
    let lock = client.lock("became");
    let waiter = tokio::spawn(async move { lock.lock().await });
    wait_until("a subscription", SOON, || setup.subscribers("became") == 1).await;
    setup.ask::<()>("SET", "became", &["a string"]);
    setup.publish("became", "0");
    let result = soon("the waiter", waiter).await.unwrap();
    refused("a waiter", result, ErrorKind::NotALock);
    assert_eq!(setup.ask::<String>("GET", "became", &[]), "a string");
    wait_until("no subscription", SOON, || setup.subscribers("became") == 0).await;
}

#[tokio::test]
async fn s9_a_lock_without_an_end_is_busy_and_nobody_takes_it_over() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    setup.ask::<()>("HSET", "endless", &["somebody:1", "1"]);
    let lock = client.lock("endless");
    for wait in [Duration::ZERO, ms(300)] {
        let start = Instant::now();
        let taken = soon("the end of the wait", lock.try_lock(wait, MINUTE)).await.unwrap();
        assert!(taken.is_none(), "somebody else's lock was taken over");
        assert!(start.elapsed() >= wait);
        assert!(passed(start) < wait + ms(2_000), "{:?} for {wait:?}", passed(start));
    }
    assert!(lock.is_locked().await.unwrap());
    assert_eq!(lock.remaining_lease().await.unwrap(), Some(Duration::MAX));
    assert_eq!(setup.pttl("endless"), -1);
    assert!(lock.force_unlock().await.unwrap());
    release(hold(&lock).await).await;
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    for url in ["", "localhost", "redis://", "http://127.0.0.1/", "redis://127.0.0.1:port/"] {
        invalid(url, soon(url, LockClient::connect(url)).await);
    }
    // What is wrong here is the database: the error must not quote what stands before it.
    let url = "redis://user:s3cr3t-word@127.0.0.1:6379/database";
    let error = invalid("a database", soon("connecting", LockClient::connect(url)).await);
    assert!(!format!("{error} {error:?}").contains("s3cr3t-word"), "{error:?}");
}

#[tokio::test]
async fn there_is_one_address_neither_none_nor_two() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let url = proxy.url(&server);
    let ready = redis::Client::open(url.as_str()).unwrap();
    invalid("none", LockClient::builder().connect().await);
    let both = LockClient::builder().url(url).client(ready.clone());
    invalid("two", both.connect().await);
    assert_eq!(proxy.attempts(), 0, "the options were checked after connecting");
    let client = soon("connecting", LockClient::builder().client(ready).connect()).await.unwrap();
    release(hold(&client.lock("ready-made")).await).await;
}

#[tokio::test]
async fn options_out_of_bounds_are_refused_before_connecting() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let options = || LockClient::builder().url(proxy.url(&server));
    let day_and_more = DAY + ms(1);
    let bad: [(&str, LockClientBuilder); 9] = [
        ("warn_waits_longer_than", options().warn_waits_longer_than(Duration::ZERO)),
        ("watchdog_timeout", options().watchdog_timeout(Duration::ZERO)),
        ("watchdog_timeout", options().watchdog_timeout(ms(29))),
        ("watchdog_timeout", options().watchdog_timeout(day_and_more)),
        ("watchdog_timeout", options().watchdog_timeout(Duration::MAX)),
        ("command_timeout", options().command_timeout(Duration::ZERO)),
        ("command_timeout", options().command_timeout(ms(9))),
        ("command_timeout", options().command_timeout(Duration::from_secs(3601))),
        ("command_timeout", options().command_timeout(Duration::MAX)),
    ];
    for (option, builder) in bad {
        let error = invalid(option, soon(option, builder.connect()).await);
        assert!(error.to_string().contains(option), "{error} does not name {option}");
    }
    assert_eq!(proxy.attempts(), 0, "the options were checked after connecting");
    // Both ends of the bounds work, and any outage limit does, with somebody waiting under it.
    for (watchdog, command) in [(ms(30), Duration::from_secs(3600)), (DAY, ms(1_000))] {
        for limit in [Duration::ZERO, Duration::MAX] {
            let builder = options().watchdog_timeout(watchdog).command_timeout(command);
            let client = soon("connecting", builder.outage_limit(limit).connect()).await.unwrap();
            server.hold_by_hand("bounds", "somebody:1", MINUTE);
            let lock = client.lock("bounds");
            let waiter = tokio::spawn(async move { lock.lock().await });
            wait_until("a subscription", SOON, || server.subscribers("bounds") == 1).await;
            server.free_by_hand("bounds");
            drop(soon("the lock", waiter).await.unwrap().expect("the lock"));
            wait_until("a free lock", SOON, || !server.exists("bounds")).await;
        }
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_soon_and_no_password_is_ever_shown() {
    let server = Server::start_with(&["--requirepass", "right-s3cr3t"]);
    let shown = |what: &dyn std::fmt::Debug| {
        let text = format!("{what:?} {what:#?}");
        assert!(!text.contains("s3cr3t"), "{text}");
    };
    for user in [":wrong-s3cr3t@", "nobody:wrong-s3cr3t@", ""] {
        let url = format!("redis://{user}127.0.0.1:{}/", server.port());
        let ready = redis::Client::open(url.as_str()).unwrap();
        for builder in [LockClient::builder().url(url), LockClient::builder().client(ready)] {
            shown(&builder);
            let start = Instant::now();
            let result = soon("a refusal", builder.connect()).await;
            assert!(passed(start) < ms(2_000), "refused after {:?}", passed(start));
            let error = refused(user, result, ErrorKind::Server);
            shown(&error);
            assert!(!error.to_string().contains("s3cr3t"), "{error}");
            let cause = error.source().map(|cause| format!("{cause} {cause:?}"));
            assert!(!cause.unwrap_or_default().contains("s3cr3t"));
        }
    }
    let client = connect(&server).await;
    let lock = client.lock("shown");
    let guard = hold(&lock).await;
    shown(&client);
    shown(&lock);
    shown(&guard);
    // An error of a client that knows the right one.
    server.ask::<()>(&["SET", "other", "a string"]);
    shown(&client.lock("other").try_lock_now().await.expect_err("not a lock"));
    release(guard).await;
    server.kill();
    let error = lock.try_lock(ms(1), MINUTE).await.expect_err("no server");
    shown(&error);
    assert!(!error.to_string().contains("s3cr3t"), "{error}");
}

#[tokio::test]
async fn no_server_is_said_at_once_and_a_silent_one_after_the_command_timeout() {
    for url in [nowhere(), "redis+unix:///nonexistent/redis.sock".to_owned()] {
        let start = Instant::now();
        let result = soon("an error", LockClient::connect(url.as_str())).await;
        let error = refused(&url, result, ErrorKind::Unavailable);
        assert_eq!(error.outcome(), Outcome::NotExecuted);
        assert!(passed(start) < ms(1_000), "{url}: after {:?}", passed(start));
    }
    // Connections are made, and nobody reads what comes.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", silent.local_addr().expect("an address"));
    let start = Instant::now();
    let builder = LockClient::builder().url(url.as_str()).command_timeout(ms(400));
    refused(&url, soon("an error", builder.connect()).await, ErrorKind::Unavailable);
    assert!(start.elapsed() >= ms(350), "it has to give the server its time");
    assert!(passed(start) < ms(2_000), "after {:?}", passed(start));
}

#[tokio::test]
async fn i2_waits_of_any_length_are_taken() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let lock = client.lock("waits");
    let waits = [Duration::ZERO, Duration::from_nanos(1), ms(1), DAY * 1_000_000, Duration::MAX];
    for wait in waits {
        // Free: whoever has no time to wait gets it all the same.
        let guard = soon("a free lock", lock.try_lock(wait, MINUTE)).await.unwrap();
        release(guard.expect("a free lock")).await;
        setup.hold_by_hand("waits", "somebody:1", MINUTE);
        if wait < MINUTE {
            let start = Instant::now();
            let taken = soon("a short wait", lock.try_lock(wait, MINUTE)).await.unwrap();
            assert!(taken.is_none());
            assert!(passed(start) < ms(2_000), "{:?} for {wait:?}", passed(start));
            setup.free_by_hand("waits");
        } else {
            let lock = client.lock("waits");
            let waiter = tokio::spawn(async move { lock.try_lock(wait, MINUTE).await });
            wait_until("a subscription", SOON, || setup.subscribers("waits") == 1).await;
            setup.free_by_hand("waits");
            let guard = soon("the lock", waiter).await.unwrap().unwrap();
            release(guard.expect("the lock, after waiting")).await;
        }
    }
}

#[tokio::test]
async fn a_prefix_makes_the_key_and_keeps_applications_apart() {
    for (prefix, name) in [("app:", "job"), ("{app}:", "job"), ("a b\n🔑", "{job}")] {
        let server = Server::start();
        let builder = LockClient::builder().url(server.url()).name_prefix(prefix);
        let prefixed = soon("connecting", builder.connect()).await.unwrap();
        let key = format!("{prefix}{name}");
        let lock = prefixed.lock(name);
        assert_eq!(lock.name(), name, "the name is what was given");
        let listener = Listener::new(&server, &channel(&key));
        let guard = hold(&lock).await;
        assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [key.as_str()]);
        let plain = connect(&server).await;
        assert!(is_free(&plain, name).await, "another application's lock");
        assert!(!is_free(&plain, &key).await, "the same key by its full name");
        release(guard).await;
        assert_eq!(listener.heard(&server), ["0"]);
    }
}

async fn connect_as(server: &Server, user: &str, rights: &[&str]) -> LockClient {
    server.ask::<()>(&[&["ACL", "SETUSER", user, "on", ">pass", "&*", "+@all"], rights].concat());
    let url = format!("redis://{user}:pass@127.0.0.1:{}/", server.port());
    soon("connecting", LockClient::connect(url)).await.expect("connecting")
}

#[tokio::test]
async fn s17_a_user_who_may_not_publish_can_still_release() {
    let server = Server::start();
    let client = connect_as(&server, "mute", &["~*", "-publish"]).await;
    release(hold(&client.lock("mute")).await).await;
    assert!(!server.exists("mute"));
}

#[tokio::test]
async fn s18_a_user_without_permission_for_the_key_is_told_so() {
    let server = Server::start();
    let client = connect_as(&server, "narrow", &["~mine:*"]).await;
    release(hold(&client.lock("mine:1")).await).await;
    let result = soon("a refusal", client.lock("theirs:1").lock()).await;
    let error = refused("another's key", result, ErrorKind::Server);
    assert_eq!(error.outcome(), Outcome::NotExecuted, "{error}");
    assert!(!server.exists("theirs:1"));
}
