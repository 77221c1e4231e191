//! Redis that is more than one server: replicas, Sentinels that promote them, and a cluster.
//!
//! The rows T of the fault matrix (see `faults`), and what else has to hold there. Every
//! case proves that its fault took effect, and ends with no key without a TTL and no lock that
//! nobody holds.

mod cluster;
mod replicas;
mod sentinel;
mod service_address;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::prelude::*;
use crate::support::tokens::next_token;

/// What a waiter has to have within that time.
async fn gets(waiter: JoinHandle<LockGuard>, limit: Duration) -> LockGuard {
    within(limit, "the lock", waiter).await.expect("a waiter that did not panic")
}

async fn until_free(what: &str, server: &Server, name: &str) {
    wait_until(what, SOON, || !server.exists(name)).await;
}

/// Those who take a lock and give it back all the time, and say in the end which errors they had.
struct Busy {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Vec<Error>>>,
}

impl Busy {
    fn with(locks: impl IntoIterator<Item = Lock>) -> Self {
        let (stop, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let tasks = locks.into_iter().map(|lock| {
            let (stop, rounds) = (stop.clone(), rounds.clone());
            tokio::spawn(async move {
                let mut errors = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let round = async { lock.lock().await?.unlock().await };
                    errors.extend(round.await.err());
                    rounds.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
                errors
            })
        });
        Self { tasks: tasks.collect(), stop, rounds }
    }

    /// Waits for ten more rounds of each.
    async fn goes_on(&self) {
        let enough = self.rounds.load(Ordering::SeqCst) + 10 * self.tasks.len() as u64;
        wait_until("rounds", SOON, || self.rounds.load(Ordering::SeqCst) > enough).await;
    }

    async fn end(self) -> Vec<Error> {
        self.stop.store(true, Ordering::SeqCst);
        let errors = soon("the end", join_all(self.tasks)).await;
        errors.into_iter().flat_map(|errors| errors.expect("no panic")).collect()
    }
}

/// Whom a failover is to befall: a holder, a waiter for the same lock, and an idle client.
struct Company {
    idle: LockClient,
    guards: [LockGuard; 2],
    parked: JoinHandle<LockGuard>,
    token: FencingToken,
}

impl Company {
    async fn of(primary: &Server, client: impl AsyncFn() -> LockClient) -> Self {
        let (holder, waiter, idle) = (client().await, client().await, client().await);
        release(hold(&idle.lock("idle")).await).await;
        let lock = holder.lock("kept");
        let guards = [hold(&lock).await, hold(&lock).await];
        let token = next_token(&holder.fenced_lock("fenced")).await;
        let parked = waiting(&waiter, "kept");
        wait_until("a subscription", SOON, || primary.subscribers("kept") == 1).await;
        Self { idle, guards, parked, token }
    }

    /// Another primary has all that this one had: it costs nobody anything.
    async fn goes_on_at(self, new: &Server) {
        let Self { idle, guards: [outer, inner], parked, token } = self;
        assert!(!parked.is_finished(), "granted to two");
        assert!(!outer.is_lost() && !inner.is_lost());
        assert_eq!(new.holds("kept")[outer.owner()], 2);
        release(inner).await;
        release(outer).await;
        release(gets(parked, ms(3_000)).await).await;
        release(hold(&idle.lock("idle")).await).await;
        assert!(next_token(&idle.fenced_lock("fenced")).await > token);
        for name in ["kept", "idle", "fenced"] {
            until_free("a free lock", new, name).await;
        }
    }
}
