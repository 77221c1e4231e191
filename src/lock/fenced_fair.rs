//! The fenced fair lock: first come, first served, and each guard has a token.
//!
//! Its acquire and its prolong script have the fencing token as one more key. All else is the fair
//! lock.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::Error;
use crate::kind::Kind;
use crate::lease::Lease;

use super::around::lock_around;
use super::delegate::{delegate, delegate_lock};
use super::{FencedLockGuard, Lock};

/// A [`FairLock`](crate::FairLock) whose guards have a [`token`](FencedLockGuard::token).
///
/// It has the order, the promises and the keys of a fair lock, and the tokens of a
/// [`FencedLock`](crate::FencedLock), which counts them by the same key. Its waiters stand in one queue with
/// those of the fair lock of that name.
///
/// # Costs
///
/// Those of a fair lock, but for what needs a token, which only Redis can give: a turn of the next waiter
/// of the same client takes one round trip, and from the begin of an `unlock` until the next waiter in
/// another client has the lock it takes two.
///
/// With its token a waiter has the lock for its lease. So a call that is never polled again keeps the others
/// waiting for that lease, where it would cost them the grace with a [`FairLock`](crate::FairLock).
///
/// All calls are those of [`Lock`], with the same errors and cancel safety; the documentation there of a
/// handle, an owner and a clone is true here, too.
///
/// # Examples
///
/// ```no_run
/// # async fn print(_: redlatch::FencingToken) {}
/// # async fn example(client: redlatch::LockClient) -> Result<(), redlatch::Error> {
/// let printer = client.fenced_fair_lock("printer");
/// let guard = printer.lock().await?;
/// // The printer refuses what comes with a lower token than it has seen.
/// print(guard.token()).await;
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FencedFairLock {
    lock: Lock,
}

impl FencedFairLock {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        Self { lock: Lock::of_kind(Kind::FencedFair, engine, name) }
    }
}

delegate_lock!(FencedFairLock => FencedLockGuard, FencedLockGuard::new);
lock_around!(FencedFairLock.lock => FencedLockGuard);
