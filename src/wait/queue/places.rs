//! What this client knows of its place in a queue of clients that Redis keeps: pure state.
//!
//! 1. **The head of the wait queue stands for its client.** It asks as soon as it is the head of a
//!    queue with no place, so that Redis knows how old the oldest waiter of this client is. While
//!    this client has the lock, that can wait for a while: the release brings the place.
//! 2. A place goes with a grant, and is given up when the last waiter leaves. A waiter that leaves
//!    others behind costs nothing: the next request says how old the new head is. A call that is in
//!    its first try is in no queue yet, but stands for the client if it came first, for the grace.
//! 3. Where Redis keeps a queue, this client defers to nobody.
//! 4. **The lock is handed off inside this client only to a waiter that came before all others.** How
//!    old those are, Redis says with each grant and each hand-off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{OldestForeignWaiter, ServerClock};

use super::channel::park_for;
use super::place::QueuePlace;
use super::{Ticket, WaitQueues, Wakes};

/// The waiter that stands for this client in a queue that Redis keeps, with its number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Oldest<S> {
    /// The first in the wait queue, whether or not it is asking.
    Head(Ticket, Arc<S>),
    /// A call that is in no queue yet, and since when it waits.
    Comes(Ticket, Instant),
    /// None: the number is that of the last one that has left.
    Left(Ticket),
}

/// How long an answer takes that says who waits in other clients.
///
/// An answer that takes longer may have been there for a while: the process was stopped. So it counts as
/// news of no later than of the time that answers take, and that time grows by few answers: by those
/// to a request that was sent after the answer before.
#[derive(Debug, Default)]
pub(super) struct Trip {
    takes: Option<Duration>,
    /// When the last answer came by which it grew.
    grew: Option<Instant>,
}

impl Trip {
    fn news_of_then(&mut self, elsewhere: OldestForeignWaiter) -> OldestForeignWaiter {
        let OldestForeignWaiter { as_of, answered, .. } = elsewhere;
        let took = answered.saturating_duration_since(as_of);
        let before = self.grew;
        let grows = before.is_none_or(|grew| as_of > grew);
        if grows {
            self.grew = Some(answered);
        }
        let took = match self.takes {
            // A network may become slower.
            Some(takes) if grows => took.min(takes + takes / 8 + Duration::from_micros(1)),
            Some(takes) => took.min(takes),
            None if grows && before.is_some() => took,
            // It may be the one that was there for a while.
            None => return OldestForeignWaiter { answered: as_of, ..elsewhere },
        };
        self.takes = Some(took);
        OldestForeignWaiter { answered: as_of + took, ..elsewhere }
    }
}

impl<S> WaitQueues<S> {
    /// The waiter has just joined a queue that Redis keeps, too. `placed` says that it has asked before.
    pub(crate) fn takes_place(
        &mut self,
        channel: &str,
        ticket: Ticket,
        left: Option<Duration>,
        placed: bool,
        now: Instant,
    ) {
        let live = self.is_live(channel);
        let Some(queue) = self.queue_of(channel, ticket) else { return };
        let place = queue.place.get_or_insert_default();
        if placed {
            place.asks();
        }
        if queue.entries.len() == 1 {
            queue.due =
                if live { now } else { left.map_or(now, |left| now + park_for(Some(left))) };
        }
    }

    /// A call that is in no queue yet asks for a place.
    pub(crate) fn first_place_begins(&mut self, key: &str, since: Instant) -> Ticket {
        let ticket = self.ticket();
        self.first_places.entry(key.into()).or_default().insert(ticket, since);
        ticket
    }

    /// It has the lock, or is in the queue, or went.
    pub(crate) fn first_place_ends(&mut self, key: &str, ticket: Ticket) {
        let Some(calls) = self.first_places.get_mut(key) else { return };
        calls.remove(&ticket);
        if calls.is_empty() {
            self.first_places.remove(key);
        }
    }

    /// The call that came first of those that are in no queue yet, and since when it waits. This client
    /// waits for none longer than the grace: its task may never be polled again.
    fn comes_first(&self, key: &str, now: Instant) -> Option<(Ticket, Instant)> {
        let calls = self.first_places.get(key);
        let mut calls = calls?.iter().map(|(ticket, since)| (*ticket, *since));
        calls.find(|(_, since)| now.saturating_duration_since(*since) < self.limits.grace)
    }

    /// Whether a call that is in no queue yet came before that waiter, within the grace.
    pub(crate) fn is_behind(&self, key: &str, ticket: Ticket, now: Instant) -> bool {
        self.comes_first(key, now).is_some_and(|(first, _)| first < ticket)
    }

    /// Redis granted the lock for `lease` to a call that was in no queue yet, and the place of this client
    /// went with that: the head asks for a new one. Returns whom to wake.
    pub(crate) fn granted_first(
        &mut self,
        channel: &str,
        key: &str,
        lease: Duration,
        now: Instant,
    ) -> Wakes<S> {
        let mut wakes = Wakes::new();
        if let Some(queue) = self.queue_named(channel, key)
            && let Some(place) = &mut queue.place
        {
            let due = place.granted(lease, now);
            queue.ask_at(due, false, &mut wakes);
        }
        wakes
    }

    /// Whether a place is left with no waiter. From here on there is none.
    pub(crate) fn gives_place_up(&mut self, channel: &str, key: &str) -> bool {
        let Some(queue) = self.queue_named(channel, key) else { return false };
        if !queue.entries.is_empty() {
            return false;
        }
        queue.place.as_mut().is_some_and(QueuePlace::give_up)
    }

    /// The number of the last waiter that has left. `None` if another one has asked for a place.
    pub(crate) fn leaves_queue(
        &mut self,
        channel: &str,
        key: &str,
        now: Instant,
    ) -> Option<Ticket> {
        if self.comes_first(key, now).is_some() {
            return None;
        }
        let last = self.next_ticket;
        let Some(queue) = self.queue_named(channel, key) else { return Some(last) };
        let taken = queue.place.is_some_and(|place| place.is_taken());
        // One that has yet to ask may do so before the client says this.
        let first = queue.entries.first_key_value().map(|(ticket, _)| ticket - 1);
        (!taken).then_some(first.unwrap_or(last))
    }

    /// The heads of all queues in which this client has a place.
    pub(crate) fn heads_with_places(&self) -> Vec<Arc<S>> {
        let queues = self.channels.values().flat_map(|channel| &channel.queues);
        let placed = queues.filter(|queue| queue.place.is_some_and(|place| place.is_taken()));
        placed.filter_map(|queue| queue.head_waiter()).collect()
    }

    /// The same, when the client closes: from here on it has no place.
    pub(super) fn give_places_up(&mut self) -> Vec<Arc<S>> {
        let heads = self.heads_with_places();
        for queue in self.channels.values_mut().flat_map(|channel| &mut channel.queues) {
            if let Some(place) = &mut queue.place {
                place.give_up();
            }
        }
        heads
    }

    /// Whether a waiter of this client is in a queue that Redis keeps, too.
    pub(crate) fn any_in_order(&self) -> bool {
        let mut queues = self.channels.values().flat_map(|channel| &channel.queues);
        queues.any(|queue| queue.place.is_some() && !queue.entries.is_empty())
    }

    /// A request brings the place of this client to Redis: that of its oldest waiter, or of the one `behind` it.
    /// Returns whose it is.
    pub(crate) fn oldest(
        &mut self,
        channel: &str,
        key: &str,
        behind: bool,
        now: Instant,
    ) -> Oldest<S> {
        // A place would outlive its waiters.
        if self.closed {
            return Oldest::Left(self.next_ticket);
        }
        let comes = self.comes_first(key, now);
        if let Some(queue) = self.queue_named(channel, key)
            && let Some((ticket, head)) = queue.entries.iter().nth(usize::from(behind))
            && comes.is_none_or(|(first, _)| *ticket <= first)
        {
            queue.place.get_or_insert_default().asks();
            return Oldest::Head(*ticket, head.waiter.clone());
        }
        if let Some((ticket, since)) = comes {
            return Oldest::Comes(ticket, since);
        }
        if let Some(place) = self.queue_named(channel, key).and_then(|queue| queue.place.as_mut()) {
            place.give_up();
        }
        Oldest::Left(self.next_ticket)
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(crate) fn heard(&mut self, channel: &str, key: &str, elsewhere: OldestForeignWaiter) {
        let elsewhere = self.trip.news_of_then(elsewhere);
        if let Some(place) = self.queue_named(channel, key).and_then(|queue| queue.place.as_mut()) {
            place.heard(elsewhere);
        }
    }

    /// What the server's clock said last in an answer about this lock, for a grant that began at `at`.
    /// `None` if the message of that grant was here before.
    pub(crate) fn granted_at(
        &mut self,
        channel: &str,
        key: &str,
        at: u64,
    ) -> Option<Option<ServerClock>> {
        let place = self.queue_named(channel, key).and_then(|queue| queue.place.as_mut());
        place.map_or(Some(None), |place| place.granted_at(at))
    }

    /// The server said its time in an answer about this lock. A request can be answered by another server
    /// than the one at which this client is about to subscribe, so that is no news then.
    pub(crate) fn set_clock(&mut self, channel: &str, key: &str, clock: ServerClock) {
        if self.is_live(channel)
            && let Some(place) =
                self.queue_named(channel, key).and_then(|queue| queue.place.as_mut())
        {
            place.set_clock(Some(clock));
        }
    }

    /// Whether the head asks Redis just now.
    pub(crate) fn head_asks(&mut self, channel: &str, key: &str) -> bool {
        let queue = self.queue_named(channel, key);
        let head = queue.and_then(|queue| queue.entries.first_entry());
        head.is_some_and(|head| head.get().asking.is_some())
    }

    /// Whether a waiter since that instant is the next of all clients.
    pub(crate) fn is_next(&mut self, channel: &str, key: &str, since: Instant) -> bool {
        let queue = self.queue_named(channel, key);
        queue.and_then(|queue| queue.place).is_some_and(|place| place.is_next(since))
    }

    /// The head asks now: it has no place, or the lock is free.
    pub(crate) fn asks_for_place(&mut self, channel: &str, key: &str, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        if let Some(queue) = self.queue_named(channel, key) {
            queue.ask_at(now, false, &mut wakes);
        }
        wakes
    }

    /// A message came on a channel. If Redis keeps the queue of its locks, it says when to ask; in
    /// any other case the head asks now.
    pub(crate) fn told(&mut self, channel: &str, after: Duration, now: Instant) -> Wakes<S> {
        if after.is_zero() {
            return self.message(channel, now);
        }
        let mut wakes = Wakes::new();
        let Some(of) = self.channels.get_mut(channel) else { return wakes };
        if of.queues.iter().all(|queue| queue.place.is_none()) {
            return self.message(channel, now);
        }
        for queue in &mut of.queues {
            let due = queue.due.min(now + after);
            queue.ask_at(due, false, &mut wakes);
        }
        wakes
    }
}

#[cfg(test)]
mod tests;
