//! C15: a call was polled, and is neither polled again nor dropped while others want the lock.
//!
//! The documentation of `Lock` says what that costs: those of the same client who stand in line
//! behind it are held up. It says nothing of anybody else, so nobody else is: no mutex of the
//! client's is held across an await (and `clippy::await_holding_lock` is denied).

use std::sync::mpsc;

use super::*;

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
