//! The next in line has the lock at once, and is believed no longer than is known.

use super::*;

#[tokio::test]
async fn the_next_in_line_has_the_lock_before_redis_has_heard_of_it() {
    let scene = scene(|options| options).await;
    for (number, unlocks, take) in
        [(1, true, LOCK), (2, true, FOR_A_MINUTE), (3, false, FOR_A_MINUTE)]
    {
        let name = format!("at once:{number}");
        let (guard, mut next) = scene.pair(&name, take).await;
        let owner = guard.owner().to_owned();

        let (held, asked) = (scene.hold_scripts(), scene.server.calls("evalsha"));
        // Else the guard is dropped.
        let unlocking = unlocks.then(|| unlocking(guard));
        let guard = next.has();
        scene.until_held(held).await;
        assert_eq!(scene.server.calls("evalsha"), asked, "Redis has heard of it");
        assert!(!guard.is_lost());
        assert_eq!(guard.owner(), owner);
        assert!(!next.lock.owner().is_empty() && next.lock.owner() != owner);

        if let Some(mut unlocking) = unlocking {
            tokio::time::sleep(ms(50)).await;
            assert!(unlocking.poll().is_pending(), "Redis has not confirmed that it is given back");
            scene.proxy.let_go();
            soon("the confirmation", unlocking).await.expect("unlocking");
            assert_eq!(scene.server.calls("evalsha"), asked + 1);
        } else {
            scene.proxy.let_go();
            scene.until_kept_for(&name, ms(50_000)).await;
        }
        scene.assert_held(&name, &owner);
        release(guard).await;
        assert!(!scene.server.exists(&name));
    }
}

#[tokio::test]
async fn what_a_handle_asks_of_redis_waits_until_the_hand_off_is_confirmed() {
    let scene = scene(|options| options).await;
    let (guard, mut next) = scene.pair("asked", FOR_A_MINUTE).await;
    let held = scene.hold_scripts();
    drop(guard);
    let guard = next.has();
    scene.until_held(held).await;
    let mut count = task::spawn(next.lock.hold_count());
    let mut is_held = task::spawn(next.lock.is_held());
    let mut lease = task::spawn(next.lock.remaining_lease());
    let held = scene.proxy.held();
    for _ in 0..20 {
        assert!(count.poll().is_pending() && is_held.poll().is_pending());
        assert!(lease.poll().is_pending(), "Redis does not know of the new lease yet");
        tokio::time::sleep(ms(3)).await;
    }
    assert_eq!(scene.proxy.held(), held, "they have yet to ask");
    scene.proxy.let_go();
    assert_eq!(soon("the count", count).await.unwrap(), 1);
    assert!(soon("is it held", is_held).await.unwrap());
    let lease = soon("the lease", lease).await.unwrap().expect("a lease");
    assert!(lease > MINUTE - SOON && lease <= MINUTE, "{lease:?}");
    release(guard).await;
}

#[tokio::test]
async fn a_shorter_lease_of_its_own_is_what_the_new_guard_is_believed_for() {
    let scene = scene(|options| options).await;
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(2_000)).await }.boxed();
    let (guard, mut next) = scene.pair("short", brief).await;
    let outside = scene.outside("short").await;
    scene.proxy.settled(ms(50)).await;
    let held = scene.hold_scripts();
    drop(guard);
    let guard = next.has();
    let end = Instant::now() + ms(2_000);
    scene.until_held(held).await;
    assert!(Instant::now() + guard.remaining() < end, "believed after its own lease");
    scene.proxy.let_go();
    scene.until_kept_at_most("short", ms(2_000)).await;
    assert!(Instant::now() + guard.remaining() < end, "believed after its own lease");
    soon("its deadline", guard.lost()).await;
    // Redis refused it for the longer lease, and it heard of the shorter one.
    release(soon("the end of the lease", outside).await.unwrap()).await;
    assert_lost(guard.unlock().await);
    scene.until_gone("short").await;
}

#[tokio::test]
async fn without_a_word_from_redis_the_new_guard_is_lost_when_the_old_one_would_have_been() {
    let scene = scene(|options| options).await;
    let guard = scene.client.lock("silent").lock_with_lease(ms(2_500)).await.unwrap();
    let mut next = Waiter::first(&scene, "silent", FOR_A_MINUTE).await;
    let outside = scene.outside("silent").await;
    let held = scene.hold_scripts();
    let remaining = guard.remaining();
    let deadline = Instant::now() + remaining;
    drop(guard);
    let guard = next.has();
    scene.until_held(held).await;
    tokio::time::sleep_until(deadline.into()).await;
    assert!(guard.is_lost(), "believed for {:?} more", guard.remaining());
    let theirs = soon("the end of the lease", outside).await.unwrap();

    scene.proxy.let_go();
    assert_lost(soon("the answer", guard.unlock()).await);
    assert!(!theirs.is_lost());
    assert_eq!(scene.server.holds("silent").len(), 1, "somebody else's lock was touched");
    release(theirs).await;
    assert!(!scene.server.exists("silent"));
}

#[tokio::test]
async fn who_is_next_then_asks_when_the_lease_of_the_new_holder_ends() {
    let scene = scene(|options| options.command_timeout(ms(1_000))).await;
    // Longer than any request takes, tried again or not: Redis is told of the hand-off before it
    // ends.
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(2_500)).await }.boxed();
    let (guard, mut next) = scene.pair("ends", brief).await;
    let last = Waiter::behind(&scene.client, "ends", LOCK);
    release(guard).await;
    let kept = next.has();
    // Nobody gives it back: only the end of the lease lets the last one in.
    release(last.gets().await).await;
    assert_lost(kept.unlock().await);
}

#[tokio::test]
async fn who_is_next_then_asks_in_time_though_redis_hears_late_of_the_hand_off() {
    let scene = scene(|options| options).await;
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(700)).await }.boxed();
    let (guard, mut next) = scene.pair("unheard", brief).await;
    let mut last = Waiter::behind(&scene.client, "unheard", LOCK);
    let held = scene.proxy.held();
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
