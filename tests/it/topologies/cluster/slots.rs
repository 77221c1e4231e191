//! Row T5: a slot moves from one master to another, with the locks in it.

use super::*;
use crate::support::tokens::{fence, next_token, open};

/// How long a waiter may take, moved or not.
const STRICT: Duration = Duration::from_millis(3_000);

fn count(cluster: &Cluster, guard: &LockGuard) -> u32 {
    cluster.holds(guard.name()).get(guard.owner()).copied().unwrap_or(0)
}

/// Three names in one slot. Each test has a slot of its own.
fn same_slot(stem: &str) -> [String; 3] {
    ["a", "b", "c"].map(|end| format!("{{{stem}}}:{end}"))
}

/// The move that takes a slot to the next master.
fn next_to(cluster: &Cluster, name: &str) -> (u16, usize) {
    (cluster.slot_of(name), (cluster.node_of(name) + 1) % 3)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t5_a_slot_that_moves_while_held_takes_count_lease_and_token_along() {
    let cluster = shared();
    let (client, other) = (client_of(&cluster, ms(1_500)).await, client_of(&cluster, MINUTE).await);
    let [name, fenced, fixed] = same_slot("moves while held");
    let lock = client.lock(&name);
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    let fenced_guard = fence(&client.fenced_lock(&fenced)).await;
    let fixed_guard = client.lock(&fixed).lock_with_lease(MINUTE).await.unwrap();
    let (slot, to) = next_to(&cluster, &name);
    let from = cluster.node_of(&name);
    let moved = cluster.nodes()[from].errors("MOVED");
    cluster.move_slot(slot, to);
    assert_eq!(cluster.node_of(&name), to);
    assert_eq!(count(&cluster, &outer), 2);
    assert!((50_000..=60_000).contains(&cluster.pttl(&fixed)), "{}", cluster.pttl(&fixed));
    let token = ["GET", &format!("redisson_lock_token:{fenced}")];
    assert_eq!(cluster.ask_at::<u64>(&fenced, &token), fenced_guard.token().get());

    let is_sent_on = || cluster.nodes()[from].errors("MOVED") > moved;
    wait_until("a renewal that is sent on", SOON, is_sent_on).await;
    renewed(&outer).await;
    tokio::time::sleep(ms(1_600)).await;
    assert!(!outer.is_lost() && !inner.is_lost() && !fenced_guard.is_lost());
    let left = cluster.pttl(&name);
    assert!((1..=1_500).contains(&left), "{left}");
    assert!(other.lock(&name).try_lock_now().await.unwrap().is_none());
    let nested = hold(&lock).await;
    assert_eq!(count(&cluster, &outer), 3);
    release(nested).await;
    release(inner).await;
    assert_eq!(count(&cluster, &outer), 1);
    release(outer).await;
    let before = open(fenced_guard).await;
    release(fixed_guard).await;
    assert!(next_token(&other.fenced_lock(&fenced)).await > before);
    for name in [&name, &fenced, &fixed] {
        assert!(!cluster.exists(name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t5_a_held_lock_is_followed_through_every_step_of_a_move() {
    let cluster = shared();
    let client = client_of(&cluster, ms(1_500)).await;
    let [name, released, waited] = same_slot("every step");
    let lock = client.lock(&name);
    let guards = [hold(&lock).await, hold(&lock).await, hold(&lock).await];
    let early = hold(&client.lock(&released)).await;
    let late = hold(&client.lock(&waited)).await;
    let other = client_of(&cluster, MINUTE).await;
    let waiter = waiting(&other, &waited);
    parked(&cluster, &waited).await;
    let (slot, to) = next_to(&cluster, &name);
    let move_ = cluster.begin_move(slot, to);
    renewed(&guards[0]).await;
    let [outer, middle, inner] = guards;
    release(inner).await;
    assert_eq!(count(&cluster, &outer), 2);
    release(early).await;
    assert!(!cluster.exists(&released));

    let asks = cluster.nodes()[move_.from].errors("ASK");
    move_.migrate_keys();
    let is_sent_on = || cluster.nodes()[move_.from].errors("ASK") > asks;
    wait_until("a renewal that is sent on", SOON, is_sent_on).await;
    renewed(&outer).await;
    release(middle).await;
    assert_eq!(count(&cluster, &outer), 1);
    // The source still says who has the slot, and that nothing is there.
    release(late).await;
    let late = gets(waiter, STRICT).await;

    move_.finish_at(move_.to);
    renewed(&outer).await;
    move_.finish_at(move_.from);
    renewed(&outer).await;
    move_.finish();
    renewed(&outer).await;
    assert!(!outer.is_lost() && !late.is_lost());
    release(outer).await;
    release(late).await;
    for name in [&name, &released, &waited] {
        assert!(!cluster.exists(name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t5_a_fenced_lock_in_a_slot_on_its_way_waits_for_the_end_of_the_move() {
    let cluster = shared();
    let client = client_of(&cluster, MINUTE).await;
    let [name, ..] = same_slot("fenced on the way");
    let lock = client.fenced_lock(&name);
    let token = next_token(&lock).await;
    let (slot, to) = next_to(&cluster, &name);
    let move_ = cluster.begin_move(slot, to);
    let pair = [move_.from, move_.to];
    let unstable = || pair.iter().map(|at| cluster.nodes()[*at].errors("TRYAGAIN")).sum::<u64>();
    let before = unstable();
    // Its two keys would be in two places, so neither node carries it out.
    let parked = tokio::spawn(async move { lock.lock().await });
    wait_until("a node that says so", SOON, || unstable() > before).await;
    move_.migrate_keys();
    move_.finish();
    let second = soon("the lock", parked).await.unwrap().expect("the lock, in the end");
    let second = open(second).await;
    assert!(second > token, "{second} after {token}");
    assert!(!cluster.exists(&name));
}

#[tokio::test]
async fn t5_a_release_and_an_acquire_in_one_call_are_served_in_a_slot_on_its_way() {
    let cluster = shared();
    let client = client_of(&cluster, MINUTE).await;
    let names = ["a", "b", "c", "d", "e", "f"].map(|end| format!("{{one call}}:{end}"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(hold(&client.lock(name)).await);
    }
    let (slot, to) = next_to(&cluster, &names[0]);
    let move_ = cluster.begin_move(slot, to);
    // All at once: the first goes on its own, and the others share a call, at the end of which the
    // key is gone from where it was.
    let pairs = guards.into_iter().zip(&names).map(async |(guard, name)| {
        let next = client.lock(name);
        let (released, taken) = tokio::join!(guard.unlock(), next.try_lock_now());
        released.expect("a lock that was held");
        taken.expect("granted or busy")
    });
    let taken = soon("answers", join_all(pairs)).await;
    for guard in taken.into_iter().flatten() {
        release(guard).await;
    }
    move_.migrate_keys();
    move_.finish();
    for name in &names {
        until_gone(&cluster, name).await;
    }
}

/// The target is not there any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_called_off_because_its_target_died_holds_up_nobody() {
    let cluster = Cluster::start_with(0, &["--cluster-require-full-coverage", "no"]);
    let name = cluster.name_at(0, "wanted");
    let client = connected(of(&cluster).watchdog_timeout(MINUTE).command_timeout(2 * SOON)).await;
    let move_ = cluster.begin_move(cluster.slot_of(&name), 1);
    cluster.kill_node(1);
    let lock = client.lock(&name);
    let call = tokio::spawn(async move { lock.try_lock_now().await });
    let source = &cluster.nodes()[0];
    wait_until("a redirection", SOON, || source.errors("ASK") >= 1).await;
    source.ask::<()>(&["CLUSTER", "SETSLOT", &move_.slot.to_string(), "STABLE"]);
    let guard = within(SOON, "the lock", call).await.expect("no panic").expect("an answer");
    release(guard.expect("a free lock")).await;
    wait_until("a free lock", SOON, || !source.exists(&name)).await;
}

/// The release asks for the marker of the other reader, which it cannot declare.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t5_a_reader_that_leaves_takes_none_for_dead_whose_marker_is_still_on_its_way() {
    let cluster = shared();
    let [leaves, stays, writes] = [
        client_of(&cluster, MINUTE).await,
        client_of(&cluster, MINUTE).await,
        client_of(&cluster, MINUTE).await,
    ];
    let [name, ..] = same_slot("readers on the way");
    let leaving = leaves.read_write_lock(&name).read().await.unwrap();
    let staying = stays.read_write_lock(&name).read().await.unwrap();
    // So all keys of the release are there.
    let lock = writes.read_write_lock(&name);
    let writer = tokio::spawn(async move { lock.write().await });
    let (slot, to) = next_to(&cluster, &name);
    let from = cluster.node_of(&name);
    let keys = || {
        cluster.nodes()[from].ask::<Vec<String>>(&[
            "CLUSTER",
            "GETKEYSINSLOT",
            &slot.to_string(),
            "100",
        ])
    };
    wait_until("a waiting writer", SOON, || keys().len() == 5).await;
    let late = keys().into_iter().find(|key| key.contains(&format!("{}:rwlock", staying.owner())));
    let late = late.expect("its marker");
    let move_ = cluster.begin_move(slot, to);
    let first: Vec<String> = keys().into_iter().filter(|key| *key != late).collect();
    move_.migrate(&first.iter().map(String::as_str).collect::<Vec<_>>());
    soon("a release", leaving.unlock()).await.unwrap();
    move_.migrate_keys();
    move_.finish();
    let owners: Vec<String> = cluster.ask_at(&name, &["HKEYS", &name]);
    assert!(owners.contains(&staying.owner().to_owned()), "{owners:?}: it lives");
    assert!(owners.len() == 2 && !staying.is_lost() && !writer.is_finished());
    staying.unlock().await.unwrap();
    soon("the lock", writer).await.unwrap().unwrap().unlock().await.unwrap();
}
