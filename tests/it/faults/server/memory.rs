//! Memory: full, or made free at the lock's expense.

use super::*;

#[tokio::test]
async fn s4_a_full_memory_refuses_new_and_nested_holds_and_says_so() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("nested");
    let guard = hold(&lock).await;
    server.hold_by_hand("waited", "somebody:1", MINUTE);
    let waiter = parked(&server, &client, "waited").await;
    server.fill();
    let more = client.lock("more");
    not_executed(more.try_lock_now().await, ErrorKind::Server, "OOM");
    not_executed(client.fenced_lock("more").lock().await, ErrorKind::Server, "OOM");
    not_executed(soon("one wait", more.try_lock(MINUTE, MINUTE)).await, ErrorKind::Server, "OOM");
    not_executed(soon("a wait", more.lock()).await, ErrorKind::Server, "OOM");
    not_executed(lock.try_lock_now().await, ErrorKind::Server, "OOM");
    // One whose turn comes when there is no memory for it.
    server.free_by_hand("waited");
    not_executed(soon("the waiter", waiter).await.unwrap(), ErrorKind::Server, "OOM");
    server.assert_full();
    assert!(!server.exists("more") && !server.exists("waited"));
    assert_eq!(count(&server, &guard), 1, "a refused nested call was counted");

    // What was refused has left nothing behind.
    server.make_room();
    let inner = hold(&lock).await;
    assert_eq!(count(&server, &guard), 2);
    release(inner).await;
    release(hold(&more).await).await;
    release(guard).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
    wait_until("no subscription", SOON, || server.subscribers("waited") == 0).await;
}

#[tokio::test]
async fn s5_a_full_memory_keeps_no_lock_nested_or_last_unlocked_or_dropped() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.lock("full");
    let (outer, middle, inner) = (hold(&lock).await, hold(&lock).await, hold(&lock).await);
    let dropped = hold(&client.lock("dropped")).await;
    let forced = hold(&client.lock("forced")).await;
    let listener = Listener::new(&server, &channel("full"));
    server.fill();
    // The server has to be taught the script first, which needs memory as well.
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    server.assert_full();
    release(inner).await;
    assert_eq!(count(&server, &outer), 2);
    drop(middle);
    wait_until("one hold less", SOON, || count(&server, &outer) == 1).await;
    assert!(server.pttl("full") > 0);
    assert!(!outer.is_lost());
    release(outer).await;
    assert!(!server.exists("full"));
    drop(dropped);
    // By the release: the lease is of 30 s.
    wait_until("a free lock", SOON, || !server.exists("dropped")).await;
    assert!(client.lock("forced").force_unlock().await.unwrap());
    assert!(!server.exists("forced"));
    server.assert_full();
    assert_eq!(listener.heard(&server), ["0"], "those who wait have to be told");
    assert_eq!(forced.unlock().await.expect_err("freed by force").kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn s6_a_full_memory_lets_renewals_through() {
    let server = Server::start();
    let client = client_with(server.url(), ms(1_800)).await;
    let lock = client.lock("full");
    let guards = [hold(&lock).await, hold(&lock).await];
    server.fill();
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    let start = Instant::now();
    while start.elapsed() < ms(1_900) {
        renewed(&guards[0]).await;
        server.assert_full();
    }
    // Longer than the lease: without renewals it would be over.
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_eq!(count(&server, &guards[0]), 2);
    for guard in guards {
        release(guard).await;
    }
    assert!(!server.exists("full"));
}

#[tokio::test]
async fn s7_a_holder_whose_lock_was_evicted_is_told_by_the_next_renewal() {
    // One after the other: to fill a server blocks the runtime.
    for policy in ["volatile-ttl", "allkeys-random"] {
        evicted(policy).await;
    }
}

async fn evicted(policy: &str) {
    let server = Server::start_with(&["--maxmemory-policy", policy]);
    // Renewed every 1.2 s, believed for 3.6 s: the two can be told apart.
    let client = client_with(server.url(), ms(3_600)).await;
    let guard = hold(&client.lock("evicted")).await;
    let used: u64 = server.info("used_memory").expect("a figure").parse().unwrap();
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", &(used + (1 << 20)).to_string()]);
    // Without a TTL: under `volatile-ttl` the lock is the one key that can go.
    let filler = "x".repeat(64 * 1024);
    for number in 0.. {
        if !server.exists("evicted") {
            break;
        }
        assert!(number < 5_000, "{policy}: nothing was evicted");
        // Refused when there is nothing left to evict.
        let _ = server.try_ask::<()>(&["SET", &format!("filler:{number}"), &filler]);
    }
    assert_ne!(server.info("evicted_keys").as_deref(), Some("0"), "{policy}");
    soon("the loss", guard.lost()).await;
    // By itself the guard would know later that its lease has ended.
    assert_eq!(guard.loss(), Some(Loss::KeyGone), "{policy}: no renewal told of it");
    let error = guard.unlock().await.expect_err("nothing to give back");
    assert_eq!(error.kind(), ErrorKind::Lost, "{policy}: {error}");
    server.make_room();
    release(hold(&client.lock("evicted")).await).await;
    assert!(!server.exists("evicted"));
}

#[tokio::test]
async fn s4_a_full_memory_grants_none_of_several_locks_and_s5_keeps_none() {
    let server = Server::start();
    let client = connect(&server).await;
    let several = client.multi_lock(["a", "b", "c"]);
    let (outer, inner) = (several.lock().await.unwrap(), several.lock().await.unwrap());
    let part = hold(&client.lock("d")).await;
    server.fill();
    // One of them is there, so that its key could be written.
    let more = client.multi_lock(["e", "d", "f"]);
    release(part).await;
    not_executed(more.try_lock_now().await, ErrorKind::Server, "OOM");
    not_executed(soon("a wait", more.lock()).await, ErrorKind::Server, "OOM");
    not_executed(soon("a nested one", several.lock()).await, ErrorKind::Server, "OOM");
    assert!(["d", "e", "f"].iter().all(|name| !server.exists(name)));
    inner.unlock().await.expect("a release needs no memory");
    assert!(["a", "b", "c"].iter().all(|name| server.holds(name).values().eq([&1])));
    outer.unlock().await.expect("a release needs no memory");
    server.assert_full();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}
