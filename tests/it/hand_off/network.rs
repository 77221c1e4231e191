//! The network fails under the request that tells Redis of a hand-off.

use redlatch::Outcome;

use super::*;
use crate::support::Fault;

/// A client that does not wait long for an answer.
fn impatient(options: LockClientBuilder) -> LockClientBuilder {
    options.command_timeout(ms(400))
}

/// A holder, the next of its client, one behind it, and another client that waits.
struct Crowd {
    scene: Scene,
    name: &'static str,
    holder: Arc<Lock>,
    guard: LockGuard,
    next: Waiter,
    behind: Waiter,
    outside: tokio::task::JoinHandle<LockGuard>,
}

impl Crowd {
    async fn at(scene: Scene, name: &'static str) -> Self {
        let holder = Arc::new(scene.client.lock(name));
        // Less than a waiter asks for: what the new guard is believed for beyond that is confirmed.
        let guard = holder.lock_with_lease(ms(15_000)).await.unwrap();
        let next = Waiter::first(&scene, name, LOCK).await;
        let behind = Waiter::behind(&scene.client, name, LOCK);
        let lock = scene.other().await.lock(name);
        let outside = tokio::spawn(async move { lock.lock().await.expect("the lock") });
        wait_until("another client waits", SOON, || scene.server.subscribers(name) == 2).await;
        Self { scene, name, holder, guard, next, behind, outside }
    }

    /// Gives the lock back while `fault` befalls the hand-off. Returns what `unlock` said, when
    /// the new holder is in Redis; everybody else is served then.
    async fn suffers(self, fault: impl AsyncFnOnce(&Scene)) -> Result<(), Error> {
        let Self { scene, name, guard, mut next, behind, outside, .. } = self;
        let faults = scene.proxy.faults();
        let mut old = unlocking(guard);
        let guard = next.has();
        fault(&scene).await;
        let said = soon("an answer", &mut old).await;
        assert!(scene.proxy.faults() > faults, "the fault did not take effect");
        scene.until_owned(name, next.owner()).await;
        wait_until("the confirmation", SOON, || guard.remaining() > ms(20_000)).await;
        assert!(!outside.is_finished(), "another client got in");
        release(guard).await;
        everybody_is_served(&scene, name, behind, outside).await;
        said
    }
}

async fn everybody_is_served(
    scene: &Scene,
    name: &str,
    behind: Waiter,
    outside: tokio::task::JoinHandle<LockGuard>,
) {
    let (inside, outside) = tokio::join!(async { release(behind.gets().await).await }, async {
        release(soon("their turn", outside).await.unwrap()).await
    },);
    let ((), ()) = (inside, outside);
    scene.until_gone(name).await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_hand_off_is_there_delays_it() {
    let crowd = Crowd::at(Scene::new().await, "reset before").await;
    crowd.scene.proxy.plan("EVALSHA", 1, Fault::ResetBeforeSend);
    crowd.suffers(async |_| {}).await.expect("it is sent again");
}

#[tokio::test]
async fn a_hand_off_whose_answer_is_lost_is_done_once() {
    let crowd = Crowd::at(Scene::new().await, "reset after").await;
    crowd.scene.proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    crowd.suffers(async |_| {}).await.expect("it is sent again");
}

#[tokio::test]
async fn a_hand_off_that_is_held_up_keeps_unlock_waiting_and_nobody_else() {
    let crowd = Crowd::at(Scene::new().await, "held up").await;
    let (name, owner) = (crowd.name, crowd.holder.owner().to_owned());
    let held = crowd.scene.hold_scripts();
    let delay = async |scene: &Scene| {
        scene.until_held(held).await;
        tokio::time::sleep(ms(500)).await;
        assert_eq!(scene.owners(name), [owner]);
        scene.proxy.let_go();
    };
    crowd.suffers(delay).await.expect("it was only late");
}

#[tokio::test]
async fn a_hand_off_that_is_not_answered_is_unknown_to_unlock_and_made_good() {
    for (name, fault) in [("mute", Fault::Mute), ("black hole", Fault::BlackHole)] {
        let crowd = Crowd::at(Scene::with(&[], impatient).await, name).await;
        crowd.scene.proxy.plan("EVALSHA", 1, fault);
        let error = crowd.suffers(async |_| {}).await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
        assert_eq!(error.outcome(), Outcome::Unknown, "{name}: {error}");
    }
}

#[tokio::test]
async fn a_cut_of_all_connections_takes_no_lock_away() {
    let crowd = Crowd::at(Scene::new().await, "cut").await;
    let held = crowd.scene.hold_scripts();
    let cut = async |scene: &Scene| {
        scene.until_held(held).await;
        assert!(scene.proxy.cut_all() > 0);
        scene.proxy.let_go();
    };
    crowd.suffers(cut).await.expect("it is sent again");
}

#[tokio::test]
async fn who_may_have_handed_it_over_before_it_was_gone_is_not_told_of_a_loss() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("may be")).await;
    let mut next = Waiter::first(&scene, "may be", LOCK).await;
    // Carried out, and then sent again: for a moment nobody here knows of it.
    scene.proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    scene.proxy.plan("EVALSHA", 2, Fault::HoldBack);
    let faults = scene.proxy.faults();
    let old = unlocking(guard);
    let guard = next.has();
    scene.until_held(faults + 1).await;
    assert_eq!(scene.owners("may be"), [next.owner()]);
    scene.server.ask::<()>(&["DEL", "may be"]);
    scene.proxy.let_go();
    soon("an answer", old).await.expect("it was given back in time");
    assert_lost(soon("an answer", guard.unlock()).await);
    scene.until_gone("may be").await;
}

#[tokio::test]
async fn nor_is_who_had_it_in_between() {
    let scene = Scene::new().await;
    let first = hold(&scene.client.lock("chain")).await;
    let mut second = Waiter::first(&scene, "chain", LOCK).await;
    let mut third = Waiter::behind(&scene.client, "chain", LOCK);
    let mut fourth = Waiter::behind(&scene.client, "chain", LOCK);
    // While the first hand-off is held up the next two come, and go in one request. Redis carries it
    // out, and has to be asked again.
    scene.proxy.plan("EVALSHA", 1, Fault::HoldBack);
    scene.proxy.plan("EVALSHA", 2, Fault::DropReplyAndReset);
    scene.proxy.plan("EVALSHA", 3, Fault::HoldBack);
    let faults = scene.proxy.faults();
    let first = unlocking(first);
    let guard = second.has();
    scene.until_held(faults).await;
    let second = unlocking(guard);
    let guard = third.waits().await;
    let third = unlocking(guard);
    let guard = fourth.waits().await;
    scene.proxy.let_go();
    scene.until_held(faults + 2).await;
    assert_eq!(scene.owners("chain"), [fourth.owner()]);
    scene.server.ask::<()>(&["DEL", "chain"]);
    scene.proxy.let_go();
    for unlock in [first, second, third] {
        soon("an answer", unlock).await.expect("it was given back in time");
    }
    assert_lost(soon("an answer", guard.unlock()).await);
    scene.until_gone("chain").await;
}

#[tokio::test]
async fn who_handed_on_what_was_gone_before_redis_was_asked_is_told_of_the_loss() {
    let scene = Scene::new().await;
    let first = hold(&scene.client.lock("later")).await;
    let mut second = Waiter::first(&scene, "later", LOCK).await;
    let mut third = Waiter::behind(&scene.client, "later", LOCK);
    scene.proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    scene.proxy.plan("EVALSHA", 2, Fault::HoldBack);
    let faults = scene.proxy.faults();
    let first = unlocking(first);
    let guard = second.has();
    scene.until_held(faults + 1).await;
    let second = unlocking(guard);
    let guard = third.waits().await;
    scene.server.ask::<()>(&["DEL", "later"]);
    scene.proxy.let_go();
    soon("an answer", first).await.expect("it was given back in time");
    assert_lost(soon("an answer", second).await);
    assert_lost(soon("an answer", guard.unlock()).await);
    scene.until_gone("later").await;
}

#[tokio::test]
async fn a_late_hand_off_of_a_broken_connection_changes_nothing() {
    let scene = Scene::with(&[], impatient).await;
    let lock = scene.client.lock("late");
    let guard = hold(&lock).await;
    let mut next = Waiter::first(&scene, "late", LOCK).await;
    scene.proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let faults = scene.proxy.faults();
    drop(guard);
    let guard = next.has();
    scene.until_held(faults).await;
    // Over another connection by now.
    scene.until_owned("late", next.owner()).await;
    release(guard).await;
    // The first one has it again, when the old request could still say that it went on.
    let guard = hold(&lock).await;
    scene.proxy.let_go();
    tokio::time::sleep(ms(200)).await;
    assert_eq!(scene.owners("late"), [lock.owner()], "an old hand-off was done again");
    release(guard).await;
    assert!(!scene.server.exists("late"));
}

#[tokio::test]
async fn steps_that_come_while_a_hand_off_is_not_answered_go_with_the_next_try() {
    for (name, fault) in [
        ("steps: reset before", Fault::ResetBeforeSend),
        ("steps: reset after", Fault::DropReplyAndReset),
        ("steps: mute", Fault::Mute),
        ("steps: black hole", Fault::BlackHole),
    ] {
        let scene = Scene::with(&[], impatient).await;
        let guard = scene.client.lock(name).lock_with_lease(ms(15_000)).await.unwrap();
        let mut next = Waiter::first(&scene, name, LOCK).await;
        let mut line: Vec<_> = (0..5).map(|_| Waiter::behind(&scene.client, name, LOCK)).collect();
        scene.proxy.plan("EVALSHA", 1, fault);
        let faults = scene.proxy.faults();
        drop(guard);
        // Each in turn, with hardly any time in between for Redis to answer.
        drop(next.has());
        for waiter in &mut line[..4] {
            drop(waiter.waits().await);
        }
        let guard = line[4].waits().await;
        scene.until_owned(name, line[4].owner()).await;
        assert_eq!(scene.proxy.faults(), faults + 1, "{name}");
        wait_until("the confirmation", SOON, || guard.remaining() > ms(20_000)).await;
        release(guard).await;
        assert!(!scene.server.exists(name));
    }
}
