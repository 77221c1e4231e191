//! What Redis gets to see, and what other clients of the lock see of it. A Java service on Redisson
//! reads and writes the same keys, fields, channels and messages, so all of it is a contract down to
//! the byte.

use crate::prelude::*;
use crate::support::tokens::next_token;

pub(crate) async fn an_owner_is_the_uuid_of_the_client_and_a_number(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let (first, second, foreign) = (client.lock("a"), client.lock("b"), other.lock("a"));
    let parts = |owner: &str| {
        let (id, number) = owner.split_once(':').expect("a colon");
        let uuid = uuid::Uuid::parse_str(id).expect("a uuid");
        assert_eq!(uuid.to_string(), id, "small letters and hyphens");
        (id.to_owned(), number.parse::<u64>().expect("a number"))
    };
    let (first, second, foreign) =
        (parts(first.owner()), parts(second.owner()), parts(foreign.owner()));
    assert_eq!(first.0, second.0);
    assert_ne!(first.1, second.1);
    assert_ne!(first.0, foreign.0);
}

pub(crate) async fn a_holder_of_another_make_is_respected_and_waited_for(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("java");
    // As Redisson's scripts leave it: its own uuid, its thread's id.
    let java = "8743c9c0-0795-4907-87fd-6c719a6b4586:27";
    setup.hold_by_hand("java", java, MINUTE);
    assert!(lock.is_locked().await.unwrap());
    assert!(!lock.is_held().await.unwrap());
    assert!(lock.try_lock_now().await.unwrap().is_none());
    assert_eq!(setup.holds("java"), [(java.to_owned(), 1)].into(), "a refused try writes nothing");
    let ttl = setup.pttl("java");
    assert!(ttl <= 60_000, "a refused try moves no lease: {ttl}");

    let waiting = lock.lock();
    let (guard, ()) = tokio::join!(waiting, async {
        wait_until("a subscription", SOON, || setup.subscribers("java") == 1).await;
        assert_eq!(setup.holds("java"), [(java.to_owned(), 1)].into());
        setup.free_by_hand("java");
    });
    let guard = guard.unwrap();
    assert_eq!(setup.holds("java"), [(guard.owner().to_owned(), 1)].into());
    release(guard).await;
}

#[tokio::test]
async fn a_forced_unlock_publishes_if_there_was_something_to_free() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let lock = client.lock("forced");
    let listener = setup.listener("forced");
    assert!(!lock.force_unlock().await.unwrap());
    setup.hold_by_hand("forced", "somebody:1", MINUTE);
    assert!(lock.force_unlock().await.unwrap());
    assert!(!setup.exists("forced"));
    assert_eq!(setup.heard(listener), ["0"]);
}

#[tokio::test]
async fn each_call_is_one_evalsha_and_nothing_else() {
    let Far { server, proxy, client } = Far::new().await;
    let (lock, fenced) = (client.lock("cost"), client.fenced_lock("fenced"));
    let fair = client.fair_lock("fair");
    release(fair.lock().await.unwrap()).await;
    // The server learns the scripts.
    lock.is_locked().await.unwrap();
    next_token(&fenced).await;
    let outer = hold(&lock).await;
    release(hold(&lock).await).await;
    release(outer).await;
    proxy.forget_commands();
    server.reset_stats();
    let sent = |calls: u64| {
        assert_eq!(proxy.commands(), [("EVALSHA".to_owned(), calls)].into());
        proxy.forget_commands();
    };
    for _ in 0..10 {
        release(hold(&lock).await).await;
    }
    sent(20);
    assert_eq!(server.calls("evalsha"), 20);
    next_token(&fenced).await;
    sent(2);
    release(fair.lock().await.unwrap()).await;
    sent(2);
    let outer = hold(&lock).await;
    release(hold(&lock).await).await;
    release(outer).await;
    sent(4);
    // These write nothing, either.
    lock.is_locked().await.unwrap();
    lock.is_held().await.unwrap();
    lock.hold_count().await.unwrap();
    lock.remaining_lease().await.unwrap();
    sent(4);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), ["redisson_lock_token:{fenced}"]);
}
