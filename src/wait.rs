//! Parks the calls that wait for a lock. This module drives; the [`queues`] decide; the wait loop of
//! a call is in [`crate::acquire`].
//!
//! | decides | drives it |
//! |---|---|
//! | [`queue`]: the waiters for one lock, and when its head asks | [`waiter`], [`handoff`] |
//! | [`subscriptions`]: the channels | [`subscriber`] |
//! | [`order`]: when this client may ask: [`turns`] of a plain lock, its [`entry`] in the queue of a fair one | [`entries`] |
//! | [`reach`]: whether Redis answers | |
//!
//! Subscriptions live on connections of the client's own thread (see [`crate::transport`]). If they
//! shared the callers' connections, each runtime would need its own subscription to the same channel,
//! and a wake-up for a waiter in one runtime would wait behind the blocked threads of another.
//!
//! The mutex of the queues is never held across an await. No waiter is woken while it is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock;
use crate::handle::Handle;
use crate::possession::{AcquiredHold, Possession};
use crate::protocol::Names;
use crate::sync::Mutex;

mod change;
mod entries;
mod entry;
mod handoff;
mod long;
mod order;
mod queue;
mod queues;
mod reach;
mod refused;
mod subscriber;
mod subscriptions;
mod turns;
mod waiter;
pub(crate) use change::{Effects, QueueLimits, Stay, Ticket};
use queue::WaitQueue;
use queues::Queues;
pub(crate) use reach::{Reached, silence};
pub(crate) use turns::TurnLimits;
pub(crate) use waiter::{Registration, Waiter};

/// All waiters of one client.
pub(crate) struct Waiters {
    queues: Mutex<Queues<Waiter>>,
    /// Notifies the drivers that they have something to send to Redis.
    changed: Notify,
    /// Notifies the client's thread that a waiter of a fair lock has asked, taken the lock, or left.
    progress: Notify,
    /// Whether the client is closed, as the queues say, too: each request looks at this several times, without their
    /// mutex.
    closed: AtomicBool,
    /// How many calls wait: each reader that joins others looks at it.
    waiting: AtomicUsize,
}

/// How long a waiter waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimits {
    /// When the wait is over; `None` for never.
    pub(crate) until: Option<Instant>,
    /// How long an answer may take, and so a call that began in an outage.
    pub(crate) request: Duration,
    /// How long an outage of Redis may last that began later.
    pub(crate) outage: Option<Duration>,
    /// From when on the wait is worth a warning, unless there was one.
    pub(crate) warn_at: Option<Instant>,
}

/// Why a parked waiter goes on.
pub(crate) enum WakeReason {
    /// Ask Redis until then, and report the result to the [`Registration`].
    Ask(Option<Instant>),
    /// The waiter has the lock, from another holder of this client.
    Handed(AcquiredHold),
    /// Another call of this handle has the lock: nest in that.
    Nests,
    /// The wait is worth a warning.
    WaitsLong,
    /// The wait is over. With `in_outage`, Redis is out of reach, so it is unknown whether the
    /// lock is busy.
    TimedOut {
        in_outage: bool,
    },
    /// The outage has lasted longer than the limit.
    OutOfReach,
    Closed,
}

impl Waiters {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self {
            queues: Queues::new(limits, clock::now()).into(),
            changed: Notify::default(),
            progress: Notify::default(),
            closed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Runs `change` under the mutex of the queues, and its effects after it.
    fn change<R>(&self, change: impl FnOnce(&mut Queues<Waiter>) -> R) -> R {
        self.change_at(clock::now(), change)
    }

    /// Runs `change`, as of `now`, under the mutex of the queues, and its effects after it.
    fn change_at<R>(&self, now: Instant, change: impl FnOnce(&mut Queues<Waiter>) -> R) -> R {
        let (result, effects) = self.change_quietly(now, change);
        self.run(effects);
        result
    }

    /// Runs `change` under the mutex of the queues. The caller has to [run](Self::run) its effects.
    fn change_quietly<R>(
        &self,
        now: Instant,
        change: impl FnOnce(&mut Queues<Waiter>) -> R,
    ) -> (R, Effects<Waiter>) {
        let mut queues = self.queues.lock();
        let result = change(queues.at(now));
        self.waiting.store(queues.cx.waiting, Ordering::Release);
        (result, queues.take_effects())
    }

    /// Runs the effects of a change. The caller holds no mutex: a waker may run any code, which
    /// may release another lock.
    pub(crate) fn run(&self, effects: Effects<Waiter>) {
        for waiter in effects.wake {
            waiter.wake.notify_one();
        }
        if effects.drivers {
            self.changed.notify_waiters();
        }
    }

    /// Whether Redis, whose answers take that long, is known to be out of reach for the waiters of this lock.
    pub(crate) fn in_outage(&self, names: &Names, round_trip: Duration) -> bool {
        let (queues, now) = (self.queues.lock(), clock::now());
        queues.get(names).is_some_and(|queue| queue.reach.outage_at(round_trip, now).is_some())
    }

    /// How many calls wait, and since when the first of them does.
    pub(crate) fn waiting(&self) -> (usize, Option<Instant>) {
        let queues = self.queues.lock();
        let add = |(many, first): (usize, Option<Instant>), since| {
            (many + 1, Some(first.map_or(since, |first: Instant| first.min(since))))
        };
        queues.waiting().fold((0, None), add)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A call that waits in no queue asked Redis at `asked_at`, and has got the lock, or not.
    pub(crate) fn record_try(&self, names: &Names, granted: bool, asked_at: Instant) {
        self.change(|queues| queues.record_try(names, granted, asked_at));
    }

    /// A call of this handle has the lock: those of it that wait nest in that.
    pub(crate) fn wake_to_nest(&self, handle: &Arc<Handle>) {
        if handle.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let is_own = |waiter: &&Arc<Waiter>| Arc::ptr_eq(&waiter.handle, handle);
        self.change(|queues| {
            queues.change(&handle.names, |queue, cx| {
                let mut nests = |waiter: &Arc<Waiter>| {
                    waiter.nests.store(true, Ordering::Relaxed);
                    cx.effects.wake.push(waiter.clone());
                };
                queue.waiters().filter(is_own).for_each(&mut nests);
            })
        });
    }

    /// Whether a call may go on that comes now: the client is not closed, and no other one waits for that lock.
    pub(crate) fn lets_in(&self, names: &Names) -> bool {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return !self.is_closed();
        }
        let queues = self.queues.lock();
        !queues.closed && queues.get(names).is_none_or(WaitQueue::is_empty)
    }

    /// The owner that Redis named last as the holder of a lock for which others wait, and until when
    /// its lease was.
    pub(crate) fn holder(&self, names: &Names) -> Option<(Box<str>, Option<Instant>)> {
        self.queues.lock().get(names)?.holder.clone()
    }

    /// This client is about to free the lock: see [`Queues::begin_deferral`].
    pub(crate) fn begin_deferral(
        &self,
        names: &Arc<Names>,
        others: Option<u32>,
        now: Instant,
    ) -> bool {
        self.change_at(now, |queues| queues.begin_deferral(names, others))
    }

    /// This client has freed the lock, and `receivers` clients have received the message.
    pub(crate) fn record_release(&self, names: &Arc<Names>, receivers: Option<u32>) {
        self.change(|queues| queues.record_release(names, receivers));
    }

    /// Whether this client is one of those that are subscribed to the lock's channel where a request goes out on the
    /// connection of that number, and needs no message: its waiters do not hear of the lock in another way.
    pub(crate) fn stays_subscribed(&self, names: &Names, on: u64) -> bool {
        let queues = self.queues.lock();
        queues.subscriptions.stays_live(names.channel(), on) && queues.hears_itself(names)
    }

    /// Whether this client is one of those that a message on the lock's channel would reach, and none of the others.
    pub(crate) fn hears_itself(&self, names: &Names) -> bool {
        self.queues.lock().hears_itself(names)
    }

    /// A lock that this client relied on was lost: the head of its queue asks Redis.
    pub(crate) fn record_loss(&self, names: &Names) {
        self.change(|queues| queues.record_loss(names));
    }

    /// Wakes all waiters, because the client is closed. Returns the locks in whose queues Redis may have an entry of
    /// this client, each with the last possession of its head: the caller must give those entries up.
    pub(crate) fn close(&self) -> Vec<(Arc<Names>, Option<Arc<Possession>>)> {
        let left = self.change(|queues| {
            self.closed.store(true, Ordering::Release);
            queues.close()
        });
        self.progress.notify_waiters();
        let last = |head: Option<Arc<Waiter>>| head.and_then(|head| head.handle.possession());
        left.into_iter().map(|(names, head)| (names, last(head))).collect()
    }
}

#[cfg(test)]
mod tests;
