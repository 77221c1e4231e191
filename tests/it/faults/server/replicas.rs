//! The server is a replica, or has too few of them.

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

fn want_replicas(server: &Server, number: &str) {
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", number]);
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
    let waiter = parked(&server, &short, "waited").await;
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
    has_its_turn(waiter).await;
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

/// A replica whose master is down, which may serve what it has or nothing (S13), and a primary without
/// the replicas that it needs (S15).
#[tokio::test]
async fn s12_holders_and_calls_ride_out_a_server_that_may_not_write_for_a_while() {
    for (code, words, stale) in [
        ("READONLY", "read only replica", "yes"),
        ("MASTERDOWN", "", "no"),
        ("NOREPLICAS", "Not enough good replicas", "yes"),
    ] {
        let server = Server::start_with(&["--replica-serve-stale-data", stale]);
        let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(4_500));
        let holder = connected(builder.command_timeout(ms(500))).await;
        let short = impatient(server.url(), ms(1_000)).await;
        let patient = impatient(server.url(), SOON).await;
        let lock = holder.lock("held");
        let guards = [hold(&lock).await, hold(&lock).await];
        match code {
            "NOREPLICAS" => want_replicas(&server, "1"),
            // Nobody listens there.
            _ => server.ask(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]),
        }
        let refused = short.lock("free").try_lock_now().await;
        not_executed(refused, ErrorKind::Unavailable, words);
        let before = server.errors_in_scripts(code);
        let lock = patient.lock("free");
        let (free, ()) = tokio::join!(lock.lock(), async {
            // A renewal among them, which is given up: a third of its lease, and its command timeout.
            tokio::time::sleep(ms(1_000)).await;
            assert!(server.errors_in_scripts(code) > before + 1, "{code}: nobody else was refused");
            let granted = server.try_ask(&["EXISTS", "free"]).unwrap_or(false);
            assert!(!granted, "{code}: it was granted");
            match code {
                "NOREPLICAS" => want_replicas(&server, "0"),
                _ => lead(&server),
            }
        });
        release(free.expect("riding out")).await;
        renewed(&guards[0]).await;
        assert!(guards.iter().all(|guard| !guard.is_lost()), "{code}");
        assert_eq!(count(&server, &guards[0]), 2, "{code}");
        for guard in guards {
            release(guard).await;
        }
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "{code}");
    }
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
