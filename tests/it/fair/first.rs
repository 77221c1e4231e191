//! A call in its first try stands for its client, but keeps the lock from nobody for long.

use std::time::Instant;

use super::*;

impl Far {
    /// A call whose first request is held back, and a younger one of a runtime and so a connection of
    /// its own, which waits.
    pub(super) async fn two(&self, lease: Duration) -> [JoinHandle<LockGuard>; 2] {
        self.proxy.plan("EVALSHA", 1, Fault::HoldBack);
        let [first, second] = [(); 2].map(|()| self.client.fair_lock("first"));
        let first =
            tokio::spawn(async move { first.lock_with_lease(lease).await.expect("a turn") });
        wait_until("its request", SOON, || self.proxy.held() == 1).await;
        apart().await;
        let second =
            tokio::task::spawn_blocking(move || runtime().block_on(second.lock()).expect("a turn"));
        let subscribed = || self.server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "*{first}:*"]);
        wait_until("a waiter", SOON, || subscribed().len() == 1).await;
        apart().await;
        [first, second]
    }
}

#[tokio::test]
async fn a_grant_to_a_first_try_has_the_next_waiter_ask_for_an_entry() {
    let far = Far::new().await;
    // So that the connection is there.
    release(hold(&far.client.fair_lock("first")).await).await;
    let [first, second] = far.two(ms(400)).await;
    assert!(!second.is_finished() && !far.server.exists("first"));
    let begun = Instant::now();
    far.proxy.let_go();
    // It has the lock for longer than its lease.
    let kept = soon("the first", first).await.unwrap();
    let guard = soon("the second", second).await.unwrap();
    assert!(passed(begun) < ms(2_000), "{:?}", passed(begun));
    drop(kept);
    release(guard).await;
    nothing_is_left(&far.server).await;
}
