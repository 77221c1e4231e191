//! Which waiters are parked on which channel: pure state.
//!
//! 1. **Only the head of a queue asks Redis.** The other waiters of this client wait behind it in
//!    the order in which they came, and cost Redis nothing.
//! 2. **Subscribe, ask again, then park.** A head asks as soon as its channel has become live, also
//!    after a cut. Before that it relies on no message, only on its due time.
//! 3. **A wake-up is a notification to the queue**, not to the waiter that it woke. If that waiter
//!    leaves before it has asked, or while it asks, the next one in the queue asks at once.
//! 4. A parked head is due when the holder's lease could have ended, and never later than
//!    [`LONGEST_PARK`], since a message can get lost. A lease that this client shortens moves the
//!    due time. If another client shortens a lease, a message announces it.
//! 5. A subscription is wanted while there is a waiter, and for [`LINGER`] after the last one was
//!    granted the lock: the next call soon after costs no SUBSCRIBE. If the last waiter gave up,
//!    nothing is kept. With the subscription this client keeps what it knows of the lock, so a new
//!    caller need not ask what a message would have reported.
//! 6. While this client defers to others (see [`turns`]), the head asks only when they have had
//!    their turns.
//! 7. A lock that is handed off inside the client goes to the head of its queue. A head that is
//!    asking Redis cannot take it; while it asks for the first time, the waiter behind it can. The
//!    next head learns when it is due only after a request to Redis (see
//!    [`handed_off`](WaitQueues::handed_off)), if the new holder's lease is longer than that takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod channel;
mod place;
mod places;
mod releases;
mod subscriptions;
mod turns;
use crate::host::HashMap;

use channel::{Channel, Entry, Subscription, WaitQueue, park_for};
pub(crate) use places::Oldest;
use places::Trip;
pub(crate) use subscriptions::Plan;
pub(crate) use turns::Limits;
use turns::Turns;

/// The longest time for which a waiter relies on a message.
pub(crate) const LONGEST_PARK: Duration = Duration::from_secs(30);

/// How long a subscription stays after the last waiter has got the lock.
pub(crate) const LINGER: Duration = Duration::from_millis(200);

/// A waiter's position: lower came earlier.
pub(crate) type Ticket = u64;

/// The waiters to wake, outside the mutex of the queues.
pub(crate) type Wakes<S> = Vec<Arc<S>>;

/// What a waiter does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStep {
    /// Ask Redis for the lock, and report the result.
    Ask,
    /// Sleep until woken, or until that instant.
    Park(Option<Instant>),
}

/// The queues, with the waiters `S` in them.
pub(crate) struct WaitQueues<S> {
    channels: HashMap<Arc<str>, Channel<S>>,
    next_ticket: Ticket,
    /// Calls that have asked for a place and are in no queue yet, by the keys of their locks: their
    /// numbers, and since when they wait.
    first_places: HashMap<Box<str>, BTreeMap<Ticket, Instant>>,
    turns: Turns,
    trip: Trip,
    limits: Limits,
    /// When the driver checks next without a notification.
    next_look: Option<Instant>,
    pub(crate) closed: bool,
}

impl<S> WaitQueues<S> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            channels: HashMap::default(),
            next_ticket: 0,
            first_places: HashMap::default(),
            turns: Turns::default(),
            trip: Trip::default(),
            limits,
            next_look: None,
            closed: false,
        }
    }

    /// Whether a call that can wait until `until` waits in that lock's queue at once. It does if
    /// other calls wait, or did a moment ago, because the subscription exists already. It also does
    /// while this client defers to others.
    pub(crate) fn should_queue(
        &self,
        channel: &str,
        key: &str,
        until: Option<Instant>,
        now: Instant,
    ) -> bool {
        if self.outage(channel).is_some() {
            return false;
        }
        let deferral = self.turns.deferred_until(key, now);
        self.channels.contains_key(channel)
            || deferral.is_some_and(|deferral| until.is_none_or(|until| deferral < until))
    }

    /// Whether the channel is subscribed.
    pub(crate) fn is_live(&self, channel: &str) -> bool {
        let channel = self.channels.get(channel);
        channel.is_some_and(|channel| channel.subscription == Subscription::Live)
    }

    /// Whether the channel is subscribed and stays so, because a waiter of this client needs it.
    pub(crate) fn stays_live(&self, channel: &str) -> bool {
        self.is_live(channel) && self.channels[channel].kept_until.is_none()
    }

    /// Since when Redis has been out of reach for the waiters of this channel.
    pub(crate) fn outage(&self, channel: &str) -> Option<Instant> {
        self.channels.get(channel)?.outage
    }

    /// Redis has answered a request, sent at `asked_at`. An outage that began before is over. One
    /// that began later is not, however late the answer is processed.
    pub(crate) fn answered(&mut self, channel: &str, asked_at: Instant) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.outage.take_if(|began| *began <= asked_at);
        }
    }

    /// Adds a waiter to the queue, behind all others or where its ticket says. `remaining` is the
    /// lease of the holder, if a refusal has just reported it. The flag says whether the driver has
    /// something to do.
    pub(crate) fn join(
        &mut self,
        channel: &str,
        key: &str,
        remaining: Option<Duration>,
        ticket: Option<Ticket>,
        waiter: Arc<S>,
        now: Instant,
    ) -> (Ticket, bool) {
        let ticket = ticket.unwrap_or_else(|| self.ticket());
        let fresh = !self.channels.contains_key(channel);
        if fresh {
            self.channels.insert(channel.into(), Channel::default());
        }
        let channel = self.channels.get_mut(channel).expect("BUG: the channel was just there");
        channel.kept_until = None;
        let live = channel.subscription == Subscription::Live;
        let deferral = self.turns.deferred_until(key, now);
        // Without a refusal, the waiter asks at once.
        let asks_now = live || remaining.is_none();
        let due = deferral.unwrap_or(if asks_now { now } else { now + park_for(remaining) });
        let entry = Entry::new(waiter);
        match channel.queues.iter_mut().find(|queue| &*queue.key == key) {
            Some(queue) => {
                if queue.entries.is_empty() && !live {
                    queue.due = due;
                }
                queue.entries.insert(ticket, entry);
                // What the head was to ask for, this one asks for in front of it.
                if queue.entries.len() > 1 && queue.is_head(ticket) {
                    queue.due = now;
                }
            }
            None => channel.queues.push(WaitQueue {
                key: key.into(),
                entries: BTreeMap::from([(ticket, entry)]),
                due,
                place: None,
                holder: None,
            }),
        }
        (ticket, fresh)
    }

    pub(crate) fn step(&mut self, channel: &str, ticket: Ticket, now: Instant) -> WaitStep {
        let Some(queue) = self.queue_of(channel, ticket) else {
            return WaitStep::Park(None);
        };
        let due = queue.due;
        let is_head = queue.is_head(ticket);
        let entry = queue.entries.get_mut(&ticket).expect("BUG: an entry outside its queue");
        if !is_head || entry.asking.is_some() {
            return WaitStep::Park(None);
        }
        if !entry.recheck && due > now {
            return WaitStep::Park(Some(due));
        }
        (entry.asking, entry.recheck) = (Some(now), false);
        if let Some(place) = &mut queue.place {
            place.asks();
        }
        WaitStep::Ask
    }

    /// Redis refused the head; the holder's lease could end after `remaining`.
    pub(crate) fn refused(
        &mut self,
        channel: &str,
        ticket: Ticket,
        remaining: Option<Duration>,
        now: Instant,
    ) {
        let Some(queue) = queue_of(&mut self.channels, channel, ticket) else {
            return;
        };
        let deferral = queue.deferred_until(&self.turns, now);
        // Not if one has come in front of it, which asks.
        if queue.is_head(ticket) {
            queue.due = deferral.into_iter().fold(now + park_for(remaining), Instant::min);
        }
        let asked_at = queue.entries.get_mut(&ticket).and_then(Entry::answered);
        if queue.place.is_none() {
            self.turns.refused(&queue.key);
        }
        if let Some(asked_at) = asked_at {
            self.turns.answered(now.saturating_duration_since(asked_at));
            self.answered(channel, asked_at);
        }
    }

    /// Redis did not answer the head, which asks again after `pause` or on a new connection.
    pub(crate) fn unanswered(
        &mut self,
        channel: &str,
        ticket: Ticket,
        pause: Duration,
        now: Instant,
    ) {
        let outage = self.channels.get_mut(channel).map(|channel| &mut channel.outage);
        if let Some(outage) = outage {
            outage.get_or_insert(now);
        }
        let Some(queue) = self.queue_of(channel, ticket) else {
            return;
        };
        if queue.is_head(ticket) {
            queue.due = now + pause;
        }
        if let Some(entry) = queue.entries.get_mut(&ticket) {
            entry.answered();
        }
    }

    /// The waiter has the lock, for `lease` unless it is renewed, and leaves. The flag says
    /// whether the driver has something to do.
    pub(crate) fn granted(
        &mut self,
        channel: &str,
        ticket: Ticket,
        lease: Duration,
        now: Instant,
    ) -> (Option<Arc<S>>, bool) {
        let Some(queue) = queue_of(&mut self.channels, channel, ticket) else {
            return (None, false);
        };
        // A message that came meanwhile may announce a release after this grant.
        let entry = queue.entries.get(&ticket);
        let recheck = entry.is_some_and(|entry| entry.recheck);
        queue.due = if recheck { now } else { now + park_for(Some(lease)) };
        let asked_at = queue.entries.get_mut(&ticket).and_then(|entry| entry.asking.take());
        match &mut queue.place {
            Some(place) => queue.due = place.granted(lease, now),
            None => self.turns.granted(&queue.key, self.limits, now),
        }
        if let Some(asked_at) = asked_at {
            self.turns.answered(now.saturating_duration_since(asked_at));
            self.answered(channel, asked_at);
        }
        self.remove(channel, ticket, now + LINGER)
    }

    /// The lock was handed to the waiter, for `lease` unless it is renewed, and the waiter leaves.
    /// Its wake-ups were older. The next waiter in the queue has to check before that lease ends.
    /// The flag says whether the driver has something to do.
    pub(crate) fn handed(
        &mut self,
        channel: &str,
        ticket: Ticket,
        lease: Duration,
        now: Instant,
    ) -> (Option<Arc<S>>, bool) {
        let Some(queue) = self.queue_of(channel, ticket) else {
            return (None, false);
        };
        queue.due = now + park_for(Some(lease));
        if let Some(place) = &mut queue.place {
            place.handed();
        }
        self.remove(channel, ticket, now + LINGER)
    }

    /// The waiter leaves without the lock. The flag says whether the driver has something to do.
    pub(crate) fn leave(
        &mut self,
        channel: &str,
        ticket: Ticket,
        now: Instant,
    ) -> (Option<Arc<S>>, bool) {
        let Some(queue) = self.queue_of(channel, ticket) else {
            return (None, false);
        };
        let had_to_ask =
            queue.entries.get(&ticket).is_some_and(|w| w.asking.is_some() || w.recheck);
        if queue.is_head(ticket) && had_to_ask {
            queue.due = now;
        }
        self.remove(channel, ticket, now)
    }

    /// Returns the new head, if the head has changed.
    fn remove(
        &mut self,
        name: &str,
        ticket: Ticket,
        keep_until: Instant,
    ) -> (Option<Arc<S>>, bool) {
        let channel = self.channels.get_mut(name).expect("BUG: an entry without a channel");
        let at = channel.queues.iter().position(|queue| queue.entries.contains_key(&ticket));
        let at = at.expect("BUG: an entry without a queue");
        let queue = &mut channel.queues[at];
        let was_head = queue.is_head(ticket);
        queue.entries.remove(&ticket);
        let head = if was_head { queue.head_waiter() } else { None };
        let unused = channel.queues.iter().all(|queue| queue.entries.is_empty());
        if unused {
            channel.kept_until = Some(keep_until);
        }
        (head, unused && self.next_look.is_none_or(|look| keep_until < look))
    }

    /// A message came on a channel: the head of each queue asks.
    pub(crate) fn message(&mut self, channel: &str, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.message(&mut self.turns, self.limits, now, &mut wakes);
        }
        wakes
    }

    /// A lock that this client relied on was lost: the head of each queue asks.
    pub(crate) fn look(&mut self, channel: &str, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        if let Some(channel) = self.channels.get_mut(channel) {
            for queue in &channel.queues {
                self.turns.forget(&queue.key);
            }
            channel.ask_now(&self.turns, now, &mut wakes);
        }
        wakes
    }

    /// The client was closed: all waiters leave. Also returns the heads whose places are given up.
    pub(crate) fn close(&mut self) -> (Wakes<S>, Vec<Arc<S>>) {
        self.closed = true;
        (self.everybody().cloned().collect(), self.give_places_up())
    }

    pub(crate) fn everybody(&self) -> impl Iterator<Item = &Arc<S>> {
        self.channels.values().flat_map(Channel::everybody)
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn queue_named(&mut self, channel: &str, key: &str) -> Option<&mut WaitQueue<S>> {
        self.channels.get_mut(channel)?.queues.iter_mut().find(|queue| &*queue.key == key)
    }

    fn queue_of(&mut self, channel: &str, ticket: Ticket) -> Option<&mut WaitQueue<S>> {
        queue_of(&mut self.channels, channel, ticket)
    }
}

fn queue_of<'a, S>(
    channels: &'a mut HashMap<Arc<str>, Channel<S>>,
    channel: &str,
    ticket: Ticket,
) -> Option<&'a mut WaitQueue<S>> {
    let channel = channels.get_mut(channel)?;
    channel.queues.iter_mut().find(|queue| queue.entries.contains_key(&ticket))
}

#[cfg(test)]
mod tests;
