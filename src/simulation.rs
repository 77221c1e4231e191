//! A simulated Redis, and the machines and the network around it (feature `test-util`).
//!
//! The whole client runs on it as it is, the driver of the `redis` crate included: its connections are
//! queues of bytes in memory. Time is Tokio's, so a test can pause it.
//!
//! 1. **A seed is a whole run.** In one current-thread runtime with paused time, the same seed and the same
//!    callers give the same bytes at the same times. [`Network::trace`] is a hash over them.
//! 2. A [`Server`] is pure: it takes the time and bytes, and gives bytes. The [`Network`] carries them.
//! 3. What is under way stays under way: bytes that a client has sent reach the server, even if the client
//!    has dropped the connection, or its machine has crashed, meanwhile.

mod machine;
mod memory;
mod network;
mod random;
mod server;

pub use machine::{Machine, MachineRuntime};
pub(crate) use memory::memory;
pub use network::{
    Direction, Distance, Fate, Fates, Flow, MachineNumber, Network, Observer, ServerNumber,
};
pub use random::Random;
pub use server::*;
