//! The parts of the wait queues: channels, their queues, and the entries in them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::place::QueuePlace;
use super::turns::{Limits, Turns};
use super::{LONGEST_PARK, Ticket, Wakes};

/// One subscription. Two lock names can share a channel (`a` and `{a}`), so it has queues.
pub(super) struct Channel<S> {
    pub(super) subscription: Subscription,
    /// The number of the connection on which the driver last asked for it.
    pub(super) on: Option<u64>,
    /// Since when Redis has been out of reach for the waiters here.
    pub(super) outage: Option<Instant>,
    /// Kept without entries while the subscription is kept, for what they know.
    pub(super) queues: Vec<WaitQueue<S>>,
    /// No waiter is left: until when the subscription is kept all the same.
    pub(super) kept_until: Option<Instant>,
}

impl<S> Default for Channel<S> {
    fn default() -> Self {
        let subscription = Subscription::Wanted;
        Self { subscription, on: None, outage: None, queues: Vec::new(), kept_until: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subscription {
    Wanted,
    /// Not confirmed yet.
    Sent,
    Live,
}

pub(super) struct WaitQueue<S> {
    pub(super) key: Box<str>,
    pub(super) entries: BTreeMap<Ticket, Entry<S>>,
    /// When the head asks next.
    pub(super) due: Instant,
    /// If Redis keeps a queue of the clients: this client's place in it.
    pub(super) place: Option<QueuePlace>,
    /// The owner that Redis named last as the holder, and until when its lease was.
    pub(super) holder: Option<Holder>,
}

pub(super) type Holder = (Box<str>, Option<Instant>);

pub(super) struct Entry<S> {
    pub(super) waiter: Arc<S>,
    /// Since when this waiter has been asking, if it is.
    pub(super) asking: Option<Instant>,
    /// A wake-up came while the waiter asked: the answer may be older than the wake-up.
    pub(super) recheck: bool,
    /// A request of this waiter is over.
    asked_before: bool,
}

impl<S> Entry<S> {
    pub(super) fn new(waiter: Arc<S>) -> Self {
        Self { waiter, asking: None, recheck: false, asked_before: false }
    }

    /// Its request is over. Returns since when it has been asking.
    pub(super) fn answered(&mut self) -> Option<Instant> {
        self.asked_before = true;
        self.asking.take()
    }

    /// Whether those behind it may have the lock first: while its first request is under way. It would
    /// never get the lock if it asked again and again and they passed it each time.
    pub(super) fn can_be_passed(&self) -> bool {
        self.asking.is_some() && !self.asked_before
    }
}

/// How long to park for a `remaining` lease: one millisecond more, because a TTL counts whole ones
/// (invariant 4). `None`: the remaining lease is unknown.
pub(super) fn park_for(remaining: Option<Duration>) -> Duration {
    remaining.map_or(LONGEST_PARK, |lease| LONGEST_PARK.min(lease + Duration::from_millis(1)))
}

impl<S> Channel<S> {
    /// It is subscribed no more, and another server may be responsible for it by now. Without a
    /// subscriber Redis drops a place, unless a request said that its client comes: the heads with
    /// places ask.
    pub(super) fn is_elsewhere(&mut self, turns: &mut Turns, now: Instant, wakes: &mut Wakes<S>) {
        let was_live = self.subscription == Subscription::Live;
        self.subscription = Subscription::Wanted;
        for queue in &mut self.queues {
            turns.hears_no_more(&queue.key);
            let Some(place) = &mut queue.place else { continue };
            place.set_clock(None);
            if was_live && place.is_taken() {
                queue.ask_at(now, false, wakes);
            }
        }
    }

    pub(super) fn everybody(&self) -> impl Iterator<Item = &Arc<S>> {
        let entries = self.queues.iter().flat_map(|queue| queue.entries.values());
        entries.map(|entry| &entry.waiter)
    }

    /// The heads ask, except where this client defers to others.
    pub(super) fn ask_now(&mut self, turns: &Turns, now: Instant, wakes: &mut Wakes<S>) {
        for queue in &mut self.queues {
            let deferral = queue.deferred_until(turns, now);
            queue.ask_at(deferral.unwrap_or(now), deferral.is_some(), wakes);
        }
    }

    /// The same when a message has come.
    pub(super) fn message(
        &mut self,
        turns: &mut Turns,
        limits: Limits,
        now: Instant,
        wakes: &mut Wakes<S>,
    ) {
        for queue in &mut self.queues {
            let turns = if queue.place.is_none() { Some(&mut *turns) } else { None };
            let deferral = turns.and_then(|turns| turns.message(&queue.key, limits, now));
            queue.ask_at(deferral.unwrap_or(now), deferral.is_some(), wakes);
        }
    }
}

impl<S> WaitQueue<S> {
    /// The head asks at `due`. A request under way may be older than the reason, so the head asks
    /// again after it, unless this client defers.
    pub(super) fn ask_at(&mut self, due: Instant, deferred_until: bool, wakes: &mut Wakes<S>) {
        self.due = due;
        if let Some(mut head) = self.entries.first_entry() {
            let head = head.get_mut();
            let asks = head.asking.is_some();
            head.recheck = if deferred_until { head.recheck && asks } else { head.recheck || asks };
            wakes.push(head.waiter.clone());
        }
    }

    /// Until when this client defers to others. Where Redis keeps a queue, it never does.
    pub(super) fn deferred_until(&self, turns: &Turns, now: Instant) -> Option<Instant> {
        if self.place.is_some() { None } else { turns.deferred_until(&self.key, now) }
    }

    pub(super) fn is_head(&self, ticket: Ticket) -> bool {
        self.entries.first_key_value().is_some_and(|(head, _)| *head == ticket)
    }

    pub(super) fn head_waiter(&self) -> Option<Arc<S>> {
        self.entries.first_key_value().map(|(_, head)| head.waiter.clone())
    }
}
