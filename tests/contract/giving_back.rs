//! A lock is given back whichever way its guard goes.

use futures::future::join_all;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use redlatch::ErrorKind;

use crate::support::{ROUND_TRIP, SOON, hold, is_free, ms, release, soon, wait_until, within};
use crate::{MINUTE, Site};

pub(super) async fn a_dropped_guard_frees_the_lock_within_a_round_trip(site: Site) {
    let client = site.connect().await;
    let lock = client.lock("dropped");
    // The first release of this kind opens the background connection.
    drop(hold(&lock).await);
    wait_until("a free lock", SOON, || !site.exists("dropped")).await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let guard = hold(&lock).await;
        let start = Instant::now();
        drop(guard);
        wait_until("a free lock", SOON, || !site.exists("dropped")).await;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    assert!(times[5] < ROUND_TRIP, "{times:?}");
}

pub(super) async fn a_handle_can_lock_again_right_after_it_dropped_its_guard(site: Site) {
    let client = site.connect().await;
    let lock = client.lock("again");
    for _ in 0..200 {
        drop(hold(&lock).await);
        let guard = hold(&lock).await;
        assert_eq!(lock.hold_count().await.unwrap(), 1, "the dropped hold was counted again");
        release(guard).await;
        assert!(!site.exists("again"));
    }
}

pub(super) async fn dropping_one_of_two_nested_guards_gives_one_hold_back(site: Site) {
    let client = site.connect().await;
    let lock = client.lock("nested");
    let outer = hold(&lock).await;
    drop(hold(&lock).await);
    wait_until("one hold", SOON, || site.holds("nested").get(lock.owner()) == Some(&1)).await;
    assert!(!is_free(&client, "nested").await);
    drop(outer);
    wait_until("a free lock", SOON, || !site.exists("nested")).await;
}

pub(super) async fn c4_an_aborted_task_gives_back_what_it_held(site: Site) {
    let client = site.connect().await;
    let lock = client.lock("aborted");
    let task = tokio::spawn(async move {
        let _guard = lock.lock().await.unwrap();
        std::future::pending::<()>().await;
    });
    wait_until("the lock", SOON, || site.exists("aborted")).await;
    task.abort();
    assert!(soon("the task ends", task).await.unwrap_err().is_cancelled());
    wait_until("a free lock", SOON, || !site.exists("aborted")).await;
}

pub(super) async fn a_guard_outlives_its_handle_and_its_client(site: Site) {
    let client = site.client_with(ms(1_500)).await;
    let (unlocked, dropped) =
        (hold(&client.lock("unlocked")).await, hold(&client.lock("dropped")).await);
    drop(client);
    // Longer than a lease: they are still held only if they were renewed.
    tokio::time::sleep(ms(2_200)).await;
    assert!(!unlocked.is_lost() && !dropped.is_lost(), "renewed without the client");
    release(unlocked).await;
    assert!(!site.exists("unlocked"));
    drop(dropped);
    wait_until("a free lock", SOON, || !site.exists("dropped")).await;
}

pub(super) async fn closing_sends_parked_waiters_home(site: Site) {
    let client = site.connect().await;
    site.hold_by_hand("parked", "somebody:1", MINUTE);
    let waiting = (0..3).map(|number| {
        let lock = client.lock("parked");
        tokio::spawn(async move {
            match number {
                0 => lock.lock().await.map(drop),
                _ => lock.try_lock(MINUTE, MINUTE).await.map(drop),
            }
        })
    });
    let waiting: Vec<_> = waiting.collect();
    wait_until("a subscription", SOON, || site.subscribers("parked") == 1).await;
    soon("closing", client.close()).await;
    for waiter in soon("the waiters", join_all(waiting)).await {
        assert_eq!(waiter.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    wait_until("no subscription", SOON, || site.subscribers("parked") == 0).await;
}

pub(super) async fn a_guard_that_is_alive_when_its_client_closes_is_not_renewed_but_can_be_given_back(
    site: Site,
) {
    let client = site.client_with(ms(3_000)).await;
    let [unlocked, dropped, expiring] =
        ["unlocked", "dropped", "expiring"].map(|name| client.lock(name));
    let (unlocked, dropped, expiring) =
        (hold(&unlocked).await, hold(&dropped).await, hold(&expiring).await);
    soon("closing", client.close()).await;
    assert!(site.exists("unlocked") && site.exists("dropped"), "close gives back no live guard");
    release(unlocked).await;
    assert!(!site.exists("unlocked"));
    drop(dropped);
    // Sooner than the lease would end.
    wait_until("a release after close", ms(2_500), || !site.exists("dropped")).await;
    within(ms(5_000), "the end of a lease that is not renewed", expiring.lost()).await;
    wait_until("a free lock", SOON, || !site.exists("expiring")).await;
}

pub(super) async fn guards_dropped_in_many_threads_at_once_all_free_their_locks(site: Site) {
    let client = site.connect().await;
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
    wait_until("a free lock", SOON, || !site.exists("threads")).await;
}

pub(super) async fn a_dropped_guard_wakes_a_parked_waiter_of_another_client(site: Site) {
    let (client, other) = (site.connect().await, site.connect().await);
    let guard = hold(&client.lock("handed on")).await;
    let next = other.lock("handed on");
    let waiter = tokio::spawn(async move { next.lock().await.expect("its turn") });
    wait_until("the waiter parks", SOON, || site.subscribers("handed on") == 1).await;
    drop(guard);
    // By itself it would look again when the lease of 30 s has ended.
    release(soon("the waiter has the lock", waiter).await.unwrap()).await;
}

pub(super) async fn c6_a_task_that_panics_gives_back_what_it_held(site: Site) {
    let guard = hold(&site.connect().await.lock("panicked")).await;
    let task = tokio::spawn(async move {
        let _guard = guard;
        tokio::task::yield_now().await;
        std::panic::resume_unwind(Box::new("the task fails"));
    });
    assert!(soon("the task ends", task).await.unwrap_err().is_panic());
    wait_until("a free lock", SOON, || !site.exists("panicked")).await;
}

/// As after a failover, or after a restart from a file that lacks the release.
pub(super) async fn w26_a_hold_that_was_given_back_and_is_still_counted_is_released_again(
    site: Site,
) {
    let client = site.connect().await;
    let (kept, dropped) = (client.lock("counted"), client.lock("counted"));
    let owners = [kept.owner().to_owned(), dropped.owner().to_owned()];
    for lock in [&kept, &dropped] {
        release(hold(lock).await).await;
    }
    drop(dropped);
    for owner in owners {
        site.hold_by_hand("counted", &owner, MINUTE);
        let tried = soon("trying", client.lock("counted").try_lock_now()).await;
        release(tried.expect("an answer").expect("nobody has it")).await;
    }

    // Not while somebody has it, and not if another client has.
    let guard = hold(&kept).await;
    assert!(!is_free(&client, "counted").await && !guard.is_lost());
    assert_eq!(site.holds("counted").get(kept.owner()), Some(&1));
    release(guard).await;
    let other = site.connect().await.lock("counted");
    site.hold_by_hand("counted", other.owner(), MINUTE);
    assert!(!is_free(&client, "counted").await);
    site.free_by_hand("counted");
}
