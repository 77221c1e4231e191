//! A client of a cluster, in which each name is at home on one of three masters.

mod asked;
mod late;
mod maps;
mod messages;
mod names;
mod outages;
mod slots;
mod takeovers;
mod whole;

use std::sync::{Mutex, Weak};

use super::*;

/// One cluster for the tests that leave it as they found it: names and slots of their own are all
/// that they need. It ends with the last of those that use it at the same time.
fn shared() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut shared = unpoisoned(&SHARED);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::start());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

fn of(cluster: &Cluster) -> LockClientBuilder {
    LockClient::builder().cluster(cluster.urls())
}

async fn client_of(cluster: &Cluster, watchdog_timeout: Duration) -> LockClient {
    connected(of(cluster).watchdog_timeout(watchdog_timeout)).await
}

async fn until_gone(cluster: &Cluster, name: &str) {
    wait_until("a free lock", SOON, || !cluster.exists(name)).await;
}

/// Waits until somebody is parked for `name`.
async fn parked(cluster: &Cluster, name: &str) {
    wait_until("a subscription", SOON, || cluster.subscribers(name) >= 1).await;
}

/// Has the cluster know `node` by the proxy's port.
async fn announce(cluster: &Cluster, node: &Server, proxy: &Proxy) {
    let port = proxy.port().to_string();
    node.ask::<()>(&["CONFIG", "SET", "cluster-announce-port", &port]);
    let known = || {
        let said = |node: &Server| node.ask::<String>(&["CLUSTER", "NODES"]);
        cluster.nodes().iter().all(|node| said(node).contains(&format!(":{port}@")))
    };
    wait_until("an address by way of the proxy", SOON, known).await;
}
