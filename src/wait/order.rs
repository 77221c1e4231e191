//! When this client asks Redis for a lock, as far as that is not the same for a plain lock and for one of which Redis
//! keeps a queue, a fair or a read-write one: pure state.

use std::time::{Duration, Instant};

use super::change::{EntryTicket, Moment, Ticket, park_for};
use super::entry::OwnEntry;
use super::turns::Turn;

/// How the clients that wait for a lock come after each other.
#[derive(Debug)]
pub(super) enum Order {
    /// A plain lock: a client that has had it for a while defers to the others. Each has a [`Turn`] in
    /// mind from when it first saw others wait.
    TakesTurns(Option<Box<Turn>>),
    /// A fair or a read-write lock: Redis keeps a queue of the clients, and this client never defers.
    Queued(OwnEntry),
}

/// As late as this a timer may be: it counts whole milliseconds.
const TIMER_DELAY: Duration = Duration::from_millis(2);

/// The wait of a call that may end before others have had their turns.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShortWait {
    until: Instant,
    middle: Instant,
}

impl ShortWait {
    /// When the call asks, if it is due then.
    pub(super) fn due(self, due: Instant) -> Instant {
        if due < self.until { due } else { due.min(self.middle) }
    }
}

impl Order {
    pub(super) fn own_entry(&mut self) -> Option<&mut OwnEntry> {
        match self {
            Self::TakesTurns(_) => None,
            Self::Queued(entry) => Some(entry),
        }
    }

    pub(super) fn is_queue_of_redis(&self) -> bool {
        matches!(self, Self::Queued(_))
    }

    /// Whether this client has an entry in a queue that Redis keeps.
    pub(super) fn has_entry(&self) -> bool {
        matches!(self, Self::Queued(entry) if entry.is_asked_for())
    }

    /// The waiter for which a request has brought that entry last, and its ticket.
    pub(super) fn brought(&self) -> Option<(Ticket, EntryTicket)> {
        match self {
            Self::TakesTurns(_) => None,
            Self::Queued(entry) => entry.brought(),
        }
    }

    /// Whether a waiter that came at `since` came before all that wait in other clients, as far as Redis has said.
    pub(super) fn is_next(&self, since: Instant) -> bool {
        matches!(self, Self::Queued(entry) if entry.is_next(since))
    }

    fn turn(&mut self) -> Option<&mut Turn> {
        match self {
            Self::TakesTurns(turn) => turn.as_deref_mut(),
            Self::Queued(_) => None,
        }
    }

    /// Until when this client defers to others.
    pub(super) fn deferred_until(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::TakesTurns(turn) => turn.as_ref()?.deferred_until(now),
            Self::Queued(_) => None,
        }
    }

    /// When a waiter asks that finds no other one in the queue. `known` is when the messages that came so far say that
    /// there is a reason to ask, if this client listens.
    pub(super) fn first_asks_at(&self, known: Option<Instant>, now: Instant) -> Instant {
        match (self, known) {
            (Self::TakesTurns(_), Some(known)) => known,
            // What the client could have heard says nothing of its entry.
            _ => self.deferred_until(now).unwrap_or(now),
        }
    }

    /// For a waiter that can wait until `until` and comes while this client defers to others. If they have the lock for
    /// longer than that, it asks in the middle of its time; at once, if that is too short for a timer.
    pub(super) fn short_wait(&self, until: Option<Instant>, now: Instant) -> Option<ShortWait> {
        let until = until.filter(|_| self.deferred_until(now).is_some())?;
        let wait = until.saturating_duration_since(now);
        Some(ShortWait { until, middle: now + wait.saturating_sub(TIMER_DELAY) / 2 })
    }

    /// Whether the waiter behind the head may take the lock first, while the head asks for the first time.
    pub(super) fn lets_pass(&self) -> bool {
        matches!(self, Self::TakesTurns(_))
    }

    /// A call that waits in no queue has got the lock, or not. With a queue in Redis that says nothing.
    pub(super) fn record_try(&mut self, granted: bool, at: &mut Moment) {
        match self.turn() {
            Some(turn) if granted => turn.record_grant(&mut at.times, at.limits.turns, at.now),
            Some(turn) => turn.record_refusal(),
            None => {}
        }
    }

    /// Redis granted the lock to this client for `lease`. Returns when the next head asks. `recheck` says
    /// that a reason to ask came meanwhile: a message may announce a release after this grant.
    pub(super) fn record_grant(
        &mut self,
        lease: Duration,
        recheck: bool,
        at: &mut Moment,
    ) -> Instant {
        self.record_try(true, at);
        match self {
            Self::TakesTurns(_) if recheck => at.now,
            Self::TakesTurns(_) => at.now + park_for(Some(lease)),
            Self::Queued(entry) => entry.record_grant(lease, at.now),
        }
    }

    /// Redis refused this client. Returns when the head asks again, if the holder's lease could end after `remaining`.
    pub(super) fn record_refusal(&mut self, remaining: Option<Duration>, now: Instant) -> Instant {
        let deferral = self.deferred_until(now);
        if let Some(turn) = self.turn() {
            turn.record_refusal();
        }
        deferral.into_iter().fold(now + park_for(remaining), Instant::min)
    }

    /// A request brings this client's entry in a queue that Redis keeps; or the lock is handed off to the head,
    /// and the request that says so brings the entry of the next one.
    pub(super) fn set_entry_asked_for(&mut self, asked_for: bool) {
        if let Some(entry) = self.own_entry() {
            entry.set_asked_for(asked_for);
        }
    }

    /// A message came, which says to ask `after` that time, and the head was to ask at `due`. Returns when it
    /// asks now.
    pub(super) fn record_message(&mut self, after: Duration, due: Instant, at: &Moment) -> Instant {
        let Self::TakesTurns(turn) = self else { return due.min(at.now + after) };
        let turn = turn.as_mut();
        let deferral = turn.and_then(|turn| turn.record_message(at.limits.turns, at.now));
        deferral.unwrap_or(at.now)
    }

    /// The client is not subscribed any more, and another server may be responsible by now. `was` says that it
    /// was subscribed. True if the head has to ask: without a subscriber Redis drops an entry, unless a request
    /// said that its client comes.
    pub(super) fn record_unsubscribed(&mut self, was: bool) -> bool {
        if let Some(turn) = self.turn() {
            turn.record_unsubscribed();
        }
        self.own_entry().is_some_and(|entry| {
            entry.set_clock(None);
            was && entry.is_asked_for()
        })
    }

    /// A lock that this client relied on was lost.
    pub(super) fn end_deferral(&mut self) {
        if let Some(turn) = self.turn() {
            turn.end_deferral();
        }
    }

    /// This client is about to free the lock. `others` is how many other clients a hand-off saw waiting, if
    /// they end its streak; without it, what the last release said counts. Returns until when this client
    /// defers.
    pub(super) fn begin_deferral(
        &mut self,
        others: Option<u32>,
        hears_itself: bool,
        at: &Moment,
    ) -> Option<Instant> {
        if let Some(others) = others.filter(|others| *others > 0) {
            self.record_others(others, at);
        }
        let Moment { now, limits, times } = at;
        self.turn()?.begin_deferral(others.is_some(), hears_itself, times, limits.turns, *now)
    }

    /// The lock was freed, or handed off, and `others` other clients listen. True if there are none, and that
    /// ends a deferral.
    pub(super) fn record_others(&mut self, others: u32, at: &Moment) -> bool {
        let Self::TakesTurns(turn) = self else { return false };
        if others == 0 {
            return turn.take().is_some_and(|turn| turn.defers());
        }
        let turn = turn.get_or_insert_with(|| Turn::new(&at.times, at.now).into());
        turn.record_others(others, at.now);
        false
    }

    /// Whether there is nothing in it that has to be remembered when no waiter is left.
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        match self {
            Self::TakesTurns(turn) => turn.as_ref().is_none_or(|turn| turn.is_forgotten(now)),
            Self::Queued(_) => true,
        }
    }
}
