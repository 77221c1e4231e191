//! The server is a replica, or has too few of them.

use std::time::Instant;

use super::*;

/// One that sends its data to replicas at once.
fn primary() -> Server {
    Server::start_with(&["--repl-diskless-sync-delay", "0"])
}

/// Makes `server` a replica of `of`, and waits until it has its data.
async fn follow(server: &Server, of: &Server) {
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &of.port().to_string()]);
    let up = || server.info("master_link_status").as_deref() == Some("up");
    wait_until("a replica in step", SOON, up).await;
}

fn lead(server: &Server) {
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
}

#[tokio::test]
async fn s12_a_replica_refuses_and_calls_ride_that_out() {
    let (server, other) = (primary(), primary());
    let proxy = Proxy::new(&server);
    let short = impatient(proxy.url(&server), ms(1_000)).await;
    let patient = impatient(server.url(), SOON).await;
    server.hold_by_hand("waited", "somebody:1", MINUTE);
    follow(&other, &server).await;
    lead(&other);
    follow(&server, &other).await;
    // Over another connection: where the address leads may have changed.
    let attempts = proxy.attempts();
    not_executed(
        short.lock("refused").try_lock_now().await,
        ErrorKind::Unavailable,
        "read only replica",
    );
    assert!(proxy.attempts() > attempts + 1, "nobody looked for the primary");
    let waiter = {
        let lock = short.lock("waited");
        tokio::spawn(async move { lock.lock().await })
    };
    wait_until("a subscription", SOON, || server.subscribers("waited") == 1).await;
    // The release comes by way of the primary, message and all.
    other.free_by_hand("waited");
    wait_until("a free lock", SOON, || !server.exists("waited")).await;
    let lock = patient.lock("free");
    let (guard, ()) = tokio::join!(lock.lock(), async {
        // Longer than the command timeout of the one who waits.
        tokio::time::sleep(ms(1_200)).await;
        assert!(!waiter.is_finished());
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "a replica has taken a lock");
        lead(&server);
    });
    assert!(server.errors_in_scripts("READONLY") > 3, "hardly anybody was refused");
    release(guard.expect("riding out")).await;
    release(soon("the waiter", waiter).await.unwrap().expect("riding out")).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]) + other.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn s12_many_calls_do_not_storm_a_replica_with_connections() {
    let (server, other) = (primary(), primary());
    let proxy = Proxy::new(&server);
    let client = impatient(proxy.url(&server), ms(1_200)).await;
    follow(&server, &other).await;
    let before = proxy.attempts();
    let calls = (0..50).map(|number| {
        let lock = client.lock(format!("refused:{number}"));
        async move { lock.lock().await.map(drop) }
    });
    for refused in soon("fifty errors", join_all(calls)).await {
        assert_eq!(refused.expect_err("a replica").kind(), ErrorKind::Unavailable);
    }
    let attempts = proxy.attempts() - before;
    assert!(attempts >= 1, "nobody looked for the primary");
    assert!(attempts < 20, "{attempts} connections in 1.2 s");
    lead(&server);
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn s12_a_server_that_is_a_replica_for_a_while_costs_no_lock() {
    let (server, other) = (primary(), primary());
    let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(4_500));
    let client = builder.command_timeout(ms(300)).connect().await.unwrap();
    let lock = client.lock("kept");
    let guards = [hold(&lock).await, hold(&lock).await];
    follow(&other, &server).await;
    lead(&other);
    let before = server.errors_in_scripts("READONLY");
    follow(&server, &other).await;
    wait_until("a refused renewal", SOON, || server.errors_in_scripts("READONLY") > before).await;
    // Until it has been given up, and not only been tried again.
    tokio::time::sleep(ms(450)).await;
    lead(&server);
    renewed(&guards[0]).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_eq!(count(&server, &guards[0]), 2);
    for guard in guards {
        release(guard).await;
    }
    assert!(!server.exists("kept"));
    other.ask::<()>(&["DEL", "kept"]);
}

#[tokio::test]
async fn s13_holders_and_calls_ride_out_a_replica_whose_master_is_down() {
    let server = Server::start_with(&["--replica-serve-stale-data", "no"]);
    let holder = client_with(server.url(), ms(4_500)).await;
    let short = impatient(server.url(), ms(1_000)).await;
    let patient = impatient(server.url(), SOON).await;
    let guard = hold(&holder.lock("held")).await;
    // Nobody listens there.
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    let error = short.lock("free").try_lock_now().await.expect_err("a master that is down");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let refused = server.errors("MASTERDOWN");
    let lock = patient.lock("free");
    let (free, ()) = tokio::join!(lock.lock(), async {
        // A renewal among them: a third of its lease.
        tokio::time::sleep(ms(1_000)).await;
        assert!(server.errors("MASTERDOWN") > refused + 1, "nobody else was refused");
        lead(&server);
    });
    release(free.expect("riding out")).await;
    renewed(&guard).await;
    assert!(!guard.is_lost());
    release(guard).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

fn want_replicas(server: &Server, number: &str) {
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", number]);
}

#[tokio::test]
async fn s15_without_enough_replicas_nothing_is_granted_and_leases_run_out() {
    let server = Server::start();
    let holder = client_with(server.url(), ms(1_500)).await;
    let short = impatient(server.url(), ms(1_000)).await;
    let patient = impatient(server.url(), SOON).await;
    let guard = hold(&holder.lock("held")).await;
    let before = server.errors_in_scripts("NOREPLICAS");
    want_replicas(&server, "1");
    // A renewal that was answered just before may still be on its way in.
    tokio::time::sleep(ms(50)).await;
    let lost = lost_at(&guard, deadline(&guard));
    not_executed(
        short.lock("free").try_lock_now().await,
        ErrorKind::Unavailable,
        "Not enough good replicas",
    );
    assert!(!server.exists("free"));
    let lock = patient.lock("free");
    let (free, ()) = tokio::join!(lock.lock(), async {
        lost.await;
        assert!(!server.exists("free"));
        want_replicas(&server, "0");
    });
    assert!(server.errors_in_scripts("NOREPLICAS") > before + 3, "hardly anybody was refused");
    release(free.expect("riding out")).await;
    assert_eq!(guard.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn s15_a_release_without_enough_replicas_says_so_and_is_made_good() {
    let server = Server::start();
    let client = impatient(server.url(), ms(1_000)).await;
    // Unless it is released, nobody else has it for a minute.
    let unlocked = client.lock("unlocked").lock_with_lease(MINUTE).await.unwrap();
    let dropped = client.lock("dropped").lock_with_lease(MINUTE).await.unwrap();
    want_replicas(&server, "1");
    drop(dropped);
    let start = Instant::now();
    goes_on(unlocked.unlock().await, ErrorKind::Unavailable, "Not enough good replicas");
    assert!(start.elapsed() >= ms(100), "it has to give the server its time");
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 2);
    want_replicas(&server, "0");
    wait_until("free locks", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}
