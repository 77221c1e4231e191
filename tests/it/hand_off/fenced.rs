//! A full memory may refuse the tokens of a fenced hand-off, and nothing else.

use super::*;
use crate::support::tokens::{fence, next_token, open};

type Fencing = Spawn<BoxFuture<'static, Result<FencedLockGuard, Error>>>;

fn fencing(scene: &Far, name: &str) -> Fencing {
    let lock = scene.client.fenced_lock(name);
    task::spawn(async move { lock.lock().await }.boxed())
}

/// Parks the first waiter of a name that somebody of the same client holds.
async fn parked(scene: &Far, name: &str) -> Fencing {
    let mut waiter = fencing(scene, name);
    park(&scene.server, name, &mut waiter).await;
    waiter
}

#[tokio::test]
async fn a_full_memory_refuses_a_fenced_hand_off_and_the_lock_is_released() {
    let scene = scene(|options| options).await;
    for unlocks in [true, false] {
        let name = format!("refused:{unlocks}");
        let guard = fence(&scene.client.fenced_lock(&name)).await;
        let next = parked(&scene, &name).await;
        let before = scene.server.errors_in_scripts("OOM");
        scene.server.fill();
        if unlocks {
            open(guard).await;
            assert!(!scene.server.exists(&name), "it says that it has released the lock");
        } else {
            drop(guard);
        }
        let error = soon("the refusal", next).await.expect_err("no memory for the token");
        assert_eq!(error.kind(), ErrorKind::Server, "{error}");
        assert!(scene.server.errors_in_scripts("OOM") > before);
        scene.until_gone(&name).await;
        scene.server.make_room();
        next_token(&scene.client.fenced_lock(&name)).await;
    }
}

#[tokio::test]
async fn a_full_memory_lets_a_plain_hand_off_through() {
    let scene = scene(|options| options).await;
    let (guard, mut next) = scene.pair("full", LOCK).await;
    let mut last = Waiter::behind(&scene.client, "full", FOR_A_MINUTE);
    scene.server.fill();
    let owner = guard.owner().to_owned();
    release(guard).await;
    release(next.has()).await;
    scene.until_kept_for("full", ms(50_000)).await;
    scene.assert_held("full", &owner);
    release(last.has()).await;
    assert!(!scene.server.exists("full"));
}
