//! Rows T1 and T2 with a plain pair behind an address that follows the primary, as a service
//! address or a load balancer does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::support::replicas::is_primary;

/// A pair, and the address.
struct Pair {
    group: Replicated,
    address: Proxy,
}

impl Pair {
    fn new() -> Self {
        let group = Replicated::start(1);
        let address = Proxy::new(group.primary());
        Self { group, address }
    }

    async fn client(&self) -> LockClient {
        let url = self.address.url(self.group.primary());
        connected(LockClient::builder().url(url).watchdog_timeout(ms(3_000))).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_planned_failover_costs_nobody_anything() {
    let pair = Pair::new();
    let (group, address) = (&pair.group, &pair.address);
    let company = Company::of(group.primary(), async || pair.client().await).await;

    // Somebody who is at it all the time.
    let busy = pair.client().await;
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let at_it = {
        let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
        tokio::spawn(async move {
            let lock = busy.lock("busy");
            while !stop.load(Ordering::SeqCst) {
                lock.lock().await?.unlock().await?;
                rounds.fetch_add(1, Ordering::SeqCst);
            }
            Ok::<_, redlatch::Error>(())
        })
    };
    let went_on = async || {
        let before = rounds.load(Ordering::SeqCst);
        let goes_on = || rounds.load(Ordering::SeqCst) > before + 10;
        wait_until("rounds", SOON, || goes_on() || at_it.is_finished()).await;
    };
    went_on().await;

    let old = group.primary();
    let new = group.failover();
    assert!(is_primary(new) && !is_primary(old), "the roles are as before");
    address.lead_to(new);
    went_on().await;
    stop.store(true, Ordering::SeqCst);
    soon("the end", at_it).await.unwrap().expect("an error for who was at it");

    renewed(&company.guards[0]).await;
    renewed(&company.guards[0]).await;
    company.goes_on_at(new).await;
    until_free("a free lock", new, "busy").await;
}

#[tokio::test]
async fn t2_with_the_option_for_replicas_such_a_lock_is_not_granted() {
    let group = Replicated::start(1);
    let builder = LockClient::builder().url(group.primary().url()).replicas(1, ms(300));
    let client = connected(builder).await;
    release(hold(&client.lock("granted")).await).await;
    group.detach(group.replica());
    let refused = soon("an answer", client.lock("refused").try_lock_now()).await;
    assert_eq!(refused.expect_err("no replica").kind(), ErrorKind::Unavailable);
    until_free("a lock that is given back", group.primary(), "refused").await;
}
