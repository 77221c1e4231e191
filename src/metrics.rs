//! What a client exports through the facade `metrics`, with the feature of that name.
//!
//! The other modules say what happens here, by the same calls with the feature and without it. Without it the types are
//! empty, and the calls do nothing: no time, no room. What the exported names mean for a user is in
//! [`guide::operations`](crate::guide::operations).
//!
//! 1. **No name of a lock is a label.** There are as many series as kinds, outcomes and [groups](Metrics::series_of),
//!    however many names there are.
//! 2. **A handle of the facade is made once**, for the first event of its series: after that an event is one atomic or one
//!    record. The time of a call or of a hold may be recorded a second later or so, together with others: see [`times`].
//! 3. **What can stay at zero is there from the start**: a program that asks how fast a counter grows has to find the counter before it grows.
//! 4. Levels that the client does not count as they change, it looks up from time to time, for a small part
//!    of its thread's time.

mod labels;
pub(crate) use labels::{End, Operation, Outcome, Warning};

#[cfg(feature = "metrics")]
mod facade;
#[cfg(feature = "metrics")]
mod groups;
#[cfg(feature = "metrics")]
mod levels;
#[cfg(not(feature = "metrics"))]
mod none;
#[cfg(feature = "metrics")]
mod series;
#[cfg(feature = "metrics")]
mod times;

#[cfg(feature = "metrics")]
pub(crate) use facade::Metrics;
#[cfg(feature = "metrics")]
pub(crate) use groups::Grouping;
#[cfg(feature = "metrics")]
pub(crate) use levels::{Levels, keep_levels};
#[cfg(not(feature = "metrics"))]
pub(crate) use none::{Attempt, Grouping, Metrics, OfKinds, Series, Waits};
#[cfg(feature = "metrics")]
pub(crate) use series::{Attempt, OfKinds, Series, Waits};
