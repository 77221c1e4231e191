//! Calls that the lock was handed to, and that are not polled: a blocked worker, a busy `select!`.

use futures::FutureExt;
use futures::future::BoxFuture;
use redlatch::FairLock;
use tokio_test::task::{self, Spawn};

use crate::prelude::*;

const NAME: &str = "unpolled";
const WATCHDOG: Duration = ms(3_000);
const DISTANCES: [Duration; 3] = [Duration::ZERO, ms(2), ms(100)];

pub(crate) type Call = Spawn<BoxFuture<'static, Result<LockGuard, Error>>>;

/// A call that is polled until it is parked, and then no more.
pub(crate) async fn park(
    machine: &Machine,
    away: Duration,
    call: impl Future<Output = Result<LockGuard, Error>> + Send + 'static,
) -> Call {
    let mut call = task::spawn(machine.run(call).boxed());
    let begun = Instant::now();
    while begun.elapsed() < 8 * away + ms(10) {
        assert!(call.poll().is_pending());
        sleep(ms(1)).await;
    }
    call
}

/// The hold of a fair lock that Redis grants to a client by a message, while nothing polls the call that gets it.
struct Granted {
    machine: Machine,
    client: LockClient,
    other: LockClient,
    lock: Arc<FairLock>,
    late: Call,
}

impl Granted {
    async fn new(
        scene: &Scene,
        away: Duration,
        options: LockClientBuilder,
        lease: Option<Duration>,
    ) -> Self {
        let (machine, client) = scene.client(away, options).await;
        let (_, other) = scene.client(away, LockClient::builder()).await;
        let guard = other.fair_lock(NAME).lock().await.expect("the lock");
        let lock = Arc::new(client.fair_lock(NAME));
        let late = park(&machine, away, lock_for(lock.clone(), lease)).await;
        guard.unlock().await.expect("a release");
        sleep(2 * away + ms(1)).await;
        Self { machine, client, other, lock, late }
    }

    /// Another call of the same handle.
    async fn nest(&self, lease: Option<Duration>) -> LockGuard {
        self.machine.run(lock_for(self.lock.clone(), lease)).await.expect("the lock")
    }
}

/// A hold that nested in one that was handed to a call which is not polled, with that lease; and that call.
async fn nests_beside(scene: &Scene, away: Duration, lease: Option<Duration>) -> (LockGuard, Call) {
    let options = LockClient::builder().watchdog_timeout(WATCHDOG);
    let (machine, client) = scene.client(away, options).await;
    let guard = client.lock(NAME).lock().await.expect("the lock");
    let lock = Arc::new(client.lock(NAME));
    let late = park(&machine, away, lock_for(lock.clone(), lease)).await;
    drop(guard);
    (machine.run(lock.lock()).await.expect("the lock"), late)
}

/// The late call comes when its hold has ended, or never.
#[test]
fn what_nested_in_a_hold_that_came_too_late_is_renewed() {
    for (away, goes_on) in DISTANCES.into_iter().flat_map(|away| [(away, true), (away, false)]) {
        play(0, async |scene| {
            let (nested, mut late) = nests_beside(scene, away, Some(ms(1_000))).await;
            sleep(ms(1_000)).await;
            assert!(late.poll().is_pending(), "it came too late");
            if goes_on {
                late.await.expect("it nests, too").unlock().await.expect("a release");
            } else {
                drop(late);
            }
            sleep(4 * WATCHDOG).await;
            assert!(!nested.is_lost(), "{away:?}, {goes_on}");
            nested.unlock().await.expect("a release");
        });
    }
}

/// The watchdog renews it while nothing is heard of the late call, which costs other clients no more than its lease.
#[test]
fn what_nested_in_a_hold_that_no_call_takes_is_renewed() {
    for (away, lease) in
        DISTANCES.into_iter().flat_map(|away| [(away, Some(ms(1_000))), (away, None)])
    {
        play(0, async |scene| {
            let (_, other) = scene.client(away, LockClient::builder()).await;
            let (nested, late) = nests_beside(scene, away, lease).await;
            sleep(6 * WATCHDOG).await;
            assert!(!nested.is_lost(), "{away:?}, {lease:?}");
            drop(nested);
            let begun = Instant::now();
            other.lock(NAME).lock().await.expect("the lock").unlock().await.expect("a release");
            let waited = begun.elapsed();
            assert!(waited <= WATCHDOG + 8 * away + ms(50), "{away:?}, {lease:?}: {waited:?}");
            drop(late);
        });
    }
}

/// Redis granted the lock by a message, and has to hear of the hold that nested meanwhile.
#[test]
fn what_nested_in_a_grant_that_no_call_took_is_renewed() {
    for away in DISTANCES {
        play(0, async |scene| {
            let granted = Granted::new(scene, away, LockClient::builder(), None).await;
            let nested = granted.nest(None).await;
            sleep(ms(2_000)).await;
            drop(granted.late);
            sleep(2 * MINUTE).await;
            assert!(!nested.is_lost(), "{away:?}");
            // The next hand-off is seen to, too.
            let next = waiting_for(&granted.machine, granted.client.fair_lock(NAME));
            sleep(8 * away + ms(100)).await;
            nested.unlock().await.expect("a release");
            let (next, _) = next.await.expect("no panic");
            next.unlock().await.expect("a release");
            assert!(scene.holds(NAME).is_empty());
        });
    }
}

/// The watchdog is not to wait until Redis hears of the late call: that is when its grant has ended.
#[test]
fn a_hold_that_nested_in_a_grant_is_renewed_although_a_lease_is_shorter_than_the_grace() {
    for away in [Duration::ZERO, ms(2)] {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(ms(500));
            let granted = Granted::new(scene, away, options, None).await;
            let nested = granted.nest(None).await;
            sleep(ms(3_000)).await;
            assert!(!nested.is_lost(), "{away:?}");
            nested.unlock().await.expect("a release");
            drop(granted.late);
        });
    }
}

/// What Redis hears of the hold that nested is the lease of that one.
#[test]
fn the_lease_of_a_grant_that_no_call_took_keeps_no_other_client_waiting() {
    for away in DISTANCES {
        play(0, async |scene| {
            let hour = Some(60 * MINUTE);
            let granted = Granted::new(scene, away, LockClient::builder(), hour).await;
            let hangs = granted.nest(Some(ms(2_000))).await;
            drop(granted.late);
            let begun = Instant::now();
            let lock = granted.other.fair_lock(NAME);
            let next = timeout(MINUTE, lock.lock()).await.expect("it comes").expect("the lock");
            let waited = begun.elapsed();
            assert!(waited <= ms(2_000) + 8 * away + ms(50), "{away:?}: {waited:?}");
            next.unlock().await.expect("a release");
            drop(hangs);
        });
    }
}

/// Redis has heard of no new lease, and the key lasts for what is left of the one in force.
#[test]
fn the_next_call_looks_when_the_key_ends_that_was_handed_to_a_call_that_is_not_polled() {
    for away in DISTANCES {
        play(0, async |scene| {
            let options = LockClient::builder().watchdog_timeout(WATCHDOG);
            let (machine, client) = scene.client(away, options).await;
            let begun = Instant::now();
            let guard = client.lock(NAME).lock().await.expect("the lock");
            let late = client.lock(NAME);
            let _late = park(&machine, away, async move { late.lock().await }).await;
            let next = waiting_for(&machine, client.lock(NAME));
            tokio::time::sleep_until(begun + ms(850)).await;
            let left = Duration::from_millis(scene.pttl(NAME) as u64);
            assert!(left < 3 * WATCHDOG / 4, "no renewal so far: that is the point");
            let ends = Instant::now() + left;
            drop(guard);
            let (guard, came) = timeout(MINUTE, next).await.expect("it comes").expect("no panic");
            let late = came.saturating_duration_since(ends);
            assert!(late <= 3 * away + ms(50), "{away:?}: {late:?} after the end of the key");
            guard.unlock().await.expect("a release");
        });
    }
}

/// It waits for the answer to another request of its handle, and is not polled when that has come.
#[test]
fn a_release_waits_for_no_call_that_waits_for_another_request_and_is_not_polled() {
    for away in [ms(2), ms(100)] {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (near, other) = scene.client(ms(2), LockClient::builder()).await;
            let lock = Arc::new(client.lock(NAME));
            let guard = machine.run(lock_for(lock.clone(), None)).await.expect("the lock");
            let next = waiting_for(&near, other.lock(NAME));
            wait_until("it is parked", MINUTE, || scene.subscribers(NAME) == 1).await;
            let mut extends = task::spawn(machine.run(guard.extend(MINUTE)));
            assert!(extends.poll().is_pending());
            let mut late = task::spawn(machine.run(lock_for(lock, None)).boxed());
            assert!(late.poll().is_pending());
            extends.await.expect("an answer");
            let given_back = Instant::now();
            drop(guard);
            let (guard, came) = next.await.expect("no panic");
            let took = came.saturating_duration_since(given_back);
            assert!(took <= away + ms(20), "{away:?}: {took:?}");
            guard.unlock().await.expect("a release");
        });
    }
}

#[test]
fn c15_a_call_that_is_not_polled_holds_up_those_behind_it_and_no_other_client() {
    let away = ms(4);
    for is_dropped in [true, false] {
        play(0, async |scene| {
            let (machine, client) = scene.client(away, LockClient::builder()).await;
            let (_, other) = scene.client(away, LockClient::builder()).await;
            let guard = other.lock(NAME).lock().await.expect("the lock");
            let first = park(&machine, away, lock_for(client.lock(NAME).into(), None)).await;
            let second = waiting_for(&machine, client.lock(NAME));
            sleep(10 * away).await;
            guard.unlock().await.expect("a release");
            sleep(2 * away).await;
            assert!(first.is_woken());
            // From here on it is not polled. Other clients have the lock as they like.
            for _ in 0..2 {
                let theirs = async { other.lock(NAME).lock().await.unwrap().unlock().await };
                timeout(4 * away, theirs).await.expect("in time").expect("a release");
            }
            sleep(ms(200)).await;
            assert!(!second.is_finished(), "the second did not stand behind the first");
            if is_dropped {
                drop(first);
            } else {
                first.await.expect("the lock").unlock().await.expect("a release");
            }
            let (guard, _) = timeout(8 * away, second).await.expect("its turn").expect("no panic");
            guard.unlock().await.expect("a release");
            assert!(scene.holds(NAME).is_empty());
        });
    }
}

#[test]
fn c15_a_grant_that_nobody_polls_for_is_not_renewed_and_overlaps_nobody() {
    let (away, lease) = (ms(4), ms(300));
    play(0, async |scene| {
        let options = LockClient::builder().watchdog_timeout(lease);
        let (machine, client) = scene.client(away, options).await;
        let (_, other) = scene.client(away, LockClient::builder()).await;
        let call = lock_for(client.lock(NAME).into(), None);
        let mut call = task::spawn(machine.run(call).boxed());
        assert!(call.poll().is_pending());
        sleep(away).await;
        assert_eq!(scene.holds(NAME).len(), 1, "it is granted: that is the point");
        let guard = timeout(2 * lease, other.lock(NAME).lock()).await.expect("it is not renewed");
        let guard = guard.expect("the lock");
        // Whatever it comes to when it is polled at last, it is no lock.
        let late = timeout(ms(200), call).await;
        let believed = matches!(&late, Ok(Ok(guard)) if !guard.is_lost());
        assert!(!believed && !guard.is_lost(), "two have the lock: {late:?}");
        drop(late);
        sleep(ms(200)).await;
        assert_eq!(Vec::from_iter(scene.holds(NAME)), [(guard.owner().to_owned(), 1)]);
        guard.unlock().await.expect("a release");
        assert!(scene.holds(NAME).is_empty());
    });
}
