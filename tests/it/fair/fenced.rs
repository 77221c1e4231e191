//! The fenced fair lock: the order of a fair lock, and the tokens of a fenced one.

use std::sync::Mutex;

use super::*;
use crate::support::tokens::{next_token, open};

pub(crate) async fn a_fenced_fair_lock_is_a_fenced_lock(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.fenced_fair_lock("fenced fair");
    let guard = hold(&lock).await;
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
    let holder = hold(&one.fair_lock("both")).await;
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
        far_apart().await;
    }
    release(holder).await;
    for task in tasks {
        soon("a turn", task).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}
