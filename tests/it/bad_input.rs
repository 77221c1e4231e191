//! What can never work is refused by name, soon, and before anything is sent; what is merely odd
//! (a name with a brace, a lease below a millisecond, a wait of centuries) works.

use std::time::Instant;

use crate::errors::every_call;
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

#[tokio::test]
async fn i3_an_empty_name_is_refused_by_every_call_and_nothing_is_sent() {
    let (server, proxy) = proxied();
    let plain = soon("connecting", LockClient::connect(proxy.url(&server))).await.unwrap();
    let builder = LockClient::builder().url(proxy.url(&server)).name_prefix("app:");
    let prefixed = soon("connecting", builder.connect()).await.unwrap();
    for client in [plain, prefixed] {
        let lock = client.lock("");
        proxy.forget_commands();
        for (call, error) in every_call(&lock).await {
            let what = (error.kind(), error.outcome());
            assert_eq!(what, (ErrorKind::InvalidArgument, Outcome::NotExecuted), "{call}: {error}");
            assert!(error.to_string().contains("name"), "{call}: {error}");
        }
        assert!(proxy.commands().is_empty(), "{:?}", proxy.commands());
    }
}

#[tokio::test]
async fn i3_odd_names_are_locked_waited_for_and_handed_off() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let (long, tags) = ("x".repeat(1 << 20), "{}".repeat(1 << 19));
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
        &format!("{{tag}}\r\n\0{tags}"),
    ];
    for name in names {
        let what = name.chars().take(30).collect::<String>();
        let (lock, waiting) = (client.lock(name), other.lock(name));
        assert!(lock.name() == name, "{what:?}");
        let listener = Listener::new(&server, &channel(name));
        let guard = hold(&lock).await;
        assert!(server.ask::<Vec<String>>(&["KEYS", "*"]) == [name], "{what:?}");
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
        for (call, error) in every_call(&lock).await {
            let what = (error.kind(), error.outcome());
            let expected = (ErrorKind::NotALock, Outcome::NotExecuted);
            assert_eq!(what, expected, "{call} on {make:?}: {error}");
            assert!(error.to_string().contains("other"), "{error} does not say which key");
        }
        assert_eq!(server.ask::<Vec<u8>>(&["DUMP", "other"]), before, "{make:?} was changed");
        assert_eq!(server.pttl("other"), -1, "{make:?} was given an end");
        assert!(listener.heard(&server).is_empty(), "{make:?} was released");
        server.ask::<()>(&["DEL", "other"]);
        // And nothing was remembered: the name is as good as any.
        assert!(is_free(&client, "other").await);
    }
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
async fn no_server_is_said_at_once_and_a_silent_one_after_the_command_timeout() {
    let nobody = format!("redis://127.0.0.1:{}/", free_port());
    for url in [nobody, "redis+unix:///nonexistent/redis.sock".to_owned()] {
        let builder = LockClient::builder().url(&url).command_timeout(MINUTE);
        let result = soon("an error", builder.connect()).await;
        let error = refused(&url, result, ErrorKind::Unavailable);
        assert_eq!(error.outcome(), Outcome::NotExecuted);
    }
    // Connections are made, and nobody reads what comes.
    let silent = listen();
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
        let prefixed = connected(LockClient::builder().url(server.url()).name_prefix(prefix)).await;
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
