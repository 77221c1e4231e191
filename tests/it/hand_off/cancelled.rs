//! A waiter goes, or is not polled any more, just as it is handed the lock.

use super::*;
use crate::cancellation::{MANY, TURNS, Traces};

#[tokio::test]
async fn a_waiter_dropped_with_the_lock_in_its_hands_gives_it_back() {
    let scene = Scene::new().await;
    let other = scene.other().await;
    let mut traces = Traces::default();
    for pause in TURNS {
        for unlocks in [true, false] {
            let name = format!("dropped:{pause}:{unlocks}");
            let guard = hold(&scene.client.lock(&name)).await;
            let next = Waiter::first(&scene, &name, LOCK).await;
            let unlocked = if unlocks {
                Some(unlocking(guard))
            } else {
                drop(guard);
                None
            };
            assert!(next.task.is_woken(), "nobody handed it the lock");
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
        let guard = hold(&scene.client.lock(&name)).await;
        let next = Waiter::first(&scene, &name, LOCK).await;
        let mut behind = Waiter::behind(&scene.client, &name, LOCK);
        drop(guard);
        turns(pause).await;
        drop(next);
        let guard = behind.waits().await;
        release(guard).await;
        scene.until_gone(&name).await;
    }
}

#[tokio::test]
async fn an_unlock_and_a_waiter_dropped_anywhere_leave_the_name_free() {
    let scene = Scene::new().await;
    let other = scene.other().await;
    let mut traces = Traces::default();
    for pause in TURNS {
        for polls in 0.. {
            assert!(polls < MANY, "unlock does not complete");
            let name = format!("anywhere:{pause}:{polls}");
            let guard = hold(&scene.client.lock(&name)).await;
            let next = Waiter::first(&scene, &name, LOCK).await;
            let mut steps = Steps::new(guard.unlock());
            let done = steps.take(polls).await;
            turns(pause).await;
            drop(steps);
            // Not even polled, it was not begun: then its guard is dropped with it.
            assert!(next.task.is_woken(), "{name}: nobody handed it the lock");
            drop(next);
            traces.until_free(&other, &name).await;
            if let Some(done) = done {
                done.expect("unlocking");
                break;
            }
        }
    }
    traces.were_short(&scene.server);
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
async fn a_whole_line_dropped_while_a_hand_off_is_on_its_way_leaves_the_name_free() {
    let scene = Scene::new().await;
    let other = scene.other().await;
    let guard = hold(&scene.client.lock("line")).await;
    let first = Waiter::first(&scene, "line", FOR_A_MINUTE).await;
    let line: Vec<_> = (0..20).map(|_| Waiter::behind(&scene.client, "line", LOCK)).collect();
    let held = scene.hold_scripts();
    drop(guard);
    scene.until_held(held).await;
    drop(first);
    drop(line);
    scene.proxy.let_go();
    scene.until_gone("line").await;
    assert!(is_free(&other, "line").await);
}

#[tokio::test]
async fn the_lock_of_a_call_that_is_never_polled_again_ends_with_its_lease() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(900))).await;
    let other = scene.other().await;
    let guard = hold(&scene.client.lock("idle")).await;
    let mut next = Waiter::first(&scene, "idle", LOCK).await;
    drop(guard);
    let theirs = soon("the end of the lease", other.lock("idle").lock()).await.expect("locking");
    // Polled after all it waits for its turn again, and is given no lock that is lost.
    assert!(next.task.is_woken() && next.task.poll().is_pending(), "it was given a lost lock");
    assert!(!theirs.is_lost());
    release(theirs).await;
    let guard = next.gets().await;
    assert!(!guard.is_lost());
    release(guard).await;
    scene.until_gone("idle").await;
}
