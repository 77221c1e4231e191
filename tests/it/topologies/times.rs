//! How long a failover that loses a lock takes for those who wait for it and for the one who had it.
//! The figures are printed: `cargo test --test it times:: -- --nocapture`.

use std::time::{Duration, Instant};

use redlatch::LockClient;

use crate::support::replicas::{is_primary, replicas_of};
use crate::support::sentinel::MASTER;
use crate::support::{Cluster, SOON, Sentinels, hold, ms, release, within};
use crate::topologies::{deadline, wait_until};

/// Renewed every two seconds.
const WATCHDOG: Duration = Duration::from_secs(6);

/// A takeover has to be noticed, voted on and carried out.
const TAKEOVER: Duration = Duration::from_secs(20);

/// Who had a lock that the next primary does not know, and who waits for it.
struct Affected {
    holder: LockClient,
    waiter: LockClient,
    name: String,
}

impl Affected {
    /// `kills` takes the primary away; whatever comes then is measured from when there `is_another`.
    async fn by(
        self,
        what: &str,
        is_parked: impl Fn() -> bool,
        kills: impl FnOnce(),
        is_another: impl Fn() -> bool,
    ) {
        let guard = hold(&self.holder.lock(&self.name)).await;
        let by_itself = deadline(&guard);
        let next = self.waiter.lock(&self.name);
        let granted = tokio::spawn(async move {
            let guard = next.lock().await.expect("the lock, in the end");
            (Instant::now(), guard)
        });
        wait_until("a waiter", SOON, is_parked).await;
        let told = tokio::spawn(async move {
            guard.lost().await;
            Instant::now()
        });
        let killed = Instant::now();
        kills();
        wait_until("another primary", TAKEOVER, is_another).await;
        let another = Instant::now();
        let (granted, successor) = within(SOON, "the next grant", granted).await.unwrap();
        let told = within(SOON, "the loss", told).await.unwrap();
        println!(
            "{what}: another primary after {:?}; the next grant {:?} after that; the old holder was told \
             {:?} after that, {:?} before its own deadline",
            another - killed,
            granted.saturating_duration_since(another),
            told.saturating_duration_since(another),
            by_itself.saturating_duration_since(told),
        );
        assert!(granted.saturating_duration_since(another) < ms(2_000));
        // The next renewal tells it, or the deadline that was moved by the last one.
        assert!(told.saturating_duration_since(another) < WATCHDOG / 3 + ms(1_000));
        release(successor).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_sentinels_is_over_soon_after_there_is_another_primary() {
    let set = Sentinels::start();
    let builder = || LockClient::builder().sentinel(MASTER, set.urls()).watchdog_timeout(WATCHDOG);
    let (holder, waiter) = (builder().connect().await.unwrap(), builder().connect().await.unwrap());
    let old = set.master();
    set.detach_replicas();
    let is_another = || {
        let others = set.servers().iter().filter(|server| server.port() != old.port());
        others.into_iter().any(is_primary)
    };
    let kills = || {
        set.kill_master();
        set.reattach_replicas();
    };
    let affected = Affected { holder, waiter, name: "lost".to_owned() };
    let is_parked = || old.subscribers("lost") == 1;
    affected.by("Sentinel, kill -9", is_parked, kills, is_another).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_in_a_cluster_is_over_soon_after_there_is_another_primary() {
    let cluster = Cluster::start_with(1, &["--cluster-replica-validity-factor", "0"]);
    let builder = || LockClient::builder().cluster(cluster.urls()).watchdog_timeout(WATCHDOG);
    let (holder, waiter) = (builder().connect().await.unwrap(), builder().connect().await.unwrap());
    let (old, new) = (&cluster.nodes()[0], cluster.replica_of(0));
    cluster.pause_node(new);
    old.ask::<()>(&["CLIENT", "KILL", "TYPE", "replica"]);
    wait_until("a master without a replica", SOON, || replicas_of(old) == 0).await;
    let kills = || {
        cluster.kill_node(0);
        cluster.nodes()[new].resume();
    };
    let name = cluster.name_at(0, "lost");
    let is_parked = || cluster.subscribers(&name) == 1;
    let is_another = || is_primary(&cluster.nodes()[new]);
    let affected = Affected { holder, waiter, name: name.clone() };
    affected.by("Cluster, kill -9", is_parked, kills, is_another).await;
}
