//! How long a read-write lock is held, and when it is lost.

use std::time::Instant;

use super::*;

#[tokio::test]
async fn a_reader_with_a_longer_lease_asks_for_it_and_takes_it_along() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.read_write_lock("config");
    let brief = lock.read_with_lease(ms(10_000)).await.unwrap();
    let marker = format!("{{config}}:{}:rwlock_timeout:1", brief.owner());
    let left = || (server.pttl("config"), server.ask::<i64>(&["PTTL", &marker]));
    let is_about = |millis: i64| {
        let (lock, marker) = left();
        (millis - 2_000..=millis).contains(&lock) && (millis - 2_000..=millis).contains(&marker)
    };
    assert!(is_about(10_000), "{:?}", left());
    let long = lock.read_with_lease(MINUTE).await.unwrap();
    assert!(is_about(60_000), "{:?}", left());
    assert!(brief.remaining() < ms(10_000) && long.remaining() > ms(50_000));
    let asked = server.calls("evalsha");
    let briefer = lock.read_with_lease(ms(5_000)).await.unwrap();
    assert_eq!(server.calls("evalsha"), asked, "Redis has enough");
    assert!(briefer.remaining() < ms(5_000));
    // The lease is that of those who are left.
    long.unlock().await.unwrap();
    assert!(is_about(10_000), "{:?}", left());
    drop(brief);
    wait_until("the shortest one", SOON, || is_about(5_000)).await;
    briefer.extend(MINUTE).await.unwrap();
    assert!(is_about(60_000) && briefer.remaining() > ms(50_000), "{:?}", left());
    briefer.unlock().await.unwrap();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn a_reader_that_asks_whether_it_may_join_finds_the_loss() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.read_write_lock("config");
    let begun = Instant::now();
    let one = reads(&lock).await;
    // Others join without a request for a round trip as long as this one.
    let took = begun.elapsed();
    server.ask::<()>(&["DEL", "config"]);
    tokio::time::sleep(took + ms(20)).await;
    // Of another handle: it does not pass.
    let two = reads(&client.read_write_lock("config")).await;
    assert_eq!(one.loss(), Some(Loss::KeyGone));
    assert_ne!(one.owner(), two.owner());
    two.unlock().await.unwrap();
}

#[tokio::test]
async fn a_reader_that_has_died_keeps_a_writer_out_for_its_own_lease_only() {
    let server = Server::start();
    let client = connect(&server).await;
    let alive = reads(&client.read_write_lock("config")).await;
    // One of Redisson that has read twice, and one whose lease ends soon.
    let dead = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968:7";
    let dying = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968:8";
    server.ask::<()>(&["HSET", "config", dead, "2", dying, "2"]);
    let marker = format!("{{config}}:{dying}:rwlock_timeout:2");
    server.ask::<()>(&["SET", &marker, "1", "PX", "2000"]);
    let before = server.calls("evalsha");
    let writing = waiter(&server, connect(&server).await.read_write_lock("config"), writer).await;
    // The first request asks who reads, and the second one looks whether they are alive.
    wait_until("its look", SOON, || server.calls("evalsha") >= before + 2).await;
    assert_eq!(fields(&server, "config").len(), 3, "the dead one is out");
    alive.unlock().await.unwrap();
    assert!(server.exists("config") && !writing.is_finished());
    let guard = soon("the end of the last lease", writing).await.unwrap();
    assert!(server.pttl("config") > 25_000, "nobody waited for the lease of the lock");
    guard.unlock().await.unwrap();
    wait_until("nothing is left", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}
