//! A release that the old primary confirmed and the new one has not heard of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use redlatch::LockClient;

use super::late::conviction;
use super::{by_way_of, client_of};
use crate::support::{
    Replicated, SOON, Sentinels, Server, hold, machine, ms, release, soon, wait_until, within,
};
use crate::topologies::{MINUTE, connected};

/// A pair of servers, a Sentinel that names the first, and a client.
struct Pair {
    group: Replicated,
    sentinel: Server,
    client: LockClient,
}

impl Pair {
    async fn start() -> Self {
        let group = Replicated::start(1);
        let sentinel = Server::start_sentinel(&conviction(group.primary().port(), 0));
        let builder = by_way_of([sentinel.url()]).watchdog_timeout(10 * MINUTE);
        Self { client: connected(builder).await, group, sentinel }
    }

    /// The replica has heard of all up to now, and of nothing from here on.
    fn replica_is_cut_off(&self) {
        self.group.in_step();
        self.group.detach(self.group.replica());
    }

    /// The replica becomes the primary, and the Sentinel says so.
    fn fail_over(&self) -> &Server {
        let new = self.group.replica();
        self.group.promote(new);
        self.sentinel.kill();
        self.sentinel.configure(&conviction(new.port(), 1));
        self.sentinel.start_again();
        new
    }
}

/// Another client, of which the first knows nothing, has the lock soon.
async fn another_gets(server: &Server, name: &str) {
    let other = connected(LockClient::builder().url(server.url())).await;
    let guard = within(SOON, "the lock", other.lock(name).lock()).await.expect("locking");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w26_a_release_that_the_new_primary_missed_keeps_nobody_out() {
    let pair = Pair::start().await;
    let [kept, dropped] = [pair.client.lock("kept"), pair.client.lock("dropped")];
    let guards = [hold(&kept).await, hold(&dropped).await];
    pair.replica_is_cut_off();
    for guard in guards {
        release(guard).await;
    }
    // Of this handle nothing is left in the client but the name.
    drop(dropped);
    let new = pair.fail_over();
    assert!(new.exists("kept") && new.exists("dropped"), "the new primary has heard of it");
    another_gets(new, "kept").await;
    another_gets(new, "dropped").await;
}

/// The new primary still counts the hold, for ten minutes, and its handle is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_stays_until_a_time_stays_until_then_at_a_primary_that_missed_its_release() {
    let pair = Pair::start().await;
    let [noticed, asked_for] = ["noticed", "asked for"];
    let guards = [hold(&pair.client.lock(noticed)).await, hold(&pair.client.lock(asked_for)).await];
    pair.replica_is_cut_off();
    for guard in guards {
        guard.hold_at_least(MINUTE);
        release(guard).await;
    }
    let new = pair.fail_over();
    let tried = soon("an answer", pair.client.lock(asked_for).try_lock_now()).await;
    assert!(!tried.is_ok_and(|guard| guard.is_some()), "this client did not wait");
    for name in [noticed, asked_for] {
        let left = || ms(new.ask(&["PTTL", name]));
        wait_until("the rest of the time", SOON, || left() <= MINUTE).await;
        assert!(left() > MINUTE / 2, "{name}: {:?}", left());
        assert!(new.holds(name).into_keys().all(|owner| owner.contains(":-")), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w26_a_hand_off_that_the_new_primary_missed_keeps_nobody_out() {
    let pair = Pair::start().await;
    let first = hold(&pair.client.lock("handed")).await;
    pair.replica_is_cut_off();
    let second = pair.client.lock("handed");
    let asked = pair.group.primary().calls("evalsha");
    let waiter = tokio::spawn(async move { second.lock().await.expect("the lock") });
    let old = pair.group.primary();
    wait_until("a waiter", SOON, || old.subscribers("handed") == 1).await;
    // It asks once more when it is subscribed, and stands in line when it has heard the answer.
    wait_until("its questions", SOON, || old.calls("evalsha") >= asked + 2).await;
    tokio::time::sleep(ms(100)).await;
    release(first).await;
    let second = soon("the lock", waiter).await.expect("no panic");
    wait_until("a hand-off", SOON, || old.calls("hdel") == 1).await;
    let new = pair.fail_over();
    another_gets(new, "handed").await;
    // The new primary never knew of it, so it is lost like every lock that a failover loses.
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w26_a_hold_that_the_new_primary_knows_stays() {
    let pair = Pair::start().await;
    let lock = pair.client.lock("held");
    release(hold(&lock).await).await;
    let guard = hold(&lock).await;
    pair.replica_is_cut_off();
    let new = pair.fail_over();
    wait_until("a look at the new primary", SOON, || new.calls("hrandfield") >= 1).await;
    let tried = pair.client.lock("held").try_lock_now().await.expect("an answer");
    assert!(tried.is_none() && new.exists("held"), "a hold that somebody has was released");
    release(guard).await;
}

/// Each turn is a new handle's, so that none finds a hold of its own at the new primary. The last
/// one begins when it is over.
async fn take_turns(client: LockClient, name: String, over: Arc<AtomicBool>) {
    let mut last = Instant::now();
    let mut longest = ms(0);
    loop {
        let is_last = over.load(Ordering::Relaxed);
        // Lost, or out of reach, while the primaries change.
        if let Ok(Some(guard)) = client.lock(&name).try_lock(6 * SOON, MINUTE).await {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            let _ = guard.unlock().await;
            if is_last {
                break;
            }
        }
    }
    println!("{name}: without the lock for {longest:?} at the longest");
    assert!(longest < SOON, "{name}: blocked for {longest:?}");
}

/// Sentinels do not wait for the replica that they promote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w26_busy_names_go_on_soon_after_a_planned_failover() {
    let _busy = machine::busy();
    let set = Sentinels::start();
    let clients = [client_of(&set, MINUTE).await, client_of(&set, MINUTE).await];
    let over = Arc::new(AtomicBool::new(false));
    let turns: Vec<_> = (0..8)
        .map(|number| {
            let (client, over) = (clients[number % 2].clone(), over.clone());
            tokio::spawn(take_turns(client, format!("busy:{}", number / 2), over))
        })
        .collect();
    let failovers = tokio::task::spawn_blocking(move || {
        set.failover();
        set
    });
    let set = within(6 * SOON, "a failover", failovers).await.expect("a failover");
    // What goes wrong, goes wrong soon: a name that is blocked then has no last turn.
    tokio::time::sleep(ms(4_000)).await;
    over.store(true, Ordering::Relaxed);
    for turn in turns {
        within(6 * SOON, "turns until the end", turn).await.expect("turns");
    }
    drop((clients, set));
}
