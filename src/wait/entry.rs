//! What this client knows of its entry in the queue of clients that Redis keeps of a fair lock, which is the place of
//! its oldest waiter there: pure state.
//!
//! | the entry | in the client | in the script |
//! |---|---|---|
//! | is brought there, or comes to stand for another waiter | `Queues::bring_entry`, for each request of the head, for each release and each hand-off | `enter` of `lua/fair.lua` |
//! | is kept | `Waiters::keep_entries`, every third of a term | `lua/fair_refresh.lua` |
//! | has its turn | `releaser/granted.rs`, by a message | `give_turn` of `lua/fair.lua` |
//! | goes with a grant | [`OwnEntry::record_grant`] | `drop` of `lua/fair.lua` |
//! | is given up | `Waiters::leave_queue`, once the last waiter has left | `lua/fair_leave.lua` |
//! | is that of a client that does not answer | | `give_turn`, which passes it over |
//!
//! 1. **The head of the wait queue stands for its client.** It asks as soon as it is the head of a
//!    queue without an entry, so that Redis knows how old the oldest waiter of this client is. While
//!    this client has the lock, that can wait for a while: the release brings the entry.
//! 2. An entry goes with a grant, and is given up when the last waiter leaves. A waiter that leaves
//!    others behind costs nothing: the next request says how old the new head is.
//! 3. **The lock is handed off inside this client only to a waiter that came before all others.** How
//!    old those are, Redis says with each grant and each hand-off; to a reader it says that of the writers alone.

use std::time::{Duration, Instant};

use crate::protocol::{OldestForeignWaiter, ServerClock};

use super::change::{EntryTicket, Ticket};

/// While this client has the lock, its next head asks for an entry after this time: by then the lock may
/// have been handed to it. A release says how old it is.
const ASK_DELAY_WHILE_HELD: Duration = Duration::from_millis(10);

/// An entry, as far as this client knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OwnEntry {
    /// A request that takes an entry has been sent since the last grant.
    asked_for: bool,
    /// For which waiter a request has brought it last, and the ticket that it has as long as it stands for that one.
    brought: Option<(Ticket, EntryTicket)>,
    /// The next grant leaves the entry there: that of a reader, before a writer of this client.
    stays: bool,
    /// Which waiters other clients had when this one had the lock last.
    foreign: Option<OldestForeignWaiter>,
    /// What the clock of the server said last.
    clock: Option<ServerClock>,
    /// Redis said with its last refusal that no other client came before this one.
    first: bool,
    /// The common channel announced a release while a request was under way, of a client that was not the first.
    missed: bool,
    /// Redis has granted the lock to this client by a message, and announces the release that went before.
    granted: bool,
    /// When the last grant began that came in a message, in microseconds of the server's clock.
    granted_at: u64,
}

impl OwnEntry {
    pub(super) fn is_asked_for(self) -> bool {
        self.asked_for
    }

    /// From here on there is an entry, or none. Returns whether there was one.
    pub(super) fn set_asked_for(&mut self, asked_for: bool) -> bool {
        self.first &= asked_for;
        (self.granted, self.missed) = (false, false);
        std::mem::replace(&mut self.asked_for, asked_for)
    }

    /// A request brings it for `waiter`. Returns its ticket: `new`, which is higher than all before, unless it has stood
    /// for that one already. The ticket of the waiter would not do: the lock may be about to go to the oldest one,
    /// so that the entry is that of the one behind, and then another client has its turn, and the older one waits on.
    pub(super) fn bring(&mut self, waiter: Ticket, new: EntryTicket) -> EntryTicket {
        let known = self.brought.filter(|(before, _)| *before == waiter);
        self.brought.insert(known.unwrap_or((waiter, new))).1
    }

    /// A request says that no waiter waits. What brings the entry after that has a higher ticket.
    pub(super) fn bring_none(&mut self) {
        self.brought = None;
    }

    /// The waiter for which a request has brought it last, and its ticket.
    pub(super) fn brought(self) -> Option<(Ticket, EntryTicket)> {
        self.brought
    }

    /// Redis has granted the lock to a reader, and the entry stands for a writer from then on, or is gone.
    pub(super) fn set_stays(&mut self, stays: bool) {
        self.stays = stays;
    }

    /// Redis granted the lock to the head for `lease`, and the entry went with that unless it stays. Returns when the
    /// next head asks (invariant 1): before that lease could end.
    pub(super) fn record_grant(&mut self, lease: Duration, now: Instant) -> Instant {
        let stays = std::mem::take(&mut self.stays);
        self.set_asked_for(stays);
        self.first = false;
        now + ASK_DELAY_WHILE_HELD.min(lease / 2)
    }

    /// Redis has heard of a hand-off. Returns when the head asks at the latest, if it came after that request.
    pub(super) fn record_heard_hand_off(self, now: Instant) -> Option<Instant> {
        (!self.asked_for).then_some(now + ASK_DELAY_WHILE_HELD)
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(super) fn record_foreign(&mut self, foreign: OldestForeignWaiter) {
        if self.foreign.is_none_or(|known| known.as_of <= foreign.as_of) {
            self.foreign = Some(foreign);
        }
    }

    /// Whether a waiter of this client came before all that wait in others, or within a round trip. One
    /// that came after the answer does not count: others may have come in between.
    pub(super) fn is_next(self, since: Instant) -> bool {
        self.foreign.is_some_and(|foreign| {
            since <= foreign.answered && foreign.oldest.is_none_or(|oldest| since <= oldest)
        })
    }

    /// Whether this client is the first one in the queue that Redis keeps, as of its last refusal.
    pub(super) fn is_first(&self) -> bool {
        self.first
    }

    /// Redis has refused the head, and said whether this client is the first. Returns whether a message for the first
    /// one came before that, which may be newer than the refusal.
    pub(super) fn set_first(&mut self, first: bool) -> bool {
        self.first = first;
        first && self.missed
    }

    /// Whether a message on the common channel is for others: this client is not the first, as far as it knows, or
    /// has its turn by that release.
    pub(super) fn is_for_others(&mut self) -> bool {
        let has_its_turn = self.takes_grant();
        self.missed |= !self.first && !has_its_turn;
        !self.first || has_its_turn
    }

    /// Whether the release that a message on the common channel announces may be the one with which Redis granted
    /// the lock to this client. Then there is nothing to ask.
    fn takes_grant(&mut self) -> bool {
        std::mem::take(&mut self.granted)
    }

    /// A message says that a grant began at `at`. Returns the clock by which to judge it.
    ///
    /// `None` if that message was here before: while another server takes over, a client may be subscribed
    /// at both. A grant that is older than another is judged by no clock: it is a message of that kind, or
    /// the server's clock was set back.
    pub(super) fn record_granted_at(&mut self, at: u64) -> Option<Option<ServerClock>> {
        let last = self.granted_at;
        self.granted_at = last.max(at);
        self.granted = at > last;
        (at != last).then(|| self.clock.filter(|_| at > last))
    }

    /// The server said its time; `None` if another server may be responsible now.
    pub(super) fn set_clock(&mut self, clock: Option<ServerClock>) {
        self.clock = clock;
    }
}

/// How long an answer takes that says who waits in other clients.
///
/// It caps the time at which an answer counts as heard at the usual round trip, because an answer may have
/// lain unread while the process was stopped. The usual round trip grows by few answers: by those to a
/// request that was sent after the answer before.
#[derive(Debug, Default)]
pub(super) struct AnswerDelay {
    usual: Option<Duration>,
    /// When the last answer came by which it grew.
    grew: Option<Instant>,
}

impl AnswerDelay {
    pub(super) fn bound(&mut self, foreign: OldestForeignWaiter) -> OldestForeignWaiter {
        let OldestForeignWaiter { as_of, answered, .. } = foreign;
        let took = answered.saturating_duration_since(as_of);
        let before = self.grew;
        let grows = before.is_none_or(|grew| as_of > grew);
        if grows {
            self.grew = Some(answered);
        }
        let took = match self.usual {
            // A network may become slower.
            Some(usual) if grows => took.min(usual + usual / 8 + Duration::from_micros(1)),
            Some(usual) => took.min(usual),
            None if grows && before.is_some() => took,
            // It may be the one that was there for a while.
            None => return OldestForeignWaiter { answered: as_of, ..foreign },
        };
        self.usual = Some(took);
        OldestForeignWaiter { answered: as_of + took, ..foreign }
    }
}
