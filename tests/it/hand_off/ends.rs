//! In which ways a holder gives the lock back, and where.

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[tokio::test]
async fn a_guard_dropped_in_a_thread_without_a_runtime_hands_the_lock_over() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("thread")).await;
    let mut next = Waiter::first(&scene, "thread", LOCK).await;
    let before = scene.server.calls("hdel");
    std::thread::spawn(move || drop(guard)).join().expect("a drop never panics");
    let guard = next.has();
    scene.until_owned("thread", next.owner()).await;
    assert_eq!(scene.server.calls("hdel"), before + 1, "it was not handed off");
    release(guard).await;
    scene.until_gone("thread").await;
}

#[tokio::test]
async fn a_guard_goes_back_in_another_runtime_and_its_successor_is_in_a_third() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("runtimes")).await;
    let mut next = Waiter::first(&scene, "runtimes", LOCK).await;
    let last = scene.client.lock("runtimes");
    let (begun, begins) = std::sync::mpsc::channel();
    let third = std::thread::spawn(move || {
        runtime().block_on(async {
            let mut last = task::spawn(last.lock());
            assert!(last.poll().is_pending());
            begun.send(()).expect("the test waits");
            let guard = soon("its turn", last).await.expect("the lock");
            release(guard).await;
        });
    });
    begins.recv().expect("the third runtime");
    let before = scene.server.calls("hdel");
    let unlocked =
        std::thread::spawn(move || runtime().block_on(soon("unlocking", guard.unlock())));
    let guard = {
        wait_until("it is handed the lock", SOON, || next.task.is_woken()).await;
        next.has()
    };
    wait_until("the unlock ends", SOON, || unlocked.is_finished()).await;
    unlocked.join().unwrap().expect("unlocking");
    assert!(!third.is_finished());
    drop(guard);
    wait_until("the third has had it", SOON, || third.is_finished()).await;
    third.join().expect("the third runtime");
    assert_eq!(scene.server.calls("hdel"), before + 2, "it was not handed off");
    scene.until_gone("runtimes").await;
}

#[tokio::test]
async fn only_the_last_of_nested_holds_hands_the_lock_over() {
    let scene = Scene::new().await;
    let lock = scene.client.lock("nested");
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    let mut next = Waiter::first(&scene, "nested", LOCK).await;
    release(inner).await;
    assert!(!next.task.is_woken() && next.task.poll().is_pending());
    assert_eq!(scene.server.holds("nested"), [(lock.owner().to_owned(), 1)].into());
    // Two more, of which Redis has not heard that the first has gone.
    let inner = hold(&lock).await;
    let held = scene.hold_scripts();
    drop(outer);
    scene.until_held(held).await;
    drop(inner);
    scene.proxy.let_go();
    let guard = next.gets().await;
    assert_eq!(scene.server.holds("nested").len(), 1);
    assert!(!scene.owners("nested").contains(&lock.owner().to_owned()));
    release(guard).await;
    scene.until_gone("nested").await;
}

#[tokio::test]
async fn a_lock_counted_twice_for_the_old_owner_counts_once_for_the_new() {
    let scene = Scene::new().await;
    let lock = scene.client.lock("twice");
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    let next = Waiter::first(&scene, "twice", LOCK).await;
    assert_eq!(scene.server.holds("twice"), [(lock.owner().to_owned(), 2)].into());
    // Both at once: whoever pays for the first may be overtaken by the second.
    drop((outer, inner));
    wait_until("it is handed the lock", SOON, || next.task.is_woken()).await;
    let guard = next.gets().await;
    let last = scene.client.lock("twice");
    assert!(last.try_lock_now().await.unwrap().is_none());
    wait_until("the old owner has gone", SOON, || scene.server.holds("twice").len() == 1).await;
    assert!(scene.server.holds("twice").into_values().eq([1]));
    release(guard).await;
    scene.until_gone("twice").await;
}

#[tokio::test]
async fn a_handle_that_gives_the_lock_back_and_asks_again_at_once_comes_after_the_next() {
    let scene = Scene::new().await;
    let lock = Arc::new(scene.client.lock("again"));
    let guard = hold(&lock).await;
    let mut next = Waiter::first(&scene, "again", LOCK).await;
    let held = scene.hold_scripts();
    drop(guard);
    let mut again = task::spawn(lock.lock());
    assert!(again.poll().is_pending(), "it overtook the next in line");
    let guard = next.has();
    scene.until_held(held).await;
    // Redis has still to hear that the handle gave it back: only then it can have it again.
    drop(guard);
    assert!(again.poll().is_pending());
    scene.proxy.let_go();
    let guard = soon("its turn", again).await.expect("the lock");
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    assert_eq!(scene.owners("again"), [lock.owner()]);
    release(guard).await;
    scene.until_gone("again").await;
}

#[tokio::test]
async fn a_sibling_of_the_next_in_line_nests_when_the_hand_off_is_confirmed() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("siblings")).await;
    let mut next = Waiter::first(&scene, "siblings", LOCK).await;
    let lock = next.lock.clone();
    let mut sibling = task::spawn(lock.lock());
    assert!(sibling.poll().is_pending());
    let held = scene.hold_scripts();
    drop(guard);
    let outer = next.has();
    drop(next);
    scene.until_held(held).await;
    for _ in 0..10 {
        assert!(sibling.poll().is_pending(), "Redis has not heard of the outer hold");
        tokio::time::sleep(ms(3)).await;
    }
    scene.proxy.let_go();
    let inner = soon("nesting", sibling).await.expect("the lock");
    assert_eq!(scene.server.holds("siblings"), [(lock.owner().to_owned(), 2)].into());
    release(outer).await;
    assert!(!inner.is_lost());
    release(inner).await;
    scene.until_gone("siblings").await;
}

#[tokio::test]
async fn two_handles_hand_the_lock_to_and_fro() {
    let scene = Scene::new().await;
    let tasks = [(); 2].map(|()| {
        let lock = scene.client.lock("to and fro");
        tokio::spawn(async move {
            for turn in 0..100 {
                let guard = hold(&lock).await;
                tokio::task::yield_now().await;
                assert!(!guard.is_lost());
                if turn % 2 == 0 { drop(guard) } else { release(guard).await }
            }
        })
    });
    for task in tasks {
        soon("all turns", task).await.unwrap();
    }
    assert!(scene.server.calls("hdel") > 20, "it was hardly ever handed off");
    scene.until_gone("to and fro").await;
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
    let mut last = Waiter::behind(&scene.client, "closed", LOCK);
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
    assert_eq!(scene.owners("closed"), [last.owner()], "closed before it was confirmed");
    // It was handed the lock before the client was closed.
    let guard = last.has();
    release(guard).await;
    assert!(!scene.server.exists("closed"));
}

#[tokio::test]
async fn a_waiter_that_goes_after_the_client_was_closed_gives_back_what_it_was_handed() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("late")).await;
    let next = Waiter::first(&scene, "late", LOCK).await;
    drop(guard);
    soon("closing", scene.client.close()).await;
    assert_eq!(scene.owners("late"), [next.owner()]);
    drop(next);
    scene.until_gone("late").await;
}
