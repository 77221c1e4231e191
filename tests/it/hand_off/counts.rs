//! What hand-offs cost Redis.

use super::*;

#[tokio::test]
async fn without_hand_offs_every_lock_goes_through_redis() {
    let scene = scene(|options| options.max_handoffs(0)).await;
    let turns = (0..8).map(async |_| {
        let lock = scene.client.lock("each");
        for _ in 0..10 {
            drop(hold(&lock).await);
        }
    });
    join_all(turns).await;
    assert!(scene.server.calls("hset") >= 80, "it was handed off");
    let (guard, mut next) = scene.pair("one", LOCK).await;
    let held = scene.hold_scripts();
    let unlocked = unlocking(guard);
    scene.until_held(held).await;
    assert!(!next.task.is_woken() && next.task.poll().is_pending());
    scene.proxy.let_go();
    soon("unlocking", unlocked).await.expect("unlocking");
    scene.ends(next.gets().await).await;
}
