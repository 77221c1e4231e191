//! C15: a call was polled, and is neither polled again nor dropped while others want the lock.
//!
//! The documentation of `Lock` says what that costs: those of the same client who stand in line
//! behind it are held up. It says nothing of anybody else, so nobody else is: no mutex of the
//! client's is held across an await (and `clippy::await_holding_lock` is denied).

use std::sync::mpsc;

use futures::FutureExt;
use tokio_test::task;

use super::*;

#[tokio::test]
async fn c15_a_call_that_is_not_polled_holds_up_those_behind_it_and_no_other_client() {
    let server = Server::start();
    let (client, others) = (connect(&server).await, connect(&server).await);
    release(hold(&client.lock("before")).await).await;
    for (name, dropped) in [("dropped", true), ("polled again", false)] {
        server.hold_by_hand(name, "another:1", MINUTE);
        server.reset_stats();
        let (first, second) = (client.lock(name), client.lock(name));
        let mut first = task::spawn(first.lock().boxed());
        assert!(first.poll().is_pending());
        // To where it parks: after two tries, polled whenever it was woken.
        wait_until("it is parked", SOON, || {
            let woken = first.is_woken();
            let tried = server.calls("evalsha") == 2;
            assert!(!woken || first.poll().is_pending(), "it was held");
            tried && woken
        })
        .await;
        assert_eq!(server.subscribers(name), 1);
        let mut second = second.lock().boxed();
        assert!(futures::poll!(&mut second).is_pending());
        server.free_by_hand(name);
        wait_until("the first is woken", SOON, || first.is_woken()).await;

        // From here on the first is not polled. Other clients have the lock as they like.
        release(hold(&others.lock(name)).await).await;
        assert!(is_free(&others, name).await);
        // Time enough for the messages of those releases: what comes now is the first one's doing.
        let behind = tokio::time::timeout(ms(200), &mut second).await;
        assert!(behind.is_err(), "the second did not stand behind the first");

        if dropped {
            drop(first);
        } else {
            release(soon("the first has the lock", first).await.expect("locking")).await;
        }
        release(soon("the second has the lock", second).await.expect("locking")).await;
        assert!(is_free(&others, name).await);
    }
}

/// Everything but the lock that the unpolled call waits for, in a thread and runtime of its own.
fn goes_on_beside(client: &LockClient, guard: LockGuard, about: &str) {
    let (client, (done, end)) = (client.clone(), mpsc::channel());
    let same = client.lock("same");
    thread::spawn(move || {
        runtime().block_on(async {
            same.is_locked().await.expect("asking");
            same.hold_count().await.expect("asking");
            drop(same.try_lock_now().await.expect("asking"));
            let other = client.lock("other");
            let (outer, inner) = (hold(&other).await, hold(&other).await);
            release(inner).await;
            drop(outer);
            release(guard).await;
            let _ = format!("{client:?} {same:?}");
        });
        let _ = done.send(());
    });
    end.recv_timeout(SOON).unwrap_or_else(|_| panic!("{about}: the client stands still"));
}

#[tokio::test]
async fn c15_a_call_that_is_not_polled_holds_no_mutex_at_any_of_its_awaits() {
    let server = Server::start();
    let client = connect(&server).await;
    let mut left = 0;
    for held in [false, true] {
        for polls in 0..6 {
            let about = format!("held: {held}, {polls} polls");
            if held {
                server.hold_by_hand("same", "another:1", MINUTE);
            }
            let lock = client.lock("same");
            let mut call = Steps::new(lock.lock());
            let finished = call.take(polls).await;
            turns(20).await;
            left += u32::from(finished.is_none() && polls > 0);
            let guard = hold(&client.lock("a guard's")).await;
            goes_on_beside(&client, guard, &about);
            drop((call, finished));
            server.ask::<()>(&["DEL", "same"]);
            wait_until("free locks", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
        }
    }
    assert!(left > 5, "a call was left at an await {left} times only");
}

#[tokio::test]
async fn c15_a_grant_that_nobody_polls_for_is_not_renewed_and_overlaps_nobody() {
    let server = Server::start();
    let client = client_with(server.url(), ms(300)).await;
    let others = connect(&server).await;
    // So that the next call is one request, and needs no script to be taught first.
    release(hold(&client.lock("before")).await).await;
    let (lock, before) = (client.lock("granted"), server.calls("hset"));
    let mut call = task::spawn(lock.lock().boxed());
    assert!(call.poll().is_pending());
    wait_until("the grant", SOON, || server.calls("hset") == before + 1).await;
    // The runtime goes on; only this future stands still.
    let other = others.lock("granted");
    let guard = hold(&other).await;
    // Whatever it comes to when it is polled at last, it is no lock.
    let late = tokio::time::timeout(ms(200), call).await;
    let believed = matches!(&late, Ok(Ok(guard)) if !guard.is_lost());
    assert!(!believed, "two have the lock: {late:?}");
    drop(late);
    assert!(!guard.is_lost());
    assert_eq!(server.holds("granted").get(guard.owner()), Some(&1));
    release(guard).await;
    wait_until("a free lock", SOON, || !server.exists("granted")).await;
}
