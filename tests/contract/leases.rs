//! Leases are renewed, or are not, and never shrink under a guard that was promised more.

use std::time::{Duration, Instant};

use redlatch::{Lease, Lock, LockGuard};

use crate::support::{SOON, hold, ms, release, soon, wait_until};
use crate::{MINUTE, Site};

fn lock_count(site: &Site, lock: &Lock) -> u32 {
    site.holds(lock.name()).get(lock.owner()).copied().unwrap_or(0)
}

async fn acquire(lock: &Lock, lease: Lease) -> LockGuard {
    let taken = soon("locking", lock.try_lock(Duration::ZERO, lease)).await;
    taken.expect("locking").expect("a lock that is free or our own")
}

pub(super) async fn a_default_lease_is_renewed_for_as_long_as_it_is_held(site: Site) {
    let client = site.client_with(ms(600)).await;
    let lock = client.lock("renewed");
    let guard = hold(&lock).await;
    let start = Instant::now();
    while start.elapsed() < ms(2_100) {
        let ttl = site.pttl("renewed");
        assert!((1..=600).contains(&ttl), "{ttl} ms left after {:?}", start.elapsed());
        assert!(!guard.is_lost());
        assert!(guard.remaining() <= ms(600));
        tokio::time::sleep(ms(20)).await;
    }
    release(guard).await;
    assert!(!site.exists("renewed"));
}

pub(super) async fn mixed_nesting_never_shortens_what_a_live_guard_was_promised(site: Site) {
    let watchdog = Duration::from_secs(30);
    let client = site.client_with(watchdog).await;
    let long = Lease::Fixed(Duration::from_secs(100));
    let short = Lease::Fixed(Duration::from_secs(10));
    let default = Lease::Watchdog;
    let seconds = |lease| match lease {
        Lease::Watchdog => watchdog.as_secs(),
        Lease::Fixed(lease) => lease.as_secs(),
    };
    let pairs = [
        (default, long),
        (default, short),
        (long, default),
        (short, default),
        (long, short),
        (short, long),
    ];
    // The server's TTL, within five seconds for a machine that is slow.
    let promised = |what: &str, lease: u64| {
        let left = site.pttl("mixed");
        let range = (lease as i64 - 5) * 1000..=lease as i64 * 1000;
        assert!(range.contains(&left), "{what}: {left} ms left of {lease} s");
    };
    for (outer, inner) in pairs {
        for outer_first in [false, true] {
            let what = format!("{outer:?} then {inner:?}, outer released first: {outer_first}");
            let lock = client.lock("mixed");
            let first = acquire(&lock, outer).await;
            promised(&what, seconds(outer));
            let second = acquire(&lock, inner).await;
            promised(&what, seconds(outer).max(seconds(inner)));
            let (goes, stays, left) =
                if outer_first { (first, second, inner) } else { (second, first, outer) };
            release(goes).await;
            // Back to what is left promised: a lease that was asked for longer than a live guard
            // needs would keep others out for nothing if this process died now.
            promised(&what, seconds(left));
            assert!(!stays.is_lost(), "{what}");
            assert!(stays.remaining() <= Duration::from_secs(seconds(left)), "{what}");
            release(stays).await;
            assert!(!site.exists("mixed"), "{what}");
        }
    }
}

pub(super) async fn a_renewal_does_not_shorten_an_explicit_lease(site: Site) {
    let client = site.client_with(ms(600)).await;
    let lock = client.lock("mixed");
    let long = lock.lock_with_lease(MINUTE).await.unwrap();
    let renewed = hold(&lock).await;
    tokio::time::sleep(ms(1_000)).await;
    assert!(site.pttl("mixed") > 50_000);
    assert!(!renewed.is_lost());

    // The long promise goes; what is left is renewed on.
    release(long).await;
    assert!(site.pttl("mixed") <= 600);
    tokio::time::sleep(ms(1_300)).await;
    assert!(!renewed.is_lost());
    assert!(lock.is_held().await.unwrap());
    release(renewed).await;
}

pub(super) async fn an_explicit_lease_outlives_the_watchdogs_hold_and_is_not_renewed_by_it(
    site: Site,
) {
    let client = site.client_with(ms(600)).await;
    let lock = client.lock("mixed");
    let renewed = hold(&lock).await;
    let explicit = lock.lock_with_lease(ms(1_500)).await.unwrap();
    let start = Instant::now();
    release(renewed).await;
    let mut last = site.pttl("mixed");
    while !explicit.is_lost() {
        let ttl = site.pttl("mixed");
        assert!(ttl <= last, "the lease grew from {last} to {ttl} ms");
        last = ttl;
        tokio::time::sleep(ms(20)).await;
    }
    assert!(start.elapsed() > ms(1_400), "lost after {:?}", start.elapsed());
    assert!(start.elapsed() < ms(2_500));
    wait_until("a free lock", SOON, || !site.exists("mixed")).await;
}

pub(super) async fn a_short_nested_lease_is_lost_alone(site: Site) {
    let client = site.connect().await;
    let lock = client.lock("mixed");
    let outer = hold(&lock).await;
    let inner = lock.lock_with_lease(ms(300)).await.unwrap();
    soon("the end of the inner lease", inner.lost()).await;
    assert!(!outer.is_lost());
    assert!(lock.is_held().await.unwrap());
    drop(inner);
    wait_until("the outer hold alone", SOON, || lock_count(&site, &lock) == 1).await;
    release(outer).await;
    assert!(!site.exists("mixed"));
}

pub(super) async fn remaining_counts_down_on_an_explicit_lease(site: Site) {
    let client = site.connect().await;
    let guard = client.lock("down").lock_with_lease(ms(500)).await.unwrap();
    let mut last = ms(500);
    while !guard.is_lost() {
        let now = guard.remaining();
        assert!(now <= last);
        last = now;
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(guard.remaining(), Duration::ZERO);
}
