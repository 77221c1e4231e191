//! A head that asks Redis for the first time cannot be handed the lock, because its own request may
//! get it. Those behind it are handed the lock meanwhile: else the lock would be idle for a round trip.

use super::*;

/// A lock that is held, a head whose request does not reach the server, and a waiter behind it.
struct Line {
    scene: Far,
    guard: LockGuard,
    head: Waiter,
    behind: Waiter,
}

impl Line {
    async fn of(name: &str, take: Take) -> Self {
        let scene = scene(|options| options).await;
        let guard = hold(&scene.client.lock(name)).await;
        let refused = scene.server.calls("evalsha") + 1;
        let mut head = Waiter::of(scene.client.lock(name), LOCK);
        assert!(head.task.poll().is_pending());
        let is_refused = || scene.server.calls("evalsha") == refused;
        wait_until("Redis refuses the call", SOON, is_refused).await;
        // It asks once more when its client is subscribed.
        head.until_it_asks(&scene).await;
        let behind = Waiter::behind(&scene.client, name, take);
        Self { scene, guard, head, behind }
    }
}

/// The head has its turn before the one behind it, although it was not handed the lock.
async fn comes_first<T>(mut head: Waiter, behind: impl Future<Output = T>) {
    let guard = tokio::select! {
        guard = head.waits() => guard,
        _ = behind => panic!("it came after the head"),
    };
    release(guard).await;
}

impl Waiter {
    /// Waits until it has asked Redis, and its request is held up.
    async fn until_it_asks(&mut self, scene: &Far) {
        let since = scene.hold_scripts();
        let asks = || {
            if self.task.is_woken() {
                assert!(self.task.poll().is_pending(), "the lock was free");
            }
            scene.proxy.held() > since
        };
        wait_until("its request", SOON, asks).await;
    }
}

#[tokio::test]
async fn while_the_head_asks_the_lock_goes_to_the_waiter_behind_it() {
    let Line { scene, guard, head, mut behind } = Line::of("passed", LOCK).await;
    let owner = guard.owner().to_owned();
    drop(guard);
    let guard = behind.has();
    assert!(!guard.is_lost());
    assert_eq!(guard.owner(), owner);
    scene.proxy.let_go();
    release(guard).await;
    scene.ends(head.gets().await).await;
}

#[tokio::test]
async fn a_head_that_asks_again_is_not_passed_again() {
    let Line { scene, guard, mut head, mut behind } = Line::of("again", LOCK).await;
    let refused = scene.server.calls("evalsha") + 1;
    scene.proxy.let_go();
    let is_refused = || scene.server.calls("evalsha") == refused;
    wait_until("Redis refuses the head", SOON, is_refused).await;
    scene.server.ask::<()>(&["PUBLISH", "redisson_lock__channel:{again}", "0"]);
    head.until_it_asks(&scene).await;
    drop(guard);
    assert!(!behind.task.is_woken(), "it passed a head that had asked before");
    scene.proxy.let_go();
    comes_first(head, behind.waits()).await;
    scene.ends(behind.waits().await).await;
}

#[tokio::test]
async fn nobody_passes_the_head_whose_lease_could_end_before_the_head_hears_of_it() {
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(2_500)).await }.boxed();
    let Line { scene, guard, head, mut behind } = Line::of("brief", brief).await;
    drop(guard);
    assert!(!behind.task.is_woken(), "the head may sleep through the end of this lease");
    scene.proxy.let_go();
    comes_first(head, behind.waits()).await;
    scene.ends(behind.waits().await).await;
}

#[tokio::test]
async fn nobody_who_needs_a_token_of_redis_passes_the_head() {
    let Line { scene, guard, head, behind } = Line::of("token", LOCK).await;
    drop(behind);
    let fenced = scene.client.fenced_lock("token");
    let mut behind = task::spawn(fenced.lock().boxed());
    assert!(behind.poll().is_pending());
    drop(guard);
    scene.proxy.let_go();
    comes_first(head, &mut behind).await;
    let guard = soon("its turn", behind).await.expect("the lock");
    soon("unlocking", guard.unlock()).await.expect("unlocking");
    scene.until_gone("token").await;
}
