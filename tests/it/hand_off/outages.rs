//! Redis is out of reach, or comes back as another, while a hand-off is on its way.

use super::*;

/// The lock of another client, from when it has it.
async fn taken_by(other: &LockClient, name: &str) -> (LockGuard, Instant) {
    let guard = soon("the lock", other.lock(name).lock()).await.expect("locking");
    (guard, Instant::now())
}

#[tokio::test]
async fn an_outage_for_longer_than_the_lease_loses_the_new_guard_before_anybody_else_gets_in() {
    let scene = scene(|options| options.command_timeout(ms(1_000))).await;
    let other = connect(&scene.server).await;
    let guard = scene.client.lock("outage").lock_with_lease(ms(2_000)).await.unwrap();
    let mut next = Waiter::first(&scene, "outage", LOCK).await;
    let behind = Waiter::behind(&scene.client, "outage", LOCK);
    scene.proxy.refuse(true);
    assert!(scene.proxy.freeze_all() > 0);
    let attempts = scene.proxy.attempts();
    let old = unlocking(guard);
    let guard = next.has();
    let lost = async {
        guard.lost().await;
        Instant::now()
    };
    let (lost, (theirs, taken)) =
        tokio::join!(soon("the deadline", lost), taken_by(&other, "outage"));
    assert!(lost < taken, "believed for {:?} beside another holder", lost - taken);
    let error = soon("an answer", old).await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(scene.proxy.attempts() > attempts, "no outage was noticed");

    scene.proxy.refuse(false);
    // Or that the hand-off is still not answered, if it comes before the next try of that.
    let error = soon("an answer", guard.unlock()).await.expect_err("it was lost");
    assert!([ErrorKind::Lost, ErrorKind::Unavailable].contains(&error.kind()), "{error}");
    assert!(!theirs.is_lost());
    release(theirs).await;
    scene.ends(behind.gets().await).await;
}
