//! Fenced locks are handed off, too, while the client has tokens left: it draws them in blocks. And a
//! full memory, which may refuse the tokens and nothing else.

use super::*;

/// The least that a client draws for its waiters.
const BLOCK: usize = 64;

type Fencing = Spawn<BoxFuture<'static, Result<FencedLockGuard, Error>>>;

fn fencing(lock: FencedLock) -> Fencing {
    task::spawn(async move { lock.lock().await }.boxed())
}

/// Parks the first waiter of a name that somebody of the same client holds.
async fn parked(scene: &Scene, name: &str) -> Fencing {
    let mut waiter = fencing(scene.client.fenced_lock(name));
    park(&scene.server, name, &mut waiter).await;
    waiter
}

/// Stands behind a parked one.
fn behind(scene: &Scene, name: &str) -> Fencing {
    let mut waiter = fencing(scene.client.fenced_lock(name));
    assert!(waiter.poll().is_pending());
    waiter
}

async fn gets(waiter: Fencing) -> FencedLockGuard {
    soon("its turn", waiter).await.expect("the lock")
}

async fn unlock(guard: FencedLockGuard) {
    soon("unlocking", guard.unlock()).await.expect("unlocking");
}

/// The first of several waiters, which has drawn a block of tokens for the others.
async fn drawn(scene: &Scene, name: &str, others: usize) -> (FencedLockGuard, Vec<Fencing>) {
    let guard = fence(&scene.client.fenced_lock(name)).await;
    let first = parked(scene, name).await;
    let line = (0..others).map(|_| behind(scene, name)).collect();
    let token = guard.token();
    unlock(guard).await;
    let guard = gets(first).await;
    assert!(guard.token() > token);
    (guard, line)
}

async fn fence(lock: &FencedLock) -> FencedLockGuard {
    soon("locking", lock.lock()).await.expect("locking")
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
    unlock(guard).await;
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
            unlock(guard).await
        } else {
            drop(guard)
        }
        guard = gets(line.remove(0)).await;
        assert_eq!(guard.owner(), owner, "it was not handed off: turn {turn}");
        tokens.push(guard.token());
    }
    drop(line);
    unlock(guard).await;
    // What is left of the block is not for anybody else.
    let other = scene.other().await;
    let guard = fence(&other.fenced_lock("more")).await;
    tokens.push(guard.token());
    unlock(guard).await;
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "not growing: {tokens:?}");
    scene.until_gone("more").await;
}

#[tokio::test]
async fn a_full_memory_lets_fenced_hand_offs_through_while_tokens_are_left() {
    let scene = Scene::new().await;
    let (mut guard, line) = drawn(&scene, "left", 5).await;
    let owner = guard.owner().to_owned();
    fill(&scene.server);
    for waiter in line {
        unlock(guard).await;
        guard = gets(waiter).await;
        assert_eq!(guard.owner(), owner, "it was not handed off");
    }
    unlock(guard).await;
    assert!(!scene.server.exists("left"));
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
            soon("unlocking", guard.unlock()).await.expect("a release needs no memory");
            assert!(!scene.server.exists(&name), "it says that it has released the lock");
        } else {
            drop(guard);
        }
        let error = soon("the refusal", next).await.expect_err("no memory for the token");
        assert_eq!(error.kind(), ErrorKind::Server, "{error}");
        assert!(scene.server.errors_in_scripts("OOM") > before);
        scene.until_gone(&name).await;
        scene.server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        let guard = fence(&scene.client.fenced_lock(&name)).await;
        soon("unlocking", guard.unlock()).await.expect("unlocking");
    }
}

#[tokio::test]
async fn a_full_memory_lets_a_plain_hand_off_through() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("full")).await;
    let mut next = Waiter::first(&scene, "full", LOCK).await;
    let mut last = Waiter::behind(&scene.client, "full", FOR_A_MINUTE);
    fill(&scene.server);
    let owner = guard.owner().to_owned();
    soon("unlocking", guard.unlock()).await.expect("a hand-off needs no memory");
    release(next.has()).await;
    scene.until_kept_for("full", ms(50_000)).await;
    scene.assert_held("full", &owner);
    release(last.has()).await;
    assert!(!scene.server.exists("full"));
}

#[tokio::test]
async fn fenced_and_plain_handles_of_one_name_stand_in_one_line() {
    let scene = Scene::new().await;
    let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            let (plain, fenced) = (scene.client.lock("mixed"), scene.client.fenced_lock("mixed"));
            let tokens = tokens.clone();
            tokio::spawn(async move {
                for _ in 0..30 {
                    if number % 2 == 0 {
                        release(hold(&plain).await).await;
                        continue;
                    }
                    let guard = fence(&fenced).await;
                    tokens.lock().unwrap().push(guard.token());
                    tokio::task::yield_now().await;
                    soon("unlocking", guard.unlock()).await.expect("unlocking");
                }
            })
        })
        .collect();
    for task in tasks {
        soon("all turns", task).await.unwrap();
    }
    let tokens = std::mem::take(&mut *tokens.lock().unwrap());
    assert_eq!(tokens.len(), 90);
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "not growing: {tokens:?}");
    assert!(scene.server.calls("hset") < 150, "it was hardly ever handed off");
    scene.until_gone("mixed").await;
}
