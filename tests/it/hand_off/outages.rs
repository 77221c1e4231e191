//! Redis is out of reach, or comes back as another, while a hand-off is on its way.

use super::*;

/// The lock of another client, from when it has it.
async fn taken_by(other: &LockClient, name: &str) -> (LockGuard, Instant) {
    let guard = soon("the lock", other.lock(name).lock()).await.expect("locking");
    (guard, Instant::now())
}

#[tokio::test]
async fn an_outage_for_longer_than_the_lease_loses_the_new_guard_before_anybody_else_gets_in() {
    let scene = Scene::with(&[], hasty).await;
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

/// The connection of the client's own thread goes silent, for longer than the lease; the others
/// work. Whoever gets the lock meanwhile is none of those whom the hand-off is about.
#[tokio::test]
async fn a_hand_off_that_is_stuck_does_not_carry_later_holders_along() {
    let scene = Scene::with(&[], |options| options.command_timeout(ms(3_500))).await;
    let guard = scene.client.lock("stuck").lock_with_lease(ms(1_700)).await.unwrap();
    let mut next = Waiter::first(&scene, "stuck", LOCK).await;
    // The client tells Redis of it on one connection after the other while the lease lasts.
    let vanishes = crate::support::Fault::BlackHole;
    (1..=200).for_each(|nth| scene.proxy.plan("EVALSHA", nth, vanishes));
    let held = scene.proxy.faults();
    drop(guard);
    let lost = next.has();
    scene.until_held(held).await;
    soon("the deadline", lost.lost()).await;
    assert!(scene.proxy.give_up(vanishes) > 0);

    let later = scene.client.lock("stuck");
    let guard = loop {
        match soon("a try", later.try_lock_now()).await.expect("the other connection works") {
            Some(guard) => break guard,
            None => tokio::time::sleep(ms(5)).await,
        }
    };
    // It cannot subscribe over the silent connection, and goes by time.
    let mut waiting = Waiter::behind(&scene.client, "stuck", LOCK);
    for _ in 0..50 {
        tokio::time::sleep(ms(3)).await;
        assert!(waiting.task.poll().is_pending());
    }
    // Redis need not hear of this one.
    drop(guard);
    let guard = waiting.has();
    assert!(!guard.is_lost(), "lost for what was no concern of its");
    assert_lost(soon("an answer", lost.unlock()).await);
    assert!(!guard.is_lost());
    scene.ends(guard).await;
}
