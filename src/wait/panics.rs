//! The end of a client whose thread or whose renewals have panicked.

use std::sync::Arc;
use std::thread;

use super::Waiters;

/// What hears of an event may panic, such as a subscriber of the log that cannot write, and with it what has renewed locks:
/// from then on the client must not grant what it cannot keep.
pub(crate) struct ClosesOnPanic(Arc<Waiters>);

impl Waiters {
    /// Closes the client if the task panics that has this.
    pub(crate) fn close_on_panic(self: &Arc<Self>) -> ClosesOnPanic {
        ClosesOnPanic(self.clone())
    }
}

impl Drop for ClosesOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(self.0.close());
        }
    }
}
