//! Redis that is more than one server: replicas, Sentinels that promote them, and a cluster.
//!
//! The rows T of the fault matrix (see `tests/faults`), and what else has to hold there. Every
//! case proves that its fault took effect, and ends with no key without a TTL and no lock that
//! nobody holds.

#[path = "../support/mod.rs"]
mod support;

mod fixtures;
