//! Connections are made at `connect` and kept.

use super::*;

/// From now on the server takes no new connection.
fn take_no_more(server: &Server) {
    server.ask::<()>(&["CONFIG", "SET", "maxclients", "1"]);
    assert!(server.connection().is_err(), "a connection more than there may be");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w16_a_client_needs_no_more_connections_than_it_has_made_when_it_connects() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let client = client_with(server.url(), ms(2_400)).await;
    take_no_more(&server);
    let guard = hold(&client.lock("full")).await;
    renewed(&guard).await;
    renewed(&guard).await;
    // Subscribed, and woken.
    let waiting = parked(&server, &client, "full").await;
    release(guard).await;
    has_its_turn(waiting).await;
}

/// A firewall forgets a connection that is idle for minutes, and tells neither end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_connection_is_probed_by_the_kernel_while_it_is_idle() {
    let server = Server::start();
    let client = client_with(server.url(), ms(30_000)).await;
    release(hold(&client.lock("idle")).await).await;
    let list: String = server.ask(&["CLIENT", "LIST"]);
    let ports = list.lines().filter(|line| line.contains(" name=redlatch")).map(|line| {
        let address = line.split(' ').find_map(|word| word.strip_prefix("addr="));
        address.and_then(|address| address.rsplit_once(':')).expect("an address").1.to_owned()
    });
    let ports = Vec::from_iter(ports);
    assert!(ports.len() >= 2, "{list}");
    // What is under way yet has another timer.
    wait_until("the kernel probes each connection", SOON, || {
        ports.iter().all(|port| timer_of(port.parse().expect("a port"), server.port()) == "02")
    })
    .await;
    drop(client);
}

/// The timer of the kernel for the connection from that port to the other one, as `/proc` has it.
fn timer_of(port: u16, to: u16) -> String {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("connections");
    let mut rows = table.lines().skip(1).map(|row| Vec::from_iter(row.split_whitespace()));
    let ends = [port, to].map(|port| format!(":{port:04X}"));
    let is_its = |row: &Vec<&str>| row[1].ends_with(&ends[0]) && row[2].ends_with(&ends[1]);
    let its = rows.find(is_its).expect("a connection");
    its[5].split(':').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w16_the_connection_that_waits_for_replicas_is_there_from_the_start() {
    let _quiet = machine::quiet();
    let replicated = Replicated::start(1);
    let server = replicated.primary();
    let client = connected(LockClient::builder().url(server.url()).replicas(1, ms(1_000))).await;
    take_no_more(server);
    release(hold(&client.lock("full")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w16_in_a_cluster_every_node_has_its_connections_from_the_start() {
    let _quiet = machine::quiet();
    let cluster = Cluster::start();
    let options = LockClient::builder().cluster(cluster.urls()).watchdog_timeout(ms(2_400));
    let client = connected(options).await;
    for node in cluster.nodes() {
        take_no_more(node);
    }
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(hold(&client.lock(format!("full {number}"))).await);
    }
    let waits = client.lock("full 0");
    let waiting = tokio::spawn(async move { waits.lock().await });
    tokio::time::sleep(ms(3_000)).await;
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    assert_eq!(lost, 0, "of {} locks", guards.len());
    for guard in guards {
        release(guard).await;
    }
    has_its_turn(waiting).await;
}
