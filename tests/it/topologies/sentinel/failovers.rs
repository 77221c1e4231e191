//! Rows T1 to T4 with Sentinels: the primary is another one all of a sudden.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Long enough for a failover that nobody has asked for.
const LONG: Duration = Duration::from_secs(18);

/// Locks and unlocks until it is told to stop.
async fn at_it(client: LockClient, stop: Arc<AtomicBool>) -> (u64, Vec<Error>) {
    let (mut rounds, mut errors) = (0, Vec::new());
    let lock = client.lock("busy");
    while !stop.load(Ordering::SeqCst) {
        let round = async { lock.lock().await?.unlock().await };
        match round.await {
            Ok(()) => rounds += 1,
            Err(error) => errors.push(error),
        }
        tokio::time::sleep(ms(1)).await;
    }
    (rounds, errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_planned_failover_by_sentinels_is_ridden_out() {
    let set = Sentinels::start();
    let old = set.master();
    let company = Company::of(old, async || client_of(&set, ms(9_000)).await).await;
    let stop = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn(at_it(client_of(&set, ms(9_000)).await, Arc::clone(&stop)));
    replicated(old);

    let new = set.failover();
    assert_ne!(old.port(), new.port());
    // Whoever comes now finds the new one, and so does whoever was there.
    wait_until("the waiter at the new primary", SOON, || new.subscribers("kept") == 1).await;
    renewed(&company.guards[0]).await;
    renewed(&company.guards[0]).await;
    stop.store(true, Ordering::SeqCst);
    let (rounds, errors) = soon("the end", busy).await.unwrap();
    assert!(rounds > 0);
    // The old primary grants and renews until it is told. What it has granted last is lost, and
    // nothing else happens to anybody.
    let lost = |error: &Error| error.kind() == ErrorKind::Lost;
    assert!(errors.len() <= 1 && errors.iter().all(lost), "{errors:?}");

    company.goes_on_at(new).await;
    until_free("a free lock", new, "busy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_killed_primary_costs_no_lock_that_was_replicated() {
    let set = Sentinels::start();
    let old = set.master();
    let company = Company::of(old, async || client_of(&set, LONG).await).await;
    let patient = connected(by_way_of(set.urls()).command_timeout(LONG)).await;
    replicated(old);
    set.kill_master();
    // Asked while there is none.
    let called = tokio::spawn(async move {
        let guard = within(2 * SOON, "the lock", patient.lock("called").lock()).await?;
        guard.unlock().await
    });
    let new = set.master_after(old);
    called.await.unwrap().expect("riding it out");
    wait_until("the waiter at the new primary", SOON, || new.subscribers("kept") == 1).await;
    company.goes_on_at(new).await;
    until_free("a free lock", new, "called").await;
}
