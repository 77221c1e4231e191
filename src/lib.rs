// Of two definitions of one link Markdown takes the first. These lead to the items of this crate;
// those at the end of the README lead a reader in the repository to the files.
#![doc = include_str!("guide/charts/ratios.md")]
//! [promises]: guide::promises
//! [deployment]: guide::deployment
//! [operations]: guide::operations
//! [choosing]: guide::choosing
//! [recipes]: guide::recipes
//! [migrating]: guide::migrating
//! [redis_client]: guide::redis_client
//! [faq]: guide::faq
//! [builder]: LockClientBuilder
//! [execute]: LockGuard::execute
//! [fenced]: LockClient::fenced_lock
//! [examples]: guide#in-the-repository
//! [tested_service]: guide#in-the-repository
//! [benches]: guide#in-the-repository
//! [architecture]: guide#in-the-repository
//! [tests]: guide#in-the-repository
//! [changelog]: guide#in-the-repository
//! [contributing]: guide#in-the-repository
//! [security]: guide#in-the-repository
//! [mit]: guide#in-the-repository
//! [apache]: guide#in-the-repository
#![cfg_attr(feature = "test-util", doc = "[test_util]: test_util")]
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod acquire;
mod backoff;
mod builder;
mod client;
mod clock;
mod config;
mod engine;
mod error;
mod events;
mod guard;
pub mod guide;
mod handle;
mod handoff;
mod host;
mod inspection;
mod join;
pub mod kind;
mod lease;
mod lock;
mod loss;
mod metrics;
mod peer;
mod possession;
mod process;
mod protocol;
mod read_write;
mod ready;
mod reclaim;
mod released;
mod releaser;
mod signal;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod simulation;
mod slot;
mod spans;
mod stamp;
mod stats;
mod sweep;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
mod token;
mod transport;
mod wait;
mod watchdog;

pub use builder::LockClientBuilder;
pub use client::LockClient;
pub use engine::Shutdown;
pub use error::{Error, ErrorKind, Loss, Outcome};
pub use guard::{FencedLockGuard, LockGuard, MultiGuard};
#[doc(no_inline)]
pub use guide::promises;
pub use inspection::{HoldMode, Holder, InspectedKind, Inspection, Locks, WaitingClient};
pub use lease::Lease;
pub use lock::{FairLock, FencedFairLock, FencedLock, Lock, MultiLock};
pub use read_write::{
    FencedReadGuard, FencedReadWriteLock, FencedWriteGuard, ReadGuard, ReadWriteGuard,
    ReadWriteLock, WriteGuard,
};
/// The driver, in the version whose `Client` [`LockClientBuilder::client`] takes.
#[doc(no_inline)]
pub use redis;
pub use stats::{Health, NodeHealth, Stats};
pub use token::FencingToken;

// What the tests of several modules use.
#[cfg(test)]
mod tests {
    pub(crate) mod explore;
    pub(crate) mod naive;
    pub(crate) mod parts;
    pub(crate) mod suspended;
}
