//! Who is parked on which channel: the pure state of the waiters' room.
//!
//! 1. **Only the head of a line asks Redis**; the others of this client stand behind it in the
//!    order in which they came, and cost Redis nothing.
//! 2. **Subscribed, then asked again, then parked.** A head asks as soon as its channel has become
//!    live, also after a cut. Before that it counts on no message, only on its due time.
//! 3. **A wake-up is a baton.** It belongs to the line, not to the waiter whom it woke: if that
//!    one leaves before it has asked, or while it asks, the next in line asks at once.
//! 4. A parked head is due when the holder's lease could have ended, and never later than
//!    [`LONGEST_PARK`], since a message can get lost. A lease that this client makes shorter moves
//!    that; of one that another makes shorter, a message tells.
//! 5. A subscription is wanted while somebody waits, and for [`LINGER`] after the last waiter was
//!    granted the lock: a hand-off is not worth a SUBSCRIBE. When the last one gave up instead,
//!    nothing is kept. While it is kept, so is what is known of the lock: whoever comes then need
//!    not ask what the subscription would have told.
//! 6. While this client leaves a lock to others (see [`turns`]), the head asks only when they have
//!    had their turns.
//! 7. A lock that is handed off inside the client goes to the head of its line, unless that one
//!    is asking Redis. The next head learns when it is due only after a request to Redis (see
//!    [`handed_off`](WaitQueues::handed_off)), if the new holder's lease is longer than that takes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod channel;
mod releases;
mod subscriptions;
mod turns;
use channel::{Channel, Entry, Subscription, WaitQueue, park_for};
pub(crate) use subscriptions::Plan;
pub(crate) use turns::Limits;
use turns::Turns;

/// The longest time for which a waiter trusts that it will be told.
pub(crate) const LONGEST_PARK: Duration = Duration::from_secs(30);

/// How long a subscription outlives the last waiter who got the lock.
pub(crate) const LINGER: Duration = Duration::from_millis(200);

/// A waiter's place: lower came earlier.
pub(crate) type Ticket = u64;

/// Whoever has to look at the board again. To be woken outside its mutex.
pub(crate) type Wakes<S> = Vec<Arc<S>>;

/// What a waiter does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStep {
    /// Ask Redis for the lock, and say what came of it.
    Ask,
    /// Sleep until woken, or until then.
    Park(Option<Instant>),
}

/// The lines, with the seats `S` of those who stand in them.
pub(crate) struct WaitQueues<S> {
    channels: HashMap<Arc<str>, Channel<S>>,
    next_ticket: Ticket,
    waiting: usize,
    turns: Turns,
    limits: Limits,
    /// When the driver looks next by itself.
    next_look: Option<Instant>,
    pub(crate) closed: bool,
}

impl<S> WaitQueues<S> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            channels: HashMap::new(),
            next_ticket: 0,
            waiting: 0,
            turns: Turns::default(),
            limits,
            next_look: None,
            closed: false,
        }
    }

    /// Whether a call that can wait until then stands in line for that lock at once. It does where
    /// others wait, or did a moment ago: the subscription is there already. And where this
    /// client leaves the lock to others.
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

    /// Since when Redis has been out of reach for those who wait there.
    pub(crate) fn outage(&self, channel: &str) -> Option<Instant> {
        self.channels.get(channel)?.outage
    }

    /// Redis has answered somebody who asked at that moment: an outage that began before is over.
    /// One that began since is not, however late the answer is looked at.
    pub(crate) fn answered(&mut self, channel: &str, asked: Instant) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.answered(asked);
        }
    }

    /// Who is next in line for a lock that this client has (invariant 7).
    pub(crate) fn next_waiter(&self, channel: &str, key: &str) -> Option<(Ticket, &Arc<S>)> {
        let queue = self.channels.get(channel)?.queues.iter().find(|queue| &*queue.key == key)?;
        let (ticket, head) = queue.entries.first_key_value()?;
        (head.asking.is_none() && !self.closed).then_some((*ticket, &head.waiter))
    }

    /// Somebody asks Redis in the stead of that waiter, which parks meanwhile.
    pub(crate) fn asked_for(&mut self, channel: &str, ticket: Ticket, now: Instant) {
        let queue = self.queue_of(channel, ticket);
        if let Some(entry) = queue.and_then(|queue| queue.entries.get_mut(&ticket)) {
            (entry.asking, entry.asked_for, entry.recheck) = (Some(now), true, false);
        }
    }

    /// Stands in line. `left` is what a refusal just said of the holder's lease. The flag says
    /// whether the driver has something to do.
    pub(crate) fn join(
        &mut self,
        channel: &str,
        key: &str,
        left: Option<Duration>,
        waiter: Arc<S>,
        now: Instant,
    ) -> (Ticket, bool) {
        self.waiting += 1;
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let fresh = !self.channels.contains_key(channel);
        if fresh {
            self.channels.insert(channel.into(), Channel::default());
        }
        let channel = self.channels.get_mut(channel).expect("BUG: the channel was just there");
        channel.kept_until = None;
        let live = channel.subscription == Subscription::Live;
        let deferral = self.turns.deferred_until(key, now);
        // Without a refusal to go by, it asks at once.
        let asks_now = live || left.is_none();
        let due = deferral.unwrap_or(if asks_now { now } else { now + park_for(left) });
        let entry = Entry { waiter, asking: None, asked_for: false, recheck: false };
        match channel.queues.iter_mut().find(|queue| &*queue.key == key) {
            Some(queue) => {
                if queue.entries.is_empty() && !live {
                    queue.due = due;
                }
                queue.entries.insert(ticket, entry);
            }
            None => channel.queues.push(WaitQueue {
                key: key.into(),
                entries: BTreeMap::from([(ticket, entry)]),
                due,
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
        let entry = queue.entries.get_mut(&ticket).expect("BUG: a entry outside its queue");
        if !is_head || entry.asking.is_some() {
            return WaitStep::Park(None);
        }
        if !entry.recheck && due > now {
            return WaitStep::Park(Some(due));
        }
        (entry.asking, entry.asked_for, entry.recheck) = (Some(now), false, false);
        WaitStep::Ask
    }

    /// The head was refused; the holder's lease could end after `left`.
    pub(crate) fn refused(
        &mut self,
        channel: &str,
        ticket: Ticket,
        left: Option<Duration>,
        now: Instant,
    ) {
        let Some(queue) = queue_of(&mut self.channels, channel, ticket) else {
            return;
        };
        let deferral = self.turns.deferred_until(&queue.key, now);
        queue.due = deferral.into_iter().fold(now + park_for(left), Instant::min);
        let asked = queue.entries.get_mut(&ticket).and_then(|entry| entry.asking.take());
        self.turns.refused(&queue.key);
        if let Some(asked) = asked {
            self.turns.answered(now.saturating_duration_since(asked));
            self.answered(channel, asked);
        }
    }

    /// The head could not ask. It tries again after `pause`, or when the connection is back.
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
        queue.due = now + pause;
        if let Some(entry) = queue.entries.get_mut(&ticket) {
            entry.asking = None;
        }
    }

    /// The waiter has the lock, for `lease` if nobody renews it, and leaves. The flag says
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
        // A message that came meanwhile may be of a release after this grant.
        let recheck = queue.entries.get(&ticket).is_some_and(|entry| entry.recheck);
        queue.due = if recheck { now } else { now + park_for(Some(lease)) };
        let asked = queue.entries.get_mut(&ticket).and_then(|entry| entry.asking.take());
        self.turns.granted(&queue.key, self.limits, now);
        if let Some(asked) = asked {
            self.turns.answered(now.saturating_duration_since(asked));
            self.answered(channel, asked);
        }
        self.remove(channel, ticket, now + LINGER)
    }

    /// The lock was handed to the waiter, for `lease` if nobody renews it, and it leaves. Whatever
    /// it was woken for was before that. The next in line has to look before that lease ends. The
    /// flag says whether the driver has something to do.
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
        self.remove(channel, ticket, now + LINGER)
    }

    /// The waiter leaves without the lock. The flag says whether the driver has something to do.
    pub(crate) fn left(
        &mut self,
        channel: &str,
        ticket: Ticket,
        now: Instant,
    ) -> (Option<Arc<S>>, bool) {
        let Some(queue) = self.queue_of(channel, ticket) else {
            return (None, false);
        };
        let holds_baton =
            queue.entries.get(&ticket).is_some_and(|w| w.asking.is_some() || w.recheck);
        if queue.is_head(ticket) && holds_baton {
            queue.due = now;
        }
        self.remove(channel, ticket, now)
    }

    /// Returns who is the head now, if it was another before.
    fn remove(
        &mut self,
        name: &str,
        ticket: Ticket,
        keep_until: Instant,
    ) -> (Option<Arc<S>>, bool) {
        let channel = self.channels.get_mut(name).expect("BUG: a entry without a channel");
        let at = channel.queues.iter().position(|queue| queue.entries.contains_key(&ticket));
        let at = at.expect("BUG: a entry without a queue");
        let queue = &mut channel.queues[at];
        let was_head = queue.is_head(ticket);
        queue.entries.remove(&ticket);
        let head = if was_head { queue.head_waiter() } else { None };
        let unused = channel.queues.iter().all(|queue| queue.entries.is_empty());
        if unused {
            channel.kept_until = Some(keep_until);
        }
        self.waiting -= 1;
        (head, unused && self.next_look.is_none_or(|look| keep_until < look))
    }

    /// A message came on a channel: one waiter of each line asks.
    pub(crate) fn message(&mut self, channel: &str, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.told(&mut self.turns, self.limits, now, &mut wakes);
        }
        wakes
    }

    /// A lock was lost that this client counted on: one waiter of each line asks.
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

    /// The client was closed: everybody goes.
    pub(crate) fn close(&mut self) -> Wakes<S> {
        self.closed = true;
        self.everybody()
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    fn everybody(&self) -> Wakes<S> {
        self.channels.values().flat_map(Channel::everybody).collect()
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
impl<S> Default for WaitQueues<S> {
    fn default() -> Self {
        Self::new(Limits { run: Duration::from_millis(10), room: Duration::from_millis(750) })
    }
}

#[cfg(test)]
mod tests;
