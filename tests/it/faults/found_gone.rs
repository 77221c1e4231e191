//! A request that finds the key gone wakes the waiters of its client (W20; a hand-off does so in
//! `hand_off/lost.rs`). The key was deleted by hand and nothing was published, so nothing else wakes
//! them before the lease could have ended.

use std::time::Instant;

use super::*;

/// Much longer than a round trip, and much shorter than the lease of a holder.
const AT_ONCE: Duration = Duration::from_secs(2);

struct Scene {
    server: Server,
    client: LockClient,
}

async fn scene(watchdog_timeout: Duration, max_handoffs: u32) -> Scene {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).max_handoffs(max_handoffs);
    let client = connected(builder.watchdog_timeout(watchdog_timeout)).await;
    Scene { server, client }
}

impl Scene {
    /// A waiter of this client that is parked, after Redis has told it how long the lease is.
    async fn parked(&self, name: &str) -> JoinHandle<LockGuard> {
        let refused = self.server.calls("evalsha") + 2;
        let waiter = waiting(&self.client, name);
        wait_until("a subscription", SOON, || self.server.subscribers(name) == 1).await;
        wait_until("a second refusal", SOON, || self.server.calls("evalsha") >= refused).await;
        // What is asked behind it is answered, so its answer is here; and the waiter has read it.
        assert!(!soon("an answer", self.client.lock("behind").is_locked()).await.unwrap());
        turns(10).await;
        waiter
    }

    /// Nobody is told.
    fn delete(&self, name: &str) {
        assert_eq!(self.server.ask::<u64>(&["DEL", name]), 1);
    }
}

/// The waiter has the lock long before the lease of the holder that is gone could have ended.
async fn is_woken(waiter: JoinHandle<LockGuard>, since: Instant) {
    let guard = soon("the waiter has the lock", waiter).await.expect("a guard");
    assert!(passed(since) < AT_ONCE, "after {:?}", passed(since));
    release(guard).await;
}

#[tokio::test]
async fn w20_a_renewal_that_finds_the_key_gone_wakes_a_waiter() {
    // Renewed after 2 s. The waiter sleeps for 6 s.
    let scene = scene(ms(6_000), 100).await;
    let guard = hold(&scene.client.lock("gone")).await;
    let waiter = scene.parked("gone").await;
    scene.delete("gone");
    soon("the renewal", guard.lost()).await;
    assert_eq!(guard.loss(), Some(Loss::KeyGone), "not found by a renewal");
    is_woken(waiter, Instant::now()).await;
}

#[tokio::test]
async fn w20_a_release_that_finds_the_key_gone_wakes_a_waiter() {
    // Without hand-offs a release goes to Redis.
    let scene = scene(ms(30_000), 0).await;
    for name in ["unlocked", "dropped", "unlocked in part"] {
        let lock = scene.client.lock(name);
        let mut guards = vec![lock.lock_with_lease(MINUTE).await.expect("the lock")];
        if name == "unlocked in part" {
            guards.push(lock.lock_with_lease(MINUTE).await.expect("a nested hold"));
        }
        let waiter = scene.parked(name).await;
        scene.delete(name);
        let begun = Instant::now();
        let guard = guards.pop().expect("a guard");
        if name == "dropped" {
            drop(guard);
        } else {
            let error = soon("unlocking", guard.unlock()).await.expect_err("a lost lock");
            assert_eq!(error.kind(), ErrorKind::Lost, "{name}: {error}");
        }
        is_woken(waiter, begun).await;
        assert!(guards.iter().all(LockGuard::is_lost), "{name}");
    }
}

#[tokio::test]
async fn w20_a_nested_hold_that_finds_the_key_gone_wakes_a_waiter() {
    let scene = scene(ms(30_000), 100).await;
    let lock: Lock = scene.client.lock("gone");
    let outer = lock.lock_with_lease(MINUTE).await.expect("the lock");
    let waiter = scene.parked("gone").await;
    scene.delete("gone");
    let begun = Instant::now();
    // It becomes a first hold, whose lease is what the waiter has to wait for from now on. Nobody
    // gives it back, so nothing is published at its end.
    let first = soon("locking", lock.lock_with_lease(ms(600))).await.expect("the lock");
    assert!(outer.is_lost());
    std::mem::forget(first);
    is_woken(waiter, begun).await;
}
