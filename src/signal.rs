//! Tells all who wait that something has changed.
//!
//! It does what `tokio::sync::watch` does without a value. That one chooses at random in which order it
//! wakes its receivers, so that no two runs would be the same. This one wakes them in the order in which
//! they came.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The number of changes when the sender is gone.
const GONE: u64 = u64::MAX;

#[derive(Default)]
struct Shared {
    changes: AtomicU64,
    changed: Notify,
}

/// Reports changes. Its drop is the last one.
#[derive(Default)]
pub(crate) struct Sender(Arc<Shared>);

/// Notices each change that comes after the last one that it noticed.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    seen: u64,
}

impl Sender {
    pub(crate) fn send(&self) {
        self.0.changes.fetch_add(1, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// A receiver that has noticed all changes so far.
    pub(crate) fn subscribe(&self) -> Receiver {
        Receiver { shared: self.0.clone(), seen: self.0.changes.load(Ordering::Acquire) }
    }

    /// Whether there is a receiver.
    pub(crate) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.changes.store(GONE, Ordering::Release);
        self.0.changed.notify_waiters();
    }
}

impl Receiver {
    /// Completes when there is a change that it has not noticed, and at once if the sender is gone.
    pub(crate) async fn changed(&mut self) {
        loop {
            // Before the look, so that a change in between is not missed.
            let changed = self.shared.changed.notified();
            let changes = self.shared.changes.load(Ordering::Acquire);
            if changes != self.seen || changes == GONE {
                self.seen = changes;
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::task::spawn;

    use super::*;

    #[test]
    fn a_change_is_noticed_once_by_each_receiver_and_the_end_again_and_again() {
        let sender = Sender::default();
        let (mut one, mut other) = (sender.subscribe(), sender.subscribe());
        {
            let mut waits = spawn(one.changed());
            assert!(waits.poll().is_pending());
            sender.send();
            sender.send();
            assert!(waits.is_woken() && waits.poll().is_ready());
        }
        assert!(spawn(one.changed()).poll().is_pending());
        assert!(spawn(other.changed()).poll().is_ready(), "it was not waiting");
        assert!(spawn(sender.subscribe().changed()).poll().is_pending());
        drop(sender);
        for _ in 0..2 {
            assert!(spawn(one.changed()).poll().is_ready());
        }
    }
}
