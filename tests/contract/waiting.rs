//! Who waits, in which order, and what is left of it.

use futures::future::join_all;
use redlatch::LockClient;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

use crate::support::{SOON, ms, release, soon, wait_until};
use crate::{MINUTE, Site};

/// Takes the lock when its turn comes, and gives it back at once.
fn pass_through(client: &LockClient, name: &str) -> JoinHandle<()> {
    let lock = client.lock(name);
    tokio::spawn(async move { release(lock.lock().await.expect("a turn")).await })
}

pub(super) async fn a_dropped_waiter_leaves_no_subscription_and_its_name_can_be_waited_for_again(
    site: Site,
) {
    let client = site.connect().await;
    for _ in 0..5 {
        site.hold_by_hand("again", "somebody:1", MINUTE);
        let task = pass_through(&client, "again");
        wait_until("a subscription", SOON, || site.subscribers("again") == 1).await;
        task.abort();
        wait_until("no subscription", SOON, || site.subscribers("again") == 0).await;

        let task = pass_through(&client, "again");
        wait_until("a subscription", SOON, || site.subscribers("again") == 1).await;
        site.free_by_hand("again");
        soon("a turn", task).await.unwrap();
    }
}

pub(super) async fn waiters_of_one_client_get_the_lock_in_the_order_in_which_they_came(site: Site) {
    let client = site.connect().await;
    site.hold_by_hand("order", "somebody:1", MINUTE);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        let (lock, order) = (client.lock("order"), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push(number);
            release(guard).await;
        }));
        // The first has to stand in line, so that the others do not try for themselves. Those
        // then come in the order of their first polls, which is the order of spawning here.
        if number == 0 {
            wait_until("a subscription", SOON, || site.subscribers("order") == 1).await;
        }
        tokio::task::yield_now().await;
    }
    site.free_by_hand("order");
    for task in soon("20 turns", join_all(tasks)).await {
        task.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

pub(super) async fn when_one_task_of_a_handle_gets_the_lock_its_siblings_get_it_too(site: Site) {
    let client = site.connect().await;
    let lock = Arc::new(client.lock("siblings"));
    site.hold_by_hand("siblings", "somebody:1", MINUTE);
    let waiting = (0..5).map(|sibling| {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move {
            match sibling % 2 {
                0 => lock.lock().await.unwrap(),
                _ => lock.try_lock(MINUTE, MINUTE).await.unwrap().expect("in time"),
            }
        })
    });
    let waiting: Vec<_> = waiting.collect();
    wait_until("a subscription", SOON, || site.subscribers("siblings") == 1).await;
    site.free_by_hand("siblings");
    // None of them gives it back before all have it: they nest.
    let guards = soon("five holds of one owner", join_all(waiting)).await;
    assert_eq!(lock.hold_count().await.unwrap(), 5);
    for guard in guards {
        release(guard.unwrap()).await;
    }
    assert!(!site.exists("siblings"));
}

pub(super) async fn a_sibling_that_gives_up_does_not_take_the_others_wake_up_with_it(site: Site) {
    let client = site.connect().await;
    let lock = Arc::new(client.lock("siblings"));
    site.hold_by_hand("siblings", "somebody:1", MINUTE);
    let first = {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move { lock.try_lock(ms(1_000), MINUTE).await.unwrap().is_none() })
    };
    wait_until("a subscription", SOON, || site.subscribers("siblings") == 1).await;
    let second = {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    assert!(soon("the first to give up", first).await.unwrap());
    wait_until("the second's subscription", SOON, || site.subscribers("siblings") == 1).await;
    site.free_by_hand("siblings");
    release(soon("the second", second).await.unwrap()).await;
}

pub(super) async fn waiters_for_many_names_do_not_get_in_each_others_way(site: Site) {
    let client = site.connect().await;
    let names: Vec<_> = (0..50).map(|number| format!("many:{number}")).collect();
    for name in &names {
        site.hold_by_hand(name, "somebody:1", MINUTE);
    }
    let waiting: Vec<_> = names.iter().map(|name| pass_through(&client, name)).collect();
    for name in &names {
        wait_until("a subscription", SOON, || site.subscribers(name) == 1).await;
    }
    for (name, waiter) in names.iter().zip(waiting).rev() {
        assert!(!waiter.is_finished(), "{name}");
        site.free_by_hand(name);
        soon(name, waiter).await.unwrap();
    }
}
