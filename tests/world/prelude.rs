//! What nearly every test uses.

pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use futures::future::join_all;
pub(crate) use redlatch::simulation::{
    Direction, Distance, Fate, Flow, Machine, Random, ServerNumber,
};
pub(crate) use redlatch::test_util::Redis;
pub(crate) use redlatch::{
    Error, ErrorKind, Lock, LockClient, LockClientBuilder, LockGuard, Outcome,
};
pub(crate) use tokio::task::JoinHandle;
pub(crate) use tokio::time::{Instant, sleep, timeout};

pub(crate) use crate::scene::{
    ADDRESS, Scene, Side, in_short, lock_for, logged, moments, play, redis_at, round_trip,
    waiting_for,
};
pub(crate) use crate::support::*;
