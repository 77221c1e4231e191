//! One lock of a name.

use super::*;

#[tokio::test]
async fn a_fair_lock_names_the_clients_that_wait_in_their_order() {
    let server = Server::start();
    let watcher = connect(&server).await;
    let clients = [labelled(&server, "first").await, labelled(&server, "second").await];
    let guard = watcher.fair_lock("tickets").lock().await.unwrap();
    let mut waiters = Vec::new();
    for (many, client) in clients.iter().enumerate() {
        let lock = client.fair_lock("tickets");
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        queued(&server, "redlatch_queue:{tickets}", many + 1).await;
    }
    let one = seen(&watcher, "tickets").await;
    assert_eq!(one.kind, InspectedKind::Fair);
    let labels: Vec<_> = one.waiting.iter().map(|client| client.label.as_deref()).collect();
    assert_eq!(labels, [Some("first"), Some("second")]);
    let ids: Vec<_> = one.waiting.iter().map(|client| client.id.clone()).collect();
    assert_eq!(ids, clients.each_ref().map(id));
    assert!(one.waiting[0].age > one.waiting[1].age, "{one:?}");
    assert!(one.waiting.iter().all(|client| client.mode.is_none() && client.host.is_some()));
    let can_be_granted = || {
        let mode = |client: &LockClient| format!("mode:{}", id(client));
        let of = |client| {
            server.ask::<Option<String>>(&["HGET", "redlatch_waiting:{tickets}", &mode(client)])
        };
        clients.iter().all(|client| of(client).as_deref() == Some("grant"))
    };
    wait_until("their subscriptions", SOON, can_be_granted).await;
    // They go on waiting.
    tokio::time::sleep(ms(20)).await;
    let later = seen(&watcher, "tickets").await;
    assert!(later.waiting[0].age >= one.waiting[0].age.map(|age| age + ms(20)), "{later:?}");
    guard.unlock().await.unwrap();
    let mut waiters = waiters.into_iter();
    let next = soon("the lock", waiters.next().unwrap()).await.unwrap();
    let one = seen(&watcher, "tickets").await;
    assert_eq!(one.holders[0].owner, next.owner());
    assert!(is_here(&one.holders[0], "first"), "{one:?}");
    // Redis granted it, and the owner says when.
    let held_for = one.holders[0].held_for.expect("a time");
    assert!(held_for < SOON, "{held_for:?}");
    assert_eq!(one.waiting.len(), 1);
    next.unlock().await.unwrap();
    release(soon("the lock", waiters.next().unwrap()).await.unwrap()).await;
}

#[tokio::test]
async fn a_read_write_lock_names_its_readers_with_their_leases_and_who_waits_to_write() {
    let server = Server::start();
    let watcher = connect(&server).await;
    let (one, two) = (labelled(&server, "one").await, labelled(&server, "two").await);
    let third = labelled(&server, "3").await;
    let reads = one.read_write_lock("config").read_with_lease(MINUTE).await.unwrap();
    let too = two.read_write_lock("config").read_with_lease(2 * MINUTE).await.unwrap();
    let lock = third.read_write_lock("config");
    let waiter = tokio::spawn(async move { lock.write().await.unwrap() });
    queued(&server, "redlatch_rw_queue:{config}", 1).await;
    let shared = seen(&watcher, "config").await;
    assert_eq!(shared.kind, InspectedKind::ReadWrite);
    let mut expected = [(reads.owner(), "one", MINUTE), (too.owner(), "two", 2 * MINUTE)];
    expected.sort();
    for (holder, (owner, label, lease)) in shared.holders.iter().zip(expected) {
        assert_eq!((&*holder.owner, holder.count), (owner, 1));
        assert_eq!((holder.label.as_deref(), holder.mode), (Some(label), Some(HoldMode::Read)));
        let left = holder.lease_left.expect("a lease of its own");
        assert!(left <= lease && left > lease - MINUTE / 2, "{left:?} of {lease:?}");
    }
    assert_eq!(shared.holders.len(), 2);
    assert!(shared.lease_left > MINUTE, "{shared:?}");
    let [waiting] = &*shared.waiting else { panic!("{shared:?}") };
    assert_eq!((waiting.label.as_deref(), waiting.mode), (Some("3"), Some(HoldMode::Write)));
    reads.unlock().await.unwrap();
    too.unlock().await.unwrap();
    let writes = soon("the lock", waiter).await.unwrap();
    let alone = seen(&watcher, "config").await;
    let [holder] = &*alone.holders else { panic!("{alone:?}") };
    assert_eq!((&*holder.owner, holder.mode), (writes.owner(), Some(HoldMode::Write)));
    assert!(is_here(holder, "3"), "{holder:?}");
    assert_eq!((holder.lease_left, alone.waiting.len()), (None, 0));
    writes.unlock().await.unwrap();
    assert_eq!(watcher.inspect("config").await.unwrap(), None);
}

/// As Redisson writes them.
#[tokio::test]
async fn what_redisson_holds_is_seen_by_its_owner() {
    let server = Server::start();
    let client = connect(&server).await;
    let owner = "5f6b1bd4-9b1e-4c9a-8a7a-6f1ab4b4d1b1:47";
    server.hold_by_hand("plain", owner, MINUTE);
    let plain = seen(&client, "plain").await;
    assert_eq!(plain.kind, InspectedKind::Lock);
    let [holder] = &*plain.holders else { panic!("{plain:?}") };
    assert_eq!((&*holder.owner, holder.count, place(holder)), (owner, 1, None));
    // A thread that reads twice, and another one.
    let other = "9b1e5f6b-1bd4-4c9a-8a7a-6f1ab4b4d1b1:1";
    server.ask::<u64>(&["HSET", "shared", "mode", "read", owner, "2", other, "1"]);
    server.ask::<bool>(&["PEXPIRE", "shared", "60000"]);
    for (marker, lease) in [(1, "9000"), (2, "30000")] {
        let marker = format!("{{shared}}:{owner}:rwlock_timeout:{marker}");
        server.ask::<()>(&["SET", &marker, "1", "PX", lease]);
    }
    let shared = seen(&client, "shared").await;
    let [first, second] = &*shared.holders else { panic!("{shared:?}") };
    assert_eq!((&*first.owner, first.count, first.mode), (owner, 2, Some(HoldMode::Read)));
    let left = first.lease_left.expect("a lease");
    assert!(left > ms(9_000) && left <= ms(30_000), "{left:?}");
    // It has no lease any more: it has died.
    assert_eq!((&*second.owner, second.lease_left), (other, Some(Duration::ZERO)));
    server.ask::<()>(&["DEL", "plain", "shared"]);
    let writer = format!("{owner}:write");
    server.ask::<u64>(&["HSET", "written", "mode", "write", &writer, "1", owner, "1"]);
    let written = seen(&client, "written").await;
    let modes: Vec<_> = written.holders.iter().map(|holder| holder.mode).collect();
    assert_eq!(modes, [Some(HoldMode::Read), Some(HoldMode::Write)]);
    assert_eq!(written.lease_left, Duration::MAX);
    server.ask::<()>(&["DEL", "written"]);
}

#[tokio::test]
async fn what_is_no_lock_and_what_cannot_be_asked_is_an_error() {
    let server = Server::start();
    let client = connect(&server).await;
    server.ask::<()>(&["SET", "text", "x"]);
    server.ask::<u64>(&["HSET", "user", "name", "x"]);
    server.ask::<u64>(&["HSET", "two", "a:1", "1", "b:2", "1"]);
    server.ask::<u64>(&["HSET", "odd", "mode", "read", "not an owner", "1"]);
    let mut large = vec!["HSET".to_owned(), "large".to_owned()];
    large.extend((0..2_000).flat_map(|number| [format!("field{number}"), "1".to_owned()]));
    server.ask::<u64>(&large.iter().map(|word| &**word).collect::<Vec<_>>());
    for name in ["text", "user", "two", "odd", "large"] {
        let error = client.inspect(name).await.expect_err(name);
        assert_eq!((error.kind(), error.lock_name()), (ErrorKind::NotALock, Some(name)), "{error}");
    }
    assert_eq!(client.inspect("").await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    client.close().await;
    assert_eq!(client.inspect("text").await.unwrap_err().kind(), ErrorKind::Closed);
    server.ask::<()>(&["FLUSHALL"]);
}

#[tokio::test]
async fn an_inspection_takes_one_round_trip_or_two_and_one_list_of_clients() {
    let server = Server::start();
    let (holder, watcher) = (connect(&server).await, connect(&server).await);
    let guard = hold(&holder.lock("held")).await;
    server.reset_stats();
    watcher.inspect("free").await.unwrap();
    assert_eq!(server.calls("client|list") + server.calls("client"), 0);
    seen(&watcher, "held").await;
    seen(&holder, "held").await;
    let stats = server.commandstats();
    let lists: u64 = ["client|list", "client"].iter().filter_map(|name| stats.get(*name)).sum();
    assert_eq!(lists, 1, "the holder knows where it is itself: {stats:?}");
    assert_eq!(stats.get("hscan"), Some(&3), "{stats:?}");
    assert_eq!(stats.get("evalsha"), None, "{stats:?}");
    release(guard).await;
}
