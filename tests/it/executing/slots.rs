//! Commands while a cluster moves the slot of the lock and of their keys.

use super::*;

const LOCK: &str = "{moves}:lock";

async fn client_of(cluster: &Cluster, command_timeout: Duration) -> LockClient {
    let builder = LockClient::builder().cluster(cluster.urls()).watchdog_timeout(2 * MINUTE);
    builder.command_timeout(command_timeout).connect().await.expect("connecting")
}

fn counted(cluster: &Cluster) -> i64 {
    cluster.ask_at("{moves}", &["GET", "{moves}:count"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_executed_once_by_the_node_that_has_the_lock_and_all_keys() {
    let cluster = Cluster::start();
    let guard = hold(&client_of(&cluster, SOON).await.lock(LOCK)).await;
    let (mut count, mut make) = (pipe(), pipe());
    count.incr("{moves}:count", 1);
    make.incr("{moves}:count", 1).set("{moves}:new", 1).ignore();
    assert_eq!(executed::<i64>(&guard, &count).await, 1);
    let slot = cluster.slot_of(LOCK);
    let [from, to] = [0, 1].map(|next| (cluster.node_of(LOCK) + next) % 3);
    let executed_at = |node: usize| cluster.nodes()[node].calls("incrby");
    let move_ = cluster.begin_move(slot, to);
    let before = [from, to].map(executed_at);
    assert_eq!(executed::<i64>(&guard, &count).await, 2, "at the source");
    assert_eq!([from, to].map(executed_at), [before[0] + 1, before[1]]);
    move_.migrate_keys();
    assert_eq!(executed::<i64>(&guard, &count).await, 3, "at the target");
    assert_eq!([from, to].map(executed_at), [before[0] + 1, before[1] + 1]);
    // A key that is nowhere could be at either node.
    let guard = Arc::new(guard);
    let making = guard.clone();
    let execution = tokio::spawn(async move { executed::<i64>(&making, &make).await });
    wait_until("a refusal", SOON, || cluster.nodes()[to].errors("TRYAGAIN") > 0).await;
    assert!(!execution.is_finished());
    move_.finish();
    assert_eq!(soon("the count", execution).await.expect("no panic"), 4);
    assert_eq!(counted(&cluster), 4);
    release(Arc::into_inner(guard).expect("the only one")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_node_can_execute_by_the_command_timeout_is_not_executed() {
    let cluster = Cluster::start();
    let guard = hold(&client_of(&cluster, ms(600)).await.lock(LOCK)).await;
    let mut make = pipe();
    make.incr("{moves}:count", 1).set("{moves}:new", 1);
    executed::<()>(&guard, pipe().incr("{moves}:count", 1)).await;
    let slot = cluster.slot_of(LOCK);
    let move_ = cluster.begin_move(slot, (cluster.node_of(LOCK) + 1) % 3);
    // A key that is nowhere, and one that is at the other node while the lock is here.
    let answer = soon("an error", guard.execute::<()>(&make)).await;
    failed(answer, ErrorKind::Unavailable, Outcome::NotExecuted);
    move_.migrate(&["{moves}:count"]);
    let answer = soon("an error", guard.execute::<()>(pipe().incr("{moves}:count", 1))).await;
    failed(answer, ErrorKind::Unavailable, Outcome::NotExecuted);
    assert!(!guard.is_lost());
    move_.migrate_keys();
    move_.finish();
    assert_eq!(counted(&cluster), 1);
    release(guard).await;
}

/// What Redis does in every script: it sends those who look for a missing key on to the other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_the_commands_delete_is_missed_by_those_behind_while_it_moves() {
    let cluster = Cluster::start();
    let guard = hold(&client_of(&cluster, SOON).await.lock(LOCK)).await;
    executed::<()>(&guard, pipe().incr("{moves}:count", 1)).await;
    let move_ = cluster.begin_move(cluster.slot_of(LOCK), (cluster.node_of(LOCK) + 1) % 3);
    let mut again = pipe();
    again.del("{moves}:count").set("{moves}:count", 1);
    let answer = soon("an error", guard.execute::<()>(&again)).await;
    let message = failed(answer, ErrorKind::Server, Outcome::Executed);
    assert!(message.contains("command 2 of 2, `SET`"), "{message}");
    move_.migrate_keys();
    move_.finish();
    executed::<()>(&guard, &again).await;
    release(guard).await;
}
