//! What a program exports that has a recorder of `metrics`: each series by its name and labels, with what happened.
//!
//! Most of it on a simulated Redis in paused time, where a duration is known to the millisecond.

#[path = "../../examples/support/exporter.rs"]
mod exporter;
#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod drills;
mod groups;
mod levels;
mod recorder;
mod series;
