//! The lock on a simulated Redis, which the library has behind the feature `test-util`.

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod beside_redisson;
mod clocks;
mod closing;
mod crowds;
mod distance;
mod failover;
mod fair;
mod figures;
mod health;
mod in_memory;
mod leases;
mod lost_answers;
mod multi;
mod not_executed;
mod order;
mod outages;
mod prelude;
mod read_write;
mod scene;
mod seeds;
mod shutdown;
mod silence;
mod streaks;
mod taken_away;
mod turns;
mod unlocks;
mod unpolled;
mod waits;
mod who_holds;
