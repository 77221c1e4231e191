//! The integration tests: one module a topic, all in one program, on one library of support.
//!
//! ```sh
//! tests/run                                  # these and every other suite
//! cargo test --test it waiting::             # one topic
//! cargo test --test it contract::cluster::   # what a lock does, in one topology
//! ```
//!
//! A suite has a program of its own, beside this folder, if it needs a process or a harness of its
//! own: it counts all that the process allocates, it records all that the process logs, or it makes
//! up its cases when it starts.
//!
//! Tests run beside each other, in threads of this one process. So a test that measures time, or that
//! uses the processors for seconds, says so first (`support::machine`); one that measures the process
//! itself has a process of its own (`support::child::alone`); and one that does nothing to its server
//! shares it (`setup`).

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod bad_input;
mod batches;
mod cancellation;
mod closing;
mod contract;
mod debug;
mod errors;
mod executing;
mod extending;
mod fair;
mod faults;
mod fenced;
mod fenced_sharing;
mod fixtures;
mod giving_back;
mod hand_off;
mod holding;
mod lazy;
mod leases;
mod losses;
mod multi;
mod options;
mod paused;
mod prelude;
mod read_write;
mod retention;
mod runtimes;
mod scale;
mod setup;
mod sharing;
mod stats;
mod topologies;
mod waiting;
mod wake_ups;
mod who_holds;
mod wire;
mod with;
