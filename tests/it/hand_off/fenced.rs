//! Fenced locks are handed off, too: the new holder waits for its token. And a full memory, which
//! may refuse the token and nothing else.

use redlatch::{FencedLock, FencedLockGuard};

use super::*;
use crate::support::machine::passed;

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

async fn fence(lock: &FencedLock) -> FencedLockGuard {
    soon("locking", lock.lock()).await.expect("locking")
}

fn counter(server: &Server, name: &str) -> u64 {
    server.ask(&["GET", &format!("redisson_lock_token:{{{name}}}")])
}

fn fill(server: &Server) {
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = server.try_ask::<()>(&["SET", "filler", "1"]).expect_err("memory is full");
    assert_eq!(error.code(), Some("OOM"), "{error}");
}

#[tokio::test]
async fn tokens_grow_along_hand_offs() {
    let scene = Scene::new().await;
    let mut tokens = Vec::new();
    let guard = fence(&scene.client.fenced_lock("tokens")).await;
    tokens.push(guard.token());
    let first = parked(&scene, "tokens").await;
    let mut line = vec![first];
    for _ in 0..10 {
        let mut waiter = fencing(scene.client.fenced_lock("tokens"));
        assert!(waiter.poll().is_pending());
        line.push(waiter);
    }
    let before = scene.server.calls("hdel");
    soon("unlocking", guard.unlock()).await.expect("unlocking");
    for waiter in line {
        let guard = soon("its turn", waiter).await.expect("the lock");
        assert_eq!(counter(&scene.server, "tokens"), guard.token().get());
        tokens.push(guard.token());
        soon("unlocking", guard.unlock()).await.expect("unlocking");
    }
    assert_eq!(scene.server.calls("hdel"), before + 11, "it was not handed off");
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "not growing: {tokens:?}");
    scene.until_gone("tokens").await;
}

#[tokio::test]
async fn the_next_holder_of_a_fenced_lock_waits_for_its_token() {
    let scene = Scene::new().await;
    let guard = fence(&scene.client.fenced_lock("awaited")).await;
    let token = guard.token();
    let mut next = parked(&scene, "awaited").await;
    let held = scene.hold_scripts();
    drop(guard);
    scene.until_held(held).await;
    for _ in 0..20 {
        assert!(next.poll().is_pending(), "nobody can know its token");
        tokio::time::sleep(ms(3)).await;
    }
    scene.proxy.let_go();
    let guard = soon("its turn", next).await.expect("the lock");
    assert!(guard.token() > token);
    assert!(guard.remaining() > ms(20_000));
    soon("unlocking", guard.unlock()).await.expect("unlocking");
    scene.until_gone("awaited").await;
}

#[tokio::test]
async fn a_waiter_dropped_while_its_token_is_on_its_way_gives_the_lock_back() {
    let scene = Scene::new().await;
    for behind in [false, true] {
        let name = format!("declined:{behind}");
        let guard = fence(&scene.client.fenced_lock(&name)).await;
        let next = parked(&scene, &name).await;
        let behind = behind.then(|| {
            let mut waiter = fencing(scene.client.fenced_lock(&name));
            assert!(waiter.poll().is_pending());
            waiter
        });
        let held = scene.hold_scripts();
        drop(guard);
        scene.until_held(held).await;
        drop(next);
        let start = Instant::now();
        scene.proxy.let_go();
        if let Some(behind) = behind {
            let guard = soon("its turn", behind).await.expect("the lock");
            soon("unlocking", guard.unlock()).await.expect("unlocking");
        }
        scene.until_gone(&name).await;
        let took = passed(start);
        assert!(took < ms(1_500), "it took {took:?}");
    }
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
    soon("unlocking", guard.unlock()).await.expect("a hand-off needs no memory");
    assert_eq!(scene.owners("full"), [next.owner()]);
    release(next.has()).await;
    assert_eq!(scene.owners("full"), [last.owner()]);
    assert!(scene.server.pttl("full") > 50_000);
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
    assert!(scene.server.calls("hdel") > 60, "it was hardly ever handed off");
    scene.until_gone("mixed").await;
}
