//! The fenced lock: tokens that grow with every hold, whatever happens to Redis in between, and that
//! mean the same to a Redisson `RFencedLock`.

use crate::prelude::*;
use crate::support::tokens::{assert_growing, fence, next_token, open};

pub(crate) async fn a_token_grows_with_every_hold_whoever_holds(setup: Setup) {
    let (one, other) = (setup.connect().await, setup.connect().await);
    let first = one.fenced_lock("order");
    let handles = [first.clone(), first, other.fenced_lock("order")];
    let mut tokens = Vec::new();
    for round in 0..9 {
        tokens.push(next_token(&handles[round % 3]).await);
    }
    // Also from holder to waiting successor.
    let guard = fence(&handles[0]).await;
    tokens.push(guard.token());
    let waiter = tokio::spawn({
        let lock = handles[2].clone();
        async move { next_token(&lock).await }
    });
    wait_until("a waiter", SOON, || setup.subscribers("order") == 1).await;
    open(guard).await;
    tokens.push(soon("the waiter", waiter).await.unwrap());
    assert_growing(&tokens);
    let last = tokens.last().unwrap();
    assert_eq!(last.to_string(), last.get().to_string());
    assert_eq!(u64::from(*last), last.get());
}

pub(crate) async fn a_fenced_lock_and_a_plain_one_of_that_name_exclude_each_other(setup: Setup) {
    let client = setup.connect().await;
    let (fenced, plain) = (client.fenced_lock("both"), client.lock("both"));
    let guard = hold(&plain).await;
    assert!(fenced.try_lock_now().await.unwrap().is_none());
    assert_eq!(setup.token("both"), None, "a plain lock has no token");
    release(guard).await;
    let guard = fence(&fenced).await;
    assert!(plain.try_lock_now().await.unwrap().is_none());
    open(guard).await;
}

pub(crate) async fn a_fenced_guard_knows_what_every_guard_knows(setup: Setup) {
    let client = setup.connect().await;
    let (lock, lease) = (client.fenced_lock("same"), setup.stretch(ms(300)));
    let guard = lock.try_lock(MINUTE, lease).await.unwrap().expect("a free lock");
    assert_eq!(setup.holds("same").keys().collect::<Vec<_>>(), [guard.owner()]);
    assert!(guard.remaining() <= lease && !guard.is_lost());
    assert!(lock.remaining_lease().await.unwrap().is_some_and(|left| left <= lease));
    assert!(lock.is_held().await.unwrap());
    soon("the loss", guard.lost()).await;
    drop(guard);
    // A dropped guard gives back in the background, and force frees what somebody else holds.
    let guard = fence(&lock).await;
    let token = guard.token();
    drop(guard);
    wait_until("a free lock", SOON, || !setup.exists("same")).await;
    let guard = fence(&lock).await;
    assert!(lock.clone().force_unlock().await.unwrap());
    assert!(guard.token() > token && setup.token("same") == Some(guard.token().get()));
    drop(guard);
}

#[tokio::test]
async fn nested_holds_share_one_token_and_the_next_hold_has_another() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let lock = client.fenced_lock("nested");
    let outer = fence(&lock).await;
    let inner = lock.try_lock_now().await.unwrap().expect("a nested hold");
    let third = lock.lock_with_lease(MINUTE).await.unwrap();
    assert_eq!(lock.hold_count().await.unwrap(), 3);
    assert_eq!([inner.token(), third.token()], [outer.token(); 2]);
    assert_eq!(setup.token("nested"), Some(outer.token().get()));
    let token = outer.token();
    // Whichever goes first.
    open(outer).await;
    let again = fence(&lock).await;
    assert_eq!(again.token(), token);
    for guard in [again, inner, third] {
        open(guard).await;
    }
    assert!(next_token(&lock).await > token);
}

#[tokio::test]
async fn a_refusal_is_none_and_uses_up_no_token() {
    let setup = Setup::alone();
    let (one, other) = (setup.connect().await, setup.connect().await);
    let guard = fence(&one.fenced_lock("busy")).await;
    let contender = other.fenced_lock("busy");
    // Without a TTL too: PTTL says -1 then, which is Redisson's word for "granted".
    for persist in [false, true] {
        if persist {
            assert!(setup.ask::<bool>("PERSIST", "busy", &[]));
        }
        assert!(contender.try_lock_now().await.unwrap().is_none());
        assert!(contender.try_lock(ms(20), Lease::Watchdog).await.unwrap().is_none());
        assert_eq!(setup.token("busy"), Some(guard.token().get()));
    }
    assert!(contender.is_locked().await.unwrap());
    assert!(!contender.is_held().await.unwrap());
    open(guard).await;
}

#[tokio::test]
async fn the_counter_is_redissons_and_both_count_it_on() {
    let server = Server::start();
    let client = connect(&server).await;
    let key = "redisson_lock_token:{shared}";
    let lock = client.fenced_lock("shared");
    // What a service on Redisson has counted so far, and what it does to count on: less than the clock says, and so
    // much that a script would count in floating point.
    for (counted, ahead) in [(41, false), ((1_u64 << 62) + 1, true)] {
        server.ask::<()>(&["SET", key, &counted.to_string()]);
        let first = next_token(&lock).await.get();
        let theirs: u64 = server.ask(&["INCR", key]);
        let second = next_token(&lock).await.get();
        assert!(counted < first && first < theirs && theirs < second);
        assert!(!ahead || second == counted + 3, "{second}");
        assert_eq!(server.ask::<u64>(&["GET", key]), second);
    }
    assert_eq!(server.pttl(key), -1, "a token that ended would start again");
    // A name with a brace of its own is its own tag, as everywhere.
    let tagged = client.fenced_lock("{app}:shared");
    let token = next_token(&tagged).await;
    assert_eq!(server.ask::<u64>(&["GET", "redisson_lock_token:{app}:shared"]), token.get());
}

#[tokio::test]
async fn s2_a_token_grows_over_a_restart_that_lost_everything() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.fenced_lock("forgotten");
    let mut tokens = vec![next_token(&lock).await];
    server.ask::<()>(&["FLUSHALL"]);
    tokens.push(next_token(&lock).await);
    let held = fence(&lock).await;
    tokens.push(held.token());
    server.restart();
    let counter = server.ask::<Option<u64>>(&["GET", "redisson_lock_token:{forgotten}"]);
    assert_eq!(counter, None, "the server remembers");
    tokens.push(next_token(&client.fenced_lock("forgotten")).await);
    assert_growing(&tokens);
    drop(held);
}

#[tokio::test]
async fn a_hold_after_a_loss_has_a_token_of_its_own() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let lock = client.fenced_lock("lost");
    let lost = fence(&lock).await;
    let old = lost.token();
    // Nobody has noticed when the handle nests: the new hold is no nested one.
    setup.ask::<()>("DEL", "lost", &[]);
    let new = fence(&lock).await;
    assert!(new.token() > old);
    assert!(lost.is_lost());
    assert_eq!(lost.token(), old);
    assert_eq!(lost.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    open(new).await;
}

#[tokio::test]
async fn s8_a_counter_that_is_none_is_an_error_and_leaves_no_lock() {
    let server = Server::start();
    let client = connect(&server).await;
    let key = "redisson_lock_token:{odd}";
    for (spoil, kind) in [
        (["RPUSH", key, "an element"], ErrorKind::NotALock),
        (["SET", key, "text"], ErrorKind::Server),
    ] {
        server.ask::<()>(&["DEL", key]);
        server.ask::<()>(&spoil);
        let error = client.fenced_lock("odd").lock().await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotExecuted), "{error}");
        assert!(!server.exists("odd"));
    }
    server.ask::<()>(&["DEL", key]);
}

#[tokio::test]
async fn a_fenced_acquisition_dropped_anywhere_leaves_the_name_free() {
    let setup = Setup::alone();
    let client = setup.connect().await;
    let other = client.fenced_lock("dropped");
    // From here on the server knows the script, and the first call of a handle is one request.
    let mut last = next_token(&other).await;
    // However far the request came: what another owner asks comes after it. At last it was granted by the server, and
    // nobody takes the answer.
    for between in [Some(0), Some(1), Some(6), Some(60), None] {
        let lock = client.fenced_lock("dropped");
        let mut steps = Steps::new(lock.lock());
        assert!(steps.take(1).await.is_none());
        if let Some(between) = between {
            turns(between).await;
        } else {
            wait_until("a grant", SOON, || setup.token("dropped") > Some(last.get())).await;
        }
        drop(steps);
        let token = next_token(&other).await;
        assert!(token > last);
        last = token;
    }
}
