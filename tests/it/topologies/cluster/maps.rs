//! Which node's word on the slots is taken.

use std::time::Instant;

use super::*;

/// The master that is asked first: of those that are known, the lowest port.
fn first(cluster: &Cluster) -> usize {
    (0..3).min_by_key(|at| cluster.nodes()[*at].port()).expect("three masters")
}

/// The others go on without that node, and one of them has its slots.
fn take_out(cluster: &Cluster, out: usize) {
    let id = |at: usize| cluster.nodes()[at].ask::<String>(&["CLUSTER", "MYID"]);
    let others: Vec<usize> = (0..3).filter(|at| *at != out).collect();
    for other in &others {
        cluster.nodes()[out].ask::<()>(&["CLUSTER", "FORGET", &id(*other)]);
    }
    for other in &others {
        cluster.nodes()[*other].ask::<()>(&["CLUSTER", "FORGET", &id(out)]);
    }
    let bound = |at: usize| 16_384 * at / 3;
    let slots: Vec<String> = (bound(out)..bound(out + 1)).map(|slot| slot.to_string()).collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    cluster.nodes()[others[0]].ask::<()>(&[&["CLUSTER", "ADDSLOTS"], &*slots].concat());
    block_until("a cluster without that node", SOON, || {
        others.iter().all(|at| {
            let info: String = cluster.nodes()[*at].ask(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        })
    });
}

/// Locks on all masters, the one that is out included, can be had.
async fn all_is_well(cluster: &Cluster, client: &LockClient, out: usize) {
    for at in [out, 0, 1, 2] {
        let name = cluster.name_at(at, "well");
        let lock = client.lock(&name);
        let begun = Instant::now();
        let guard = loop {
            match soon("locking", lock.lock()).await {
                Ok(guard) => break guard,
                Err(error) => assert!(begun.elapsed() < SOON, "{at}: {error}"),
            }
        };
        release(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_taken_out_of_the_cluster_leads_nobody_astray() {
    // Else it is cut off from the others, and knows all that it knew.
    for is_reset in [true, false] {
        let cluster = Cluster::start();
        let out = first(&cluster);
        let node = &cluster.nodes()[out];
        let client = client_of(&cluster, MINUTE).await;
        take_out(&cluster, out);
        if is_reset {
            node.ask::<()>(&["CLUSTER", "RESET", "SOFT"]);
        } else {
            let down = || node.ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:fail");
            wait_until("a node that knows it is alone", SOON, down).await;
        }
        all_is_well(&cluster, &client, out).await;
        if is_reset {
            let urls = [node.url(), cluster.nodes()[(out + 1) % 3].url()];
            let later = connected(LockClient::builder().cluster(urls)).await;
            all_is_well(&cluster, &later, out).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_can_connect_while_any_one_of_the_nodes_is_gone() {
    let cluster = Cluster::start_with(0, &["--cluster-require-full-coverage", "no"]);
    for silent in [true, false] {
        let gone = first(&cluster);
        if silent {
            cluster.pause_node(gone)
        } else {
            cluster.kill_node(gone)
        }
        cluster.is_missed(gone);
        let start = Instant::now();
        let client = connected(of(&cluster)).await;
        assert!(passed(start) < ms(2_500), "connecting took {:?}", passed(start));
        release(hold(&client.lock(cluster.name_at((gone + 1) % 3, "there"))).await).await;
        if silent {
            cluster.nodes()[gone].resume();
            cluster.agrees();
        }
    }
}
