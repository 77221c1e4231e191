//! A hold is given back by `unlock` and by dropping the guard, wherever that happens. Nothing of it
//! blocks, panics or needs a runtime. (Closing the client is in `closing.rs`; tasks that are aborted, runtimes
//! that have ended and threads that unwind are in `faults/process/no_runtime.rs`.)

use std::thread;

use tokio::time::Instant;

use crate::prelude::*;

pub(crate) async fn a_dropped_guard_frees_the_lock_within_a_round_trip(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("dropped");
    // The first release of this kind opens the background connection.
    drop(hold(&lock).await);
    wait_until("a free lock", SOON, || !setup.exists("dropped")).await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let guard = hold(&lock).await;
        let start = Instant::now();
        drop(guard);
        wait_until("a free lock", SOON, || !setup.exists("dropped")).await;
        times.push(start.elapsed());
    }
    assert!(times.iter().min() < Some(&ROUND_TRIP), "{times:?}");
}

pub(crate) async fn a_handle_can_lock_again_right_after_it_dropped_its_guard(setup: Setup) {
    let client = setup.connect().await;
    let lock = client.lock("again");
    for _ in 0..200 {
        drop(hold(&lock).await);
        let guard = hold(&lock).await;
        assert_eq!(lock.hold_count().await.unwrap(), 1, "the dropped hold was counted again");
        release(guard).await;
        assert!(!setup.exists("again"));
    }
}

pub(crate) async fn a_guard_outlives_its_handle_and_its_client(setup: Setup) {
    let client = setup.client_with(setup.stretch(ms(1_000))).await;
    let (unlocked, dropped) =
        (hold(&client.lock("unlocked")).await, hold(&client.lock("dropped")).await);
    drop(client);
    // Longer than a lease: they are still held only if they were renewed.
    tokio::time::sleep(setup.stretch(ms(1_200))).await;
    assert!(!unlocked.is_lost() && !dropped.is_lost(), "renewed without the client");
    release(unlocked).await;
    assert!(!setup.exists("unlocked"));
    drop(dropped);
    wait_until("a free lock", SOON, || !setup.exists("dropped")).await;
}

pub(crate) async fn guards_dropped_in_many_threads_at_once_all_free_their_locks(setup: Setup) {
    let client = setup.connect().await;
    let lock = Arc::new(client.lock("threads"));
    let mut guards = Vec::new();
    for _ in 0..64 {
        guards.push(hold(&lock).await);
    }
    let threads: Vec<_> =
        guards.into_iter().map(|guard| thread::spawn(move || drop(guard))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    wait_until("a free lock", SOON, || !setup.exists("threads")).await;
}

pub(crate) async fn a_dropped_guard_wakes_a_parked_waiter_of_another_client(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let guard = hold(&client.lock("handed on")).await;
    let waiter = waiting(&other, "handed on");
    wait_until("the waiter parks", SOON, || setup.subscribers("handed on") == 1).await;
    drop(guard);
    // By itself it would look again when the lease of 30 s has ended.
    release(soon("the waiter has the lock", waiter).await.unwrap()).await;
}

/// As after a failover, or after a restart from a file that lacks the release.
pub(crate) async fn w26_a_hold_that_was_given_back_and_is_still_counted_is_released_again(
    setup: Setup,
) {
    let client = setup.connect().await;
    let (kept, dropped) = (client.lock("counted"), client.lock("counted"));
    let mut owners = Vec::new();
    for lock in [&kept, &dropped] {
        let guard = hold(lock).await;
        owners.push(guard.owner().to_owned());
        release(guard).await;
    }
    drop(dropped);
    for owner in owners {
        setup.hold_by_hand("counted", &owner, MINUTE);
        let tried = soon("trying", client.lock("counted").try_lock_now()).await;
        release(tried.expect("an answer").expect("nobody has it")).await;
    }

    // Not while somebody has it, and not if another client has.
    let guard = hold(&kept).await;
    assert!(!is_free(&client, "counted").await && !guard.is_lost());
    assert_eq!(setup.holds("counted").get(guard.owner()), Some(&1));
    release(guard).await;
    let guard = hold(&setup.connect().await.lock("counted")).await;
    let owner = guard.owner().to_owned();
    release(guard).await;
    setup.hold_by_hand("counted", &owner, MINUTE);
    assert!(!is_free(&client, "counted").await);
    setup.free_by_hand("counted");
}
