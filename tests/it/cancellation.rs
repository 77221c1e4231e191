//! Every call may be dropped at any point and leaves nothing behind: no lock, no subscription, no
//! place in a line that nobody fills, no wake-up that nobody uses.
//!
//! A future is polled `k` times, for each `k` until it completes, and dropped; so it is once
//! dropped at each of its awaits. In between, and before the drop, the runtime gets some turns, so
//! that the answer is on its way or there. What is left behind would stay for the lease of 30 s;
//! it must be gone in no time, and within a round trip as a rule.

use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_test::task;

use crate::prelude::*;

/// How many turns the runtime takes between the last poll and the drop.
pub(crate) const TURNS: [usize; 4] = [0, 1, 6, 60];

/// A call that finishes needs fewer polls than this.
pub(crate) const MANY: usize = 60;

type Take = fn(&Lock) -> BoxFuture<'_, Option<LockGuard>>;

/// The calls that wait, and the one that does not.
const TAKES: [(&str, Take); 4] = [
    ("lock", |lock| lock.lock().map(|guard| Some(guard.expect("lock"))).boxed()),
    ("lease", |lock| lock.lock_with_lease(MINUTE).map(|guard| Some(guard.expect("lock"))).boxed()),
    ("try", |lock| lock.try_lock(MINUTE, MINUTE).map(|guard| guard.expect("try_lock")).boxed()),
    ("now", |lock| lock.try_lock_now().map(|guard| guard.expect("try_lock_now")).boxed()),
];

/// Each test once where the connection is driven between the polls only, and once where it is
/// driven beside them.
macro_rules! in_both_flavours {
    ($($name:ident)*) => {
        mod on_one_thread { $(#[tokio::test] async fn $name() { super::$name().await })* }
        mod on_more_threads {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() { super::$name().await }
            )*
        }
    };
}

mod calls;
mod waits;

/// How long it took each time until nothing was left.
#[derive(Default)]
pub(crate) struct Traces(Vec<Duration>);

impl Traces {
    /// Waits until anybody can have the lock: another client, or one whose try goes over the
    /// connection of the dropped call, behind what that sent, so that it cannot come too early.
    pub(crate) async fn until_free(&mut self, client: &LockClient, name: &str) {
        let start = Instant::now();
        while !is_free(client, name).await {
            assert!(start.elapsed() < SOON, "{name} is still held");
            tokio::time::sleep(ms(1)).await;
        }
        self.0.push(start.elapsed());
    }

    async fn until_held_once(&mut self, lock: &Lock) {
        let start = Instant::now();
        while soon("counting", lock.hold_count()).await.expect("counting") != 1 {
            assert!(start.elapsed() < SOON, "{} is not held just once", lock.name());
            tokio::time::sleep(ms(1)).await;
        }
        self.0.push(start.elapsed());
    }

    /// One may be slow on a busy machine. All of them are not.
    pub(crate) fn were_short(mut self, server: &Server) {
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "something came late, and stayed");
        self.0.sort();
        let median = self.0[self.0.len() / 2];
        assert!(median < ROUND_TRIP, "it takes {median:?} until nothing is left");
    }
}

/// Polls a future so many times, lets the runtime take some turns, and drops it; its value, if it
/// came to one.
pub(crate) async fn step<F: Future>(future: F, polls: usize, pause: usize) -> Option<F::Output> {
    let mut steps = Steps::new(future);
    let value = steps.take(polls).await;
    turns(pause).await;
    value
}

/// Runs `once` with more polls each time, until it says that the call completed.
pub(crate) async fn at_every_await(mut once: impl AsyncFnMut(usize, usize) -> bool) {
    for turns in TURNS {
        let mut polls = 0;
        while !once(polls, turns).await {
            polls += 1;
            assert!(polls < MANY, "the call does not complete");
        }
        assert!(polls > 0, "the call completed without a poll");
    }
}

async fn no_subscriptions(server: &Server) {
    let channels = || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]);
    wait_until("all subscriptions are given up", SOON, || channels().is_empty()).await;
}
