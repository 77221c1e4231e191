//! The fenced fair lock: the order of a fair lock, and the tokens of a fenced one.

use std::sync::Mutex;

use super::*;
use crate::support::tokens::{assert_growing, next_token, open};

type Turns = Arc<Mutex<Vec<(usize, FencingToken)>>>;

async fn fenced_hold(lock: &FencedFairLock) -> FencedLockGuard {
    soon("locking", lock.lock()).await.expect("locking")
}

/// A task that waits for its turn, notes its token, and gives the lock back.
fn waiter(lock: FencedFairLock, number: usize, turns: &Turns) -> JoinHandle<()> {
    let turns = turns.clone();
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("a turn");
        turns.lock().unwrap().push((number, guard.token()));
        open(guard).await;
    })
}

/// Returns the last token.
#[track_caller]
fn growing(turns: &Turns, first: FencingToken, waiters: usize) -> FencingToken {
    let turns = turns.lock().unwrap();
    let all: Vec<_> = [first].into_iter().chain(turns.iter().map(|(_, token)| *token)).collect();
    assert_growing(&all);
    all[waiters]
}

pub(crate) async fn a_fenced_fair_lock_is_a_fenced_lock(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.fenced_fair_lock("fenced fair");
    let guard = fenced_hold(&lock).await;
    let inner = lock.try_lock_now().await.unwrap().expect("a nested hold");
    assert_eq!(inner.token(), guard.token());
    assert!(client.fair_lock("fenced fair").try_lock_now().await.unwrap().is_none());
    open(inner).await;
    let first = open(guard).await;
    let token = next_token(&client.fenced_lock("fenced fair")).await;
    assert!(token > first, "one counter");
    let short = lock.try_lock(ms(1_000), ms(600)).await.unwrap().expect("a free lock");
    assert!(short.token() > token);
    soon("the loss", short.lost()).await;
}

#[tokio::test]
async fn fair_and_fenced_fair_waiters_stand_in_one_queue() {
    let (_server, [one, other]) = clients().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let holder = fair_hold(&one.fair_lock("both")).await;
    let mut tasks = Vec::new();
    for (number, client) in [&one, &one, &other, &other, &one, &one].into_iter().enumerate() {
        let order = order.clone();
        let (fair, fenced) = (client.fair_lock("both"), client.fenced_fair_lock("both"));
        tasks.push(tokio::spawn(async move {
            if number % 2 == 0 {
                let guard = fair.lock().await.expect("a turn");
                order.lock().unwrap().push(number);
                release(guard).await;
            } else {
                let guard = fenced.lock().await.expect("a turn");
                order.lock().unwrap().push(number);
                open(guard).await;
            }
        }));
        apart().await;
    }
    release(holder).await;
    for task in tasks {
        soon("a turn", task).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_the_token_is_in_the_slot_of_the_queue() {
    let cluster = Cluster::start();
    let client =
        async || LockClient::builder().cluster(cluster.urls()).connect().await.expect("connecting");
    let (one, other) = (client().await, client().await);
    for name in [cluster.name_at(1, "fenced"), format!("{{{}}}x", cluster.name_at(2, "tagged"))] {
        let holder = fenced_hold(&one.fenced_fair_lock(&name)).await;
        let turns = Turns::default();
        let waits = waiter(other.fenced_fair_lock(&name), 0, &turns);
        if !name.contains('{') {
            let entries = || cluster.ask_at::<u64>(&name, &["ZCARD", &queue_keys(&name)[0]]);
            wait_until("an entry", SOON, || entries() == 1).await;
        }
        let first = open(holder).await;
        soon("a turn", waits).await.unwrap();
        growing(&turns, first, 1);
    }
    assert!(one.fenced_fair_lock("none").try_lock(ms(1), MINUTE).await.unwrap().is_some());
}
