//! The place of a call in a wait queue.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::Engine;
use crate::handle::Handle;
use crate::wait::{Reached, Registration};

use super::{Acquisition, Question};

/// A registration in the wait queue of one of the locks. Its drop gives back a lock that was handed off meanwhile.
pub(super) struct Enqueued<'a> {
    registration: Registration<'a>,
    engine: &'a Engine,
    /// Which lock it is.
    pub(super) of: usize,
}

impl<'a> Enqueued<'a> {
    /// In the queue of the first lock.
    pub(super) fn new(registration: Registration<'a>, engine: &'a Engine) -> Self {
        Self { registration, engine, of: 0 }
    }

    /// Waits in the queue again, behind all others, after it left with a lock that was lost before it could run.
    pub(super) fn join_again(&mut self, until: Option<Instant>) {
        self.registration.join_again(until);
    }

    /// Waits for the lock of that handle: when Redis was asked for all, another owner had it, or the request for it
    /// was not answered. Nothing is held meanwhile.
    fn move_to(
        &mut self,
        of: usize,
        handle: &Arc<Handle>,
        until: Option<Instant>,
        reached: Reached,
    ) {
        self.of = of;
        self.registration.move_to(handle, until, reached);
    }
}

impl<Q: Question> Acquisition<'_, Q> {
    /// Has the call wait for that lock, unless it does.
    pub(super) fn wait_for(&self, of: usize, reached: Reached, waiting: &mut Enqueued<'_>) {
        if of != waiting.of {
            waiting.move_to(of, &self.question.handles()[of], self.until(), reached);
        }
    }
}

impl<'a> Deref for Enqueued<'a> {
    type Target = Registration<'a>;

    fn deref(&self) -> &Registration<'a> {
        &self.registration
    }
}

impl Drop for Enqueued<'_> {
    fn drop(&mut self) {
        if !self.engine.process.is_this_one() {
            self.registration.forget();
            return;
        }
        let (handed, entry_is_left) = self.registration.leave();
        if let Some(granted) = handed {
            self.engine.releaser.give_back(&granted);
        }
        if entry_is_left {
            self.engine.releaser.leave_queue(self.handle());
        }
    }
}
