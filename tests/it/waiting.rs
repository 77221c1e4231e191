//! Who waits, in which order, and what is left of it. That waiting costs Redis nothing is in `tests/world/waits.rs`, and
//! what happens when the message that ought to come does not in `wake_ups.rs`.

use std::sync::Mutex;

use crate::prelude::*;

/// Takes the lock when its turn comes, and gives it back at once.
fn pass_through(client: &LockClient, name: &str) -> JoinHandle<()> {
    let lock = client.lock(name);
    tokio::spawn(async move { release(lock.lock().await.expect("a turn")).await })
}

pub(crate) async fn a_dropped_waiter_leaves_no_subscription_and_its_name_can_be_waited_for_again(
    setup: Setup,
) {
    let client = setup.connect().await;
    for _ in 0..5 {
        setup.hold_by_hand("again", "somebody:1", MINUTE);
        let task = pass_through(&client, "again");
        wait_until("a subscription", SOON, || setup.subscribers("again") == 1).await;
        task.abort();
        wait_until("no subscription", SOON, || setup.subscribers("again") == 0).await;

        let task = pass_through(&client, "again");
        wait_until("a subscription", SOON, || setup.subscribers("again") == 1).await;
        setup.free_by_hand("again");
        soon("a turn", task).await.unwrap();
    }
}

pub(crate) async fn waiters_of_one_client_get_the_lock_in_the_order_in_which_they_came(
    setup: Setup,
) {
    let client = setup.connect().await;
    setup.hold_by_hand("order", "somebody:1", MINUTE);
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
            wait_until("a subscription", SOON, || setup.subscribers("order") == 1).await;
        }
        tokio::task::yield_now().await;
    }
    setup.free_by_hand("order");
    for task in soon("20 turns", join_all(tasks)).await {
        task.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

pub(crate) async fn when_one_task_of_a_handle_gets_the_lock_its_siblings_get_it_too(setup: Setup) {
    let client = setup.connect().await;
    let lock = Arc::new(client.lock("siblings"));
    setup.hold_by_hand("siblings", "somebody:1", MINUTE);
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
    wait_until("a subscription", SOON, || setup.subscribers("siblings") == 1).await;
    setup.free_by_hand("siblings");
    // None of them gives it back before all have it: they nest.
    let guards = soon("five holds of one owner", join_all(waiting)).await;
    assert_eq!(lock.hold_count().await.unwrap(), 5);
    for guard in guards {
        release(guard.unwrap()).await;
    }
    assert!(!setup.exists("siblings"));
}

// testSinglePubSub
pub(crate) async fn waiters_for_many_names_do_not_get_in_each_others_way(setup: Setup) {
    let client = setup.connect().await;
    let names: Vec<_> = (0..50).map(|number| format!("many:{number}")).collect();
    for name in &names {
        setup.hold_by_hand(name, "somebody:1", MINUTE);
    }
    let waiting: Vec<_> = names.iter().map(|name| pass_through(&client, name)).collect();
    for name in &names {
        wait_until("a subscription", SOON, || setup.subscribers(name) == 1).await;
    }
    for (name, waiter) in names.iter().zip(waiting).rev() {
        assert!(!waiter.is_finished(), "{name}");
        setup.free_by_hand(name);
        soon(name, waiter).await.unwrap();
    }
}

#[tokio::test]
async fn a_wait_of_zero_tries_exactly_once_and_never_parks() {
    let setup = Setup::alone();
    let proxy = setup.proxy();
    let client = setup.client_through(&proxy).await;
    setup.hold_by_hand("zero", "somebody:1", MINUTE);
    let lock = client.lock("zero");
    assert!(lock.try_lock_now().await.unwrap().is_none());
    proxy.forget_commands();
    assert!(lock.try_lock(Duration::ZERO, Lease::Watchdog).await.unwrap().is_none());
    assert_eq!(proxy.commands(), [("EVALSHA".to_owned(), 1)].into());

    // Also while others of the client stand in line: one try is one try.
    let waiter = pass_through(&client, "zero");
    wait_until("a subscription", SOON, || setup.subscribers("zero") == 1).await;
    proxy.settled(ms(200)).await;
    proxy.forget_commands();
    assert!(lock.try_lock(Duration::ZERO, Lease::Watchdog).await.unwrap().is_none());
    assert_eq!(proxy.sent("EVALSHA"), 1);
    setup.free_by_hand("zero");
    soon("the waiter", waiter).await.unwrap();
}

#[tokio::test]
async fn n11_messages_that_mean_nothing_only_make_a_waiter_look() {
    let setup = Setup::alone();
    let proxy = setup.proxy();
    let client = setup.client_through(&proxy).await;
    setup.hold_by_hand("noise", "somebody:1", MINUTE);
    let waiter = pass_through(&client, "noise");
    wait_until("a subscription", SOON, || setup.subscribers("noise") == 1).await;
    proxy.settled(ms(200)).await;
    proxy.forget_commands();
    let texts = ["", "0", "1", "-1", "garbage", "\0\r\n*3\r\n", "🔒", "99999999999999999999"];
    let mut publisher = setup.connection();
    for round in 0..1000 {
        let mut message = redis::cmd("PUBLISH");
        message.arg(channel(&setup.key("noise")));
        match round % 16 {
            // Bytes that are no text, either.
            text @ 0..8 => message.arg(texts[text]),
            _ => message.arg(uuid::Uuid::new_v4().as_bytes().as_slice()),
        };
        let heard: u64 = message.query(&mut publisher).expect("PUBLISH");
        assert_eq!(heard, 1, "the waiter's client is subscribed");
    }
    wait_until("a look", SOON, || proxy.sent("EVALSHA") > 0).await;
    proxy.settled(ms(200)).await;
    assert!(!waiter.is_finished(), "the lock is still somebody else's");
    assert_eq!(setup.holds("noise"), [("somebody:1".to_owned(), 1)].into());
    let looks = proxy.sent("EVALSHA");
    assert!((1..=1000).contains(&looks), "{looks} looks for 1000 messages");
    setup.free_by_hand("noise");
    soon("the waiter", waiter).await.unwrap();
}
