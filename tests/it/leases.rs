//! Leases end, are renewed, and never shrink under a guard that was promised more. What happens when
//! they are lost all the same is in `losses.rs`.

use tokio::time::Instant;

use crate::prelude::*;

fn count(setup: &Setup, guard: &LockGuard) -> u32 {
    setup.holds(guard.name()).get(guard.owner()).copied().unwrap_or(0)
}

/// One step of a mixed nesting.
async fn acquire(lock: &Lock, lease: Lease) -> LockGuard {
    let taken = soon("locking", lock.try_lock(Duration::ZERO, lease)).await;
    taken.expect("locking").expect("a lock that is free or our own")
}

// testLockReentrantRenew
pub(crate) async fn a_default_lease_is_renewed_for_as_long_as_it_is_held(setup: Setup) {
    let lease = setup.stretch(ms(600));
    let client = setup.client_with(lease).await;
    // Nested holds of another handle that were given back do not stop that.
    let before = client.lock("renewed");
    let (outer, inner) = (hold(&before).await, hold(&before).await);
    release(inner).await;
    release(outer).await;
    let lock = client.lock("renewed");
    let guard = hold(&lock).await;
    let start = Instant::now();
    while start.elapsed() < lease * 7 / 2 {
        let ttl = setup.pttl("renewed");
        let left = 1..=lease.as_millis() as i64;
        assert!(left.contains(&ttl), "{ttl} ms left after {:?}", start.elapsed());
        assert!(!guard.is_lost());
        assert!(guard.remaining() <= lease);
        tokio::time::sleep(ms(20)).await;
    }
    assert!(lock.is_held().await.unwrap());
    release(guard).await;
    assert!(!setup.exists("renewed"));
}

// testRemainTimeToLive, testRemainTimeToLive2
pub(crate) async fn mixed_nesting_never_shortens_what_a_live_guard_was_promised(setup: Setup) {
    let client = setup.connect().await;
    let [long, default, short] = [
        (Lease::Fixed(ms(100_000)), 100_u64),
        (Lease::Watchdog, 30),
        (Lease::Fixed(ms(10_000)), 10),
    ];
    let pairs = [
        (default, long),
        (default, short),
        (long, default),
        (short, default),
        (long, short),
        (short, long),
        (long, long),
    ];
    // The server's TTL, within five seconds for a machine that is slow.
    let promised = |what: &str, lease: u64| {
        let left = setup.pttl("mixed");
        let range = (lease as i64 - 5) * 1000..=lease as i64 * 1000;
        assert!(range.contains(&left), "{what}: {left} ms left of {lease} s");
    };
    // One handle, which does not remember the leases of its earlier holds.
    let lock = client.lock("mixed");
    for ((outer, outer_seconds), (inner, inner_seconds)) in pairs {
        for outer_first in [false, true] {
            let what = format!("{outer:?} then {inner:?}, outer released first: {outer_first}");
            let first = acquire(&lock, outer).await;
            promised(&what, outer_seconds);
            let second = acquire(&lock, inner).await;
            promised(&what, outer_seconds.max(inner_seconds));
            let (goes, stays, left) = if outer_first {
                (first, second, inner_seconds)
            } else {
                (second, first, outer_seconds)
            };
            release(goes).await;
            // Back to what is left promised: a lease that was asked for longer than a live guard
            // needs would keep others out for nothing if this process died now.
            promised(&what, left);
            assert!(!stays.is_lost(), "{what}");
            assert!(stays.remaining() <= Duration::from_secs(left), "{what}");
            release(stays).await;
            assert!(!setup.exists("mixed"), "{what}");
        }
    }
}

pub(crate) async fn a_renewal_does_not_shorten_an_explicit_lease(setup: Setup) {
    let lease = setup.stretch(ms(600));
    let client = setup.client_with(lease).await;
    let lock = client.lock("mixed");
    let long = lock.lock_with_lease(MINUTE).await.unwrap();
    let renewed = hold(&lock).await;
    tokio::time::sleep(lease * 5 / 3).await;
    assert!(setup.pttl("mixed") > 50_000);
    assert!(!renewed.is_lost());

    // The long promise goes; what is left is renewed on.
    release(long).await;
    assert!(setup.pttl("mixed") <= lease.as_millis() as i64);
    tokio::time::sleep(2 * lease).await;
    assert!(!renewed.is_lost());
    assert!(lock.is_held().await.unwrap());
    release(renewed).await;
}

pub(crate) async fn an_explicit_lease_outlives_the_watchdogs_hold_and_is_not_renewed_by_it(
    setup: Setup,
) {
    let client = setup.client_with(setup.stretch(ms(600))).await;
    let lock = client.lock("mixed");
    let renewed = hold(&lock).await;
    let lease = setup.stretch(ms(1_500));
    let start = Instant::now();
    let explicit = lock.lock_with_lease(lease).await.unwrap();
    release(renewed).await;
    let mut last = setup.pttl("mixed");
    while !explicit.is_lost() {
        let ttl = setup.pttl("mixed");
        assert!(ttl <= last, "the lease grew from {last} to {ttl} ms");
        last = ttl;
        tokio::time::sleep(ms(20)).await;
    }
    assert!(start.elapsed() > lease - ms(100), "lost after {:?}", start.elapsed());
    assert!(passed(start) < 2 * lease, "lost after {:?}", passed(start));
    wait_until("a free lock", SOON, || !setup.exists("mixed")).await;
}

pub(crate) async fn a_short_nested_lease_is_lost_alone(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("mixed");
    let outer = hold(&lock).await;
    let inner = lock.lock_with_lease(setup.stretch(ms(300))).await.unwrap();
    soon("the end of the inner lease", inner.lost()).await;
    assert!(!outer.is_lost());
    assert!(lock.is_held().await.unwrap());
    drop(inner);
    wait_until("the outer hold alone", SOON, || count(&setup, &outer) == 1).await;
    release(outer).await;
    assert!(!setup.exists("mixed"));
}

#[tokio::test]
async fn c9_a_runtime_whose_thread_is_blocked_keeps_its_lock() {
    let setup = Setup::alone();
    let client = setup.client_with(ms(2_400)).await;
    let guard = hold(&client.lock("blocked")).await;
    let task = tokio::spawn(async {});
    let start = Instant::now();
    // This very thread drives the client's runtime, and now it looks on instead.
    while start.elapsed() < ms(3_000) {
        assert!(setup.exists("blocked"), "lost after {:?}", start.elapsed());
        assert!(!guard.is_lost(), "believed lost after {:?}", start.elapsed());
        std::thread::sleep(ms(20));
    }
    assert!(!task.is_finished(), "the runtime was not blocked");
    release(guard).await;
}

#[tokio::test]
async fn s22_an_end_taken_away_is_put_back_by_the_next_renewal() {
    let setup = Setup::alone();
    let client = setup.client_with(ms(3_000)).await;
    let guard = hold(&client.lock("tampered")).await;
    setup.ask::<()>("PERSIST", "tampered", &[]);
    wait_until("an end again", SOON, || setup.pttl("tampered") > 0).await;
    assert!(!guard.is_lost());
    release(guard).await;
}
