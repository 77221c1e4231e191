//! Calls that are dropped at each of their awaits, and a client that closes.

use super::*;
use crate::cancellation::{at_every_await, step};

type Call = fn(ReadWriteLock) -> BoxFuture<'static, bool>;

/// The calls: whether each came to a guard, which it drops.
const CALLS: [(&str, Call); 10] = [
    ("read", |lock| async move { lock.read().await.map(drop).is_ok() }.boxed()),
    ("write", |lock| async move { lock.write().await.map(drop).is_ok() }.boxed()),
    ("try_read", |lock| {
        async move { lock.try_read(MINUTE, MINUTE).await.is_ok_and(|g| g.is_some()) }.boxed()
    }),
    ("try_write", |lock| {
        async move { lock.try_write(MINUTE, MINUTE).await.is_ok_and(|g| g.is_some()) }.boxed()
    }),
    ("read_now", |lock| {
        async move { lock.try_read_now().await.is_ok_and(|g| g.is_some()) }.boxed()
    }),
    ("write_now", |lock| {
        async move { lock.try_write_now().await.is_ok_and(|g| g.is_some()) }.boxed()
    }),
    ("read_in_write", |lock| {
        async move {
            let outer = lock.write().await;
            let inner = lock.read().await;
            drop(outer);
            inner.is_ok()
        }
        .boxed()
    }),
    ("write_in_read", |lock| {
        async move {
            let outer = lock.read().await;
            let inner = lock.write().await;
            drop(outer);
            inner.is_ok()
        }
        .boxed()
    }),
    ("try_upgrade", |lock| {
        async move { lock.read().await.unwrap().try_upgrade().await.is_ok_and(|g| g.is_ok()) }
            .boxed()
    }),
    ("downgrade", |lock| {
        async move { lock.write().await.unwrap().downgrade().await.is_ok() }.boxed()
    }),
];

async fn until_free(client: &LockClient, name: &str) {
    let begun = std::time::Instant::now();
    while !is_free_to_write(client, name).await {
        assert!(begun.elapsed() < SOON, "{name} is held");
        tokio::time::sleep(ms(1)).await;
    }
}

#[tokio::test]
async fn a_call_dropped_anywhere_leaves_the_name_free_to_write() {
    let server = Server::start();
    let client = connect(&server).await;
    for (call, takes) in CALLS {
        at_every_await(async |polls, turns| {
            let name = format!("{call}:{polls}:{turns}");
            let finished = step(takes(client.read_write_lock(&name)), polls, turns).await;
            until_free(&client, &name).await;
            finished.is_some()
        })
        .await;
    }
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn a_waiter_dropped_anywhere_leaves_the_queue_and_those_behind_it_go_on() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    for (call, takes) in &CALLS[..4] {
        for behind in [reads_or_writes(true), reads_or_writes(false)] {
            at_every_await(async |polls, turns| {
                let name = format!("{call}:{polls}:{turns}");
                let holder = writes(&other.read_write_lock(&name)).await;
                let mut waits = Steps::new(takes(client.read_write_lock(&name)));
                assert_eq!(waits.take(polls.min(4)).await, None);
                let next = tokio::spawn(behind(client.read_write_lock(&name)));
                crate::support::turns(20).await;
                holder.unlock().await.unwrap();
                let finished = waits.take(polls).await.is_some();
                crate::support::turns(turns).await;
                drop(waits);
                assert!(soon("the one behind it", next).await.unwrap());
                until_free(&client, &name).await;
                finished
            })
            .await;
        }
    }
    wait_until("nothing is left", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}

fn reads_or_writes(writes: bool) -> Call {
    CALLS[usize::from(writes)].1
}

#[tokio::test]
async fn an_unlock_dropped_anywhere_gives_the_hold_back() {
    let server = Server::start();
    let client = connect(&server).await;
    at_every_await(async |polls, turns| {
        let name = format!("{polls}:{turns}");
        let lock = client.read_write_lock(&name);
        let one = writes(&lock).await;
        let finished = step(one.unlock(), polls, turns).await.is_some();
        let (one, two) = (reads(&lock).await, reads(&lock).await);
        step(one.unlock(), polls, turns).await;
        assert!(!is_free_to_write(&client, &name).await);
        step(two.unlock(), polls, turns).await;
        until_free(&client, &name).await;
        finished
    })
    .await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn a_client_that_closes_ends_its_waits_and_its_places() {
    let server = Server::start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let holder = writes(&other.read_write_lock("config")).await;
    let calls = [CALLS[0].1, CALLS[1].1, CALLS[0].1];
    let waits = calls.map(|call| tokio::spawn(call(client.read_write_lock("config"))));
    wait_until("a place", SOON, || queue(&server, "config").len() == 1).await;
    let reading = reads(&client.read_write_lock("other")).await;
    soon("closing", client.close()).await;
    for one in waits {
        assert!(!soon("a wait", one).await.unwrap());
    }
    assert_eq!(queue(&server, "config"), [""; 0]);
    let refused = client.read_write_lock("other").read().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    reading.unlock().await.expect("a guard outlives it");
    holder.unlock().await.unwrap();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}
