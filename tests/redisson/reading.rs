//! Each side reads what the other has written.

use crate::parties::{Kind, Party};
use crate::setup::Setup;
use crate::sides::Side;
use crate::support::{MINUTE, hold, ms, release};

pub(crate) async fn java_reads_a_lock_of_ours(setup: &Setup) {
    let name = "ours";
    let lock = setup.client().await.lock(name);
    let thread = setup.java.thread("reader");
    let outer = lock.lock_with_lease(MINUTE).await.expect("the lock");
    let inner = hold(&lock).await;

    assert!(thread.get::<bool>("isLocked", &[&name]).await);
    let left: i64 = thread.get("remainTimeToLive", &[&name]).await;
    assert!((50_000..=60_000).contains(&left), "{left}");
    // Not even a thread of our owner's number: an owner is more than that.
    let (_, number) = outer.owner().split_once(':').expect("uuid:number");
    let (_, own) = split(&thread.owner().await);
    for number in [number, &own] {
        assert!(!thread.get::<bool>("isHeldByThread", &[&name, &number]).await);
    }
    assert_eq!(thread.get::<u32>("getHoldCount", &[&name]).await, 0);

    release(inner).await;
    release(outer).await;
    assert!(!thread.get::<bool>("isLocked", &[&name]).await);
    assert_eq!(thread.get::<i64>("remainTimeToLive", &[&name]).await, -2);
}

pub(crate) async fn rust_reads_a_lock_of_theirs(setup: &Setup) {
    let name = "theirs";
    let lock = setup.client().await.lock(name);
    let thread = setup.java.thread("holder");
    for _ in 0..2 {
        thread.ask("lockFor", &[&name, &MINUTE.as_millis()]).await.value();
    }
    assert!(thread.get::<bool>("isHeldByThread", &[&name, &split(&thread.owner().await).1]).await);
    assert_eq!(thread.get::<u32>("getHoldCount", &[&name]).await, 2);

    assert!(lock.is_locked().await.unwrap());
    assert!(!lock.is_held().await.unwrap());
    assert_eq!(lock.hold_count().await.unwrap(), 0);
    let left = lock.remaining_lease().await.unwrap().expect("a lease");
    assert!((ms(50_000)..=MINUTE).contains(&left), "{left:?}");

    for _ in 0..2 {
        assert!(lock.is_locked().await.unwrap());
        thread.ask("unlock", &[&name]).await.value();
    }
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.remaining_lease().await.unwrap(), None);
}

/// One hash with one field and a TTL; and when it is given back, nothing but Redisson's latches. We leave none.
pub(crate) async fn both_write_the_same(setup: &Setup) {
    for kind in [Kind::Rust, Kind::Java] {
        let name = format!("wire-{kind:?}");
        let mut party = Party::new(setup, kind, "writer", &name).await;
        for count in [1, 2] {
            party.takes(Side::Plain).await;
            let owner = party.field(Side::Plain).await;
            let (uuid, number) = split(&owner);
            let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{owner}");
            assert!(number.parse::<u64>().is_ok(), "{owner}");
            assert_eq!(setup.kind(&name), "hash");
            assert_eq!(setup.holds(&name), [(owner, count)].into());
            let left = setup.pttl(&name);
            assert!((20_000..=30_000).contains(&left), "{left}");
            assert_eq!(setup.keys(), [name.as_str()]);
        }
        party.gives_back(Side::Plain).await;
        assert_eq!(setup.holds(&name), [(party.field(Side::Plain).await, 1)].into());
        assert_eq!(setup.keys(), [name.as_str()]);
        party.gives_back(Side::Plain).await;
        let left = if kind == Kind::Rust { setup.all_keys() } else { setup.keys() };
        assert_eq!(left, [""; 0]);
    }
}

fn split(owner: &str) -> (String, String) {
    let (uuid, number) = owner.split_once(':').expect("uuid:number");
    (uuid.to_owned(), number.to_owned())
}
