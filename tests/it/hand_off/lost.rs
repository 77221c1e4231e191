//! The name is gone from Redis when the hand-off arrives there.

use super::*;

/// A lock that was handed off, of which Redis has not heard yet.
struct InTheAir {
    scene: Far,
    old: Spawn<BoxFuture<'static, Result<(), Error>>>,
    new: LockGuard,
    behind: Waiter,
}

impl InTheAir {
    async fn of(name: &str) -> Self {
        // A renewal would find it out as well, and later.
        let scene = scene(|options| options.watchdog_timeout(2 * MINUTE)).await;
        let (guard, mut next) = scene.pair(name, LOCK).await;
        let behind = Waiter::behind(&scene.client, name, LOCK);
        let held = scene.hold_scripts();
        let old = unlocking(guard);
        let new = next.has();
        scene.until_held(held).await;
        Self { scene, old, new, behind }
    }

    /// Lets the hand-off arrive: the new holder hears that its lock is lost, and so does the one
    /// who gave it back.
    async fn arrives(self) -> (Far, Waiter) {
        let Self { scene, old, new, behind } = self;
        assert!(!new.is_lost(), "nobody can know yet");
        scene.proxy.let_go();
        soon("the loss", new.lost()).await;
        assert_lost(soon("the answer", old).await);
        assert_lost(soon("the answer", new.unlock()).await);
        (scene, behind)
    }
}

#[tokio::test]
async fn the_lock_of_somebody_who_took_the_name_meanwhile_is_not_touched() {
    let air = InTheAir::of("taken").await;
    air.scene.server.ask::<()>(&["DEL", "taken"]);
    air.scene.server.hold_by_hand("taken", "somebody:1", MINUTE);
    let (scene, behind) = air.arrives().await;
    scene.assert_held("taken", "somebody:1");
    assert!(scene.server.pttl("taken") > 50_000, "its lease was changed");
    scene.server.free_by_hand("taken");
    release(behind.gets().await).await;
    assert!(!scene.server.exists("taken"));
}

#[tokio::test]
async fn a_lock_that_was_freed_by_force_is_lost_on_its_way() {
    let air = InTheAir::of("forced").await;
    let other = air.scene.other().await;
    assert!(other.lock("forced").force_unlock().await.unwrap());
    let (scene, behind) = air.arrives().await;
    release(behind.gets().await).await;
    assert!(is_free(&other, "forced").await);
    assert!(!scene.server.exists("forced"));
}
