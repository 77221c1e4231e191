//! The next in line has the lock at once, and is believed no longer than is known.

use super::*;
use crate::support::machine::passed;
use crate::support::{Fault, connect, renewed};

#[tokio::test]
async fn the_next_in_line_has_the_lock_before_redis_has_heard_of_it() {
    let scene = Scene::new().await;
    for dropped in [false, true] {
        let name = format!("at once:{dropped}");
        let lock = scene.client.lock(&name);
        let guard = hold(&lock).await;
        let mut next = Waiter::first(&scene, &name, LOCK).await;

        let held = scene.hold_scripts();
        let unlocking = if dropped {
            drop(guard);
            None
        } else {
            Some(unlocking(guard))
        };
        let guard = next.has();
        scene.until_held(held).await;
        assert_eq!(scene.owners(&name), [lock.owner()], "Redis has heard of it");
        assert!(!guard.is_lost());

        if let Some(mut unlocking) = unlocking {
            tokio::time::sleep(ms(50)).await;
            assert!(unlocking.poll().is_pending(), "Redis has not confirmed that it is given back");
            scene.proxy.let_go();
            soon("the confirmation", unlocking).await.expect("unlocking");
            assert_eq!(scene.owners(&name), [next.owner()], "confirmed before it was done");
        } else {
            scene.proxy.let_go();
            scene.until_owned(&name, next.owner()).await;
        }
        release(guard).await;
        assert!(!scene.server.exists(&name));
    }
}

#[tokio::test]
async fn what_a_handle_asks_of_redis_waits_until_the_hand_off_is_confirmed() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("asked")).await;
    let mut next = Waiter::first(&scene, "asked", FOR_A_MINUTE).await;
    let held = scene.hold_scripts();
    drop(guard);
    let guard = next.has();
    scene.until_held(held).await;
    let mut count = task::spawn(next.lock.hold_count());
    let mut is_held = task::spawn(next.lock.is_held());
    let mut lease = task::spawn(next.lock.remaining_lease());
    for _ in 0..20 {
        assert!(count.poll().is_pending() && is_held.poll().is_pending());
        assert!(lease.poll().is_pending(), "Redis does not know of the new lease yet");
        tokio::time::sleep(ms(3)).await;
    }
    scene.proxy.let_go();
    assert_eq!(soon("the count", count).await.unwrap(), 1);
    assert!(soon("is it held", is_held).await.unwrap());
    let lease = soon("the lease", lease).await.unwrap().expect("a lease");
    assert!(lease > MINUTE - SOON && lease <= MINUTE, "{lease:?}");
    release(guard).await;
}

#[tokio::test]
async fn the_new_guard_is_believed_as_long_as_the_old_one_until_it_is_confirmed() {
    for (take, whole) in [(LOCK, ms(20_000)), (FOR_A_MINUTE, ms(50_000))] {
        let scene = Scene::new().await;
        let lock = scene.client.lock("belief");
        let guard = lock.lock_with_lease(ms(5_000)).await.unwrap();
        let mut next = Waiter::first(&scene, "belief", take).await;
        let held = scene.hold_scripts();
        let old = guard.remaining();
        drop(guard);
        let guard = next.has();
        let new = guard.remaining();
        assert!(new > Duration::ZERO && new <= old, "{new:?} of {old:?}");
        scene.until_held(held).await;
        assert!(guard.remaining() <= new, "believed before Redis has heard of it");
        scene.proxy.let_go();
        wait_until("the whole lease", SOON, || guard.remaining() > whole).await;
        assert!(scene.server.pttl("belief") > whole.as_millis() as i64);
        release(guard).await;
    }
}

#[tokio::test]
async fn a_shorter_lease_of_its_own_is_what_the_new_guard_is_believed_for() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("short")).await;
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(900)).await }.boxed();
    let mut next = Waiter::first(&scene, "short", brief).await;
    let held = scene.hold_scripts();
    let handed = Instant::now();
    drop(guard);
    let guard = next.has();
    scene.until_held(held).await;
    assert!(guard.remaining() < ms(900));
    scene.proxy.let_go();
    scene.until_owned("short", next.owner()).await;
    let left = scene.server.pttl("short");
    assert!(left > 0 && left <= 900, "{left} ms of another's lease");
    soon("its deadline", guard.lost()).await;
    assert!(passed(handed) < ms(900 + 400), "believed after its own lease");
    scene.until_gone("short").await;
    assert_lost(guard.unlock().await);
}

#[tokio::test]
async fn without_a_word_from_redis_the_new_guard_is_lost_when_the_old_one_would_have_been() {
    let scene = Scene::new().await;
    let other = connect(&scene.server).await;
    let guard = scene.client.lock("silent").lock_with_lease(ms(1_500)).await.unwrap();
    let mut next = Waiter::first(&scene, "silent", FOR_A_MINUTE).await;
    let waiting = tokio::spawn({
        let lock = other.lock("silent");
        async move { lock.lock().await.expect("the lock") }
    });
    wait_until("another client waits", SOON, || scene.server.subscribers("silent") == 2).await;
    let held = scene.hold_scripts();
    let deadline = Instant::now() + guard.remaining();
    drop(guard);
    let guard = next.has();
    scene.until_held(held).await;
    tokio::time::sleep_until(deadline.into()).await;
    assert!(guard.is_lost(), "believed for {:?} more", guard.remaining());
    let theirs = soon("the end of the lease", waiting).await.unwrap();

    scene.proxy.let_go();
    assert_lost(soon("the answer", guard.unlock()).await);
    assert!(!theirs.is_lost());
    assert_eq!(scene.server.holds("silent").len(), 1, "somebody else's lock was touched");
    release(theirs).await;
    assert!(!scene.server.exists("silent"));
}

#[tokio::test]
async fn an_explicit_lease_that_was_handed_off_is_never_renewed() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(600))).await;
    let guard = hold(&scene.client.lock("explicit")).await;
    let longer: Take = |lock| async move { lock.lock_with_lease(ms(1_500)).await }.boxed();
    let mut next = Waiter::first(&scene, "explicit", longer).await;
    let handed = Instant::now();
    drop(guard);
    let guard = next.has();
    scene.until_owned("explicit", next.owner()).await;
    let mut left = scene.server.pttl("explicit");
    assert!(left > 600 && left <= 1_500, "{left} ms");
    while scene.server.exists("explicit") {
        let now = scene.server.pttl("explicit");
        assert!(now <= left, "it was renewed: {now} ms after {left} ms");
        left = now;
        assert!(passed(handed) < ms(4_000));
        tokio::time::sleep(ms(20)).await;
    }
    assert!(guard.is_lost());
    drop(guard);
}

#[tokio::test]
async fn a_lock_that_was_handed_off_is_renewed() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(1_200))).await;
    let guard = hold(&scene.client.lock("renewed")).await;
    let mut next = Waiter::first(&scene, "renewed", LOCK).await;
    let mut last = Waiter::behind(&scene.client, "renewed", LOCK);
    let handed = Instant::now();
    release(guard).await;
    release(next.has()).await;
    let guard = last.has();
    while handed.elapsed() < ms(2_600) {
        renewed(&guard).await;
        assert_eq!(scene.owners("renewed"), [last.owner()]);
    }
    release(guard).await;
    assert!(!scene.server.exists("renewed"));
}

#[tokio::test]
async fn a_lock_is_not_renewed_for_an_owner_of_whom_redis_may_not_know() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(1_500))).await;
    let guard = hold(&scene.client.lock("in the air")).await;
    let mut next = Waiter::first(&scene, "in the air", LOCK).await;
    renewed(&guard).await;
    scene.proxy.stall_replies(true);
    let before = scene.server.calls("evalsha");
    drop(guard);
    let guard = next.has();
    // A renewal is due after a third of the lease.
    let start = Instant::now();
    while start.elapsed() < ms(900) {
        assert!(scene.server.calls("evalsha") <= before + 1, "it was renewed");
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(scene.server.calls("evalsha"), before + 1, "Redis was not told");
    assert!(scene.proxy.withheld() > 0);
    scene.proxy.stall_replies(false);
    renewed(&guard).await;
    release(guard).await;
}

#[tokio::test]
async fn who_is_next_then_asks_when_the_lease_of_the_new_holder_ends() {
    let impatient = |options: LockClientBuilder| options.command_timeout(ms(1_000));
    let scene = Scene::with(&[], impatient).await;
    let guard = hold(&scene.client.lock("ends")).await;
    // Longer than any request takes, tried again or not: Redis is told of the hand-off before it
    // ends.
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(2_500)).await }.boxed();
    let mut next = Waiter::first(&scene, "ends", brief).await;
    let last = Waiter::behind(&scene.client, "ends", LOCK);
    release(guard).await;
    let kept = next.has();
    // Nobody gives it back: only the end of the lease lets the last one in.
    release(last.gets().await).await;
    assert_lost(kept.unlock().await);
}

#[tokio::test]
async fn who_is_next_then_asks_in_time_though_redis_hears_late_of_the_hand_off() {
    let scene = Scene::new().await;
    let guard = hold(&scene.client.lock("unheard")).await;
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(700)).await }.boxed();
    let mut next = Waiter::first(&scene, "unheard", brief).await;
    let mut last = Waiter::behind(&scene.client, "unheard", LOCK);
    let held = scene.proxy.faults();
    scene.proxy.plan("EVALSHA", 1, Fault::HoldBackFor(ms(2_700)));
    drop(guard);
    let kept = next.has();
    scene.until_held(held).await;
    let before = scene.server.calls("evalsha");
    let asks = wait_until("a question", ms(2_200), || scene.server.calls("evalsha") > before);
    tokio::select! {
        _ = &mut last.task => panic!("nobody has freed it"),
        () = asks => {}
    }
    // Redis named the lease of the first holder, which the hand-off makes shorter.
    release(last.gets().await).await;
    assert_lost(kept.unlock().await);
}
