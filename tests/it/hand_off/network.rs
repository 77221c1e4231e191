//! The network fails under the request that tells Redis of a hand-off.

use super::*;

const FAULTS: [(&str, Fault); 4] = [
    ("reset before", Fault::ResetBeforeSend),
    ("reset after", Fault::DropReplyAndReset),
    ("mute", Fault::Mute),
    ("black hole", Fault::BlackHole),
];

#[tokio::test]
async fn a_hand_off_whose_request_fails_is_told_to_redis_again() {
    for (name, fault) in FAULTS {
        let scene = Scene::with(&[], hasty).await;
        // Less than a waiter asks for: what the new guard is believed for beyond that is confirmed.
        let guard = scene.client.lock(name).lock_with_lease(ms(15_000)).await.unwrap();
        let mut next = Waiter::first(&scene, name, LOCK).await;
        let behind = Waiter::behind(&scene.client, name, LOCK);
        let outside = scene.outside(name).await;
        scene.proxy.plan("EVALSHA", 1, fault);
        let faults = scene.proxy.faults();
        let owner = guard.owner().to_owned();
        let old = unlocking(guard);
        let guard = next.has();
        let said = soon("an answer", old).await;
        assert_eq!(scene.proxy.faults(), faults + 1, "{name}");
        if let Fault::Mute | Fault::BlackHole = fault {
            let error = said.expect_err("no answer");
            let what = (error.kind(), error.outcome());
            assert_eq!(what, (ErrorKind::Unavailable, Outcome::Unknown), "{name}: {error}");
        } else {
            said.expect("it is sent again");
        }
        wait_until("the confirmation", SOON, || guard.remaining() > ms(20_000)).await;
        scene.assert_held(name, &owner);
        assert!(!outside.is_finished(), "another client got in");
        release(guard).await;
        tokio::join!(async { release(behind.gets().await).await }, async {
            release(soon("their turn", outside).await.unwrap()).await
        });
        scene.until_gone(name).await;
    }
}

#[tokio::test]
async fn steps_that_come_while_a_hand_off_is_not_answered_go_with_the_next_try() {
    for (name, fault) in FAULTS {
        let scene = Scene::with(&[], hasty).await;
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
