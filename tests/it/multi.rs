//! Several locks at once: all of them or none.

use crate::prelude::*;

const NAMES: [&str; 3] = ["account:1", "account:2", "account:3"];

fn existing(setup: &Setup) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| setup.exists(name)).collect()
}

pub(crate) async fn a_multi_lock_has_all_of_its_locks_or_none(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    // In any order, and a name twice.
    let all = client.multi_lock([NAMES[2], NAMES[0], NAMES[1], NAMES[0]]);
    let guard = soon("all", all.lock()).await.unwrap();
    assert_eq!(guard.names().count(), 3);
    for (name, owner) in guard.names().zip(guard.owners()) {
        assert_eq!(setup.holds(name), BTreeMap::from([(owner.to_owned(), 1)]), "as an RLock");
        assert!(setup.pttl(name) > 0);
        assert!(!is_free(&other, name).await);
    }
    guard.unlock().await.unwrap();
    assert_eq!(existing(&setup), [""; 0]);

    for busy in NAMES {
        let single = hold(&other.lock(busy)).await;
        assert!(all.try_lock_now().await.unwrap().is_none());
        assert!(all.try_lock(ms(50), Lease::Watchdog).await.unwrap().is_none());
        // In a cluster, what a part of them was granted is given back in the background.
        wait_until("it holds none", SOON, || existing(&setup) == [busy]).await;
        release(single).await;
    }
    all.try_lock_now().await.unwrap().expect("all are free").unlock().await.unwrap();
}

pub(crate) async fn calls_on_a_multi_lock_nest_and_a_clone_is_another_owner(setup: Setup) {
    let client = setup.connect().await;
    let all = client.multi_lock(NAMES);
    let outer = all.lock().await.unwrap();
    let inner = all.try_lock_now().await.unwrap().expect("a handle of its own nests");
    for (name, owner) in inner.names().zip(inner.owners()) {
        assert_eq!(setup.holds(name), BTreeMap::from([(owner.to_owned(), 2)]));
    }
    assert!(all.clone().try_lock_now().await.unwrap().is_none());
    outer.unlock().await.unwrap();
    assert_eq!(existing(&setup), NAMES);
    assert!(!inner.is_lost());
    inner.unlock().await.unwrap();
    assert_eq!(existing(&setup), [""; 0]);
}

pub(crate) async fn a_multi_lock_waits_with_empty_hands(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let guard = hold(&other.lock(NAMES[1])).await;
    let all = client.multi_lock(NAMES);
    let waiting = tokio::spawn(async move { all.lock().await });
    wait_until("it waits", SOON, || setup.subscribers(NAMES[1]) > 0).await;
    for name in [NAMES[0], NAMES[2]] {
        release(soon("a lock that nobody holds", hold(&other.lock(name))).await).await;
    }
    release(guard).await;
    let guard = soon("its locks", waiting).await.unwrap().unwrap();
    assert_eq!(existing(&setup), NAMES);
    drop(guard);
    wait_until("a dropped guard frees all", SOON, || existing(&setup).is_empty()).await;
}

pub(crate) async fn an_explicit_lease_of_a_multi_lock_ends_for_all_its_locks(setup: Setup) {
    let client = setup.connect().await;
    let lease = setup.stretch(ms(300));
    let all = client.multi_lock(NAMES);
    let guard = all.lock_with_lease(lease).await.unwrap();
    assert!(guard.remaining() <= lease && !guard.is_lost());
    soon("the end of the lease", guard.lost()).await;
    assert_eq!((guard.loss(), guard.remaining()), (Some(Loss::LeaseEnded), Duration::ZERO));
    let again = soon("all", client.multi_lock(NAMES).lock()).await.unwrap();
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(existing(&setup), NAMES, "a late unlock frees nothing of another owner");
    again.unlock().await.unwrap();
}

pub(crate) async fn a_multi_guard_says_which_lock_is_gone_and_gives_the_others_back(setup: Setup) {
    let client = setup.connect().await;
    let guard = client.multi_lock(NAMES).lock().await.unwrap();
    setup.free_by_hand(NAMES[1]);
    let error = guard.unlock().await.unwrap_err();
    assert_eq!((error.kind(), error.lock_name()), (ErrorKind::Lost, Some(NAMES[1])));
    assert_eq!(error.loss(), Some(Loss::KeyGone));
    assert_eq!(existing(&setup), [""; 0]);
}

pub(crate) async fn a_forced_unlock_frees_all_locks_of_a_multi_lock(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let guard = client.multi_lock(NAMES).lock().await.unwrap();
    let all = other.multi_lock(NAMES);
    assert!(all.force_unlock().await.unwrap());
    assert_eq!(existing(&setup), [""; 0]);
    assert!(!all.force_unlock().await.unwrap());
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_multi_lock_refuses_what_it_cannot_lock_before_any_request() {
    let server = Server::start();
    let client = connect(&server).await;
    let calls = || server.calls("evalsha");
    let before = calls();
    let none: [&str; 0] = [];
    for names in [&none[..], &["a", ""]] {
        let all = client.multi_lock(names);
        let errors = [
            all.lock().await.map(drop).unwrap_err(),
            all.try_lock_now().await.map(drop).unwrap_err(),
            all.force_unlock().await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{names:?}: {error:#}");
        }
    }
    let all = client.multi_lock(["a", "b"]);
    let error = all.lock_with_lease(Duration::ZERO).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(calls(), before);
}

#[tokio::test]
async fn a_key_that_is_no_lock_is_an_error_and_no_other_lock_is_taken() {
    let server = Server::start();
    let client = connect(&server).await;
    for (key, value) in [("text", &["SET", "b", "x"][..]), ("hash", &["HSET", "b", "name", "bob"])]
    {
        server.ask::<redis::Value>(&["DEL", "b"]);
        server.ask::<redis::Value>(value);
        let error = client.multi_lock(["c", "b", "a"]).lock().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotALock, "{key}: {error:#}");
        assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), ["b"]);
    }
    server.ask::<redis::Value>(&["DEL", "b"]);
}
