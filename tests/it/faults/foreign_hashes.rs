//! A hash whose field is not an owner, or that has more than one field, is not a lock (W18).

use redlatch::kind::LockKind;

use super::*;
use crate::errors::every_call;

/// More fields than fit a compact encoding.
const LARGE: usize = 20_000;

/// Hashes that others could have put there.
fn hashes() -> Vec<(&'static str, Vec<String>)> {
    let fields = |all: &[&str]| all.iter().map(|field| (*field).to_owned()).collect();
    vec![
        ("a field that is not an owner", fields(&["name"])),
        ("an owner without a number", fields(&["8743c9c0:"])),
        ("an owner without an id", fields(&[":1"])),
        ("a number that goes on", fields(&["8743c9c0:1:write"])),
        ("a binary field", fields(&["\0:1\r\n"])),
        ("two fields", fields(&["name", "price"])),
        ("two owners", fields(&["8743c9c0:1", "8743c9c0:2"])),
        ("an owner and a field", fields(&["8743c9c0:1", "name"])),
        ("a lock with a mode", fields(&["8743c9c0:1", "mode"])),
        ("a mode alone", fields(&["mode"])),
        ("a large hash", (0..LARGE).map(|number| format!("8743c9c0:{number}")).collect()),
    ]
}

fn put(server: &Server, key: &str, fields: &[String]) {
    let mut command = vec!["HSET", key];
    command.extend(fields.iter().flat_map(|field| [field.as_str(), "1"]));
    server.ask::<()>(&command);
}

/// The fields, how they are stored if that does not depend on earlier reads, and the lease.
#[derive(PartialEq, Eq)]
struct State {
    fields: BTreeMap<String, u32>,
    dump: Option<Vec<u8>>,
    left: i64,
}

fn state(server: &Server, key: &str) -> State {
    let fields = server.holds(key);
    let dump = (fields.len() < LARGE).then(|| server.ask(&["DUMP", key]));
    State { fields, dump, left: server.pttl(key) }
}

/// Every call of a lock says so.
async fn every_call_refuses<K: LockKind>(lock: &Lock<K>, what: &str) {
    for (call, error) in every_call(lock).await {
        let said = (error.kind(), error.outcome());
        assert_eq!(said, (ErrorKind::NotALock, Outcome::NotExecuted), "{what}, {call}: {error}");
    }
}

#[tokio::test]
async fn w18_a_hash_that_is_not_a_lock_is_refused_by_every_call_and_stays_as_it_is() {
    let server = Server::start();
    let client = connect(&server).await;
    for (what, fields) in hashes() {
        put(&server, "hash", &fields);
        server.ask::<()>(&["PERSIST", "hash"]);
        let before = state(&server, "hash");
        let listener = Listener::new(&server, &channel("hash"));
        every_call_refuses(&client.lock("hash"), what).await;
        every_call_refuses(&client.fenced_lock("hash"), what).await;
        every_call_refuses(&client.fair_lock("hash"), what).await;
        assert!(state(&server, "hash") == before, "{what}: it was changed");
        assert!(!server.exists("redisson_lock_token:{hash}"), "{what}: a token was counted");
        assert!(listener.heard(&server).is_empty(), "{what}: a release was published");
        // No lease here is that long, and no test.
        server.ask::<()>(&["PEXPIRE", "hash", "3600000"]);
        every_call_refuses(&client.lock("hash"), what).await;
        let left = server.pttl("hash");
        assert!((3_000_000..=3_600_000).contains(&left), "{what}: {left} ms");
        server.ask::<()>(&["DEL", "hash"]);
        // The client does not remember it: the name works.
        assert!(is_free(&client, "hash").await, "{what}");
    }
}

/// A nested hold does not write to it either, not even where the own field is still there.
#[tokio::test]
async fn w18_a_held_lock_that_got_another_field_refuses_a_nested_hold() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("hash");
    let guard = soon("locking", lock.lock_with_lease(MINUTE)).await.expect("the lock");
    server.ask::<()>(&["HSET", "hash", "another", "1"]);
    let before: Vec<u8> = server.ask(&["DUMP", "hash"]);
    every_call_refuses(&lock, "an own hold and another field").await;
    assert_eq!(server.ask::<Vec<u8>>(&["DUMP", "hash"]), before);
    server.ask::<()>(&["HDEL", "hash", "another"]);
    release(hold(&lock).await).await;
    release(guard).await;
    assert!(!server.exists("hash"));
}

/// Not even where the own field is still there.
#[tokio::test]
async fn w18_a_held_lock_that_got_another_field_is_lost_and_stays_as_it_is() {
    let server = Server::start();
    let client = client_with(server.url(), ms(900)).await;
    let names = ["renewed", "unlocked", "dropped", "handed", "nested"];
    let [renewed, unlocked, dropped, handed, nested] = names.map(|name| client.lock(name));
    let take = async |lock: &Lock| lock.lock_with_lease(MINUTE).await.expect("the lock");
    let kept = hold(&renewed).await;
    let (unlocked, dropped, handed) =
        (take(&unlocked).await, take(&dropped).await, take(&handed).await);
    let (_outer, nested) = (take(&nested).await, take(&nested).await);
    let next = client.lock("handed");
    let waiter = tokio::spawn(async move { next.try_lock(MINUTE, MINUTE).await });
    wait_until("a waiter", SOON, || server.subscribers("handed") == 1).await;
    wait_until("its last question", SOON, || client_is_idle(&server)).await;
    for name in names {
        server.ask::<()>(&["HSET", name, "another", "1"]);
        server.ask::<()>(&["PERSIST", name]);
    }
    let dump = |name: &str| -> (Vec<u8>, i64) { (server.ask(&["DUMP", name]), server.pttl(name)) };
    let before = names.map(dump);

    soon("the renewal", kept.lost()).await;
    drop(kept);
    let is_lost = async |guard: LockGuard| {
        let error = soon("unlocking", guard.unlock()).await.expect_err("a lost lock");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    };
    is_lost(nested).await;
    is_lost(handed).await;
    drop(dropped);
    is_lost(unlocked).await;
    // The lock came to the waiter first, and was lost then; or the waiter asked for itself.
    match soon("the waiter", waiter).await.expect("no panic") {
        Ok(guard) => soon("its loss", guard.expect("no time-out").lost()).await,
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotALock, "{error}"),
    }
    wait_until("the release", SOON, || client_is_idle(&server)).await;
    assert!(names.map(dump) == before, "a hash that is not a lock was changed");
    server.ask::<()>(&["FLUSHALL"]);
}

/// Nothing was carried out between two looks.
fn client_is_idle(server: &Server) -> bool {
    let before = server.calls("evalsha");
    std::thread::sleep(ms(50));
    server.calls("evalsha") == before
}
