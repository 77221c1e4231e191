//! The option to count an acquire only when replicas have it.

use std::time::Instant;

use super::*;

async fn careful(server: &Server, replicas: u32, timeout: Duration) -> LockClient {
    connected(LockClient::builder().url(server.url()).replicas(replicas, timeout)).await
}

/// An error that says how many replicas had it, and of how many.
#[track_caller]
fn had_by<T>(result: Result<T, Error>, had: u32, of: u32) {
    let error = result.err().expect("too few replicas have it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("{had} of {of} replicas")), "{text:?}, not {had} of {of}");
}

fn hangs(server: &Server) -> bool {
    server.info("blocked_clients").expect("a count") != "0"
}

/// Waits until a connection waits for replicas.
async fn hanging(server: &Server) {
    wait_until("a WAIT that hangs", SOON, || hangs(server)).await;
}

#[tokio::test]
async fn t10_a_replica_that_does_not_answer_costs_the_lock_and_nothing_else() {
    let group = Replicated::start(1);
    let (primary, timeout) = (group.primary(), ms(1_000));
    let client = careful(primary, 1, timeout).await;
    release(hold(&client.lock("while it is well")).await).await;
    group.replica().pause();
    let waits = primary.calls("wait");
    for (number, name) in ["first", "again"].into_iter().enumerate() {
        let start = Instant::now();
        let result = soon("an error", client.lock(name).try_lock_now()).await;
        let took = start.elapsed();
        had_by(result, 0, 1);
        assert!(took >= timeout, "it gave the replica {took:?} only");
        assert!(passed(start) < timeout + ms(2_000), "{took:?}");
        until_free("a lock that is given back", primary, name).await;
        assert_eq!(primary.calls("wait"), waits + 1 + number as u64);
    }
    // A nested hold, whose outer one the replica has not got: that one stays.
    group.replica().resume();
    let lock = client.lock("nested");
    let outer = hold(&lock).await;
    group.replica().pause();
    had_by(soon("an error", lock.try_lock_now()).await, 0, 1);
    wait_until("one hold", SOON, || primary.holds("nested").get(outer.owner()) == Some(&1)).await;
    assert!(!outer.is_lost());
    release(outer).await;
    had_by(soon("an error", client.fenced_lock("fenced").try_lock_now()).await, 0, 1);
    until_free("a fenced lock that is given back", primary, "fenced").await;
    // Well again, it grants.
    group.replica().resume();
    for name in ["first", "again", "nested"] {
        release(hold(&client.lock(name)).await).await;
    }
    assert_eq!(primary.ask::<Vec<String>>(&["KEYS", "*"]), ["redisson_lock_token:{fenced}"]);
}

#[tokio::test]
async fn t10_one_of_two_is_not_two() {
    let group = Replicated::start(2);
    let timeout = ms(1_500);
    let (both, one) =
        (careful(group.primary(), 2, timeout).await, careful(group.primary(), 1, timeout).await);
    group.replica().pause();
    had_by(soon("an error", both.lock("both").try_lock_now()).await, 1, 2);
    until_free("a lock that is given back", group.primary(), "both").await;
    release(hold(&one.lock("one")).await).await;
}

/// The replicas have longer than is left of the wait when Redis grants the lock.
#[tokio::test]
async fn t10_a_call_whose_wait_ends_meanwhile_is_told_how_many_replicas_have_the_lock() {
    let group = Replicated::start(1);
    let primary = group.primary();
    let options = LockClient::builder().url(primary.url()).replicas(1, ms(2_000));
    let client = connected(options.command_timeout(ms(750))).await;
    let guard = hold(&connect(primary).await.lock("name")).await;
    let lock = client.lock("name");
    let waiter = tokio::spawn(async move { lock.try_lock(ms(2_000), MINUTE).await });
    wait_until("a subscription", SOON, || primary.subscribers("name") == 1).await;
    group.replica().pause();
    release(guard).await;
    had_by(soon("an error", waiter).await.unwrap(), 0, 1);
    until_free("a lock that is given back", primary, "name").await;
    // It asks for nothing that a server without a cluster refuses.
    let asked: String = primary.ask(&["INFO", "commandstats"]);
    assert!(asked.contains("cmdstat_wait:") && !asked.contains("cmdstat_asking:"), "{asked}");
}

#[tokio::test]
async fn t10_who_waited_in_line_is_told_too_when_the_wait_is_over() {
    let group = Replicated::start(1);
    let primary = group.primary();
    // A try that is cut by the end of the wait is no silence of Redis: it is short.
    let (holder, client) = (connect(primary).await, careful(primary, 1, ms(20)).await);
    let guard = hold(&holder.lock("line")).await;
    let lock = client.lock("line");
    let waiter = tokio::spawn(async move { lock.try_lock(ms(1_500), MINUTE).await });
    wait_until("a subscription", SOON, || primary.subscribers("line") == 1).await;
    group.replica().pause();
    release(guard).await;
    hanging(primary).await;
    // The lock is free: "busy" would not be true.
    had_by(soon("the end of its wait", waiter).await.unwrap(), 0, 1);
    until_free("a lock that is given back", primary, "line").await;
}

#[tokio::test]
async fn t10_who_waits_without_an_end_has_the_lock_when_the_replica_is_back() {
    let group = Replicated::start(1);
    let primary = group.primary();
    let (holder, client) = (connect(primary).await, careful(primary, 1, ms(200)).await);
    let guard = hold(&holder.lock("line")).await;
    let waiter = waiting(&client, "line");
    wait_until("a subscription", SOON, || primary.subscribers("line") == 1).await;
    group.replica().pause();
    release(guard).await;
    let waits = primary.calls("wait");
    wait_until("a WAIT in vain", SOON, || primary.calls("wait") > waits).await;
    assert!(!waiter.is_finished());
    group.replica().resume();
    let guard = gets(waiter, SOON).await;
    assert!(group.replica().exists("line"));
    release(guard).await;
    assert!(!primary.exists("line"));
}

#[tokio::test]
async fn a_try_that_is_dropped_while_it_waits_for_replicas_is_given_back() {
    let group = Replicated::start(1);
    let client = careful(group.primary(), 1, SOON).await;
    group.replica().pause();
    let lock = client.lock("dropped");
    let mut steps = Steps::new(Box::pin(lock.lock()));
    let primary = group.primary();
    let start = Instant::now();
    while !hangs(primary) {
        assert!(steps.take(1).await.is_none(), "granted without the replica");
        assert!(start.elapsed() < SOON, "no WAIT was sent");
    }
    assert!(primary.exists("dropped"));
    drop(steps);
    until_free("a lock that is given back", primary, "dropped").await;
    assert!(start.elapsed() < SOON, "only when the WAIT was over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_that_come_together_share_their_waits() {
    const ACQUIRES: u64 = 100;
    let group = Replicated::start(1);
    let client = careful(group.primary(), 1, SOON).await;
    release(hold(&client.lock("first")).await).await;
    group.primary().reset_stats();
    let tasks = (0..ACQUIRES).map(|number| {
        let lock = client.lock(format!("crowd:{number}"));
        tokio::spawn(async move { lock.lock().await.expect("a lock") })
    });
    let guards = soon("a hundred locks", join_all(tasks)).await;
    let waits = group.primary().calls("wait");
    assert!(waits >= 1, "nobody waited for the replica");
    assert!(waits <= ACQUIRES / 2, "{waits} WAITs for {ACQUIRES} acquires");
    for (number, guard) in guards.into_iter().enumerate() {
        assert!(group.replica().exists(&format!("crowd:{number}")));
        release(guard.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_hangs_holds_up_nobody_else() {
    let group = Replicated::start(1);
    let primary = group.primary();
    let client = careful(primary, 1, SOON).await;
    let lock = client.lock("held");
    let guard = hold(&lock).await;
    group.replica().pause();
    let hung = (0..20).map(|number| {
        let lock = client.lock(format!("hangs:{number}"));
        tokio::spawn(async move { lock.try_lock_now().await })
    });
    let hung: Vec<_> = hung.collect();
    hanging(primary).await;
    assert!(soon("an answer", lock.is_locked()).await.unwrap());
    assert_eq!(soon("an answer", lock.hold_count()).await.unwrap(), 1);
    release(guard).await;
    assert!(!primary.exists("held"));
    // And it did hang all the while.
    assert!(hangs(primary) && hung.iter().all(|task| !task.is_finished()), "behind a WAIT");
    group.replica().resume();
    for taken in soon("twenty locks", join_all(hung)).await {
        release(taken.unwrap().expect("the replica has it").expect("a free lock")).await;
    }
    wait_until("free locks", SOON, || primary.ask::<u64>(&["DBSIZE"]) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_about_replicas_that_never_comes_costs_a_call_no_more_than_its_time() {
    let group = Replicated::start(1);
    let proxy = Proxy::new(group.primary());
    let builder = LockClient::builder().url(proxy.url(group.primary())).replicas(1, ms(1_000));
    let client = connected(builder.command_timeout(ms(3_000))).await;
    release(hold(&client.lock("before")).await).await;
    proxy.hold("WAIT");
    // The first sends a WAIT, and the others go with the next one.
    let tries = ["one", "two", "three"].map(async |name| {
        let start = Instant::now();
        let error = client.lock(name).try_lock_now().await.expect_err("nobody knows");
        (error, passed(start))
    });
    for (error, took) in soon("answers", join_all(tries)).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // Not that of one WAIT after the other.
        assert!(took < ms(4_500), "{took:?}: {error}");
    }
    proxy.let_go();
    for name in ["one", "two", "three"] {
        until_free("a lock that is given back", group.primary(), name).await;
    }
}
