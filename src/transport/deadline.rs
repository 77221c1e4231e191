//! How whoever waits on a connection hears that it has ended, or that its time may be up.
//!
//! A timer for each request costs more than all else that is done about one. So there is one for
//! a connection, and it is moved only for a deadline that comes sooner: with deadlines that are
//! all equally far away it rings once in that time. Then everybody looks at the clock, and those
//! whose time is not up yet go on waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::clock;

#[derive(Default)]
pub(super) struct DeadlineTimer {
    has_ended: AtomicBool,
    tick: Notify,
    /// When the keeper looks, if it has to.
    look: Mutex<Option<Instant>>,
    sooner: Notify,
}

impl DeadlineTimer {
    /// Completes at the next beat from now on.
    pub(super) fn tick(&self) -> Notified<'_> {
        self.tick.notified()
    }

    /// Nothing on the connection is waited for any more.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.tick.notify_waiters();
        self.sooner.notify_one();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Asks for a beat at that time. One that comes before takes the wish with it.
    pub(super) fn by(&self, deadline: Instant) {
        let mut look = self.look.lock();
        if look.is_none_or(|at| deadline < at) {
            *look = Some(deadline);
            drop(look);
            self.sooner.notify_one();
        }
    }

    /// Completes when the connection has ended.
    pub(super) async fn ended(&self) {
        loop {
            // Before the look, so that an end in between is not missed.
            let tick = self.tick();
            if self.has_ended() {
                return;
            }
            tick.await;
        }
    }

    /// Beats when it is asked to, until the connection has ended.
    pub(super) async fn keep(self: Arc<Self>) {
        while !self.has_ended() {
            let look = *self.look.lock();
            let sooner = self.sooner.notified();
            match look {
                None => sooner.await,
                Some(at) => {
                    if clock::timeout_at(at, sooner).await.is_err() {
                        *self.look.lock() = None;
                        self.tick.notify_waiters();
                    }
                }
            }
        }
    }
}
