//! The word that the round is over. (Tokio's `watch` wakes in a random order.)

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::prelude::*;

#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<(AtomicBool, Notify)>);

impl Stop {
    pub(crate) fn tell(&self) {
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify_waiters();
    }

    pub(crate) fn is_told(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// Waits until it is told.
    pub(crate) async fn told(&self) {
        let told = self.0.1.notified();
        if !self.is_told() {
            told.await;
        }
    }
}
