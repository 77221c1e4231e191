//! What hand-offs cost Redis.

use super::*;

/// So many owners fit one request.
const LONGEST: usize = 128;

/// Everybody of a client takes turns.
async fn turns_of(client: &LockClient, name: &str, tasks: usize, turns: usize) {
    let crowd: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = client.lock(name);
            tokio::spawn(async move {
                for _ in 0..turns {
                    let guard = soon("its turn", lock.lock()).await.expect("locking");
                    tokio::task::yield_now().await;
                    drop(guard);
                }
            })
        })
        .collect();
    for task in crowd {
        soon("all turns", task).await.unwrap();
    }
}

#[tokio::test]
async fn many_turns_in_one_client_cost_less_than_one_request_each() {
    let scene = Scene::new().await;
    turns_of(&scene.client, "crowd", 64, 20).await;
    // A request can carry many releases.
    let (asked, released) = (scene.server.calls("evalsha"), scene.server.calls("del"));
    assert!(asked < 64 * 20 / 2, "{asked} requests for {} turns", 64 * 20);
    assert!(released < 64 * 20 / 2, "{released} releases in {} turns", 64 * 20);
    scene.until_gone("crowd").await;
}

#[tokio::test]
async fn without_hand_offs_every_lock_goes_through_redis() {
    let scene = Scene::with(&[], |options| options.max_handoffs(0)).await;
    turns_of(&scene.client, "each", 8, 10).await;
    assert_eq!(scene.server.calls("hdel"), 0, "it was handed off");
    assert!(scene.server.calls("hset") >= 80);
    let guard = hold(&scene.client.lock("one")).await;
    let mut next = Waiter::first(&scene, "one", LOCK).await;
    let held = scene.hold_scripts();
    let unlocked = unlocking(guard);
    scene.until_held(held).await;
    assert!(!next.task.is_woken() && next.task.poll().is_pending());
    scene.proxy.let_go();
    soon("unlocking", unlocked).await.expect("unlocking");
    release(next.gets().await).await;
    scene.until_gone("one").await;
}

#[tokio::test]
async fn a_chain_longer_than_a_request_goes_in_several_and_in_order() {
    const OWNERS: usize = 300;
    let scene = Scene::new().await;
    let guard = scene.client.lock("long").lock_with_lease(ms(15_000)).await.unwrap();
    let first = Waiter::first(&scene, "long", LOCK).await;
    let mut line = vec![first];
    for _ in 1..OWNERS {
        line.push(Waiter::behind(&scene.client, "long", LOCK));
        // So many steps of one task are more than its runtime bears without a break.
        tokio::task::yield_now().await;
    }
    let asked = scene.server.calls("evalsha");
    let held = scene.hold_scripts();
    let mut unlocks = vec![unlocking(guard)];
    for waiter in &mut line[..OWNERS - 1] {
        unlocks.push(unlocking(waiter.has()));
        tokio::task::yield_now().await;
    }
    let guard = line[OWNERS - 1].has();
    scene.until_held(held).await;
    scene.proxy.let_go();
    for unlock in unlocks {
        soon("the confirmation", unlock).await.expect("unlocking");
    }
    assert_eq!(scene.owners("long"), [line[OWNERS - 1].owner()]);
    wait_until("the whole lease", SOON, || guard.remaining() > ms(20_000)).await;
    // The first goes with what is there by then, the rest in as few as can be.
    let requests = (scene.server.calls("evalsha") - asked) as usize;
    let least = OWNERS.div_ceil(LONGEST);
    assert!((least..=least + 1).contains(&requests), "{requests} requests");
    // Each moves the lock once, however many owners it names.
    assert_eq!(scene.server.calls("hdel") as usize, requests);
    release(guard).await;
    scene.until_gone("long").await;
}
