//! What a wait is to its call, and what follows from that: what is counted, warned of, and waited out.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::Error;
use crate::wait::{Ticket, WaitLimits};

use super::{Acquisition, Question, Tried, Wait, answer_by, longest_wait};

/// What a wait is to its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// All of it.
    Whole,
    /// Another one: the call waits already, since it began, and keeps its place.
    Again { has_warned: bool, place: Ticket },
    /// For one of several locks, with those before it in the hand. The call counts, and warns, for itself. The place is
    /// its own.
    Part { place: Ticket },
}

impl Stage {
    /// The place that the call has already among those that wait.
    pub(super) fn place(self) -> Option<Ticket> {
        match self {
            Self::Whole => None,
            Self::Again { place, .. } | Self::Part { place } => Some(place),
        }
    }
}

impl<Q: Question> Acquisition<'_, Q> {
    /// Whether a call that has nothing yet has to go about it in another way, and has the time.
    pub(super) fn goes_on(&self) -> bool {
        let has_time = self.until().is_none_or(|until| clock::now() < until);
        has_time && Q::is_starved(self)
    }

    /// The call has waited, and this is the result. Counts the call, if it ends with that.
    pub(super) fn waited(&self, granted: &Result<Option<Q::Holds>, Error>) {
        if !matches!(granted, Ok(None)) || !self.goes_on() {
            self.has_waited();
        }
    }

    /// The call ends, and has waited.
    pub(super) fn has_waited(&self) {
        if !self.is_part() {
            let time = clock::now().saturating_duration_since(self.begun);
            self.engine.events.counters.has_waited(time);
        }
    }

    pub(super) fn until(&self) -> Option<Instant> {
        if let Wait::Until(until) = self.wait { Some(until) } else { None }
    }

    /// Whether another call goes on if this one has what it waits for.
    pub(super) fn is_part(&self) -> bool {
        matches!(self.stage, Stage::Part { .. })
    }

    pub(super) fn waits_again(&self) -> bool {
        matches!(self.stage, Stage::Again { .. })
    }

    /// From when on it waits long.
    pub(super) fn warn_at(&self) -> Option<Instant> {
        self.begun.checked_add(self.engine.config.warn_waits_longer_than)
    }

    pub(super) fn limits(&self) -> WaitLimits {
        let (config, until) = (&self.engine.config, self.until());
        let outage = until.is_none().then_some(config.outage_limit);
        let warns = matches!(self.stage, Stage::Whole | Stage::Again { has_warned: false, .. });
        let warn_at = self.warn_at().filter(|_| warns);
        WaitLimits { until, request: config.command_timeout, outage, warn_at }
    }

    /// Until when the call waits for an answer: it returns within its wait, or within the command timeout if that
    /// is longer. One that gives up has a deadline of its own, and its error says what failed.
    pub(super) fn until_answer(&self, gives_up_at: Option<Instant>) -> Option<Instant> {
        self.awaits_replicas.store(false, Ordering::Relaxed);
        let until = self.until().filter(|_| gives_up_at.is_none());
        until.map(|until| until.max(self.begun + self.engine.config.command_timeout))
    }

    /// Asks Redis once, unless the wait ends first.
    pub(super) fn try_until(
        &self,
        asked_at: Instant,
        gives_up_at: Option<Instant>,
        ticket: Option<Ticket>,
    ) -> impl Future<Output = Option<Result<Tried<Q::Holds>, Error>>> {
        let tried = Box::pin(Q::try_once(self, asked_at, gives_up_at, ticket));
        let until = self.until_answer(gives_up_at);
        async move {
            match until {
                Some(until) => self.answer_by(until, tried).await,
                None => Some(tried.await),
            }
        }
    }

    /// The answer, or `None` if the wait ends first.
    pub(super) fn answer_by<T>(
        &self,
        until: Instant,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> impl Future<Output = Option<Result<T, Error>>> {
        // Boxed, because a timer is large and most calls have none.
        Box::pin(answer_by(until, || self.more_for_replicas(), || self.server(), answer))
    }

    /// How much longer it waits for replicas, if Redis has granted the lock by then.
    fn more_for_replicas(&self) -> Duration {
        let replicas = self.engine.config.replicas;
        let replicas = replicas.filter(|_| self.awaits_replicas.load(Ordering::Relaxed));
        replicas.map_or(Duration::ZERO, |replicas| longest_wait(replicas, self.server().round_trip))
    }
}
