//! The fenced read-write lock: a writer has a token of its own, and a reader that of the last writer, wherever
//! Redis is (see `contract`), and what that costs and needs on one server.

use redlatch::kind::ReadWriteKind;
use redlatch::{FencedReadWriteLock, FencedWriteGuard, ReadWriteLock};

use crate::prelude::*;
use crate::sharing::{reads, writes};
use crate::support::tokens::assert_growing;

const NAME: &str = "config";

/// That of a writer who writes nothing else.
async fn next_token(lock: &FencedReadWriteLock) -> FencingToken {
    let guard = writes(lock).await;
    let token = guard.token();
    soon("unlocking", guard.unlock()).await.expect("unlocking");
    token
}

/// What a reader finds that reads nothing else.
async fn read_token(lock: &FencedReadWriteLock) -> Option<FencingToken> {
    let guard = reads(lock).await;
    let token = guard.token();
    soon("unlocking", guard.unlock()).await.expect("unlocking");
    token
}

/// A task that waits to write, and its client stands in the queue by now.
async fn waits_to_write(
    queue: impl Fn() -> Vec<String>,
    client: &LockClient,
) -> JoinHandle<FencedWriteGuard> {
    let lock = client.fenced_read_write_lock(NAME);
    let waits = tokio::spawn(async move { lock.write().await.expect("to write") });
    wait_until("an entry", SOON, || !queue().is_empty()).await;
    apart().await;
    waits
}

pub(crate) async fn a_writer_has_a_token_of_its_own_and_a_reader_that_of_the_last_writer(
    setup: Setup,
) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (here, there) = (client.fenced_read_write_lock(NAME), other.fenced_read_write_lock(NAME));
    assert_eq!(read_token(&here).await, None, "no owner has written yet");
    assert_eq!(setup.token(NAME), None);
    let mut tokens = vec![next_token(&here).await];
    for lock in [&there, &here.clone(), &here, &there, &there] {
        for reader in [&here, &there] {
            assert_eq!(read_token(reader).await.as_ref(), tokens.last());
        }
        tokens.push(next_token(lock).await);
    }
    assert_growing(&tokens);
    // A nested hold is the same hold to a store, also if the first one is given back first.
    let outer = writes(&here).await;
    let inner = writes(&here).await;
    assert_eq!(inner.token(), outer.token());
    let token = outer.token();
    outer.unlock().await.unwrap();
    assert_eq!(writes(&here).await.token(), token);
    inner.unlock().await.unwrap();
    let (one, two) = (reads(&here).await, reads(&there).await);
    let nested = reads(&here).await;
    assert_eq!([one.token(), two.token(), nested.token()], [Some(token); 3]);
    assert_eq!(setup.token(NAME), Some(token.get()));
    for guard in [one, two, nested] {
        guard.unlock().await.unwrap();
    }
    // An operator ends a hold, and not its token.
    let forced = writes(&here).await;
    assert!(there.force_unlock().await.unwrap());
    assert_eq!(read_token(&there).await, Some(forced.token()));
    assert!(next_token(&there).await > forced.token());
    drop(forced);
}

pub(crate) async fn writers_of_a_client_have_tokens_that_grow_and_readers_the_last(setup: Setup) {
    in_the_end(async || {
        let (has_more, is_handed_off) = take_turns(&setup).await;
        has_more == is_handed_off
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_is_handed_the_lock_has_the_next_token() {
    in_the_end(async || take_turns(&Setup::alone()).await == (true, true)).await;
}

/// Plays a case again if the lock was not handed off in it, or tokens were drawn in vain: if this thread is not run for
/// 10 ms just when a writer is let in, the next one asks Redis for its turn.
async fn in_the_end(case: impl AsyncFn() -> bool) {
    for _ in 0..5 {
        if case().await {
            return;
        }
    }
    panic!("it was not handed off, or it does not draw just for all that wait");
}

/// Whether tokens were drawn for all writers that wait, and whether the lock was handed off from one writer of a client to
/// the next: where replicas have to have each grant, neither is.
async fn take_turns(setup: &Setup) -> (bool, bool) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let there = other.fenced_read_write_lock(NAME);
    let mut guard = writes(&there).await;
    let mut tokens = vec![guard.token()];
    let mut owners = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..4 {
        waits.push(waits_to_write(|| setup.queue(NAME), &client).await);
    }
    for waits in waits {
        guard.unlock().await.unwrap();
        guard = soon("a turn", waits).await.unwrap();
        tokens.push(guard.token());
        owners.push(guard.owner().to_owned());
    }
    let is_handed_off = owners.iter().all(|owner| *owner == owners[0]);
    let has_more = setup.token(NAME) > Some(guard.token().get());
    guard.unlock().await.unwrap();
    // What no writer got is given back: it is not for a reader to see.
    assert_eq!(read_token(&there).await.as_ref(), tokens.last());
    tokens.push(next_token(&there).await);
    assert_growing(&tokens);
    (has_more, is_handed_off)
}

pub(crate) async fn a_guard_that_changes_sides_keeps_its_token_or_has_a_new_one(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (here, there) = (client.fenced_read_write_lock(NAME), other.fenced_read_write_lock(NAME));
    let beside = client.fenced_read_write_lock(NAME);
    let writing = writes(&here).await;
    let first = writing.token();
    let reading = soon("downgrading", writing.downgrade()).await.unwrap();
    assert_eq!(reading.token(), Some(first));
    for lock in [&there, &beside] {
        assert_eq!(read_token(lock).await, Some(first));
    }
    let writing = soon("upgrading", reading.try_upgrade()).await.unwrap().expect("alone");
    let second = writing.token();
    assert!(second > first);
    // It reads beside that, and stays when the write has ended.
    let inner = reads(&here).await;
    assert_eq!(inner.token(), Some(second));
    writing.unlock().await.unwrap();
    for lock in [&there, &beside] {
        assert_eq!(read_token(lock).await, Some(second));
    }
    // The other way round: a reader that its handle's writer follows. Who comes later knows of that one.
    let writing = writes(&here).await;
    let third = writing.token();
    assert!(third > second);
    assert_eq!((inner.token(), reads(&here).await.token()), (Some(second), Some(third)));
    writing.unlock().await.unwrap();
    for lock in [&beside, &here, &there] {
        assert_eq!(read_token(lock).await, Some(third));
    }
    inner.unlock().await.unwrap();
    // A downgrade by one of several writers in a row, for whom the client has drawn ahead.
    let holder = writes(&there).await;
    let one = waits_to_write(|| setup.queue(NAME), &client).await;
    let two = waits_to_write(|| setup.queue(NAME), &client).await;
    holder.unlock().await.unwrap();
    soon("a turn", one).await.unwrap().unlock().await.unwrap();
    let writing = soon("a turn", two).await.unwrap();
    let token = writing.token();
    let reading = soon("downgrading", writing.downgrade()).await.unwrap();
    assert_eq!(reading.token(), Some(token));
    for lock in [&beside, &here, &there] {
        assert_eq!(read_token(lock).await, Some(token));
    }
    reading.unlock().await.unwrap();
}

/// What the server is sent for each call once.
async fn commands<K: ReadWriteKind>(
    proxy: &Proxy,
    lock: &ReadWriteLock<K>,
) -> BTreeMap<String, u64> {
    proxy.forget_commands();
    reads(lock).await.unlock().await.unwrap();
    let reading = writes(lock).await.downgrade().await.unwrap();
    reading.try_upgrade().await.unwrap().expect("alone").unlock().await.unwrap();
    proxy.commands()
}

#[tokio::test]
async fn it_costs_the_commands_of_a_read_write_lock_and_that_one_has_no_counter() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = soon("connecting", LockClient::connect(&proxy.url(&server))).await.unwrap();
    let (plain, fenced) =
        (client.read_write_lock("plain"), client.fenced_read_write_lock("fenced"));
    plain.write().await.unwrap().unlock().await.unwrap();
    assert_eq!(commands(&proxy, &plain).await, [("EVALSHA".to_owned(), 8)].into());
    for counts in ["get", "incrby"] {
        assert_eq!(server.calls(counts), 0, "a script called it");
    }
    next_token(&fenced).await;
    assert_eq!(commands(&proxy, &fenced).await, [("EVALSHA".to_owned(), 8)].into());
    let one = reads(&fenced).await;
    proxy.forget_commands();
    assert_eq!(read_token(&fenced).await, one.token());
    assert!(proxy.commands().is_empty(), "readers of a client share their token");
    one.unlock().await.unwrap();
}

/// Neither has an owner in Redis that the other one is.
#[tokio::test]
async fn handles_of_both_kinds_and_one_name_are_handles_of_one_lock() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let (plain, fenced) = (client.read_write_lock(NAME), client.fenced_read_write_lock(NAME));
    let token = next_token(&fenced).await;
    let writing = plain.write().await.unwrap();
    assert!(fenced.try_read_now().await.unwrap().is_none());
    assert!(fenced.try_write_now().await.unwrap().is_none());
    // Readers of both kinds wait beside each other, and come in together.
    let (mut plain_ones, mut fenced_ones) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (plain, fenced) = (plain.clone(), fenced.clone());
        plain_ones.push(tokio::spawn(async move { plain.read().await.unwrap() }));
        wait_until("a waiter", SOON, || !setup.queue(NAME).is_empty()).await;
        fenced_ones.push(tokio::spawn(async move { fenced.read().await.unwrap() }));
        tokio::time::sleep(ms(5)).await;
    }
    writing.unlock().await.unwrap();
    let guards = soon("to read", join_all(plain_ones)).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    for one in fenced_ones {
        // A writer without a token is none to them.
        let guard = soon("to read", one).await.unwrap();
        assert_eq!(guard.token(), Some(token));
        assert_ne!(guard.owner(), guards[0].owner());
        guard.unlock().await.unwrap();
    }
    assert_eq!(setup.fields(NAME).len(), 2);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    assert!(!setup.exists(NAME));
    // From one to the other, and back.
    let writing = writes(&fenced).await;
    let waits = tokio::spawn(async move { plain.write().await.unwrap() });
    wait_until("a waiter", SOON, || !setup.queue(NAME).is_empty()).await;
    let next = waits_to_write(|| setup.queue(NAME), &client).await;
    let before = writing.token();
    writing.unlock().await.unwrap();
    soon("a turn", waits).await.unwrap().unlock().await.unwrap();
    let last = soon("a turn", next).await.unwrap();
    assert!(last.token() > before);
    last.unlock().await.unwrap();
}

#[tokio::test]
async fn the_counter_is_that_of_a_fenced_lock_and_has_the_prefix() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).name_prefix("app:");
    let client = soon("connecting", builder.connect()).await.unwrap();
    let key = "redisson_lock_token:{app:config}";
    // Far ahead of the clock: it counts on by one.
    let ahead = 8_000_000_000_000_000_u64;
    server.ask::<()>(&["SET", key, &ahead.to_string()]);
    let lock = client.fenced_read_write_lock(NAME);
    assert_eq!(read_token(&lock).await.map(FencingToken::get), Some(ahead));
    assert_eq!(next_token(&lock).await.get(), ahead + 1);
    assert_eq!(server.ask::<u64>(&["INCR", key]), ahead + 2);
    assert_eq!(read_token(&lock).await.map(FencingToken::get), Some(ahead + 2));
    assert_eq!(next_token(&lock).await.get(), ahead + 3);
    let fenced = soon("locking", client.fenced_lock(NAME).lock()).await.unwrap();
    assert_eq!(fenced.token().get(), ahead + 4);
    soon("unlocking", fenced.unlock()).await.unwrap();
    assert_eq!(server.pttl(key), -1, "a token that ended would start again");
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [key]);
}

#[tokio::test]
async fn a_refusal_uses_up_no_token_and_a_call_that_is_dropped_leaves_nothing() {
    let setup = Setup::alone();
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (here, there) = (client.fenced_read_write_lock(NAME), other.fenced_read_write_lock(NAME));
    let guard = writes(&here).await;
    assert!(there.try_write_now().await.unwrap().is_none());
    assert!(there.try_write(ms(50), Lease::Watchdog).await.unwrap().is_none());
    assert_eq!(setup.token(NAME), Some(guard.token().get()));
    let reading = guard.downgrade().await.unwrap();
    assert!(there.try_write_now().await.unwrap().is_none());
    assert!(reads(&there).await.token() == reading.token(), "a reader draws none");
    assert!(reading.token().map(FencingToken::get) == setup.token(NAME));
    reading.unlock().await.unwrap();
    let next = client.fenced_read_write_lock(NAME);
    let mut last = next_token(&next).await;
    // However far the request came: what another owner asks comes after it.
    for between in [0, 1, 6, 60] {
        let lock = client.fenced_read_write_lock(NAME);
        let mut steps = Steps::new(lock.write());
        assert!(steps.take(1).await.is_none());
        turns(between).await;
        drop(steps);
        let token = next_token(&next).await;
        assert!(token > last);
        assert_eq!(read_token(&next).await, Some(token));
        last = token;
    }
    wait_until("a free lock", SOON, || !setup.exists(NAME)).await;
}

#[tokio::test]
async fn a_full_memory_refuses_a_token_and_takes_back_those_that_were_drawn_in_vain() {
    in_the_end(fill_the_memory_under_writers).await;
}

/// Whether the lock was handed off from one writer to the next.
async fn fill_the_memory_under_writers() -> bool {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.fenced_read_write_lock(NAME);
    let first = writes(&lock).await;
    let queue = || server.ask(&["ZRANGE", "redlatch_rw_queue:{config}", "0", "-1"]);
    let one = waits_to_write(queue, &client).await;
    let two = waits_to_write(queue, &client).await;
    first.unlock().await.unwrap();
    let guard = soon("a turn", one).await.unwrap();
    let owner = guard.owner().to_owned();
    server.fill();
    guard.unlock().await.unwrap();
    let guard = soon("a turn", two).await.unwrap();
    if guard.owner() != owner {
        return false;
    }
    let token = guard.token();
    assert!(server.ask::<u64>(&["GET", "redisson_lock_token:{config}"]) > token.get());
    guard.unlock().await.unwrap();
    let error = lock.write().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Server, Outcome::NotExecuted));
    server.make_room();
    assert_eq!(read_token(&lock).await, Some(token));
    assert!(next_token(&lock).await > token);
    true
}
