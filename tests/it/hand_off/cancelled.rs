//! A waiter goes, or is not polled any more, just as it is handed the lock.

use super::*;
use crate::cancellation::{TURNS, Traces};

#[tokio::test]
async fn a_waiter_dropped_with_the_lock_in_its_hands_gives_it_back() {
    let scene = Scene::new().await;
    let other = scene.other().await;
    let mut traces = Traces::default();
    for pause in TURNS {
        for how in ["a dropped guard", "an unlock", "an unlock that is dropped"] {
            let name = format!("{how}:{pause}");
            let (guard, next) = scene.pair(&name, LOCK).await;
            let mut unlocked = (how != "a dropped guard").then(|| unlocking(guard));
            assert!(next.task.is_woken(), "nobody handed it the lock");
            if how == "an unlock that is dropped" {
                unlocked = None;
            }
            turns(pause).await;
            drop(next);
            if let Some(unlocked) = unlocked {
                soon("unlocking", unlocked).await.expect("it was given back in time");
            }
            traces.until_free(&other, &name).await;
        }
    }
    traces.were_short(&scene.server);
}

#[tokio::test]
async fn a_waiter_dropped_with_the_lock_in_its_hands_leaves_it_to_the_next() {
    let scene = Scene::new().await;
    for pause in TURNS {
        let name = format!("left:{pause}");
        let (guard, next) = scene.pair(&name, LOCK).await;
        let mut behind = Waiter::behind(&scene.client, &name, LOCK);
        drop(guard);
        turns(pause).await;
        drop(next);
        let guard = behind.waits().await;
        scene.ends(guard).await;
    }
}

#[tokio::test]
async fn a_lock_given_back_at_any_point_of_a_waiters_way_is_not_lost_with_it() {
    let scene = Scene::new().await;
    let other = scene.other().await;
    let mut traces = Traces::default();
    for fenced in [false, true] {
        for pause in TURNS {
            for polls in 0..8 {
                let name = format!("way:{fenced}:{pause}:{polls}");
                let guard = hold(&scene.client.lock(&name)).await;
                let (plain, fence) = (scene.client.lock(&name), scene.client.fenced_lock(&name));
                let call: BoxFuture<'_, bool> = if fenced {
                    fence.lock().map(|guard| guard.is_ok()).boxed()
                } else {
                    plain.lock().map(|guard| guard.is_ok()).boxed()
                };
                let mut steps = Steps::new(call);
                assert!(steps.take(polls).await.is_none(), "{name} was free");
                turns(pause).await;
                drop(guard);
                turns(pause).await;
                drop(steps);
                traces.until_free(&other, &name).await;
                if fenced {
                    let counter = format!("redisson_lock_token:{{{name}}}");
                    scene.server.ask::<()>(&["DEL", &counter]);
                }
            }
        }
    }
    traces.were_short(&scene.server);
}

#[tokio::test]
async fn the_lock_of_a_call_that_is_never_polled_again_ends_with_its_lease() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(1_500))).await;
    let other = scene.other().await;
    let (guard, mut next) = scene.pair("idle", LOCK).await;
    drop(guard);
    let theirs = soon("the end of the lease", other.lock("idle").lock()).await.expect("locking");
    // Polled after all it waits for its turn again, and is given no lock that is lost.
    assert!(next.task.is_woken() && next.task.poll().is_pending(), "it was given a lost lock");
    assert!(!theirs.is_lost());
    release(theirs).await;
    let guard = next.gets().await;
    assert!(!guard.is_lost());
    scene.ends(guard).await;
}
