//! What gets lost: the queue, all data, replies, connections.

use std::time::Instant;

use super::*;

#[tokio::test]
async fn the_order_outlives_the_queue_and_all_data() {
    for all in [false, true] {
        let (server, clients) = clients::<4>().await;
        let guard = hold(&clients[0].fair_lock("order")).await;
        let mut waiters = Vec::new();
        let mut expected = Vec::new();
        for number in [2, 1, 3] {
            let lock = clients[number].fair_lock("order");
            expected.push(client_of(&lock));
            waiters.push(waiter(&server, lock).await);
            // They tell how old they are once more.
            far_apart().await;
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
        // They refresh their entries, and hear that they have none.
        wait_until("the old entries", SOON, || queue(&server, "order") == expected).await;
        if all {
            assert!(clients[0].fair_lock("order").force_unlock().await.unwrap());
            drop(guard);
        } else {
            release(guard).await;
        }
        take_turns(&server, waiters).await;
    }
}

#[tokio::test]
async fn a_release_brings_the_entry_of_a_call_whose_first_request_is_on_its_way() {
    for stays in [false, true] {
        // A call whose first request takes longer than the grace has no place any more.
        let Far { server, proxy, client: far } =
            Far::with(|options| options.fair_grace(5 * SECOND)).await;
        let other = connect(&server).await;
        let lock = far.fair_lock("way");
        let guard = hold(&lock).await;
        proxy.plan("EVALSHA", 1, Fault::HoldBack);
        let first = call(far.fair_lock("way"));
        wait_until("its request", SOON, || proxy.held() == 1).await;
        far_apart().await;
        let second = waiter(&server, other.fair_lock("way")).await;
        if stays {
            guard.hold_at_least(ms(1_500));
        }
        // The client's thread releases it, over a connection of its own.
        drop(guard);
        wait_until("both entries", SOON, || queue(&server, "way").len() == 2).await;
        assert_eq!(queue(&server, "way")[0], client_of(&lock));
        wait_until("a free lock", SOON, || !server.exists("way")).await;
        proxy.let_go();
        take_turns(&server, [first, second]).await;
    }
}

#[tokio::test]
async fn a_release_that_is_late_leaves_no_entry_of_a_waiter_that_has_left() {
    let Far { server, proxy, client: far } = Far::new().await;
    let other = connect(&server).await;
    let guard = hold(&far.fair_lock("late")).await;
    // The older one keeps the client from handing the lock off.
    let older = waiter(&server, other.fair_lock("late")).await;
    let younger = waiter(&server, far.fair_lock("late")).await;
    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let released = tokio::spawn(release(guard));
    wait_until("a release on its way", SOON, || proxy.held() == 1).await;
    // The client's thread gives its entry up, over a connection of its own.
    for waiting in [younger, older] {
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
    wait_until("no entry", SOON, || queue(&server, "late").is_empty()).await;
    proxy.let_go();
    soon("an answer", released).await.unwrap();
    wait_until("no entry still", ms(500), || queue(&server, "late").is_empty()).await;
    assert!(other.fair_lock("late").try_lock_now().await.unwrap().is_some());
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_hand_off_that_is_sent_again_says_how_old_the_next_waiter_is_by_then() {
    let Far { server, proxy, client: far } = Far::new().await;
    let other = connect(&server).await;
    let guard = hold(&far.fair_lock("again")).await;
    let first = waiter(&server, far.fair_lock("again")).await;
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    let second = waiter(&server, far.fair_lock("again")).await;
    let third = call(far.fair_lock("again"));
    apart().await;
    proxy.plan("EVALSHA", 1, Fault::BlackHole);
    drop(guard);
    let guard = soon("the second", second).await.unwrap();
    wait_until("a hand-off on its way", SOON, || proxy.faults() == 1).await;
    far_apart().await;
    let younger = waiter(&server, other.fair_lock("again")).await;
    tokio::time::sleep(ms(200)).await;
    assert!(proxy.cut_all() > 0);
    let entries = || queue(&server, "again");
    wait_until("both entries", SOON, || entries().len() == 2).await;
    let until = Instant::now() + ms(300);
    while Instant::now() < until {
        assert_ne!(entries().first(), Some(&client_of(&other.fair_lock("again"))));
        tokio::time::sleep(ms(1)).await;
    }
    release(guard).await;
    take_turns(&server, [third, younger]).await;
}

#[tokio::test]
async fn an_entry_whose_request_was_lost_is_as_old_as_its_call() {
    // Or its answer: then the request is executed twice.
    for fault in [Fault::BlackHole, Fault::Mute] {
        let Far { server, proxy, client: far } = Far::new().await;
        let (one, other) = (connect(&server).await, connect(&server).await);
        let guard = hold(&one.fair_lock("old")).await;
        proxy.plan("EVALSHA", 1, fault);
        let first = call(far.fair_lock("old"));
        wait_until("its request", SOON, || proxy.faults() == 1).await;
        far_apart().await;
        let second = waiter(&server, other.fair_lock("old")).await;
        let sent = proxy.sent("EVALSHA");
        let clients = [far, other].map(|client| client_of(&client.fair_lock("old")));
        assert!(proxy.cut_all() > 0);
        // At once: a request of later would move its entry.
        wait_until("both entries", SOON, || queue(&server, "old").len() == 2).await;
        assert_eq!(queue(&server, "old"), clients, "{fault:?}");
        wait_until("the second sending", SOON, || proxy.sent("EVALSHA") > sent).await;
        proxy.settled(ms(200)).await;
        assert_eq!(queue(&server, "old"), clients, "{fault:?}");
        release(guard).await;
        take_turns(&server, [first, second]).await;
    }
}

#[tokio::test]
async fn calls_of_a_client_have_their_turns_as_they_came_whichever_answer_is_first() {
    let far = Far::new().await;
    let guard = hold(&connect(&far.server).await.fair_lock("first")).await;
    let waiters = far.two(MINUTE).await;
    far.proxy.let_go();
    far.proxy.settled(ms(100)).await;
    release(guard).await;
    take_turns(&far.server, waiters).await;
}

#[tokio::test]
async fn a_first_request_takes_an_entry_and_a_call_dropped_meanwhile_gives_it_up() {
    let Far { server, proxy, client: far } = Far::new().await;
    let one = connect(&server).await;
    let guard = hold(&one.fair_lock("first")).await;
    proxy.plan("EVALSHA", 1, Fault::Mute);
    let lock = far.fair_lock("first");
    let dropped = tokio::spawn(async move { lock.lock().await.map(drop) });
    wait_until("an entry", SOON, || queue(&server, "first").len() == 1).await;
    assert_eq!(server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "*{first}*"]).len(), 0);
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert!(proxy.cut_all() > 0);
    wait_until("no entry", SOON, || queue(&server, "first").is_empty()).await;
    release(guard).await;
    nothing_is_left(&server).await;
}
