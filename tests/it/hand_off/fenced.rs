//! Fenced locks are handed off, too, while the client has tokens left: it draws them in blocks. And a
//! full memory, which may refuse the tokens and nothing else.

use super::*;
use crate::support::tokens::{assert_growing, fence, next_token, open};

/// The least that a client draws for its waiters.
const BLOCK: usize = 64;

type Fencing = Spawn<BoxFuture<'static, Result<FencedLockGuard, Error>>>;

fn fencing(scene: &Scene, name: &str) -> Fencing {
    let lock = scene.client.fenced_lock(name);
    task::spawn(async move { lock.lock().await }.boxed())
}

/// Parks the first waiter of a name that somebody of the same client holds.
async fn parked(scene: &Scene, name: &str) -> Fencing {
    let mut waiter = fencing(scene, name);
    park(&scene.server, name, &mut waiter).await;
    waiter
}

/// Stands behind a parked one.
fn behind(scene: &Scene, name: &str) -> Fencing {
    let mut waiter = fencing(scene, name);
    assert!(waiter.poll().is_pending());
    waiter
}

async fn gets(waiter: Fencing) -> FencedLockGuard {
    soon("its turn", waiter).await.expect("the lock")
}

/// The first of several waiters, which has drawn a block of tokens for the others.
async fn drawn(scene: &Scene, name: &str, others: usize) -> (FencedLockGuard, Vec<Fencing>) {
    let guard = fence(&scene.client.fenced_lock(name)).await;
    let first = parked(scene, name).await;
    let line = (0..others).map(|_| behind(scene, name)).collect();
    let token = open(guard).await;
    let guard = gets(first).await;
    assert!(guard.token() > token);
    (guard, line)
}

fn fill(server: &Server) {
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = server.try_ask::<()>(&["SET", "filler", "1"]).expect_err("memory is full");
    assert_eq!(error.code(), Some("OOM"), "{error}");
}

#[tokio::test]
async fn no_hand_off_awaits_a_token_while_the_block_lasts() {
    let scene = Scene::new().await;
    let (mut guard, line) = drawn(&scene, "block", BLOCK / 2).await;
    let owner = guard.owner().to_owned();
    // Nothing is answered any more.
    scene.hold_scripts();
    for mut waiter in line {
        let token = guard.token();
        drop(guard);
        assert!(waiter.is_woken(), "nobody handed it the lock");
        let Poll::Ready(granted) = waiter.poll() else { panic!("it awaits a token") };
        guard = granted.expect("the lock");
        assert_eq!(guard.owner(), owner);
        assert!(guard.token() > token && !guard.is_lost());
    }
    scene.proxy.let_go();
    open(guard).await;
    scene.until_gone("block").await;
}

#[tokio::test]
async fn a_client_draws_more_tokens_before_its_block_is_used_up() {
    let scene = Scene::new().await;
    let (mut guard, mut line) = drawn(&scene, "more", 1).await;
    let owner = guard.owner().to_owned();
    let mut tokens = vec![guard.token()];
    for turn in 1..=3 * BLOCK {
        line.push(behind(&scene, "more"));
        // To confirm one takes a request, with which it draws tokens if need be.
        if turn % (BLOCK / 4) == 0 {
            open(guard).await;
        } else {
            drop(guard)
        }
        guard = gets(line.remove(0)).await;
        assert_eq!(guard.owner(), owner, "it was not handed off: turn {turn}");
        tokens.push(guard.token());
    }
    drop(line);
    open(guard).await;
    // What is left of the block is not for anybody else.
    tokens.push(next_token(&scene.other().await.fenced_lock("more")).await);
    assert_growing(&tokens);
    scene.until_gone("more").await;
}

#[tokio::test]
async fn a_full_memory_refuses_a_fenced_hand_off_and_the_lock_is_released() {
    let scene = Scene::new().await;
    for unlocks in [true, false] {
        let name = format!("refused:{unlocks}");
        let guard = fence(&scene.client.fenced_lock(&name)).await;
        let next = parked(&scene, &name).await;
        let before = scene.server.errors_in_scripts("OOM");
        fill(&scene.server);
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
        scene.server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        next_token(&scene.client.fenced_lock(&name)).await;
    }
}

#[tokio::test]
async fn a_full_memory_lets_a_plain_hand_off_through() {
    let scene = Scene::new().await;
    let (guard, mut next) = scene.pair("full", LOCK).await;
    let mut last = Waiter::behind(&scene.client, "full", FOR_A_MINUTE);
    fill(&scene.server);
    let owner = guard.owner().to_owned();
    release(guard).await;
    release(next.has()).await;
    scene.until_kept_for("full", ms(50_000)).await;
    scene.assert_held("full", &owner);
    release(last.has()).await;
    assert!(!scene.server.exists("full"));
}
