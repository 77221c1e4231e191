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
//!    [`handed_off`](Board::handed_off)), if the new holder's lease is longer than that takes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod line;
mod releases;
mod subscriptions;
mod turns;
use line::{Channel, Line, Subscription, Waiter, park_for};
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
pub(crate) enum Step {
    /// Ask Redis for the lock, and say what came of it.
    Ask,
    /// Sleep until woken, or until then.
    Park(Option<Instant>),
}

/// The lines, with the seats `S` of those who stand in them.
pub(crate) struct Board<S> {
    channels: HashMap<Arc<str>, Channel<S>>,
    next_ticket: Ticket,
    waiting: usize,
    turns: Turns,
    limits: Limits,
    /// When the driver looks next by itself.
    next_look: Option<Instant>,
    pub(crate) closed: bool,
}

impl<S> Board<S> {
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
    pub(crate) fn stands_in_line(
        &self,
        channel: &str,
        key: &str,
        until: Option<Instant>,
        now: Instant,
    ) -> bool {
        if self.outage(channel).is_some() {
            return false;
        }
        let back = self.turns.stands_back(key, now);
        self.channels.contains_key(channel)
            || back.is_some_and(|back| until.is_none_or(|until| back < until))
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
    pub(crate) fn next_in_line(&self, channel: &str, key: &str) -> Option<(Ticket, &Arc<S>)> {
        let line = self.channels.get(channel)?.lines.iter().find(|line| &*line.key == key)?;
        let (ticket, head) = line.waiters.first_key_value()?;
        (head.asking.is_none() && !self.closed).then_some((*ticket, &head.seat))
    }

    /// Somebody asks Redis in the stead of that waiter, which parks meanwhile.
    pub(crate) fn asked_for(&mut self, channel: &str, ticket: Ticket, now: Instant) {
        let line = self.line_of(channel, ticket);
        if let Some(waiter) = line.and_then(|line| line.waiters.get_mut(&ticket)) {
            (waiter.asking, waiter.asked_for, waiter.again) = (Some(now), true, false);
        }
    }

    /// Stands in line. `left` is what a refusal just said of the holder's lease. The flag says
    /// whether the driver has something to do.
    pub(crate) fn join(
        &mut self,
        channel: &str,
        key: &str,
        left: Option<Duration>,
        seat: Arc<S>,
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
        let back = self.turns.stands_back(key, now);
        // Without a refusal to go by, it asks at once.
        let asks_now = live || left.is_none();
        let due = back.unwrap_or(if asks_now { now } else { now + park_for(left) });
        let waiter = Waiter { seat, asking: None, asked_for: false, again: false };
        match channel.lines.iter_mut().find(|line| &*line.key == key) {
            Some(line) => {
                if line.waiters.is_empty() && !live {
                    line.due = due;
                }
                line.waiters.insert(ticket, waiter);
            }
            None => channel.lines.push(Line {
                key: key.into(),
                waiters: BTreeMap::from([(ticket, waiter)]),
                due,
            }),
        }
        (ticket, fresh)
    }

    pub(crate) fn step(&mut self, channel: &str, ticket: Ticket, now: Instant) -> Step {
        let Some(line) = self.line_of(channel, ticket) else {
            return Step::Park(None);
        };
        let due = line.due;
        let is_head = line.is_head(ticket);
        let waiter = line.waiters.get_mut(&ticket).expect("BUG: a waiter outside its line");
        if !is_head || waiter.asking.is_some() {
            return Step::Park(None);
        }
        if !waiter.again && due > now {
            return Step::Park(Some(due));
        }
        (waiter.asking, waiter.asked_for, waiter.again) = (Some(now), false, false);
        Step::Ask
    }

    /// The head was refused; the holder's lease could end after `left`.
    pub(crate) fn refused(
        &mut self,
        channel: &str,
        ticket: Ticket,
        left: Option<Duration>,
        now: Instant,
    ) {
        let Some(line) = line_of(&mut self.channels, channel, ticket) else {
            return;
        };
        let back = self.turns.stands_back(&line.key, now);
        line.due = back.into_iter().fold(now + park_for(left), Instant::min);
        let asked = line.waiters.get_mut(&ticket).and_then(|waiter| waiter.asking.take());
        self.turns.refused(&line.key);
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
        let Some(line) = self.line_of(channel, ticket) else {
            return;
        };
        line.due = now + pause;
        if let Some(waiter) = line.waiters.get_mut(&ticket) {
            waiter.asking = None;
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
        let Some(line) = line_of(&mut self.channels, channel, ticket) else {
            return (None, false);
        };
        // A message that came meanwhile may be of a release after this grant.
        let again = line.waiters.get(&ticket).is_some_and(|waiter| waiter.again);
        line.due = if again { now } else { now + park_for(Some(lease)) };
        let asked = line.waiters.get_mut(&ticket).and_then(|waiter| waiter.asking.take());
        self.turns.granted(&line.key, self.limits, now);
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
        let Some(line) = self.line_of(channel, ticket) else {
            return (None, false);
        };
        line.due = now + park_for(Some(lease));
        self.remove(channel, ticket, now + LINGER)
    }

    /// The waiter leaves without the lock. The flag says whether the driver has something to do.
    pub(crate) fn left(
        &mut self,
        channel: &str,
        ticket: Ticket,
        now: Instant,
    ) -> (Option<Arc<S>>, bool) {
        let Some(line) = self.line_of(channel, ticket) else {
            return (None, false);
        };
        let holds_baton = line.waiters.get(&ticket).is_some_and(|w| w.asking.is_some() || w.again);
        if line.is_head(ticket) && holds_baton {
            line.due = now;
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
        let channel = self.channels.get_mut(name).expect("BUG: a waiter without a channel");
        let at = channel.lines.iter().position(|line| line.waiters.contains_key(&ticket));
        let at = at.expect("BUG: a waiter without a line");
        let line = &mut channel.lines[at];
        let was_head = line.is_head(ticket);
        line.waiters.remove(&ticket);
        let head = if was_head { line.head_seat() } else { None };
        let unused = channel.lines.iter().all(|line| line.waiters.is_empty());
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
            for line in &channel.lines {
                self.turns.forget(&line.key);
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

    fn line_named(&mut self, channel: &str, key: &str) -> Option<&mut Line<S>> {
        self.channels.get_mut(channel)?.lines.iter_mut().find(|line| &*line.key == key)
    }

    fn line_of(&mut self, channel: &str, ticket: Ticket) -> Option<&mut Line<S>> {
        line_of(&mut self.channels, channel, ticket)
    }
}

fn line_of<'a, S>(
    channels: &'a mut HashMap<Arc<str>, Channel<S>>,
    channel: &str,
    ticket: Ticket,
) -> Option<&'a mut Line<S>> {
    let channel = channels.get_mut(channel)?;
    channel.lines.iter_mut().find(|line| line.waiters.contains_key(&ticket))
}

#[cfg(test)]
impl<S> Default for Board<S> {
    fn default() -> Self {
        Self::new(Limits { run: Duration::from_millis(10), room: Duration::from_millis(750) })
    }
}

#[cfg(test)]
mod tests;
