//! What a call sends to Redis for one possession, and what its drop leaves to the background.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::possession::{Ask, Permit, Possession};
use crate::protocol::{Acquired, Call, QueueEntry, QueueNews, Terms};

use super::send::send_release;
use super::{BackgroundRelease, Job, Releaser};

/// The requests of one call to Redis for one possession, under the permit of that (invariant 1).
pub(crate) struct PossessionSession<'a> {
    pub(crate) call: Call<'a>,
    pub(super) possession: Arc<Possession>,
    pub(super) releaser: &'a Releaser,
    pub(super) permit: Option<Permit>,
    lease: Duration,
    /// What is asked for, while the answer is awaited.
    asks: Option<Ask>,
    /// Commands of the caller, or an extension, were sent, and may still be executed.
    pub(crate) unanswered: bool,
    has_ended: bool,
}

impl<'a> PossessionSession<'a> {
    /// `permit` is that of the possession, if the caller has it already. `lease` is what would end the
    /// hold if the client never released it.
    pub(crate) fn new(
        call: Call<'a>,
        possession: Arc<Possession>,
        releaser: &'a Releaser,
        permit: Option<Permit>,
        lease: Duration,
    ) -> Self {
        let (asks, unanswered, has_ended) = (None, false, false);
        Self { call, possession, releaser, permit, lease, asks, unanswered, has_ended }
    }

    pub(crate) fn possession(&self) -> &Arc<Possession> {
        &self.possession
    }

    /// What a text calls its server.
    pub(super) fn redis(&self) -> String {
        self.call.router.redis(Some(self.possession.names.key()), None)
    }

    /// Waits for the permit of the possession. Returns the time then, which is `now` if the permit was
    /// free.
    pub(crate) async fn acquire_permit(&mut self, now: Instant) -> Result<Instant, Error> {
        self.permit = self.possession.try_permit_of_call();
        if self.permit.is_some() {
            return Ok(now);
        }
        let permit = self.possession.permit_of_call();
        let permit = Box::pin(clock::timeout_at(self.call.deadline, permit));
        let Ok(permit) = permit.await else {
            let message =
                format!("{} has not answered an earlier request of this handle", self.redis());
            return Err(Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message));
        };
        self.permit = Some(permit);
        Ok(clock::now())
    }

    /// The lock was handed on, or left in a gap: nothing of this call is left to undo, and the client's thread needs the
    /// permit.
    pub(super) fn ends(&mut self) {
        self.permit = None;
        self.has_ended = true;
    }

    /// This came of what was sent last: it was answered, or may still be executed.
    pub(crate) fn record_answer<T>(&mut self, answer: &Result<T, Error>) {
        self.unanswered = answer.as_ref().is_err_and(|error| error.outcome() == Outcome::Unknown);
    }

    /// Sends one request for a hold. Returns also when it was sent. Only after
    /// [`acquire_permit`](Self::acquire_permit).
    pub(crate) async fn acquire(
        &mut self,
        ask: Ask,
        terms: Terms,
        entry: Option<QueueEntry>,
        beside: Option<&str>,
    ) -> Result<(Acquired, Instant, QueueNews), Error> {
        let (names, id) = (&self.possession.names, self.possession.id());
        self.asks = Some(ask);
        let answer = self.call.acquire(names, &id, terms, entry, beside).await;
        self.asks = None;
        if answer.as_ref().is_err_and(|error| error.outcome() == Outcome::NotExecuted) {
            self.possession.holds.lock().not_executed(ask);
        }
        answer
    }

    /// Sends the pending release, and returns whether Redis had something to release. Only after
    /// [`acquire_permit`](Self::acquire_permit).
    pub(crate) async fn send_release(&mut self, now: Instant) -> Result<bool, Error> {
        let handoffs = &self.releaser.handoffs;
        let answered = send_release(&mut self.call, &self.possession, handoffs, now).await?;
        let released = answered.released;
        answered.jobs(&self.possession).for_each(|job| self.releaser.enqueue(job));
        Ok(released)
    }
}

impl Drop for PossessionSession<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // Guards that have all run out count for nothing: a release of theirs may be on its way.
        let timeout = self.releaser.handoffs.config.watchdog_timeout;
        let mut holds = self.possession.holds.lock();
        if let Some(ask) = self.asks.filter(|_| !self.call.was_sent)
            && !holds.is_lost()
        {
            holds.not_executed(ask);
        }
        let pending = holds.may_have_pending() && holds.pending(clock::now(), timeout).is_some();
        if pending {
            holds.undoes();
        }
        let is_first = pending && !holds.had_a_hold();
        drop(holds);
        if pending || self.unanswered {
            self.releaser.enqueue(Job::Release(BackgroundRelease {
                possession: self.possession.clone(),
                permit: self.permit.take(),
                connection: self.call.connection.take(),
                lease: self.lease,
                unanswered: self.unanswered,
                is_first,
            }));
        }
    }
}
