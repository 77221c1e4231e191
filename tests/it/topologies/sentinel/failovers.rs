//! Rows T1 to T4 with Sentinels: the primary is another one all of a sudden.

use super::*;

/// Long enough for a failover that nobody has asked for.
const LONG: Duration = Duration::from_secs(18);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_planned_failover_by_sentinels_is_ridden_out() {
    let set = Sentinels::start();
    let old = set.master();
    let company = Company::of(old, async || client_of(&set, ms(9_000)).await).await;
    let busy = Busy::with([client_of(&set, ms(9_000)).await.lock("busy")]);
    busy.goes_on().await;
    replicated(old);

    let new = set.failover();
    assert_ne!(old.port(), new.port());
    // Whoever comes now finds the new one, and so does whoever was there.
    wait_until("the waiter at the new primary", SOON, || new.subscribers("kept") == 1).await;
    renewed(&company.guards[0]).await;
    renewed(&company.guards[0]).await;
    let errors = busy.end().await;
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
