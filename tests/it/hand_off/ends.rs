//! In which ways a holder gives the lock back, and where.

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[tokio::test]
async fn a_guard_dropped_in_a_thread_without_a_runtime_hands_the_lock_over() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("thread")).await;
    let owner = guard.owner().to_owned();
    let mut next = Waiter::first(&scene, "thread", FOR_A_MINUTE).await;
    std::thread::spawn(move || drop(guard)).join().expect("a drop never panics");
    let guard = next.has();
    scene.until_kept_for("thread", ms(50_000)).await;
    scene.assert_held("thread", &owner);
    release(guard).await;
    scene.until_gone("thread").await;
}

#[tokio::test]
async fn a_guard_goes_back_in_another_runtime_and_its_successor_is_in_a_third() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("runtimes")).await;
    let owner = guard.owner().to_owned();
    let mut next = Waiter::first(&scene, "runtimes", LOCK).await;
    let last = scene.client.lock("runtimes");
    let (begun, begins) = std::sync::mpsc::channel();
    let third = std::thread::spawn(move || {
        runtime().block_on(async {
            let mut last = task::spawn(last.lock());
            assert!(last.poll().is_pending());
            begun.send(()).expect("the test waits");
            let guard = soon("its turn", last).await.expect("the lock");
            let owner = guard.owner().to_owned();
            release(guard).await;
            owner
        })
    });
    begins.recv().expect("the third runtime");
    let unlocked =
        std::thread::spawn(move || runtime().block_on(soon("unlocking", guard.unlock())));
    let guard = {
        wait_until("it is handed the lock", SOON, || next.task.is_woken()).await;
        next.has()
    };
    wait_until("the unlock ends", SOON, || unlocked.is_finished()).await;
    unlocked.join().unwrap().expect("unlocking");
    assert!(!third.is_finished());
    assert_eq!(guard.owner(), owner, "it was not handed off");
    drop(guard);
    wait_until("the third has had it", SOON, || third.is_finished()).await;
    assert_eq!(third.join().expect("the third runtime"), owner, "it was not handed off");
    scene.until_gone("runtimes").await;
}

#[tokio::test]
async fn only_the_last_of_nested_holds_hands_the_lock_over() {
    let scene = Scene::new().await;
    let lock = scene.client.lock("nested");
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    let owner = outer.owner().to_owned();
    let mut next = Waiter::first(&scene, "nested", LOCK).await;
    release(inner).await;
    assert!(!next.task.is_woken() && next.task.poll().is_pending());
    scene.assert_held("nested", &owner);
    // Two more, of which Redis has not heard that the first has gone.
    let inner = hold(&lock).await;
    let held = scene.hold_scripts();
    drop(outer);
    scene.until_held(held).await;
    drop(inner);
    scene.proxy.let_go();
    let guard = next.gets().await;
    wait_until("one hold", SOON, || scene.server.holds("nested").into_values().eq([1])).await;
    scene.assert_held("nested", guard.owner());
    release(guard).await;
    scene.until_gone("nested").await;
}

#[tokio::test]
async fn a_lock_counted_twice_for_the_old_holder_counts_once_for_the_new() {
    let scene = Scene::new().await;
    let mut handed = false;
    for round in 0.. {
        let name = format!("twice:{round}");
        let lock = scene.client.lock(&name);
        let (outer, inner) = (hold(&lock).await, hold(&lock).await);
        let owner = outer.owner().to_owned();
        let next = Waiter::first(&scene, &name, LOCK).await;
        assert_eq!(scene.server.holds(&name), [(owner.clone(), 2)].into());
        // Both at once: but the release of the first may be under way when the second one goes. Then the
        // same request goes on to free the lock.
        drop((outer, inner));
        let guard = next.gets().await;
        let one = || scene.server.holds(&name).into_values().eq([1]);
        wait_until("one hold", SOON, one).await;
        scene.assert_held(&name, guard.owner());
        handed |= guard.owner() == owner;
        release(guard).await;
        scene.until_gone(&name).await;
        if handed {
            break;
        }
        assert!(round < 200, "it was never handed off");
    }
}

#[tokio::test]
async fn a_handle_that_gives_the_lock_back_and_asks_again_at_once_comes_after_the_next() {
    let scene = Scene::new().await;
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
    release(guard).await;
    scene.until_gone("again").await;
}

#[tokio::test]
async fn a_sibling_of_the_next_in_line_nests_in_the_same_possession() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("siblings")).await;
    let owner = guard.owner().to_owned();
    let mut next = Waiter::first(&scene, "siblings", FOR_A_MINUTE).await;
    let lock = next.lock.clone();
    let mut sibling = task::spawn(lock.lock());
    assert!(sibling.poll().is_pending());
    let held = scene.hold_scripts();
    drop(guard);
    let outer = next.has();
    drop(next);
    scene.until_held(held).await;
    for _ in 0..10 {
        assert!(sibling.poll().is_pending(), "Redis has not counted the inner hold");
        tokio::time::sleep(ms(3)).await;
    }
    scene.proxy.let_go();
    let inner = soon("nesting", sibling).await.expect("the lock");
    assert_eq!(scene.server.holds("siblings"), [(owner.clone(), 2)].into());
    assert!([outer.owner(), inner.owner()] == [&owner, &owner]);
    release(outer).await;
    assert!(!inner.is_lost());
    scene.assert_held("siblings", &owner);
    release(inner).await;
    scene.until_gone("siblings").await;
}

#[tokio::test]
async fn a_sibling_that_nests_while_its_waiter_is_handed_the_lock_is_renewed() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(900))).await;
    let guard = hold(&scene.client.lock("renewed")).await;
    let mut next = Waiter::first(&scene, "renewed", FOR_A_MINUTE).await;
    let lock = next.lock.clone();
    let mut sibling = task::spawn(lock.lock());
    assert!(sibling.poll().is_pending());
    let held = scene.hold_scripts();
    drop(guard);
    let outer = next.has();
    drop(next);
    scene.until_held(held).await;
    assert!(sibling.poll().is_pending(), "it waits to nest");
    drop(outer);
    scene.proxy.let_go();
    let inner = soon("nesting", sibling).await.expect("the lock");
    let until = || Instant::now() + inner.remaining();
    let first = until();
    wait_until("a renewal", SOON, || inner.is_lost() || until() > first + ms(200)).await;
    assert!(!inner.is_lost());
    release(inner).await;
    scene.until_gone("renewed").await;
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
    let scene = Scene::new().await;
    let [guard, other] =
        [hold(&scene.client.lock("one")).await, hold(&scene.client.lock("other")).await];
    let mut next = Waiter::first(&scene, "one", LOCK).await;
    let others_next = Waiter::first(&scene, "other", LOCK).await;
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
    release(soon("its turn", behind).await.expect("the lock")).await;
    scene.until_gone("one").await;
    scene.until_gone("other").await;
}

#[tokio::test]
async fn close_waits_until_hand_offs_are_confirmed_and_leaves_nothing_behind() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("closed")).await;
    let mut next = Waiter::first(&scene, "closed", LOCK).await;
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
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("late")).await;
    let owner = guard.owner().to_owned();
    let next = Waiter::first(&scene, "late", LOCK).await;
    drop(guard);
    soon("closing", scene.client.close()).await;
    scene.assert_held("late", &owner);
    drop(next);
    scene.until_gone("late").await;
}
