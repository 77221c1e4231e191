#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

// First, because a macro is known only below it.
#[macro_use]
mod seeded;

mod acquire;
mod builder;
mod client;
mod clock;
mod config;
mod connection;
mod engine;
mod error;
mod fenced;
mod guard;
mod holds;
mod lease;
mod lock;
mod protocol;
mod relay;
mod releaser;
mod token;
mod waiters;
mod watchdog;

#[doc = include_str!("promises.md")]
pub mod promises {}

pub use builder::LockClientBuilder;
pub use client::LockClient;
pub use error::{Error, ErrorKind, Outcome};
pub use fenced::{FencedLock, FencedLockGuard};
pub use guard::LockGuard;
pub use lease::Lease;
pub use lock::Lock;
pub use token::FencingToken;
