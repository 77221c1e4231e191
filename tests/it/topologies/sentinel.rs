//! A client that asks Sentinels where the primary is.

mod addresses;
mod failovers;
mod late;
mod released;
mod renamed;

use std::time::Duration;

use redlatch::{LockClient, LockClientBuilder};

use super::connected;
use crate::support::sentinel::MASTER;
use crate::support::{Sentinels, Server};

fn by_way_of(urls: impl IntoIterator<Item = String>) -> LockClientBuilder {
    LockClient::builder().sentinel(MASTER, urls)
}

/// A client whose locks last so long unless they are renewed.
async fn client_of(set: &Sentinels, watchdog_timeout: Duration) -> LockClient {
    connected(by_way_of(set.urls()).watchdog_timeout(watchdog_timeout)).await
}

/// Waits until both replicas have all that the master has been told.
fn replicated(master: &Server) {
    assert_eq!(master.ask::<u64>(&["WAIT", "2", "10000"]), 2, "replicas that lag behind");
}
