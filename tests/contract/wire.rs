//! What other clients of the lock see of it, and what it sees of them.

use crate::support::{SOON, release, wait_until};
use crate::{MINUTE, Site};

pub(super) async fn an_owner_is_the_uuid_of_the_client_and_a_number(site: Site) {
    let (client, other) = (site.connect().await, site.connect().await);
    let (first, second, foreign) = (client.lock("a"), client.lock("b"), other.lock("a"));
    let parts = |owner: &str| {
        let (id, number) = owner.split_once(':').expect("a colon");
        assert_eq!(id.len(), 36, "{owner}");
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{owner}");
        assert!(id.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c)));
        (id.to_owned(), number.parse::<u64>().expect("a number"))
    };
    let (first, second, foreign) =
        (parts(first.owner()), parts(second.owner()), parts(foreign.owner()));
    assert_eq!(first.0, second.0);
    assert_ne!(first.1, second.1);
    assert_ne!(first.0, foreign.0);
}

pub(super) async fn an_explicit_lease_is_the_ttl_to_the_millisecond(site: Site) {
    let client = site.connect().await;
    let lock = client.lock("lease");
    let guard = lock.lock_with_lease(MINUTE).await.unwrap();
    let ttl = site.pttl("lease");
    assert!((50_000..=60_000).contains(&ttl), "{ttl}");
    release(guard).await;
}

pub(super) async fn a_holder_of_another_make_is_respected_and_waited_for(site: Site) {
    let client = site.connect().await;
    let lock = client.lock("java");
    // As Redisson's scripts leave it: its own uuid, its thread's id.
    let java = "8743c9c0-0795-4907-87fd-6c719a6b4586:27";
    site.hold_by_hand("java", java, MINUTE);
    assert!(lock.is_locked().await.unwrap());
    assert!(!lock.is_held().await.unwrap());
    assert!(lock.try_lock_now().await.unwrap().is_none());
    assert_eq!(site.holds("java"), [(java.to_owned(), 1)].into(), "a refused try writes nothing");
    let ttl = site.pttl("java");
    assert!(ttl <= 60_000, "a refused try moves no lease: {ttl}");

    let waiting = lock.lock();
    let (guard, ()) = tokio::join!(waiting, async {
        wait_until("a subscription", SOON, || site.subscribers("java") == 1).await;
        assert_eq!(site.holds("java"), [(java.to_owned(), 1)].into());
        site.free_by_hand("java");
    });
    let guard = guard.unwrap();
    assert_eq!(site.holds("java"), [(lock.owner().to_owned(), 1)].into());
    release(guard).await;
}
