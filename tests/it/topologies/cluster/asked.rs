//! A node to which only `ASK` leads.

use super::*;
use crate::support::cluster::shards_channels;

/// Has all clients ask for the map: a connection to that node breaks.
fn break_connections(node: &Server) {
    assert!(node.ask::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]) > 0);
}

/// A slot on its way to a node that has none yet.
struct Asked {
    cluster: Cluster,
    target: Server,
    proxy: Proxy,
    slot: String,
    name: String,
}

impl Asked {
    async fn start() -> Option<Self> {
        let cluster = Cluster::start();
        let target = Server::start_node(&[]);
        if !shards_channels(&target) {
            eprintln!("left out: before 7.0 a node takes no new address while it runs");
            return None;
        }
        target.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", "9"]);
        let proxy = Proxy::new(&target);
        let source = &cluster.nodes()[0];
        let port = source.port().to_string();
        target.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        announce(&cluster, &target, &proxy).await;
        let (from, to): (String, String) =
            (source.ask(&["CLUSTER", "MYID"]), target.ask(&["CLUSTER", "MYID"]));
        let knows = || target.ask::<String>(&["CLUSTER", "NODES"]).contains(&from);
        wait_until("a target that knows the source", SOON, knows).await;
        // Or the first request would come to nothing there in any case.
        target.ask::<()>(&["SCRIPT", "LOAD", &scripts::acquire()]);
        let name = cluster.name_at(0, "asked");
        let slot = cluster.slot_of(&name).to_string();
        target.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
        source.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
        Some(Self { cluster, target, proxy, slot, name })
    }

    fn end(&self) {
        for node in [&self.cluster.nodes()[0], &self.target] {
            node.ask::<()>(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]);
        }
    }

    /// By their numbers, those at the target by which calls ask for locks. Looks at the map have others.
    fn connections(&self) -> Vec<String> {
        let list: String = self.target.ask(&["CLIENT", "LIST"]);
        let asks = list.lines().filter(|line| line.contains(" cmd=evalsha "));
        asks.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    /// The client asks for the map, and has the answer.
    async fn renew_map(&self) {
        let asked = self.cluster.calls("cluster|slots");
        break_connections(&self.cluster.nodes()[1]);
        let calls = || self.cluster.calls("cluster|slots") > asked;
        wait_until("a question for the map", SOON, calls).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w25_a_request_that_is_late_at_a_node_to_which_ask_led_is_not_executed() {
    let Some(asked) = Asked::start().await else { return };
    let Asked { cluster, target, proxy, name, .. } = &asked;
    let builder = of(cluster).watchdog_timeout(MINUTE).command_timeout(ms(1_500));
    let client = connected(builder).await;
    let elsewhere = cluster.name_at(1, "elsewhere");
    release(hold(&client.lock(&elsewhere)).await).await;
    // The map is renewed while the connection is being made.
    proxy.hold("HELLO");
    let lock = client.lock(name);
    let call = tokio::spawn(async move { lock.lock().await.map(drop) });
    wait_until("a connection that is being made", SOON, || proxy.held() >= 1).await;
    asked.renew_map().await;
    proxy.plan("EVALSHA", 1, Fault::HoldBackFor(Duration::from_secs(4)));
    proxy.let_go();
    within(2 * SOON, "an error", call).await.expect("no panic").expect_err("no answer");
    wait_until("a request that is late", SOON, || proxy.fates_are_known()).await;
    // HELLO, also of the client's own thread, and the acquire.
    let fates = [proxy.executed_late(), proxy.came_to_nothing()];
    assert_eq!(fates, [0, 1], "executed late");
    assert!(proxy.executed_slow() >= 1, "no connection was being made");
    wait_until("a free lock", SOON, || target.ask::<u64>(&["DBSIZE"]) == 0).await;
    asked.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w25_a_connection_to_a_node_to_which_ask_leads_survives_a_new_map() {
    let Some(asked) = Asked::start().await else { return };
    let client = connected(of(&asked.cluster).watchdog_timeout(MINUTE)).await;
    let elsewhere = asked.cluster.name_at(1, "elsewhere");
    let lock = client.lock(&asked.name);
    release(hold(&lock).await).await;
    let connections = asked.connections();
    assert_eq!(connections.len(), 1, "{connections:?}");
    for _ in 0..5 {
        release(hold(&client.lock(&elsewhere)).await).await;
        asked.renew_map().await;
        let sent = asked.proxy.sent("EVALSHA");
        release(hold(&lock).await).await;
        assert!(asked.proxy.sent("EVALSHA") > sent, "not asked for at the target");
    }
    assert_eq!(asked.connections(), connections, "one that was made again");
    asked.end();
}
