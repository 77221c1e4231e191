//! Polls a future by hand, so that it can be dropped at any point of its progress.

use std::future::Future;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio_test::task::{Spawn, spawn};

/// A future on its way. Dropping this drops the future where it stands.
pub(crate) struct Steps<F: Future> {
    task: Spawn<F>,
    polled: bool,
}

/// For how long a poll waits for the one before it to have woken the future. A future that is
/// parked is not woken at all, and is then polled for nothing: it has to bear that too.
const PATIENCE: Duration = Duration::from_millis(20);

impl<F: Future> Steps<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { task: spawn(future), polled: false }
    }

    /// Up to `polls` polls, each after the future was woken. Its value, if that was enough.
    pub(crate) async fn take(&mut self, polls: usize) -> Option<F::Output> {
        for _ in 0..polls {
            let start = Instant::now();
            while self.polled && !self.task.is_woken() && start.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
            self.polled = true;
            if let Poll::Ready(value) = self.task.poll() {
                return Some(value);
            }
        }
        None
    }
}

/// Lets the runtime take so many turns: requests leave, answers come, and nobody polls for them.
pub(crate) async fn turns(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}
