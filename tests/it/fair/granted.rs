//! A lock that Redis grants to a client whose turn it is.

use std::time::Instant;

use super::*;

#[tokio::test]
async fn a_grant_that_finds_no_waiter_is_released_at_once() {
    let (server, [one, other]) = clients_with(3 * SECOND).await;
    let network = Network::new(&server, Distance::round_trip(ms(100)));
    let far = LockClient::builder().url(network.url(&server)).fair_grace(3 * SECOND);
    let far = far.connect().await.unwrap();
    for told in [false, true] {
        let guard = hold(&one.fair_lock("nobody")).await;
        let lock = far.fair_lock("nobody");
        let client = client_of(&lock);
        let mut first = tokio_test::task::spawn(async move { lock.lock().await });
        park(&server, &client, "nobody", &mut first).await;
        let second = waiter(&server, other.fair_lock("nobody")).await;
        let begun = Instant::now();
        release(guard).await;
        if told {
            wait_until("its turn", SOON, || first.is_woken()).await;
        }
        // Or the message is on its way.
        drop(first);
        release(soon("the second", second).await.unwrap()).await;
        assert!(passed(begun) < ms(2_000), "only after the grace: {:?}", passed(begun));
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_grant_whose_message_comes_twice_is_one() {
    let (server, [one, other]) = clients().await;
    let guard = hold(&one.fair_lock("twice")).await;
    let client = client_of(&other.fair_lock("twice"));
    let own = format!("{}:{client}", channel("twice"));
    let first = waiter(&server, other.fair_lock("twice")).await;
    let second = call(other.fair_lock("twice"));
    let listener = Listener::new(&server, &own);
    let listening = || server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &own]).1;
    wait_until("both who listen, and a grant that could come", SOON, || {
        listening() == 2 && takes_grants(&server, "twice", &client)
    })
    .await;
    release(guard).await;
    let guard = soon("the first", first).await.unwrap();
    let grant = listener.heard(&server).remove(0);
    assert!(grant.contains("twice"), "{grant}");
    server.ask::<()>(&["PUBLISH", &own, &grant]);
    tokio::time::sleep(ms(200)).await;
    assert!(!second.is_finished() && !guard.is_lost(), "two holders");
    release(guard).await;
    release(soon("the second", second).await.unwrap()).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_client_without_hand_offs_is_told_and_not_granted_the_lock() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).fair_grace(3 * SECOND);
    let one = builder.clone().connect().await.unwrap();
    let other = builder.max_handoffs(0).connect().await.unwrap();
    let guard = hold(&one.fair_lock("told")).await;
    let waiting = waiter(&server, other.fair_lock("told")).await;
    let before = server.calls("evalsha");
    release(guard).await;
    release(soon("its turn", waiting).await.unwrap()).await;
    // Two releases, and its request when it is told.
    let sent = server.calls("evalsha") - before;
    assert!(sent <= 3, "{sent} requests");
    nothing_is_left(&server).await;
}
