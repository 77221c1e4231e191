//! Redis that is far away, or that a bad network leads to: what loopback hides.
//!
//! Rows W1 to W30 of the fault matrix (see `faults`) that are about time. Each client has a
//! network of its own to the server; a figure of milliseconds in a test is a distance that the test
//! has set, or a multiple of one.

mod blocked_workers;
mod connections;
mod fixtures;
mod unconfirmed;
