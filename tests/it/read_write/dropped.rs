//! Calls that are dropped at each of their awaits.

use super::*;
use crate::cancellation::{at_every_await, step};

const CALLS: [&str; 10] = [
    "read",
    "write",
    "try_read",
    "try_write",
    "try_read_now",
    "try_write_now",
    "read in write",
    "write in read",
    "try_upgrade",
    "downgrade",
];

/// Whether a call comes to a guard, which it drops.
async fn takes(call: &str, lock: ReadWriteLock) -> bool {
    match call {
        "read" => lock.read().await.is_ok(),
        "write" => lock.write().await.is_ok(),
        "try_read" => lock.try_read(MINUTE, MINUTE).await.is_ok_and(|guard| guard.is_some()),
        "try_write" => lock.try_write(MINUTE, MINUTE).await.is_ok_and(|guard| guard.is_some()),
        "try_read_now" => lock.try_read_now().await.is_ok_and(|guard| guard.is_some()),
        "try_write_now" => lock.try_write_now().await.is_ok_and(|guard| guard.is_some()),
        "read in write" => {
            let outer = lock.write().await;
            let inner = lock.read().await;
            drop(outer);
            inner.is_ok()
        }
        "write in read" => {
            let outer = lock.read().await;
            let inner = lock.write().await;
            drop(outer);
            inner.is_ok()
        }
        "try_upgrade" => {
            let upgraded = lock.read().await.unwrap().try_upgrade().await;
            upgraded.is_ok_and(|guard| guard.is_ok())
        }
        _ => lock.write().await.unwrap().downgrade().await.is_ok(),
    }
}

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
    for call in CALLS {
        at_every_await(async |polls, turns| {
            let name = format!("{call}:{polls}:{turns}");
            let finished = step(takes(call, client.read_write_lock(&name)), polls, turns).await;
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
    for call in &CALLS[..4] {
        for behind in ["read", "write"] {
            at_every_await(async |polls, turns| {
                let name = format!("{call}:{polls}:{turns}");
                let holder = writes(&other.read_write_lock(&name)).await;
                let mut waits = Steps::new(takes(call, client.read_write_lock(&name)));
                assert_eq!(waits.take(polls.min(4)).await, None);
                let next = tokio::spawn(takes(behind, client.read_write_lock(&name)));
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
