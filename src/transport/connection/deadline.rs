//! Wakes the requests on a connection when it has ended, or when a deadline may have passed.
//!
//! A timer for each request costs more than all other work for it. So there is one for each
//! connection, and a request moves it only to an earlier deadline: with deadlines that are all
//! equally far away it ticks once in that time. Then every request checks the clock, and those
//! whose deadlines have not passed yet make timers of their own: a server that does not answer has
//! one deadline after the other pass, and if each woke all requests, these would keep a processor busy.

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
    end: Notify,
    /// When the next tick is due, if a request needs one.
    look: Mutex<Option<Instant>>,
    sooner: Notify,
}

impl DeadlineTimer {
    /// Completes at the next tick from now on.
    pub(super) fn tick(&self) -> Notified<'_> {
        self.tick.notified()
    }

    /// The connection has ended: wakes all requests on it.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.tick.notify_waiters();
        self.end.notify_waiters();
        self.sooner.notify_one();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Requests a tick at that time. An earlier tick consumes the request.
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
            // Before the check, so that an end in between is not missed.
            let end = self.end.notified();
            if self.has_ended() {
                return;
            }
            end.await;
        }
    }

    /// Ticks on request, until the connection has ended.
    pub(super) async fn run(self: Arc<Self>) {
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
