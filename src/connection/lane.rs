//! One runtime's connection, and how it is made again.
//!
//! One dial at a time, and ever more slowly until a command has been answered: a server that
//! accepts and then resets is not hammered either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::RedisError;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::clock;

use super::node::{self, Node};
use super::replicas::Queue;
use super::{Link, Wire};

/// What one runtime has of a server, for one purpose.
pub(super) struct Lane {
    /// A task that does nothing but end with its runtime.
    resident: AbortHandle,
    wire: Mutex<Option<Wire>>,
    /// Held while dialling.
    dialling: tokio::sync::Mutex<Option<Dialled>>,
    /// Dials since a command was last answered.
    pub(super) unanswered: Arc<AtomicU32>,
    connected_before: AtomicBool,
    /// Who waits for replicas there.
    pub(super) queue: Queue,
}

/// Why there is no connection.
pub(super) enum Undialled {
    /// There was no time left for a dial. With the error of the last one.
    TimeUp(Option<RedisError>),
    Failed(RedisError),
}

/// The last dial.
struct Dialled {
    at: Instant,
    error: Option<RedisError>,
}

impl Lane {
    pub(super) fn new(runtime: &Handle) -> Self {
        Self {
            resident: runtime.spawn(std::future::pending::<()>()).abort_handle(),
            wire: Mutex::default(),
            dialling: tokio::sync::Mutex::default(),
            unanswered: Arc::default(),
            connected_before: AtomicBool::default(),
            queue: Queue::default(),
        }
    }

    pub(super) fn runtime_has_ended(&self) -> bool {
        self.resident.is_finished()
    }

    /// The connection in use.
    pub(super) fn in_use(&self) -> Option<Wire> {
        self.wire.lock().clone().filter(|wire| !wire.is_stale())
    }

    /// Takes the connection in use out of use, if it is one of those.
    pub(super) fn take(&self, which: impl FnOnce(&Wire) -> bool) -> Option<Wire> {
        self.wire.lock().take_if(|wire| which(wire))
    }

    /// The connection in use, or a new one by `deadline`: one dial, when it may follow the last.
    pub(super) async fn wire(
        &self,
        link: &Link,
        node: &Node,
        deadline: Instant,
    ) -> Result<Wire, Undialled> {
        let Ok(mut last) = clock::timeout_at(deadline, self.dialling.lock()).await else {
            return Err(Undialled::TimeUp(None));
        };
        // Whoever dialled before may have left one.
        if let Some(wire) = self.in_use() {
            return Ok(wire);
        }
        if let Some(Dialled { at, error }) = &*last {
            let again = *at + backoff(self.unanswered.load(Ordering::Relaxed));
            if clock::timeout_at(deadline, clock::sleep_until(again)).await.is_err() {
                return Err(Undialled::TimeUp(error.clone()));
            }
        }
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let at = clock::now();
        let before = last.take().and_then(|dialled| dialled.error);
        *last = Some(Dialled { at, error: before.clone() });
        match clock::timeout_at(deadline, node.dial(link, self)).await {
            Ok(Ok(wire)) if self.install(node, &wire) => Ok(wire),
            Ok(dialled) => {
                let error = dialled.err().unwrap_or_else(node::moved);
                tracing::warn!(%error, "could not connect to Redis");
                *last = Some(Dialled { at, error: Some(error.clone()) });
                Err(Undialled::Failed(error))
            }
            Err(_) => Err(Undialled::TimeUp(before)),
        }
    }

    /// From now on requests go to this connection; but not if another server has become the master
    /// since it was begun. That one is named before the lanes are looked through for connections to
    /// the old one: so either this sees the name, or what is put here is found.
    fn install(&self, node: &Node, wire: &Wire) -> bool {
        let number = wire.number();
        let mut in_use = self.wire.lock();
        if !node.is_at(wire.server()) {
            return false;
        }
        *in_use = Some(wire.clone());
        drop(in_use);
        if self.connected_before.swap(true, Ordering::Relaxed) {
            tracing::info!(connection = number, "connected to Redis again");
        } else {
            tracing::debug!(connection = number, "connected to Redis");
        }
        true
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.resident.abort();
    }
}

/// How long after a dial the next may follow: at once, then 20 ms doubling to half a second, up
/// to a quarter of it less at random, so that a fleet does not dial in step.
fn backoff(unanswered: u32) -> Duration {
    let Some(doublings) = unanswered.checked_sub(1) else {
        return Duration::ZERO;
    };
    let pause = Duration::from_millis(20 << doublings.min(5)).min(Duration::from_millis(500));
    pause - pause / 4 * u32::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dials_slow_down_to_half_a_second_and_differ() {
        assert_eq!(backoff(0), Duration::ZERO);
        let pauses: Vec<_> = (1..40).map(backoff).collect();
        for (pause, most) in pauses.iter().zip([20, 40, 80, 160, 320, 500, 500, 500]) {
            let most = Duration::from_millis(most);
            assert!(*pause <= most && *pause >= most * 3 / 4, "{pause:?} of {most:?}");
        }
        assert!(pauses[5..].windows(2).any(|two| two[0] != two[1]));
    }
}
