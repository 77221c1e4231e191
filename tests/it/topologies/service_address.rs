//! Rows T1 and T2 with a plain pair behind an address that follows the primary, as a service
//! address or a load balancer does.

use super::*;
use crate::support::replicas::is_primary;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_planned_failover_costs_nobody_anything() {
    let group = Replicated::start(1);
    let old = group.primary();
    let address = Proxy::new(old);
    let builder = LockClient::builder().url(address.url(old)).watchdog_timeout(ms(3_000));
    let client = async || connected(builder.clone()).await;
    let company = Company::of(old, &client).await;
    let busy = Busy::with([client().await.lock("busy")]);
    busy.goes_on().await;

    let new = group.failover();
    assert!(is_primary(new) && !is_primary(old), "the roles are as before");
    address.lead_to(new);
    busy.goes_on().await;
    let errors = busy.end().await;
    assert!(errors.is_empty(), "{errors:?}");

    renewed(&company.guards[0]).await;
    renewed(&company.guards[0]).await;
    company.goes_on_at(new).await;
    until_free("a free lock", new, "busy").await;
}

#[tokio::test]
async fn t2_with_the_option_for_replicas_such_a_lock_is_not_granted() {
    let group = Replicated::start(1);
    let builder = LockClient::builder().url(group.primary().url()).replicas(1, ms(1_000));
    let client = connected(builder).await;
    release(hold(&client.lock("granted")).await).await;
    group.detach(group.replica());
    let refused = soon("an answer", client.lock("refused").try_lock_now()).await;
    assert_eq!(refused.expect_err("no replica").kind(), ErrorKind::Unavailable);
    until_free("a lock that is given back", group.primary(), "refused").await;
}
