//! The guide: texts that are too long for the page of one type.
//!
//! - [`promises`]: what the lock promises, what it does not, and which tests check it.

#[doc = include_str!("guide/promises.md")]
pub mod promises {}
