//! What nearly every part of the hammer uses.

pub(crate) use std::collections::HashMap;
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Duration;

pub(crate) use fastrand::Rng;

pub(crate) use crate::calm_times::Calm;
pub(crate) use crate::check::{Bounds, Violation};
pub(crate) use crate::handle::{Handle, Hold};
pub(crate) use crate::history::{
    Acquire, Command, Fates, Fault, Heard, History, Id, NEVER, Owner, Sample, What,
};
pub(crate) use crate::names::{Kind, Names};
pub(crate) use crate::record::{Event, FENCED, How, MS, Outcome, Record, Recorder, now};
pub(crate) use crate::shared::Shared;
pub(crate) use crate::support::unpoisoned as lock;
pub(crate) use crate::trials::Trials;
