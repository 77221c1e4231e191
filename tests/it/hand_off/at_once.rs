//! The next in line has the lock at once, and is believed no longer than is known.

use super::*;

#[tokio::test]
async fn the_next_in_line_has_the_lock_before_redis_has_heard_of_it() {
    let scene = Scene::new().await;
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
    let scene = Scene::new().await;
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
async fn a_default_lease_after_a_default_one_is_not_told_to_redis() {
    // With less, Redis is asked whether others wait.
    let scene = Scene::with(&[], |options| options.max_handoff_time(MINUTE)).await;
    let mut guard = hold(&scene.client.lock("default")).await;
    let owner = guard.owner().to_owned();
    let mut line = vec![Waiter::first(&scene, "default", LOCK).await];
    line.extend((0..20).map(|_| Waiter::behind(&scene.client, "default", LOCK)));
    let asked = scene.server.calls("evalsha");
    for waiter in &mut line {
        drop(guard);
        guard = waiter.has();
        assert_eq!(guard.owner(), owner);
        // The client's thread may send something now.
        scene.proxy.settled(ms(5)).await;
    }
    assert_eq!(scene.server.calls("evalsha"), asked, "Redis was told");
    release(guard).await;
    assert_eq!(scene.server.calls("evalsha"), asked + 1);
    assert!(!scene.server.exists("default"));
}

#[tokio::test]
async fn without_a_word_from_redis_the_new_guard_is_lost_when_the_old_one_would_have_been() {
    let scene = Scene::new().await;
    let guard = scene.client.lock("silent").lock_with_lease(ms(2_500)).await.unwrap();
    let mut next = Waiter::first(&scene, "silent", FOR_A_MINUTE).await;
    let outside = scene.outside("silent").await;
    let held = scene.hold_scripts();
    let deadline = Instant::now() + guard.remaining();
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
async fn an_explicit_lease_that_was_handed_off_is_never_renewed() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(1_200))).await;
    let longer: Take = |lock| async move { lock.lock_with_lease(ms(3_000)).await }.boxed();
    let (guard, mut next) = scene.pair("explicit", longer).await;
    let handed = Instant::now();
    drop(guard);
    let guard = next.has();
    scene.until_kept_for("explicit", ms(1_200)).await;
    let mut left = scene.server.pttl("explicit");
    assert!(left > 1_200 && left <= 3_000, "{left} ms");
    while scene.server.exists("explicit") {
        let now = scene.server.pttl("explicit");
        assert!(now <= left, "it was renewed: {now} ms after {left} ms");
        left = now;
        assert!(handed.elapsed() < SOON, "it has no end");
        tokio::time::sleep(ms(20)).await;
    }
    assert!(guard.is_lost());
    drop(guard);
}

#[tokio::test]
async fn a_lock_that_was_handed_off_is_renewed() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(1_800))).await;
    for name in ["unlocked", "dropped"] {
        let (guard, mut next) = scene.pair(name, LOCK).await;
        let owner = guard.owner().to_owned();
        let mut last = Waiter::behind(&scene.client, name, LOCK);
        let give_back = async |guard: LockGuard| match name {
            "unlocked" => release(guard).await,
            _ => drop(guard),
        };
        give_back(guard).await;
        give_back(next.has()).await;
        let guard = last.has();
        // For longer than the lease.
        for _ in 0..4 {
            renewed(&guard).await;
            scene.assert_held(name, &owner);
        }
        release(guard).await;
        assert!(!scene.server.exists(name));
    }
}

#[tokio::test]
async fn who_is_next_then_asks_when_the_lease_of_the_new_holder_ends() {
    let impatient = |options: LockClientBuilder| options.command_timeout(ms(1_000));
    let scene = Scene::with(&[], impatient).await;
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
    let scene = Scene::new().await;
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(700)).await }.boxed();
    let (guard, mut next) = scene.pair("unheard", brief).await;
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

#[tokio::test]
async fn a_shorter_lease_is_written_behind_a_renewal_that_is_under_way() {
    let scene = Scene::with(&[], |options| options.watchdog_timeout(ms(6_000))).await;
    let brief: Take = |lock| async move { lock.lock_with_lease(ms(900)).await }.boxed();
    let (guard, mut next) = scene.pair("behind", brief).await;
    let held = scene.proxy.faults();
    scene.proxy.plan("EVALSHA", 1, Fault::HoldBack);
    scene.until_held(held).await;
    drop(guard);
    let guard = next.has();
    scene.proxy.let_go();
    soon("its deadline", guard.lost()).await;
    let left = scene.server.pttl("behind");
    assert!(left <= 900, "{left} ms: the renewal made it longer again");
    drop(guard);
    scene.until_gone("behind").await;
}
