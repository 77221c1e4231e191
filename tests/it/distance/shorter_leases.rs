//! W7: the lease in force gets shorter while others wait.
//!
//! Whoever waits had counted on the longer lease. It looks again when the new one ends: at most
//! 50 ms later, and what the network takes. It is told of nothing then, because a lease that ends
//! by itself is told to nobody.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlatch::{Lock, LockClient, LockGuard};
use tokio::task::JoinHandle;

use crate::support::{
    Distance, Listener, Network, SOON, Server, channel, connect, hold, machine, ms, release, soon,
    wait_until,
};

const MINUTE: Duration = Duration::from_secs(60);

/// The new lease.
const SHORT: Duration = ms(1_500);

/// Round trips.
const DISTANCES: [Duration; 3] = [Duration::ZERO, ms(2), ms(100)];

/// What is promised of a waiter's next look.
const LATE: Duration = ms(50);

/// One network for each of two clients.
struct Scene {
    server: Server,
    round_trip: Duration,
    _networks: [Network; 2],
    client: LockClient,
    other: LockClient,
}

impl Scene {
    async fn new(round_trip: Duration) -> Self {
        let server = Server::start();
        let networks = [(); 2].map(|()| Network::new(&server, Distance::round_trip(round_trip)));
        let [client, other] = [&networks[0], &networks[1]].map(|network| network.url(&server));
        let client = soon("connecting", LockClient::connect(client.as_str())).await.unwrap();
        let other = soon("connecting", LockClient::connect(other.as_str())).await.unwrap();
        // The scripts are there.
        for client in [&client, &other] {
            let lock = client.lock("before");
            let (outer, inner) = (hold(&lock).await, hold(&lock).await);
            release(inner).await;
            release(outer).await;
        }
        Self { server, round_trip, _networks: networks, client, other }
    }

    /// Waits for the lock, and says when it came.
    fn waiter(lock: Lock) -> JoinHandle<(Instant, LockGuard)> {
        tokio::spawn(async move {
            let guard = lock.lock().await.expect("the lock");
            (Instant::now(), guard)
        })
    }

    /// Parks somebody of the other client, and perhaps somebody of the same one behind that.
    async fn park(&self, name: &str, ours: bool) -> JoinHandle<(Instant, LockGuard)> {
        let clients = self.server.subscribers(name) + 1;
        let lock = if ours { self.client.lock(name) } else { self.other.lock(name) };
        let waiter = Self::waiter(lock);
        wait_until("a subscription", SOON, || self.server.subscribers(name) == clients).await;
        // The second refusal is on its way.
        tokio::time::sleep(2 * self.round_trip + ms(100)).await;
        assert!(!waiter.is_finished());
        waiter
    }

    /// The lease in force is the short one now. When it ends.
    async fn until_short(&self, name: &str) -> Instant {
        let left = || self.server.pttl(name);
        assert!(left() > 0, "it has ended already");
        wait_until("a shorter lease", SOON, || left() <= SHORT.as_millis() as i64).await;
        let left = left();
        assert!(left > 500, "{left} ms: too late to tell");
        Instant::now() + Duration::from_millis(left as u64)
    }

    /// The waiter has the lock when the lease that ends by itself has ended, and soon.
    async fn comes(&self, ends: Instant, waiter: JoinHandle<(Instant, LockGuard)>) -> LockGuard {
        let (came, guard) = soon("the waiter", waiter).await.expect("no panic");
        let late = came.saturating_duration_since(ends);
        // A look that came just before, one that asks, and a busy machine.
        let limit = LATE + 2 * self.round_trip + ms(150);
        assert!(late < limit, "{late:?} after the end of the lease");
        assert!(came + ms(50) > ends, "it came before the lease had ended");
        guard
    }
}

/// A hand-off to a lease that is shorter.
async fn handed(round_trip: Duration) {
    let scene = Scene::new(round_trip).await;
    let name = "handed";
    let guard = hold(&scene.client.lock(name)).await;
    let next = {
        let lock = scene.client.lock(name);
        tokio::spawn(async move { lock.lock_with_lease(SHORT).await.expect("the lock") })
    };
    wait_until("a subscription", SOON, || scene.server.subscribers(name) == 1).await;
    tokio::time::sleep(2 * round_trip + ms(100)).await;
    let other = scene.park(name, false).await;
    assert!(scene.server.pttl(name) > 20_000, "it was short before");
    let unlocking = tokio::spawn(guard.unlock());
    let guard = soon("the hand-off", next).await.unwrap();
    let ends = scene.until_short(name).await;
    // It ends by itself.
    let guard = scene.comes(ends, other).await.also(guard);
    soon("unlocking", unlocking).await.unwrap().expect("unlocking");
    release(guard).await;
}

trait Also: Sized {
    /// Both are there up to here.
    fn also<T>(self, other: T) -> Self {
        drop(other);
        self
    }
}

impl Also for LockGuard {}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// The outer hold, which came first.
    Outer,
    /// The inner one: they are given back in the order in which they came.
    Inner,
}

/// A nested hold goes, and with it the longer lease.
async fn nested(round_trip: Duration, stays: Stays, ours: bool) {
    let scene = Scene::new(round_trip).await;
    let name = "nested";
    let lock = scene.client.lock(name);
    let (goes, stays) = match stays {
        Stays::Outer => {
            let outer = lock.lock_with_lease(SHORT + 4 * round_trip + ms(400)).await.unwrap();
            (lock.lock_with_lease(MINUTE).await.unwrap(), outer)
        }
        Stays::Inner => {
            let outer = lock.lock_with_lease(MINUTE).await.unwrap();
            (outer, lock.lock_with_lease(SHORT + 4 * round_trip + ms(400)).await.unwrap())
        }
    };
    let waiter = scene.park(name, ours).await;
    assert!(scene.server.pttl(name) > 20_000, "it was short before");
    release(goes).await;
    let ends = scene.until_short(name).await;
    let guard = scene.comes(ends, waiter).await.also(stays);
    release(guard).await;
}

#[tokio::test]
async fn w7_another_client_looks_when_the_shorter_lease_ends_that_was_handed_off() {
    let _quiet = machine::quiet();
    join_all(DISTANCES.map(handed)).await;
}

#[tokio::test]
async fn w7_another_client_looks_when_the_lease_ends_that_a_nested_hold_leaves() {
    let _quiet = machine::quiet();
    for stays in [Stays::Outer, Stays::Inner] {
        join_all(DISTANCES.map(|round_trip| nested(round_trip, stays, false))).await;
    }
}

#[tokio::test]
async fn w7_the_same_client_looks_when_the_lease_ends_that_a_nested_hold_leaves() {
    let _quiet = machine::quiet();
    for stays in [Stays::Outer, Stays::Inner] {
        join_all(DISTANCES.map(|round_trip| nested(round_trip, stays, true))).await;
    }
}

#[tokio::test]
async fn w7_a_lease_that_gets_no_shorter_is_told_to_nobody() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let client = connect(&server).await;
    let name = "no shorter";
    let listener = Listener::new(&server, &channel(name));
    let lock = client.lock(name);
    for lease in [MINUTE, ms(10_000)] {
        let outer = lock.lock_with_lease(MINUTE).await.unwrap();
        let inner = lock.lock_with_lease(lease).await.unwrap();
        release(inner).await;
        // A default lease takes over from what was explicit, and its own kind.
        let next = {
            let lock = client.lock(name);
            tokio::spawn(async move { lock.lock_with_lease(2 * MINUTE).await.expect("the lock") })
        };
        wait_until("a subscription", SOON, || server.subscribers(name) == 2).await;
        tokio::time::sleep(ms(100)).await;
        let before = server.calls("hdel");
        release(outer).await;
        let guard = soon("the hand-off", next).await.unwrap();
        assert_eq!(server.calls("hdel"), before + 1, "it was not handed off");
        release(guard).await;
        wait_until("no subscription is kept", SOON, || server.subscribers(name) == 1).await;
    }
    // The two releases.
    assert_eq!(listener.heard(&server), ["0", "0"]);
}

#[tokio::test]
async fn w7_a_hold_that_takes_over_a_longer_lease_leaves_it_in_force() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let client = connect(&server).await;
    let name = "taken over";
    let lock = client.lock(name);
    // The server has missed the release of an earlier hold of this owner.
    server.hold_by_hand(name, lock.owner(), MINUTE);
    let guard = soon("locking", lock.lock_with_lease(SHORT)).await.expect("the lock");
    assert!(guard.remaining() <= SHORT, "{:?}", guard.remaining());
    assert!(server.pttl(name) > 20_000, "{} ms", server.pttl(name));
    assert_eq!(server.holds(name)[lock.owner()], 1);
    release(guard).await;
    assert!(!server.exists(name));
}
