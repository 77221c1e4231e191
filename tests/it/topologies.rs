//! Redis that is more than one server: replicas, Sentinels that promote them, and a cluster.
//!
//! The rows T of the fault matrix (see `faults`), and what else has to hold there. Every
//! case proves that its fault took effect, and ends with no key without a TTL and no lock that
//! nobody holds.

mod cluster;
mod replicas;
mod sentinel;
mod service_address;

use std::time::Instant;

use crate::prelude::*;

async fn connected(builder: LockClientBuilder) -> LockClient {
    soon("connecting", builder.connect()).await.expect("connecting")
}

/// Stands in line for `name` in a task of its own, and is patient.
fn waiting(client: &LockClient, name: &str) -> JoinHandle<LockGuard> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await.expect("the lock, in the end") })
}

/// What a waiter has to have within that time.
async fn gets(waiter: JoinHandle<LockGuard>, limit: Duration) -> LockGuard {
    within(limit, "the lock", waiter).await.expect("a waiter that did not panic")
}

/// When the guard will know by itself that it is lost, if nothing renews it.
fn deadline(guard: &LockGuard) -> Instant {
    Instant::now() + guard.remaining()
}

/// Waits for the loss of a lock that nothing can renew; it has to be told at its deadline.
async fn lost_at(guard: &LockGuard, deadline: Instant) {
    guard.lost().await;
    let told = Instant::now();
    assert!(told >= deadline, "told {:?} before the deadline", deadline - told);
    // What a busy machine may take.
    assert!(told < deadline + SOON / 20, "told {:?} after the deadline", told - deadline);
}

async fn until_free(what: &str, server: &Server, name: &str) {
    wait_until(what, SOON, || !server.exists(name)).await;
}
