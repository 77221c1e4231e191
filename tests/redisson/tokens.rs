//! Fencing tokens: Redisson counts on what we have written, and we on what it has.

use crate::setup::Setup;
use crate::support::{SOON, soon, wait_until};

const TURNS: usize = 50;

pub(crate) async fn grow_whoever_takes_them(setup: &Setup) {
    let name = "fenced";
    let thread = setup.java.thread("fenced");
    let lock = setup.client().await.fenced_lock(name);
    let mut tokens: Vec<u64> = Vec::new();
    for turn in 0..TURNS {
        // Twice in a row too, so that each follows on itself and on the other; Java, which counts
        // from one, begins.
        if turn / 2 % 2 == 0 {
            tokens.push(thread.get("lockAndGetToken", &[&name]).await);
            assert!(lock.is_locked().await.unwrap());
            assert!(!lock.is_held().await.unwrap());
            thread.ask("unlock", &[&name]).await.value();
        } else {
            let guard = soon("locking", lock.lock()).await.expect("the lock");
            tokens.push(guard.token().get());
            // What Redisson calls the token of the lock is ours.
            assert_eq!(thread.get::<u64>("getToken", &[&name]).await, guard.token().get());
            soon("unlocking", guard.unlock()).await.expect("unlocking");
        }
    }
    assert_eq!(tokens.len(), TURNS);
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "not growing: {tokens:?}");
}

/// From holder to waiter, to and fro.
///
/// Java waits in `lock()`, and asks for the token then: a call of Redisson's that does not block its
/// thread, as `lockAndGetToken` is inside, can miss a message that comes just when it begins to
/// wait (its issue 5761), and would sleep out the lease.
pub(crate) async fn grow_from_hand_to_hand(setup: &Setup) {
    let name = "fenced-hands";
    let thread = setup.java.thread("fenced");
    let lock = setup.client().await.fenced_lock(name);
    let mut tokens: Vec<u64> = Vec::new();
    let mut guard = soon("locking", lock.lock()).await.expect("the lock");
    for _ in 0..TURNS / 2 {
        tokens.push(guard.token().get());
        let theirs = thread.begin("lockFenced", &[&name]);
        thread.parks(&theirs).await;
        assert!(!theirs.is_done(), "Java did not wait");
        soon("unlocking", guard.unlock()).await.expect("unlocking");
        tokens.push(theirs.answer().await.value().parse().expect("a token"));
        let ours = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await }
        });
        wait_until("we wait", SOON, || setup.subscribers(name) > 0).await;
        assert!(!ours.is_finished());
        thread.ask("unlock", &[&name]).await.value();
        guard = soon("our turn", ours).await.unwrap().expect("the lock");
    }
    soon("unlocking", guard.unlock()).await.expect("unlocking");
    assert_eq!(tokens.len(), TURNS / 2 * 2);
    assert!(tokens.windows(2).all(|two| two[0] < two[1]), "not growing: {tokens:?}");
}
