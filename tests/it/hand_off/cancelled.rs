//! A waiter goes, or is not polled any more, just as it is handed the lock.

use super::*;
use crate::cancellation::{TURNS, Traces};

#[tokio::test]
async fn a_waiter_dropped_with_the_lock_in_its_hands_gives_it_back() {
    let scene = scene(|options| options).await;
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
    let scene = scene(|options| options).await;
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
async fn the_lock_of_a_call_that_is_never_polled_again_ends_with_its_lease() {
    let scene = scene(|options| options.watchdog_timeout(ms(1_500))).await;
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
