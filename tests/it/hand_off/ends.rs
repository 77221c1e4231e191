//! In which ways a holder gives the lock back, and where.

use super::*;

#[tokio::test]
async fn a_handle_that_gives_the_lock_back_and_asks_again_at_once_comes_after_the_next() {
    let scene = scene(|options| options).await;
    let lock = Arc::new(scene.client.lock("again"));
    let guard = hold(&lock).await;
    let owner = guard.owner().to_owned();
    let mut next = Waiter::first(&scene, "again", LOCK).await;
    drop(guard);
    // The possession goes on, and this handle is not inside any more.
    let mut again = task::spawn(lock.lock());
    assert!(again.poll().is_pending(), "it overtook the next in line");
    let guard = next.has();
    assert_eq!(guard.owner(), owner);
    assert_eq!(lock.hold_count().await.unwrap(), 0, "it counts the hold of another");
    assert!(again.poll().is_pending());
    drop(guard);
    let guard = soon("its turn", again).await.expect("the lock");
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    scene.assert_held("again", guard.owner());
    scene.ends(guard).await;
}

/// A lock that was handed off, of which Redis has not heard, and a sibling that waits to nest.
async fn with_sibling(scene: &Far, name: &str) -> (LockGuard, Spawn<Taking>) {
    let (guard, mut next) = scene.pair(name, FOR_A_MINUTE).await;
    let mut sibling = task::spawn(LOCK(next.lock.clone()));
    assert!(sibling.poll().is_pending());
    let held = scene.hold_scripts();
    drop(guard);
    let outer = next.has();
    scene.until_held(held).await;
    (outer, sibling)
}

#[tokio::test]
async fn a_sibling_of_the_next_in_line_nests_in_the_same_possession() {
    let scene = scene(|options| options).await;
    let (outer, mut sibling) = with_sibling(&scene, "siblings").await;
    let owner = outer.owner().to_owned();
    for _ in 0..10 {
        assert!(sibling.poll().is_pending(), "Redis has not counted the inner hold");
        tokio::time::sleep(ms(3)).await;
    }
    scene.proxy.let_go();
    let inner = soon("nesting", sibling).await.expect("the lock");
    assert_eq!(scene.server.holds("siblings"), [(owner.clone(), 2)].into());
    assert_eq!(inner.owner(), owner);
    release(outer).await;
    assert!(!inner.is_lost());
    scene.assert_held("siblings", &owner);
    scene.ends(inner).await;
}

#[tokio::test]
async fn a_sibling_that_nests_while_its_waiter_is_handed_the_lock_is_renewed() {
    let scene = scene(|options| options.watchdog_timeout(ms(2_400))).await;
    let (outer, mut sibling) = with_sibling(&scene, "renewed").await;
    assert!(sibling.poll().is_pending(), "it waits to nest");
    drop(outer);
    scene.proxy.let_go();
    let inner = soon("nesting", sibling).await.expect("the lock");
    let until = || Instant::now() + inner.remaining();
    let first = until();
    wait_until("a renewal", SOON, || inner.is_lost() || until() > first + ms(200)).await;
    assert!(!inner.is_lost());
    scene.ends(inner).await;
}

/// Gives a lock back when it is woken, as an executor may that drops what it has finished.
struct GivesBack(std::sync::Mutex<Option<LockGuard>>);

impl std::task::Wake for GivesBack {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[tokio::test]
async fn a_waker_may_give_another_lock_back() {
    let scene = scene(|options| options).await;
    let (guard, mut next) = scene.pair("one", LOCK).await;
    let (other, others_next) = scene.pair("other", LOCK).await;
    // It becomes the head of its line by the hand-off to the one before it, and is woken for that.
    let behind = scene.client.lock("one");
    let mut behind = Box::pin(behind.lock());
    let waker = Arc::new(GivesBack(Some(other).into()));
    let polled = behind.as_mut().poll(&mut std::task::Context::from_waker(&waker.clone().into()));
    assert!(polled.is_pending());
    let dropping = std::thread::spawn(move || drop(guard));
    let start = Instant::now();
    while !dropping.is_finished() && start.elapsed() < SOON {
        tokio::time::sleep(ms(2)).await;
    }
    if !dropping.is_finished() {
        // Whatever is dropped now would wait for the same mutex.
        std::mem::forget((scene, next, others_next, behind));
        panic!("a waker was called under a mutex");
    }
    // By the thread that drops, or soon after it by the client's own.
    wait_until("it is woken", SOON, || waker.0.lock().unwrap().is_none()).await;
    release(others_next.gets().await).await;
    release(next.has()).await;
    scene.ends(soon("its turn", behind).await.expect("the lock")).await;
    scene.until_gone("other").await;
}

#[tokio::test]
async fn close_waits_until_hand_offs_are_confirmed_and_leaves_nothing_behind() {
    let scene = scene(|options| options).await;
    let (guard, mut next) = scene.pair("closed", LOCK).await;
    let mut last = Waiter::behind(&scene.client, "closed", FOR_A_MINUTE);
    let waits = Waiter::behind(&scene.client, "closed", LOCK);
    let held = scene.hold_scripts();
    drop(guard);
    drop(next.has());
    scene.until_held(held).await;
    let client = scene.client.clone();
    let mut closing = task::spawn(client.close());
    for _ in 0..20 {
        assert!(closing.poll().is_pending(), "Redis has not heard of it");
        tokio::time::sleep(ms(3)).await;
    }
    let error = soon("the answer", waits.task).await.expect_err("the client is closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    scene.proxy.let_go();
    soon("closing", closing).await;
    assert!(scene.server.pttl("closed") > 50_000, "closed before it was confirmed");
    // It was handed the lock before the client was closed.
    let guard = last.has();
    release(guard).await;
    assert!(!scene.server.exists("closed"));
}

#[tokio::test]
async fn a_waiter_that_goes_after_the_client_was_closed_gives_back_what_it_was_handed() {
    let scene = scene(|options| options).await;
    let (guard, next) = scene.pair("late", LOCK).await;
    let owner = guard.owner().to_owned();
    drop(guard);
    soon("closing", scene.client.close()).await;
    scene.assert_held("late", &owner);
    drop(next);
    scene.until_gone("late").await;
}
