//! A lock that Redis grants to a client whose turn it is.

use std::time::Instant;

use tokio::sync::mpsc::unbounded_channel;

use super::*;

#[tokio::test]
async fn every_grace_that_is_accepted_is_long_enough_for_a_client_that_is_near() {
    for grace in [10, 50, 100, 110, 150] {
        let server = Server::start();
        let builder = || LockClient::builder().url(server.url()).fair_grace(ms(grace));
        let (one, other) = (builder().connect().await.unwrap(), builder().connect().await.unwrap());
        let guard = fair_hold(&one.fair_lock("grace")).await;
        let waiting = waiter(&server, other.fair_lock("grace"), |guard| guard).await;
        let before = server.calls("evalsha");
        release(guard).await;
        release(soon(&format!("a turn with {grace} ms"), waiting).await.unwrap()).await;
        // Two releases, and the hand-off to the waiter, which has not asked again.
        let sent = server.calls("evalsha") - before;
        assert!(sent <= 3, "{sent} requests with {grace} ms");
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_lock_whose_key_is_a_brace_or_two_is_granted_as_any_other() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    for name in ["{", "}", "{}", "}{", "{{", "}}", "{a", "a{", "a", "{a}", "a{b", "::"] {
        let guard = fair_hold(&one.fair_lock(name)).await;
        let lock = other.fair_lock(name);
        let client = client_of(&lock);
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        wait_until("a grant that could come", SOON, || takes_grants(&server, name, &client)).await;
        // The answer is on its way.
        apart().await;
        let before = server.calls("evalsha");
        release(guard).await;
        release(soon("a turn", waiting).await.unwrap()).await;
        // Two releases, and the hand-off to the waiter, which has not asked again.
        let sent = server.calls("evalsha") - before;
        assert!(sent <= 3, "{sent} requests for `{name}`");
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_grant_that_finds_no_waiter_is_released_at_once() {
    let server = Server::start();
    let network = Network::new(&server, Distance::round_trip(ms(100)));
    let builder = LockClient::builder().url(network.url(&server));
    let (one, other) = (connect(&server).await, connect(&server).await);
    let far = builder.connect().await.unwrap();
    let guard = fair_hold(&one.fair_lock("nobody")).await;
    let lock = far.fair_lock("nobody");
    let client = client_of(&lock);
    let mut first = tokio_test::task::spawn(async move { lock.lock().await });
    park(&server, &client, "nobody", &mut first).await;
    let second = waiter(&server, other.fair_lock("nobody"), |guard| guard).await;
    let begun = Instant::now();
    release(guard).await;
    // The message is on its way.
    drop(first);
    release(soon("the second", second).await.unwrap()).await;
    assert!(passed(begun) < ms(700), "only after the grace: {:?}", passed(begun));
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_grant_whose_message_comes_twice_is_one() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let guard = fair_hold(&one.fair_lock("twice")).await;
    let own = format!("{}:{}", channel("twice"), client_of(&other.fair_lock("twice")));
    let (heard, mut messages) = unbounded_channel::<String>();
    let mut listening = server.connection().unwrap();
    let first = waiter(&server, other.fair_lock("twice"), |guard| guard).await;
    let second = other.fair_lock("twice");
    let second = tokio::spawn(async move { second.lock().await.unwrap() });
    std::thread::spawn({
        let own = own.clone();
        move || {
            let mut subscribed = listening.as_pubsub();
            subscribed.subscribe(own).unwrap();
            while let Ok(message) = subscribed.get_message() {
                let _ = heard.send(message.get_payload().unwrap());
            }
        }
    });
    wait_until("a listener", SOON, || {
        server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &own]).1 == 2
    })
    .await;
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    let grant = messages.recv().await.unwrap();
    assert!(grant.contains("twice"), "{grant}");
    server.ask::<()>(&["PUBLISH", &own, &grant]);
    tokio::time::sleep(ms(200)).await;
    assert!(!second.is_finished() && !guard.is_lost(), "two holders");
    release(guard).await;
    release(soon("the second", second).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_message_that_is_no_grant_harms_nobody() {
    let server = Server::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let guard = fair_hold(&one.fair_lock("noise")).await;
    let own = format!("{}:{}", channel("noise"), client_of(&other.fair_lock("noise")));
    let waiting = waiter(&server, other.fair_lock("noise"), |guard| guard).await;
    let now = server.ask::<Vec<u64>>(&["TIME"])[0] * 1_000_000;
    for text in [
        format!("{now} {} -1 noise", u64::MAX),
        format!("{} {} 1 noise", u64::MAX, u64::MAX),
        format!("{now} 1000 -1 quiet"),
        format!("{now} 1000 x noise"),
    ] {
        assert_eq!(server.ask::<u64>(&["PUBLISH", &own, &text]), 1);
    }
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished());
    release(guard).await;
    release(soon("a turn", waiting).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_client_without_hand_offs_asks_whichever_request_brought_its_place() {
    let server = Server::start();
    let client = LockClient::builder().url(server.url()).max_handoffs(0);
    let client = client.connect().await.unwrap();
    let guard = fair_hold(&client.fair_lock("asks")).await;
    let waiting = waiter(&server, client.fair_lock("asks"), |guard| guard).await;
    // Redis forgets that its waiters ask.
    server.ask::<()>(&["DEL", &queue_keys("asks")[1]]);
    let before = server.calls("evalsha");
    release(guard).await;
    release(soon("its turn", waiting).await.unwrap()).await;
    let sent = server.calls("evalsha") - before;
    // Two releases, and its request when it is told. If the waiter has the lock before its client has read
    // the answer to the first release, one more gives up a place that may be there.
    assert!(sent <= 4, "{sent} requests");
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_client_without_hand_offs_is_told_and_not_granted_the_lock() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).max_handoffs(0);
    let (one, other) = (connect(&server).await, builder.connect().await.unwrap());
    let guard = fair_hold(&one.fair_lock("told")).await;
    let waiting = waiter(&server, other.fair_lock("told"), |guard| guard).await;
    let before = server.calls("evalsha");
    release(guard).await;
    release(soon("its turn", waiting).await.unwrap()).await;
    // Two releases, and its request when it is told.
    let sent = server.calls("evalsha") - before;
    assert!(sent <= 3, "{sent} requests");
    nothing_is_left(&server).await;
}
