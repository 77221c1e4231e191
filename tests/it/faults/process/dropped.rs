//! C1, C2, C3: a call is dropped exactly while its request, or its answer, is under way.

use futures::FutureExt;
use tokio_test::task;

use super::*;

/// A client behind a proxy whose connection has been used, so that the next call is one request.
async fn behind(proxy: &Proxy, server: &Server) -> LockClient {
    let client = client_with(proxy.url(server), MINUTE).await;
    release(hold(&client.lock("before")).await).await;
    client
}

#[tokio::test]
async fn c1_an_acquire_dropped_while_its_request_is_on_its_way_leaves_the_lock_free() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let (client, others) = (behind(&proxy, &server).await, connect(&server).await);
    proxy.hold("EVALSHA");
    let lock = client.lock("request");
    let mut call = Steps::new(lock.lock());
    assert!(call.take(1).await.is_none());
    wait_until("the request is on its way", SOON, || proxy.faults() == 1).await;
    drop(call);
    server.reset_stats();
    proxy.let_go();
    // It arrives, is granted all the same, and is followed by its undo.
    wait_until("grant and undo", SOON, || server.calls("publish") == 1).await;
    assert_eq!((server.calls("hset"), server.calls("del")), (1, 1));
    assert!(is_free(&others, "request").await);
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn c1_an_acquire_dropped_while_its_answer_is_on_its_way_leaves_the_lock_free() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let (client, others) = (behind(&proxy, &server).await, connect(&server).await);
    proxy.stall_replies(true);
    let lock = client.lock("answer");
    let mut call = Steps::new(lock.lock());
    assert!(call.take(1).await.is_none());
    wait_until("the grant", SOON, || server.exists("answer")).await;
    assert!(!is_free(&others, "answer").await);
    drop(call);
    // No answer of any kind comes through, and none is needed.
    wait_until("a free lock", SOON, || !server.exists("answer")).await;
    assert!(is_free(&others, "answer").await);
    proxy.stall_replies(false);
    // The handle is none the worse for it.
    release(hold(&lock).await).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn c2_a_release_dropped_while_its_request_is_on_its_way_frees_the_lock() {
    for arrives in [true, false] {
        let server = Server::start();
        let proxy = Proxy::new(&server);
        let (client, others) = (behind(&proxy, &server).await, connect(&server).await);
        let guard = hold(&client.lock("release")).await;
        let next = others.lock("release");
        let next = tokio::spawn(async move { next.lock().await.expect("its turn") });
        wait_until("another waits", SOON, || server.subscribers("release") == 1).await;
        proxy.hold("EVALSHA");
        let mut call = Steps::new(guard.unlock());
        assert!(call.take(1).await.is_none());
        wait_until("the request is on its way", SOON, || proxy.faults() == 1).await;
        drop(call);
        assert!(server.exists("release"));
        if !arrives {
            proxy.cut_all();
        }
        proxy.let_go();
        // By itself it would look again when the lease has ended.
        release(soon("the next has the lock", next).await.unwrap()).await;
        assert!(is_free(&others, "release").await);
    }
}

#[tokio::test]
async fn c2_a_renewal_whose_guard_goes_while_it_is_under_way_keeps_and_makes_nothing() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let others = connect(&server).await;
    // Renewed every 100 ms.
    let client = client_with(proxy.url(&server), ms(300)).await;
    let mut crossed = 0;
    let cases = [true, false].map(|unlock| [true, false].map(|expired| (unlock, expired)));
    for (unlock, expired) in cases.concat() {
        let guard = hold(&client.lock("renewal")).await;
        let (before, nothing) = (proxy.faults(), proxy.came_to_nothing());
        proxy.hold("EVALSHA");
        let under_way = || proxy.faults() > before || guard.is_lost();
        wait_until("a renewal is on its way", SOON, under_way).await;
        if proxy.faults() == before {
            // The machine slept over the lease.
            proxy.let_go();
            continue;
        }
        let giving_back = tokio::spawn(async move {
            if unlock {
                // Its answer is another matter: the lock may have expired.
                let _ = guard.unlock().await;
            } else {
                drop(guard);
            }
        });
        turns(5).await;
        crossed += u64::from(server.exists("renewal"));
        if expired {
            wait_until("the end of the lease", SOON, || !server.exists("renewal")).await;
        }
        server.reset_stats();
        proxy.let_go();
        soon("giving back", giving_back).await.unwrap();
        // The server closes the connection of a renewal that was not answered in time.
        let fates = || server.calls("evalsha") + proxy.came_to_nothing() - nothing;
        wait_until("renewal and release", SOON, || fates() >= 2).await;
        proxy.settled(ms(100)).await;
        assert_eq!(server.calls("hset"), 0, "a renewal made a lock");
        assert!(is_free(&others, "renewal").await);
    }
    assert!(crossed > 0, "no renewal was under way while the lock was held");
}

#[derive(Debug, Clone, Copy)]
enum Winner {
    Timeout,
    Grant,
}

#[tokio::test]
async fn c3_a_timeout_that_wins_when_the_grant_is_there_gives_it_back() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let (client, others) = (behind(&proxy, &server).await, connect(&server).await);
    for winner in [Winner::Timeout, Winner::Grant] {
        let lock = client.lock("race");
        let mut call = task::spawn(lock.lock().boxed());
        proxy.stall_replies(true);
        assert!(call.poll().is_pending());
        wait_until("the grant", SOON, || server.exists("race")).await;
        assert!(!call.is_woken());
        proxy.stall_replies(false);
        // The grant is in the future now, and both branches are ready.
        wait_until("the answer", SOON, || call.is_woken()).await;
        let over = std::future::ready(());
        let call = call.into_inner();
        let guard = match winner {
            Winner::Timeout => tokio::select! {
                biased;
                () = over => None,
                guard = call => Some(guard),
            },
            Winner::Grant => tokio::select! {
                biased;
                guard = call => Some(guard),
                () = over => None,
            },
        };
        match (winner, guard) {
            (Winner::Timeout, None) => {}
            (Winner::Grant, Some(guard)) => {
                let guard = guard.expect("locking");
                assert_eq!(server.holds("race").get(guard.owner()), Some(&1));
                assert!(!is_free(&others, "race").await);
                release(guard).await;
            }
            (winner, guard) => panic!("{winner:?} was to win: {guard:?}"),
        }
        wait_until("a free lock", SOON, || !server.exists("race")).await;
        assert!(is_free(&others, "race").await);
    }
}
