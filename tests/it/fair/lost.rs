//! What gets lost: the queue, all data, replies, connections.

use std::sync::Mutex;
use std::time::Instant;

use super::*;

#[tokio::test]
async fn the_order_outlives_the_queue_and_all_data() {
    for all in [false, true] {
        let server = Server::start();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect(&server).await);
        }
        let guard = fair_hold(&clients[0].fair_lock("order")).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        let mut expected = Vec::new();
        for number in [2, 1, 3] {
            let lock = clients[number].fair_lock("order");
            expected.push(client_of(&lock));
            let order = order.clone();
            let then = move |guard| {
                order.lock().unwrap().push(number);
                drop(guard);
            };
            tasks.push(waiter(&server, lock, then).await);
        }
        assert_eq!(queue(&server, "order"), expected);
        let keys = queue_keys("order");
        server.ask::<()>(&["MULTI"]);
        if all {
            server.ask::<()>(&["FLUSHALL"]);
            // So that the clients come back before it is free.
            server.ask::<()>(&["HSET", "order", "somebody:1", "1"]);
            server.ask::<()>(&["PEXPIRE", "order", "60000"]);
        } else {
            server.ask::<()>(&["DEL", &keys[0], &keys[1]]);
        }
        server.ask::<()>(&["EXEC"]);
        assert!(queue(&server, "order").is_empty());
        // They refresh their places, and hear that they have none.
        wait_until("the old places", SOON, || queue(&server, "order") == expected).await;
        if all {
            assert!(clients[0].fair_lock("order").force_unlock().await.unwrap());
            drop(guard);
        } else {
            release(guard).await;
        }
        for task in tasks {
            soon("a turn", task).await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [2, 1, 3]);
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn an_acquire_or_a_release_whose_reply_was_lost_counts_once() {
    let setup = Setup::alone();
    let proxy = setup.proxy();
    let client = setup.client_through(&proxy).await;
    let lock = client.fair_lock("twice");
    release(fair_hold(&lock).await).await;
    for fault in [Fault::ResetBeforeSend, Fault::DropReplyAndReset] {
        for of_release in [false, true] {
            let faults = proxy.faults();
            proxy.plan("EVALSHA", 1 + u64::from(of_release), fault);
            let guard = fair_hold(&lock).await;
            assert!(lock.clone().is_locked().await.unwrap());
            if !of_release {
                assert_eq!(lock.hold_count().await.unwrap(), 1);
            }
            release(guard).await;
            assert_eq!(proxy.faults(), faults + 1);
            assert!(!setup.exists("twice"));
        }
    }
}

#[tokio::test]
async fn a_place_whose_reply_was_lost_is_where_it_was() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = redlatch::LockClient::builder().url(proxy.url(&server));
    let (one, other) = (connect(&server).await, connect(&server).await);
    let far = builder.connect().await.unwrap();
    let guard = fair_hold(&one.fair_lock("place")).await;
    // The second request moves the place, because an older waiter may have left. It is sent again when
    // the other client has a place.
    for nth in [2, 3] {
        proxy.plan("EVALSHA", nth, Fault::Mute);
    }
    let first = waiter(&server, far.fair_lock("place"), |guard| guard).await;
    let second = waiter(&server, other.fair_lock("place"), |guard| guard).await;
    let clients = queue(&server, "place");
    assert_eq!(clients.len(), 2);
    assert!(proxy.cut_all() > 0);
    wait_until("the second sending", SOON, || proxy.faults() == 2 && proxy.withheld() >= 2).await;
    assert_eq!(queue(&server, "place"), clients);
    assert!(proxy.cut_all() > 0);
    proxy.settled(ms(200)).await;
    assert_eq!(queue(&server, "place"), clients);
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    assert!(!second.is_finished());
    release(guard).await;
    release(soon("the second", second).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_release_brings_the_place_of_a_call_whose_first_request_is_on_its_way() {
    for stays in [false, true] {
        let server = Server::start();
        let proxy = Proxy::new(&server);
        let builder = redlatch::LockClient::builder().url(proxy.url(&server));
        let (far, other) = (builder.connect().await.unwrap(), connect(&server).await);
        let lock = far.fair_lock("way");
        let guard = fair_hold(&lock).await;
        proxy.plan("EVALSHA", 1, Fault::HoldBack);
        let on_its_way = far.fair_lock("way");
        let first = tokio::spawn(async move { on_its_way.lock().await });
        wait_until("its request", SOON, || proxy.held() == 1).await;
        apart().await;
        let second = waiter(&server, other.fair_lock("way"), |guard| guard).await;
        if stays {
            guard.hold_at_least(ms(300));
        }
        // The client's thread releases it, over a connection of its own.
        drop(guard);
        wait_until("both places", SOON, || queue(&server, "way").len() == 2).await;
        assert_eq!(queue(&server, "way")[0], client_of(&lock));
        wait_until("a free lock", SOON, || !server.exists("way")).await;
        proxy.let_go();
        let guard = soon("the first", first).await.unwrap().unwrap();
        assert!(!second.is_finished());
        release(guard).await;
        release(soon("the second", second).await.unwrap()).await;
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_release_that_is_late_leaves_no_place_of_a_waiter_that_has_left() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = redlatch::LockClient::builder().url(proxy.url(&server));
    let (far, other) = (builder.connect().await.unwrap(), connect(&server).await);
    let guard = fair_hold(&far.fair_lock("late")).await;
    // The older one keeps the client from handing the lock off.
    let older = waiter(&server, other.fair_lock("late"), drop).await;
    let younger = waiter(&server, far.fair_lock("late"), drop).await;
    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let released = tokio::spawn(release(guard));
    wait_until("a release on its way", SOON, || proxy.held() == 1).await;
    // The client's thread gives its place up, over a connection of its own.
    for waiting in [younger, older] {
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
    wait_until("no place", SOON, || queue(&server, "late").is_empty()).await;
    proxy.let_go();
    soon("an answer", released).await.unwrap();
    wait_until("no place still", ms(500), || queue(&server, "late").is_empty()).await;
    assert!(other.fair_lock("late").try_lock_now().await.unwrap().is_some());
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_hand_off_that_is_sent_again_says_how_old_the_next_waiter_is_by_then() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = redlatch::LockClient::builder().url(proxy.url(&server));
    let (far, other) = (builder.connect().await.unwrap(), connect(&server).await);
    let guard = fair_hold(&far.fair_lock("again")).await;
    let first = waiter(&server, far.fair_lock("again"), |guard| guard).await;
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    let second = waiter(&server, far.fair_lock("again"), |guard| guard).await;
    let lock = far.fair_lock("again");
    let third = tokio::spawn(async move { lock.lock().await.unwrap() });
    apart().await;
    proxy.plan("EVALSHA", 1, Fault::BlackHole);
    drop(guard);
    let guard = soon("the second", second).await.unwrap();
    wait_until("a hand-off on its way", SOON, || proxy.faults() == 1).await;
    apart().await;
    let younger = waiter(&server, other.fair_lock("again"), |guard| guard).await;
    tokio::time::sleep(ms(200)).await;
    assert!(proxy.cut_all() > 0);
    let places = || queue(&server, "again");
    wait_until("both places", SOON, || places().len() == 2).await;
    let until = Instant::now() + ms(300);
    while Instant::now() < until {
        assert_ne!(places().first(), Some(&client_of(&other.fair_lock("again"))));
        tokio::time::sleep(ms(1)).await;
    }
    release(guard).await;
    release(soon("the third", third).await.unwrap()).await;
    release(soon("the younger one", younger).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_place_whose_request_was_lost_is_as_old_as_its_call() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = redlatch::LockClient::builder().url(proxy.url(&server));
    let (one, other) = (connect(&server).await, connect(&server).await);
    let far = builder.connect().await.unwrap();
    let guard = fair_hold(&one.fair_lock("old")).await;
    proxy.plan("EVALSHA", 1, Fault::BlackHole);
    let lock = far.fair_lock("old");
    let client = client_of(&lock);
    let first = tokio::spawn(async move { lock.lock().await });
    wait_until("its request", SOON, || proxy.faults() == 1).await;
    apart().await;
    let second = waiter(&server, other.fair_lock("old"), |guard| guard).await;
    assert!(proxy.cut_all() > 0);
    wait_until("both places", SOON, || queue(&server, "old").len() == 2).await;
    assert_eq!(queue(&server, "old")[0], client);
    release(guard).await;
    let guard = soon("the first", first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    release(guard).await;
    release(soon("the second", second).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn calls_of_a_client_have_their_turns_as_they_came_whichever_answer_is_first() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = redlatch::LockClient::builder().url(proxy.url(&server));
    let (far, other) = (builder.connect().await.unwrap(), connect(&server).await);
    let guard = fair_hold(&other.fair_lock("came")).await;
    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let lock = far.fair_lock("came");
    let first = tokio::spawn(async move { lock.lock().await });
    wait_until("its request", SOON, || proxy.held() == 1).await;
    let lock = far.fair_lock("came");
    // Over a connection of its own.
    let second = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(lock.lock())
    });
    let subscribed = || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "*{came}:*"]).len();
    wait_until("a waiter", SOON, || subscribed() == 1).await;
    apart().await;
    proxy.let_go();
    proxy.settled(ms(100)).await;
    release(guard).await;
    let guard = soon("the first", first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    release(guard).await;
    release(soon("the second", second).await.unwrap().unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_first_request_takes_a_place_and_a_call_dropped_meanwhile_gives_it_up() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = redlatch::LockClient::builder().url(proxy.url(&server));
    let (one, far) = (connect(&server).await, builder.connect().await.unwrap());
    let guard = fair_hold(&one.fair_lock("first")).await;
    proxy.plan("EVALSHA", 1, Fault::Mute);
    let lock = far.fair_lock("first");
    let dropped = tokio::spawn(async move { lock.lock().await.map(drop) });
    wait_until("a place", SOON, || queue(&server, "first").len() == 1).await;
    assert_eq!(server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "*{first}*"]).len(), 0);
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert!(proxy.cut_all() > 0);
    wait_until("no place", SOON, || queue(&server, "first").is_empty()).await;
    release(guard).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_waiter_whose_connections_were_cut_keeps_its_place() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = redlatch::LockClient::builder().url(proxy.url(&server));
    let (one, other) = (connect(&server).await, connect(&server).await);
    let far = builder.connect().await.unwrap();
    let guard = fair_hold(&one.fair_lock("cut")).await;
    let first = waiter(&server, far.fair_lock("cut"), |guard| guard).await;
    let second = waiter(&server, other.fair_lock("cut"), |guard| guard).await;
    let listening = || -> Vec<String> {
        let list: String = server.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
    };
    wait_until("both subscriptions", SOON, || listening().len() == 2).await;
    let before = listening();
    proxy.cut_all();
    let is_new = |now: Vec<String>| now.len() == 2 && now != before;
    wait_until("a new subscription", SOON, || is_new(listening())).await;
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    assert!(!second.is_finished());
    release(guard).await;
    release(soon("the second", second).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_lease_that_ends_lets_the_first_in_the_queue_in() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let lock = one.fair_lock("ends");
    let guard = lock.lock_with_lease(ms(700)).await.unwrap();
    // The client of the holder came first, and its waiter has a place as any other.
    let first = waiter(&server, one.fair_lock("ends"), |guard| guard).await;
    let second = waiter(&server, other.fair_lock("ends"), |guard| guard).await;
    let guard2 = soon("the end of the lease", first).await.unwrap();
    assert!(guard.is_lost() && !second.is_finished());
    release(guard2).await;
    release(soon("the second", second).await.unwrap()).await;
    nothing_is_left(&server).await;
    // A plain lock of that name sees none of that.
    release(hold(&one.lock("ends")).await).await;
}

#[tokio::test]
async fn the_second_waiter_of_a_client_has_a_place_while_the_first_holds_the_lock() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let guard = fair_hold(&one.fair_lock("place")).await;
    let (lock, client) = (one.fair_lock("place"), client_of(&one.fair_lock("place")));
    let first = waiter(&server, lock, |guard| guard).await;
    let lock = one.fair_lock("place");
    let second = tokio::spawn(async move { lock.lock().await.unwrap() });
    apart().await;
    let third = waiter(&server, other.fair_lock("place"), |guard| guard).await;
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    wait_until("its place", SOON, || queue(&server, "place").first() == Some(&client)).await;
    // So that it is the next when the lock goes without a release of its client, too.
    assert!(other.fair_lock("place").force_unlock().await.unwrap());
    let next = soon("the second", second).await.unwrap();
    assert!(!third.is_finished());
    drop(guard);
    release(next).await;
    release(soon("the third", third).await.unwrap()).await;
    nothing_is_left(&server).await;
}
