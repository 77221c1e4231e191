//! One command's way there or back is lost. Whatever the server has done by then, the caller's
//! count and Redis's count agree in the end, and no error is told that did not happen.

use std::time::Instant;

use super::*;

const FAULTS: [Fault; 2] = [Fault::ResetBeforeSend, Fault::DropReplyAndReset];

/// A client behind a proxy, whose scripts the server knows already. No renewal comes in between.
async fn scene() -> Far {
    renewing_scene(Duration::from_secs(120)).await
}

async fn renewing_scene(watchdog_timeout: Duration) -> Far {
    scene_of(watchdog_timeout, ms(1_000)).await
}

async fn scene_of(watchdog_timeout: Duration, command_timeout: Duration) -> Far {
    let options = |with: LockClientBuilder| {
        with.watchdog_timeout(watchdog_timeout).command_timeout(command_timeout)
    };
    let scene = Far::with(options).await;
    let lock = scene.client.lock("warm-up");
    release(hold(&lock).await).await;
    drop(hold(&lock).await);
    wait_until("a free lock", SOON, || !scene.server.exists("warm-up")).await;
    scene
}

impl Far {
    fn count(&self, name: &str) -> u32 {
        self.server.holds(name).values().sum()
    }
}

#[track_caller]
fn failed<T>(result: Result<T, Error>) -> (ErrorKind, Outcome) {
    let Err(error) = result else { panic!("Redis could not be reached") };
    (error.kind(), error.outcome())
}

#[tokio::test]
async fn n1_an_acquire_that_was_executed_and_not_answered_is_granted_once_by_the_retry() {
    // Beside it one that never arrived.
    for (fault, executions) in [(Fault::DropReplyAndReset, 2), (Fault::ResetBeforeSend, 1)] {
        let scene = scene().await;
        let lock = scene.client.lock("lost");
        scene.server.reset_stats();
        scene.proxy.plan("EVALSHA", 1, fault);
        let guard = hold(&lock).await;
        assert_eq!(scene.proxy.faults(), 1);
        assert_eq!(scene.server.calls("evalsha"), executions, "{fault:?}");
        assert_eq!(scene.count("lost"), 1, "{fault:?}");
        release(guard).await;
        assert!(!scene.server.exists("lost"), "{fault:?}");
    }
}

/// The refusal to the second sending says nothing of what the first one was granted.
#[tokio::test]
async fn n1_locks_that_were_granted_together_are_undone_if_the_retry_is_refused() {
    let scene = scene().await;
    let all = scene.client.multi_lock(["first", "second"]);
    scene.proxy.refuse(true);
    scene.proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    let tried = tokio::spawn(async move { all.try_lock_now().await });
    wait_until("the fault", SOON, || scene.proxy.faults() == 1).await;
    assert_eq!((scene.count("first"), scene.count("second")), (1, 1));
    scene.server.ask::<u64>(&["DEL", "first"]);
    scene.server.ask::<u64>(&["HSET", "first", "other:1", "1"]);
    scene.server.ask::<u64>(&["PEXPIRE", "first", "60000"]);
    scene.proxy.refuse(false);
    assert!(soon("an answer", tried).await.unwrap().unwrap().is_none());
    wait_until("the second is free", SOON, || !scene.server.exists("second")).await;
    assert_eq!(scene.count("first"), 1, "that of another owner");
}

#[tokio::test]
async fn n2_an_acquire_that_never_arrived_and_cannot_be_retried_leaves_no_key() {
    let scene = scene().await;
    let lock = scene.client.lock("lost");
    scene.proxy.refuse(true);
    scene.proxy.plan("EVALSHA", 1, Fault::ResetBeforeSend);
    let error = failed(soon("an error", lock.try_lock_now()).await);
    // It was sent. How far it came, nobody here can know.
    assert_eq!(error, (ErrorKind::Unavailable, Outcome::Unknown));
    assert_eq!(scene.proxy.faults(), 1);
    assert!(!scene.server.exists("lost"));
    // This one is not sent at all, because the connection is known to be gone.
    let (sent, attempts) = (scene.proxy.sent("EVALSHA"), scene.proxy.attempts());
    let other = scene.client.lock("other");
    let error = failed(soon("an error", other.try_lock_now()).await);
    assert_eq!(error, (ErrorKind::Unavailable, Outcome::NotExecuted));
    assert!(scene.proxy.attempts() > attempts, "it did not try to connect");
    assert!(scene.proxy.sent("EVALSHA") <= sent + 1, "more than the first one's undo was sent");
    assert!(!scene.server.exists("other"));
    scene.proxy.refuse(false);
    release(hold(&lock).await).await;
    release(hold(&other).await).await;
    assert_eq!(scene.server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn n1_a_lost_nested_acquire_is_counted_once() {
    for fault in FAULTS {
        let scene = scene().await;
        let lock = scene.client.lock("lost");
        let outer = hold(&lock).await;
        scene.proxy.plan("EVALSHA", 1, fault);
        let inner = hold(&lock).await;
        assert_eq!(scene.proxy.faults(), 1);
        assert_eq!(scene.count("lost"), 2, "{fault:?}");
        release(inner).await;
        assert_eq!(scene.count("lost"), 1, "{fault:?}");
        release(outer).await;
        assert!(!scene.server.exists("lost"), "{fault:?}");
    }
}

#[tokio::test]
async fn n6_a_lost_release_is_no_error_and_frees_once() {
    for fault in FAULTS {
        let scene = scene().await;
        let lock = scene.client.lock("lost");
        let guard = hold(&lock).await;
        let listener = Listener::new(&scene.server, &channel("lost"));
        scene.proxy.plan("EVALSHA", 1, fault);
        soon("unlocking", guard.unlock()).await.expect("the lock was held and is free");
        assert_eq!(scene.proxy.faults(), 1);
        assert!(!scene.server.exists("lost"), "{fault:?}");
        assert_eq!(listener.heard(&scene.server), ["0"], "{fault:?}");
    }
}

#[tokio::test]
async fn n6_a_release_that_is_made_again_behind_a_new_owner_is_no_error_and_harms_nobody() {
    let scene = scene().await;
    let guard = hold(&scene.client.lock("lost")).await;
    scene.proxy.refuse(true);
    scene.proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    let (unlocked, ()) = tokio::join!(soon("unlocking", guard.unlock()), async {
        wait_until("the release", SOON, || !scene.server.exists("lost")).await;
        scene.server.hold_by_hand("lost", "successor:1", Duration::from_secs(60));
        scene.proxy.refuse(false);
    });
    unlocked.expect("what the retry finds is no news of this hold");
    assert_eq!(scene.proxy.faults(), 1);
    assert_eq!(scene.server.holds("lost"), [("successor:1".to_owned(), 1)].into());
}

#[tokio::test]
async fn n6_a_lost_nested_release_gives_one_hold_back() {
    for fault in FAULTS {
        let scene = scene().await;
        let lock = scene.client.lock("lost");
        let [outer, middle, inner] = [hold(&lock).await, hold(&lock).await, hold(&lock).await];
        scene.proxy.plan("EVALSHA", 1, fault);
        release(inner).await;
        assert_eq!(scene.count("lost"), 2, "{fault:?}");
        scene.proxy.plan("EVALSHA", 1, fault);
        drop(middle);
        wait_until("one hold", SOON, || scene.count("lost") == 1).await;
        assert_eq!(scene.proxy.faults(), 2);
        assert!(!outer.is_lost());
        release(outer).await;
        assert!(!scene.server.exists("lost"), "{fault:?}");
    }
}

#[tokio::test]
async fn n7_a_lost_renewal_is_made_again_and_loses_nothing() {
    for fault in FAULTS {
        let scene = renewing_scene(ms(3_000)).await;
        let guard = hold(&scene.client.lock("lost")).await;
        scene.proxy.plan("EVALSHA", 1, fault);
        wait_until("a renewal that is lost", SOON, || scene.proxy.faults() == 1).await;
        let deadline = Instant::now() + guard.remaining();
        // The lease that was in force holds until another renewal is confirmed.
        wait_until("the end of that lease", SOON, || {
            assert!(!guard.is_lost(), "{fault:?}");
            Instant::now() > deadline
        })
        .await;
        assert!(guard.remaining() > Duration::ZERO, "{fault:?}");
        assert!(scene.server.exists("lost"));
        release(guard).await;
        assert!(!scene.server.exists("lost"));
    }
}

#[tokio::test]
async fn n7_a_renewal_that_failed_for_good_is_followed_by_another() {
    let scene = scene().await;
    let builder = LockClient::builder().url(scene.proxy.url(&scene.server));
    let client = connected(builder.watchdog_timeout(ms(4_500)).command_timeout(ms(500))).await;
    let guard = hold(&client.lock("mute")).await;
    renewed(&guard).await;
    let deadline = Instant::now() + guard.remaining();
    let (attempts, sent) = (scene.proxy.attempts(), scene.proxy.sent("EVALSHA"));
    scene.proxy.stall_replies(true);
    wait_until("a renewal", SOON, || scene.proxy.sent("EVALSHA") > sent).await;
    // Its connection is given up when the time for its answer is over.
    wait_until("another try", SOON, || scene.proxy.attempts() > attempts).await;
    assert!(scene.proxy.withheld() > 0);
    scene.proxy.cut_all();
    scene.proxy.stall_replies(false);
    renewed(&guard).await;
    wait_until("the end of the old lease", SOON, || {
        assert!(!guard.is_lost());
        Instant::now() > deadline
    })
    .await;
    assert!(scene.server.exists("mute"));
    release(guard).await;
}

#[tokio::test]
async fn n9_a_lost_subscription_is_made_again() {
    for fault in FAULTS {
        let scene = scene().await;
        scene.server.hold_by_hand("lost", "somebody:1", Duration::from_secs(60));
        scene.proxy.plan("SUBSCRIBE", 1, fault);
        let lock = scene.client.lock("lost");
        let waiter = tokio::spawn(async move { lock.lock().await });
        wait_until("the fault", SOON, || scene.proxy.faults() == 1).await;
        wait_until("a subscription", SOON, || {
            scene.proxy.sent("SUBSCRIBE") >= 2 && scene.server.subscribers("lost") == 1
        })
        .await;
        scene.server.free_by_hand("lost");
        has_its_turn(waiter).await;
    }
}

#[tokio::test]
async fn a_call_under_way_at_a_close_finds_a_new_connection_after_a_cut() {
    let Far { server, proxy, client } = scene().await;
    let guard = hold(&client.lock("last")).await;
    proxy.stall_replies(true);
    let unlocking = tokio::spawn(guard.unlock());
    wait_until("the release", SOON, || !server.exists("last")).await;
    client.close().await;
    let attempts = proxy.attempts();
    proxy.cut_all();
    // Only then: an answer that waited must not come after all.
    wait_until("a new connection", SOON, || proxy.attempts() > attempts).await;
    proxy.stall_replies(false);
    soon("the answer", unlocking).await.unwrap().expect("it was sent again");
    server.assert_clean();
}

#[tokio::test]
async fn n6_a_nested_release_that_was_done_is_no_loss_when_the_outer_lease_ends_meanwhile() {
    let Far { server, proxy, client } = scene_of(2 * MINUTE, SOON).await;
    let lock = client.lock("nested");
    let outer = soon("the outer hold", lock.lock_with_lease(ms(1_500))).await.unwrap();
    let inner = hold(&lock).await;
    let faults = proxy.faults();
    proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    proxy.refuse(true);
    let unlocking = tokio::spawn(inner.unlock());
    wait_until("the lost answer", SOON, || proxy.faults() > faults).await;
    wait_until("the end of the outer lease", SOON, || !server.exists("nested")).await;
    proxy.refuse(false);
    soon("unlocking", unlocking).await.unwrap().expect("it was released before the rest ended");
    assert!(outer.is_lost());
    drop(outer);
}

#[tokio::test]
async fn n12_a_wait_that_ends_in_an_outage_is_unknown_if_one_of_its_tries_was_executed() {
    let (server, proxy) = proxied();
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
    let client = builder.outage_limit(ms(3_000)).connect().await.unwrap();
    // It asks before it takes the silence for an outage.
    server.hold_by_hand("mute", "somebody:1", ms(1_200));
    let waiting = parked(&server, &client, "mute").await;
    proxy.settled(ms(100)).await;
    proxy.stall_replies(true);
    let error = soon("the end of the wait", waiting).await.unwrap().unwrap_err();
    let executed = server.holds("mute").into_keys().any(|owner| owner != "somebody:1");
    assert!(executed, "no try was executed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    proxy.cut_all();
    proxy.stall_replies(false);
    wait_until("the undo", SOON, || !server.exists("mute")).await;
}

#[tokio::test]
async fn c1_an_acquire_dropped_while_its_answer_is_on_its_way_leaves_the_lock_free() {
    let (server, proxy) = proxied();
    // An undo that waited for an answer would come too late.
    let (client, others) = (impatient(proxy.url(&server), MINUTE).await, connect(&server).await);
    release(hold(&client.lock("before")).await).await;
    proxy.stall_replies(true);
    let lock = client.lock("answer");
    let mut call = Steps::new(lock.lock());
    assert!(call.take(1).await.is_none());
    wait_until("the grant", SOON, || server.exists("answer")).await;
    assert!(!is_free(&others, "answer").await);
    drop(call);
    wait_until("a free lock", SOON, || !server.exists("answer")).await;
    proxy.stall_replies(false);
    // The handle is none the worse for it.
    release(hold(&lock).await).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}
