//! What the changes of all queues share: the moment, what they know of other locks, and what they cause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::turns::{TurnLimits, TurnTimes};

/// The longest time for which a waiter relies on a message.
pub(crate) const LONGEST_PARK: Duration = Duration::from_secs(30);

/// How long to park for a `remaining` lease: one millisecond more, because a TTL counts whole ones
/// (invariant 4 of [`super::queue`]). `None`: the remaining lease is unknown.
pub(super) fn park_for(remaining: Option<Duration>) -> Duration {
    remaining.map_or(LONGEST_PARK, |lease| LONGEST_PARK.min(lease + Duration::from_millis(1)))
}

/// A waiter's position: lower came earlier.
pub(crate) type Ticket = u64;

/// Tells the entries apart that a client has one after another in a queue that Redis keeps: a higher one is newer.
pub(crate) type EntryTicket = u64;

/// What a change of the queues causes, outside of their mutex.
#[derive(Debug)]
pub(crate) struct Effects<W> {
    pub(super) wake: Vec<Arc<W>>,
    /// The drivers may have something to send to Redis.
    pub(super) drivers: bool,
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self { wake: Vec::new(), drivers: false }
    }
}

/// The limits that all queues have: how long this client may keep a lock from others, and its head the waiters behind
/// it from asking.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) turns: TurnLimits,
    /// How long a call that has its turn at a fair lock may take to come.
    pub(crate) grace: Duration,
    /// How long an answer may take.
    pub(crate) request: Duration,
}

/// What the changes of all queues share.
pub(super) struct Context<W> {
    pub(super) at: Moment,
    pub(super) effects: Effects<W>,
    /// How many waiters there are in all queues.
    pub(super) waiting: usize,
}

pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) limits: QueueLimits,
    pub(super) times: TurnTimes,
}

/// Since when a call waits, and until when it can.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stay {
    pub(crate) since: Instant,
    pub(crate) until: Option<Instant>,
}

/// The waiter to which a lock goes that is handed off.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextWaiter<'a, W> {
    pub(crate) ticket: Ticket,
    pub(crate) waiter: &'a Arc<W>,
    /// Whether this waiter passes the head.
    pub(crate) passes: bool,
}

/// What a request says of this client's entry in a queue that Redis keeps.
#[derive(Debug)]
pub(super) struct Brought {
    /// The waiter for which it stands, and since when that waits.
    pub(super) waiter: Ticket,
    pub(super) since: Instant,
    pub(super) ticket: EntryTicket,
}

/// The owner that Redis named last as the holder, and until when its lease was.
pub(super) type Holder = (Box<str>, Option<Instant>);

/// What a waiter does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStep {
    /// Ask Redis for the lock, and report the result.
    Ask,
    /// Sleep until woken, or until that instant.
    Park(Option<Instant>),
}
