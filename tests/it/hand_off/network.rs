//! The network fails under the request that tells Redis of a hand-off.

use super::*;

/// A client that does not wait long for an answer.
fn impatient(options: LockClientBuilder) -> LockClientBuilder {
    options.command_timeout(ms(400))
}

/// A holder, the next of its client, one behind it, and another client that waits.
struct Crowd {
    scene: Scene,
    name: &'static str,
    guard: LockGuard,
    next: Waiter,
    behind: Waiter,
    outside: tokio::task::JoinHandle<LockGuard>,
}

impl Crowd {
    async fn at(scene: Scene, name: &'static str) -> Self {
        // Less than a waiter asks for: what the new guard is believed for beyond that is confirmed.
        let guard = scene.client.lock(name).lock_with_lease(ms(15_000)).await.unwrap();
        let next = Waiter::first(&scene, name, LOCK).await;
        let behind = Waiter::behind(&scene.client, name, LOCK);
        let lock = scene.other().await.lock(name);
        let outside = tokio::spawn(async move { lock.lock().await.expect("the lock") });
        wait_until("another client waits", SOON, || scene.server.subscribers(name) == 2).await;
        Self { scene, name, guard, next, behind, outside }
    }

    /// Gives the lock back while `fault` befalls the hand-off. Returns what `unlock` said, when
    /// Redis has heard of the new holder; everybody else is served then.
    async fn suffers(self, fault: impl AsyncFnOnce(&Scene)) -> Result<(), Error> {
        let Self { scene, name, guard, mut next, behind, outside, .. } = self;
        let faults = scene.proxy.faults();
        let owner = guard.owner().to_owned();
        let mut old = unlocking(guard);
        let guard = next.has();
        fault(&scene).await;
        let said = soon("an answer", &mut old).await;
        assert!(scene.proxy.faults() > faults, "the fault did not take effect");
        wait_until("the confirmation", SOON, || guard.remaining() > ms(20_000)).await;
        scene.assert_held(name, &owner);
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
async fn a_hand_off_whose_request_fails_is_told_to_redis_again() {
    for (name, fault, silent) in [
        ("reset before", Fault::ResetBeforeSend, false),
        ("reset after", Fault::DropReplyAndReset, false),
        ("mute", Fault::Mute, true),
        ("black hole", Fault::BlackHole, true),
    ] {
        let crowd = Crowd::at(Scene::with(&[], impatient).await, name).await;
        crowd.scene.proxy.plan("EVALSHA", 1, fault);
        let said = crowd.suffers(async |_| {}).await;
        if silent {
            let error = said.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
            assert_eq!(error.outcome(), Outcome::Unknown, "{name}: {error}");
        } else {
            said.expect("it is sent again");
        }
    }
}

#[tokio::test]
async fn a_hand_off_that_is_held_up_keeps_unlock_waiting_and_nobody_else() {
    let crowd = Crowd::at(Scene::new().await, "held up").await;
    let name = crowd.name;
    let held = crowd.scene.hold_scripts();
    let delay = async |scene: &Scene| {
        scene.until_held(held).await;
        tokio::time::sleep(ms(500)).await;
        assert!(scene.server.pttl(name) <= 15_000, "Redis has heard of it");
        scene.proxy.let_go();
    };
    crowd.suffers(delay).await.expect("it was only late");
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
async fn whose_hold_nobody_can_confirm_any_more_is_told_of_the_loss() {
    let scene = Scene::new().await;
    let first = hold(&scene.client.lock("later")).await;
    let mut second = Waiter::first(&scene, "later", LOCK).await;
    let mut third = Waiter::behind(&scene.client, "later", LOCK);
    scene.proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    scene.proxy.plan("EVALSHA", 2, Fault::HoldBack);
    let faults = scene.proxy.faults();
    // Redis confirms the first one, the client does not hear of that, and the second try finds nothing.
    let first = unlocking(first);
    let guard = second.has();
    scene.until_held(faults + 1).await;
    let second = unlocking(guard);
    let guard = third.has();
    scene.server.ask::<()>(&["DEL", "later"]);
    scene.proxy.let_go();
    let unknown = soon("an answer", first).await.expect_err("it is not known");
    assert_eq!((unknown.kind(), unknown.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    assert_lost(soon("an answer", second).await);
    assert_lost(soon("an answer", guard.unlock()).await);
    scene.until_gone("later").await;
}

#[tokio::test]
async fn a_late_hand_off_of_a_broken_connection_changes_nothing() {
    let scene = Scene::with(&[], impatient).await;
    let lock = scene.client.lock("late");
    let guard = hold(&lock).await;
    let mut next = Waiter::first(&scene, "late", FOR_A_MINUTE).await;
    scene.proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let faults = scene.proxy.faults();
    drop(guard);
    let guard = next.has();
    scene.until_held(faults).await;
    // Over another connection by now.
    scene.until_kept_for("late", ms(50_000)).await;
    release(guard).await;
    // The handle has it again, when the old request could still change its lease.
    let guard = hold(&lock).await;
    scene.proxy.let_go();
    wait_until("its fate", SOON, || scene.proxy.fates_are_known()).await;
    scene.assert_held("late", guard.owner());
    assert!(scene.server.pttl("late") <= 30_000, "an old hand-off was done again");
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
        let owner = guard.owner().to_owned();
        drop(guard);
        // Each in turn, with hardly any time in between for Redis to answer.
        drop(next.has());
        for waiter in &mut line[..4] {
            drop(waiter.has());
        }
        let guard = line[4].has();
        wait_until("the confirmation", SOON, || guard.remaining() > ms(20_000)).await;
        assert_eq!(scene.proxy.faults(), faults + 1, "{name}");
        scene.assert_held(name, &owner);
        release(guard).await;
        assert!(!scene.server.exists(name));
    }
}
