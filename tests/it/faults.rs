//! The fault matrix: what must hold when things go wrong, one test or more a row.
//!
//! A row has an id, and the tests of a row have names that begin with it: `n6_`. The letter says what
//! breaks:
//!
//! | | |
//! |---|---|
//! | N | the network between a client and its server |
//! | S | the server and its data |
//! | T | the topology: failovers, Sentinels, slots that move |
//! | C | the process of the client, its runtimes and its threads |
//! | I | the input, and its scale |
//! | W | two things at once: one of these under a distance, a delay, an order of events, or a neighbour |
//! | X | the queue of a fair lock |
//!
//! Some rows are tested where their subject is, outside this folder: `rows.rs` has the table of all
//! rows, and fails when a row has no test anywhere in `tests/`.
//!
//! Every case proves that its fault took effect, and ends with no key without a TTL (the server's
//! drop sees to that) and no lock that nobody holds.

mod connections;
mod foreign_hashes;
mod inputs;
mod late_requests;
mod outages;
mod process;
mod rows;
mod server;

use crate::prelude::*;

/// A call of `client` for a lock that another holds. The client is the first that waits for it.
async fn parked(
    server: &Server,
    client: &LockClient,
    name: &str,
) -> JoinHandle<Result<LockGuard, Error>> {
    let lock = client.lock(name);
    let waiter = tokio::spawn(async move { lock.lock().await });
    wait_until("a subscription", SOON, || server.subscribers(name) == 1).await;
    waiter
}

/// The lock of such a call, which comes soon.
async fn has_its_turn(waiter: JoinHandle<Result<LockGuard, Error>>) {
    release(soon("the lock", waiter).await.expect("no panic").expect("a turn")).await;
}
