//! One command's way there or back is lost. Whatever the server has done by then, the caller's
//! count and Redis's count agree in the end, and no error is told that did not happen.

use std::time::Duration;

use crate::support::{Fault, Proxy, SOON, Server, hold, ms, release, soon, wait_until};
use redlatch::{ErrorKind, LockClient, LockGuard, Outcome};

const FAULTS: [Fault; 2] = [Fault::ResetBeforeSend, Fault::DropReplyAndReset];

struct Scene {
    server: Server,
    proxy: Proxy,
    client: LockClient,
}

/// A client behind a proxy, whose scripts the server knows already.
async fn scene() -> Scene {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).watchdog_timeout(ms(3_000));
    let client = builder.command_timeout(ms(1_000)).connect().await.unwrap();
    let lock = client.lock("warm-up");
    release(hold(&lock).await).await;
    drop(hold(&lock).await);
    wait_until("a free lock", SOON, || !server.exists("warm-up")).await;
    Scene { server, proxy, client }
}

impl Scene {
    fn count(&self, name: &str) -> u32 {
        self.server.holds(name).values().sum()
    }
}

#[tokio::test]
async fn a_lost_acquire_is_granted_once() {
    for fault in FAULTS {
        let scene = scene().await;
        let lock = scene.client.lock("lost");
        scene.proxy.plan("EVALSHA", 1, fault);
        let guard = hold(&lock).await;
        assert_eq!(scene.proxy.faults(), 1);
        assert_eq!(scene.count("lost"), 1, "{fault:?}");
        release(guard).await;
        assert!(!scene.server.exists("lost"), "{fault:?}");
    }
}

#[tokio::test]
async fn a_lost_nested_acquire_is_counted_once() {
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
async fn a_lost_release_is_no_error_and_frees_once() {
    for fault in FAULTS {
        let scene = scene().await;
        let lock = scene.client.lock("lost");
        let guard = hold(&lock).await;
        scene.proxy.plan("EVALSHA", 1, fault);
        soon("unlocking", guard.unlock()).await.expect("the lock was held and is free");
        assert_eq!(scene.proxy.faults(), 1);
        assert!(!scene.server.exists("lost"), "{fault:?}");
    }
}

#[tokio::test]
async fn a_lost_nested_release_gives_one_hold_back() {
    for fault in FAULTS {
        let scene = scene().await;
        let lock = scene.client.lock("lost");
        let guards = [hold(&lock).await, hold(&lock).await, hold(&lock).await];
        let [outer, middle, inner] = guards;
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
async fn a_lost_release_of_a_dropped_guard_is_made_again() {
    for fault in FAULTS {
        let scene = scene().await;
        let guard = hold(&scene.client.lock("lost")).await;
        scene.proxy.plan("EVALSHA", 1, fault);
        drop(guard);
        wait_until("a free lock", SOON, || !scene.server.exists("lost")).await;
        wait_until("the fault", SOON, || scene.proxy.faults() == 1).await;
    }
}

#[tokio::test]
async fn a_lost_renewal_is_made_again_and_loses_nothing() {
    for fault in FAULTS {
        let scene = scene().await;
        let guard = hold(&scene.client.lock("lost")).await;
        scene.proxy.plan("EVALSHA", 1, fault);
        wait_until("a renewal that is lost", SOON, || scene.proxy.faults() == 1).await;
        // Past the end of the lease that was in force when it was lost.
        tokio::time::sleep(ms(3_300)).await;
        assert!(!guard.is_lost(), "{fault:?}");
        assert!(scene.server.exists("lost"));
        release(guard).await;
    }
}

#[tokio::test]
async fn a_renewal_that_failed_for_good_is_followed_by_another() {
    let scene = scene().await;
    let builder = LockClient::builder().url(scene.proxy.url(&scene.server));
    let builder = builder.watchdog_timeout(ms(3_000)).command_timeout(ms(200));
    let client = builder.connect().await.unwrap();
    let guard = hold(&client.lock("mute")).await;
    // Opens the connection of the background, which the renewal will use.
    drop(hold(&client.lock("warm-up")).await);
    wait_until("a free lock", SOON, || !scene.server.exists("warm-up")).await;
    scene.proxy.forget_commands();
    scene.proxy.stall_replies(true);
    wait_until("a renewal", SOON, || scene.proxy.sent("EVALSHA") == 1).await;
    // Twice as long as one command may take: that renewal has failed by now.
    tokio::time::sleep(ms(400)).await;
    scene.proxy.cut_all();
    scene.proxy.stall_replies(false);
    tokio::time::sleep(ms(3_300)).await;
    assert!(!guard.is_lost());
    assert!(scene.server.exists("mute"));
    release(guard).await;
}

#[tokio::test]
async fn a_lost_subscription_is_made_again() {
    for fault in FAULTS {
        let scene = scene().await;
        scene.server.hold_by_hand("lost", "somebody", Duration::from_secs(60));
        scene.proxy.plan("SUBSCRIBE", 1, fault);
        let waiter = {
            let lock = scene.client.lock("lost");
            tokio::spawn(async move { lock.lock().await.unwrap() })
        };
        wait_until("the fault", SOON, || scene.proxy.faults() == 1).await;
        wait_until("a subscription", SOON, || {
            scene.proxy.sent("SUBSCRIBE") >= 2 && scene.server.subscribers("lost") == 1
        })
        .await;
        scene.server.free_by_hand("lost");
        release(soon("the waiter", waiter).await.unwrap()).await;
    }
}

#[tokio::test]
async fn an_acquire_whose_answer_never_comes_is_given_back_when_redis_can_be_asked() {
    let scene = scene().await;
    let lock = scene.client.lock("mute");
    scene.proxy.stall_replies(true);
    let error = soon("an error", lock.try_lock_now()).await.expect_err("no answer came");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    assert!(scene.server.exists("mute"), "the server did grant it: that is the point");
    // Lost for good, not late.
    scene.proxy.cut_all();
    scene.proxy.stall_replies(false);
    wait_until("a free lock", ms(2_500), || !scene.server.exists("mute")).await;
    release(hold(&lock).await).await;
}

#[tokio::test]
async fn an_unlock_whose_answer_never_comes_says_unknown_and_frees_all_the_same() {
    let scene = scene().await;
    let guard = hold(&scene.client.lock("mute")).await;
    scene.proxy.stall_replies(true);
    let error = soon("an error", guard.unlock()).await.expect_err("no answer came");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    scene.proxy.cut_all();
    scene.proxy.stall_replies(false);
    wait_until("a free lock", SOON, || !scene.server.exists("mute")).await;
}

#[tokio::test]
async fn a_cut_at_every_command_of_a_contended_hand_off_stalls_nobody() {
    for fault in FAULTS {
        for nth in 1..=8 {
            let scene = scene().await;
            let guard = hold(&scene.client.lock("passed")).await;
            let waiting = (0..3).map(|_| {
                let lock = scene.client.lock("passed");
                tokio::spawn(async move {
                    let guard: LockGuard = lock.lock().await.expect("a turn");
                    release(guard).await;
                })
            });
            let waiting: Vec<_> = waiting.collect();
            wait_until("a subscription", SOON, || scene.server.subscribers("passed") == 1).await;
            scene.proxy.plan("EVALSHA", nth, fault);
            release(guard).await;
            for waiter in waiting {
                soon("a turn", waiter).await.unwrap();
            }
            // Three turns are six commands at least; the later faults may find nothing to befall.
            assert!(nth > 6 || scene.proxy.faults() == 1, "{fault:?} of command {nth}");
            wait_until("a free lock", SOON, || !scene.server.exists("passed")).await;
        }
    }
}

#[tokio::test]
async fn a_call_under_way_at_a_close_finds_a_new_connection_after_a_cut() {
    let Scene { server, proxy, client } = scene().await;
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
