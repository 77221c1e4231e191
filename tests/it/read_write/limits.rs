//! What a read-write lock does beside other locks and keys, in a cluster, and where the server has limits.

use super::*;

#[tokio::test]
async fn a_plain_lock_and_a_read_write_lock_refuse_each_other_and_touch_nothing() {
    let server = Server::start();
    let client = connect(&server).await;
    let not_a_lock =
        |what: &str, error: Error| assert_eq!(error.kind(), ErrorKind::NotALock, "{what}: {error}");
    let plain = hold(&client.lock("a")).await;
    let before = fields(&server, "a");
    let lock = client.read_write_lock("a");
    not_a_lock("read", lock.read().await.unwrap_err());
    not_a_lock("write", lock.write().await.unwrap_err());
    not_a_lock("try_read_now", lock.try_read_now().await.unwrap_err());
    not_a_lock("is_read_locked", lock.is_read_locked().await.unwrap_err());
    not_a_lock("force_unlock", lock.force_unlock().await.unwrap_err());
    assert_eq!(fields(&server, "a"), before);
    release(plain).await;
    let reading = reads(&lock).await;
    not_a_lock("lock", client.lock("a").lock().await.unwrap_err());
    not_a_lock("fair lock", client.fair_lock("a").lock().await.unwrap_err());
    not_a_lock("force_unlock", client.lock("a").force_unlock().await.unwrap_err());
    not_a_lock("multi", client.multi_lock(["z", "a"]).lock().await.map(drop).unwrap_err());
    wait_until("the other is free", SOON, || !server.exists("z")).await;
    reading.unlock().await.unwrap();
    for other in [
        &["HSET", "b", "mode", "read", "field", "1"][..],
        &["HSET", "b", "mode", "write"],
        &["SET", "b", "1"],
    ] {
        server.ask::<()>(&["DEL", "b"]);
        server.ask::<()>(other);
        let lock = client.read_write_lock("b");
        not_a_lock("read", lock.read().await.unwrap_err());
        not_a_lock("write", lock.write().await.unwrap_err());
        not_a_lock("force_unlock", lock.force_unlock().await.unwrap_err());
        assert!(server.exists("b"));
    }
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 1);
}

#[tokio::test]
async fn a_full_memory_keeps_no_read_write_lock() {
    let server = Server::start();
    let client = connect(&server).await;
    let other = connect(&server).await;
    let (one, two) =
        (reads(&client.read_write_lock("a")).await, reads(&other.read_write_lock("a")).await);
    let lock = client.read_write_lock("b");
    let (writing, nested) = (writes(&lock).await, writes(&lock).await);
    let waits = waiter(&server, other.read_write_lock("b"), writer).await;
    server.fill();
    let full = client.read_write_lock("c").read().await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Server, "{full}");
    let full = client.read_write_lock("c").write().await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Server, "{full}");
    one.extend(MINUTE).await.expect("a lease can grow");
    one.unlock().await.unwrap();
    assert!(server.exists("a"));
    drop(two);
    wait_until("all readers have gone", SOON, || !server.exists("a")).await;
    nested.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    let guard = soon("one that has an entry", waits).await.unwrap();
    guard.unlock().await.unwrap();
    wait_until("nothing is left", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}

#[tokio::test]
async fn an_empty_name_is_refused_and_a_bad_lease() {
    let server = Server::start();
    let client = connect(&server).await;
    let invalid = |error: Error| assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    invalid(client.read_write_lock("").read().await.unwrap_err());
    invalid(client.read_write_lock("").force_unlock().await.unwrap_err());
    let lock = client.read_write_lock("config");
    invalid(lock.read_with_lease(Duration::ZERO).await.unwrap_err());
    invalid(lock.write_with_lease(Duration::MAX).await.unwrap_err());
    let reading = reads(&lock).await;
    invalid(lock.read_with_lease(Duration::ZERO).await.unwrap_err());
    invalid(reading.extend(Duration::ZERO).await.unwrap_err());
    reading.unlock().await.unwrap();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

/// It runs no command for each of the others, and none that reads them all.
#[tokio::test]
async fn a_read_unlock_costs_the_server_the_same_beside_a_thousand_readers() {
    let server = Server::start();
    let client = connect(&server).await;
    let costs = [1, 1_000].map(async |others: usize| {
        let name = format!("beside-{others}");
        let guard = reads(&client.read_write_lock(&name)).await;
        let fields: Vec<_> = (0..others).map(|other| format!("another-client:{other}")).collect();
        let all = fields.iter().flat_map(|field| [&**field, "1"]);
        server.ask::<()>(&Vec::from_iter(["HSET", &name].into_iter().chain(all)));
        for field in &fields {
            let marker = format!("{{{name}}}:{field}:rwlock_timeout:1");
            server.ask::<()>(&["SET", &marker, "1", "PX", "30000"]);
        }
        let before = server.commandstats();
        guard.unlock().await.unwrap();
        let mut cost = server.commandstats();
        cost.retain(|command, calls| {
            *calls -= before.get(command).unwrap_or(&0);
            *calls > 0 && command != "info"
        });
        assert_eq!(server.ask::<usize>(&["HLEN", &name]), others + 1, "the others and the mode");
        cost
    });
    let [one, thousand] = costs;
    let (one, thousand) = (one.await, thousand.await);
    assert_eq!((one.get("hdel"), one.get("evalsha")), (Some(&1), Some(&1)), "{one:?}");
    assert_eq!(one, thousand);
    let reads_all = |command: &String| ["hgetall", "hkeys", "hvals", "hscan"].contains(&&**command);
    assert!(!one.keys().any(reads_all), "{one:?}");
}
