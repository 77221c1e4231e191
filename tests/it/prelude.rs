//! What nearly every test uses.

pub(crate) use std::collections::BTreeMap;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use futures::future::join_all;
pub(crate) use redlatch::{
    Error, ErrorKind, FairLock, FencedLock, FencedLockGuard, FencingToken, Lease, Lock, LockClient,
    LockClientBuilder, LockGuard, Loss, Outcome,
};
pub(crate) use tokio::task::JoinHandle;

pub(crate) use crate::setup::{Setup, apart, far_apart};
pub(crate) use crate::support::machine::passed;
pub(crate) use crate::support::*;
