//! The hammer in simulated worlds. One seed is one world: its servers, its machines and distances, its
//! calls, its faults and all that comes of them. It plays again from the seed. Half of the worlds
//! have one server, a quarter a primary with replicas and Sentinels, and a quarter a cluster ([`servers`]).
//!
//! ```text
//! cargo test --profile campaign --features test-util --test hammer -- --simulated --minutes 10
//! cargo test --release --features test-util --test hammer -- --simulated --seed 7    that world again
//! ```
//!
//! The tasks, their calls and the rules are those of the hammer with real processes. A violation makes
//! itself smaller ([`shrink`]) and prints the command that plays the smallest world again.
//!
//! In a world there is one more rule, H0: no task fails, and every call comes home.

pub(crate) mod campaign;
mod monitor;
mod nemesis;
mod plan;
mod platform;
mod process;
mod servers;
mod shrink;
pub(crate) mod trials;
mod witness;
mod world;
