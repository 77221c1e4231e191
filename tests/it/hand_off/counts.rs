//! What hand-offs cost Redis.

use super::*;

#[tokio::test]
async fn without_hand_offs_every_lock_goes_through_redis() {
    let scene = Scene::with(&[], |options| options.max_handoffs(0)).await;
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

#[tokio::test]
async fn unlocks_that_come_while_a_request_is_under_way_share_the_next() {
    const HANDLES: usize = 300;
    let scene = Scene::new().await;
    let guard = scene.client.lock("long").lock_with_lease(ms(15_000)).await.unwrap();
    let owner = guard.owner().to_owned();
    let first = Waiter::first(&scene, "long", LOCK).await;
    let mut line = vec![first];
    for _ in 1..HANDLES {
        line.push(Waiter::behind(&scene.client, "long", LOCK));
        // So many steps of one task are more than its runtime bears without a break.
        tokio::task::yield_now().await;
    }
    let asked = scene.server.calls("evalsha");
    let held = scene.hold_scripts();
    let mut unlocks = vec![unlocking(guard)];
    let mut guard = line[0].has();
    // The first request is under way.
    scene.until_held(held).await;
    for waiter in &mut line[1..] {
        unlocks.push(unlocking(guard));
        guard = waiter.has();
        tokio::task::yield_now().await;
    }
    assert_eq!(guard.owner(), owner);
    assert!(unlocks.iter_mut().all(|unlock| unlock.poll().is_pending()));
    scene.proxy.let_go();
    for unlock in unlocks {
        soon("the confirmation", unlock).await.expect("unlocking");
    }
    assert_eq!(scene.server.calls("evalsha"), asked + 2);
    scene.assert_held("long", &owner);
    wait_until("the whole lease", SOON, || guard.remaining() > ms(20_000)).await;
    scene.ends(guard).await;
}
