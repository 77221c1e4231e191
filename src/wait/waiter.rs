//! One waiter: its grant slot, where others leave a lock for it, and its registration in the queue.
//!
//! 1. **A lock that is handed off is never lost on the way.** It lies in the grant slot until the waiter takes it. A
//!    waiter that leaves closes the grant slot, and its caller gives back a lock that was there. A holder that finds the
//!    grant slot closed gives back the lock that it brought.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock;
use crate::handle::Handle;
use crate::lease::Lease;
use crate::possession::{AcquiredHold, Recipient};
use crate::protocol::{Names, TurnMode};

use super::change::{Stay, WaitStep};
use super::queues::Queues;
use super::reach::{Reach, Reached};
use super::{Mutex, Ticket, WaitLimits, Waiters, WakeReason};

/// How to reach a waiter, and what it waits for.
pub(crate) struct Waiter {
    pub(crate) handle: Arc<Handle>,
    pub(crate) lease: Lease,
    /// The lease in whole milliseconds.
    pub(crate) requested: Duration,
    /// When its call began.
    pub(super) since: Instant,
    pub(super) wake: Notify,
    /// Another call of its handle has got the lock.
    pub(super) nests: AtomicBool,
    /// Not one that needs more than this lock.
    takes_hand_offs: bool,
    grant_slot: Mutex<GrantSlot>,
}

/// Where a waiter finds a lock that is handed to it.
enum GrantSlot {
    Empty,
    Full(AcquiredHold),
    /// The waiter has left.
    Closed,
}

impl Waiter {
    /// The recipient that this waiter is for a hand-off, if it takes one.
    pub(crate) fn as_recipient(&self) -> Option<Recipient> {
        self.takes_hand_offs.then(|| self.handle.as_recipient(self.lease, self.requested))
    }

    /// What this waiter wants of a read-write lock.
    pub(super) fn wants(&self) -> TurnMode {
        if self.handle.kind.is_shared() { TurnMode::Read } else { TurnMode::Write }
    }

    /// Hands the lock to the waiter. If the waiter has left, the caller must give the lock back.
    pub(crate) fn hand(&self, granted: AcquiredHold) -> Result<(), AcquiredHold> {
        let mut grant_slot = self.grant_slot.lock();
        if let GrantSlot::Closed = *grant_slot {
            return Err(granted);
        }
        *grant_slot = GrantSlot::Full(granted);
        drop(grant_slot);
        self.wake.notify_one();
        Ok(())
    }

    /// Whether a lock that was handed to it is still there.
    pub(crate) fn has_yet_to_take(&self) -> bool {
        matches!(*self.grant_slot.lock(), GrantSlot::Full(_))
    }

    fn take(&self, leave: GrantSlot) -> Option<AcquiredHold> {
        match std::mem::replace(&mut *self.grant_slot.lock(), leave) {
            GrantSlot::Full(granted) => Some(granted),
            GrantSlot::Empty | GrantSlot::Closed => None,
        }
    }
}

/// A waiter's registration in the queue of one lock. Dropping it leaves the queue, and passes an
/// unused wake-up on to the next waiter.
pub(crate) struct Registration<'a> {
    waiters: &'a Waiters,
    handle: Arc<Handle>,
    lease: Lease,
    requested: Duration,
    since: Instant,
    joined: Instant,
    ticket: Ticket,
    /// Created when it parks; for a read-write lock when it joins: the queue has to know who wants to read.
    waiter: OnceLock<Arc<Waiter>>,
    has_parked: AtomicBool,
    takes_hand_offs: bool,
    is_forgotten: AtomicBool,
}

impl Waiters {
    /// Waits in the queue of a lock until the registration is dropped. The call began at `since`, and asks for
    /// `lease`, which is `requested` in whole milliseconds. It may have a `place` from before.
    pub(crate) fn join(
        &self,
        handle: &Arc<Handle>,
        lease: Lease,
        requested: Duration,
        Stay { since, until }: Stay,
        place: Option<Ticket>,
    ) -> Registration<'_> {
        let handle = handle.clone();
        handle.waiting.fetch_add(1, Ordering::Relaxed);
        let mut registration = Registration {
            waiters: self,
            handle,
            lease,
            requested,
            since,
            joined: clock::now(),
            ticket: 0,
            waiter: OnceLock::new(),
            has_parked: AtomicBool::new(false),
            takes_hand_offs: true,
            is_forgotten: AtomicBool::new(false),
        };
        registration.join(until, place, registration.joined);
        registration
    }
}

impl Queues<Waiter> {
    /// The first waiter for a read-write lock that wants to write, and when it came.
    pub(super) fn first_writer(&self, names: &Names) -> Option<(Ticket, Instant)> {
        let queue = if names.is_read_write() { self.get(names)? } else { return None };
        queue.first_writer(|waiter| waiter.wants() == TurnMode::Read, self.cx.at.now)
    }

    /// Whether that waiter wants to write, and is neither the head of its queue nor behind another writer: Redis has to
    /// hear when it comes, and when it leaves.
    pub(super) fn is_first_writer_behind(&self, handle: &Handle, ticket: Ticket) -> bool {
        !handle.kind.is_shared()
            && self.first_writer(&handle.names).is_some_and(|(first, _)| first == ticket)
            && self.get(&handle.names).is_some_and(|queue| !queue.is_head(ticket, self.cx.at.now))
    }
}

impl Registration<'_> {
    /// The ticket of this call: its position in the wait queue.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    fn waiter(&self) -> &Arc<Waiter> {
        self.waiter.get_or_init(|| {
            Arc::new(Waiter {
                handle: self.handle.clone(),
                lease: self.lease,
                requested: self.requested,
                since: self.since,
                wake: Notify::new(),
                nests: AtomicBool::new(false),
                takes_hand_offs: self.takes_hand_offs,
                grant_slot: GrantSlot::Empty.into(),
            })
        })
    }

    fn names(&self) -> &Arc<Names> {
        &self.handle.names
    }

    /// Waits in the queue again, behind all others, after it left with a lock that was lost before it could run.
    pub(crate) fn join_again(&mut self, until: Option<Instant>) {
        (self.waiter, self.has_parked) = (OnceLock::new(), AtomicBool::new(false));
        self.join(until, None, clock::now());
    }

    fn join(&mut self, until: Option<Instant>, place: Option<Ticket>, now: Instant) {
        let stay = Stay { since: self.since, until };
        let waiter = self.names().is_read_write().then(|| self.waiter().clone());
        let join = |queues: &mut Queues<Waiter>| {
            let ticket = place.unwrap_or_else(|| queues.next_ticket());
            queues.join_with(ticket, self.names(), waiter, stay);
            if queues.is_first_writer_behind(&self.handle, ticket) {
                queues.change(self.names(), |queue, cx| queue.record_first_writer(cx));
            }
            ticket
        };
        self.ticket = self.waiters.change_at(now, join);
    }

    /// Before it parks.
    pub(crate) fn set_takes_hand_offs(&mut self, takes_hand_offs: bool) {
        self.takes_hand_offs = takes_hand_offs;
    }

    /// The call has waited before, since then: an outage that began later is one to wait out.
    pub(crate) fn waits_since(&mut self, since: Instant) {
        self.joined = self.joined.min(since);
    }

    /// The handle of the lock in whose queue it waits.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// When it came.
    pub(crate) fn joined(&self) -> Instant {
        self.joined
    }

    /// Waits in the queue of another lock instead, among its waiters by the age of the ticket. What came of the
    /// request for that lock is news there.
    pub(crate) fn move_to(&mut self, to: &Arc<Handle>, until: Option<Instant>, reached: Reached) {
        let (ticket, stay) = (self.ticket, Stay { since: self.since, until });
        self.waiters.change(|queues| {
            queues.leave(self.names(), ticket);
            queues.join_with(ticket, &to.names, None, stay);
            queues.record_reached(&to.names, reached);
        });
        to.waiting.fetch_add(1, Ordering::Relaxed);
        self.handle.waiting.fetch_sub(1, Ordering::Relaxed);
        self.handle = to.clone();
        (self.waiter, self.has_parked) = (OnceLock::new(), AtomicBool::new(false));
    }

    /// Whether the waiter is to ask Redis before anything else: until when, and its ticket.
    pub(crate) fn asks_at_once(&self, limits: &WaitLimits) -> Option<(Option<Instant>, Ticket)> {
        match self.check(limits) {
            Err(WakeReason::Ask(gives_up_at)) => return Some((gives_up_at, self.ticket)),
            Err(WakeReason::Nests) => self.waiter().nests.store(true, Ordering::Relaxed),
            // It parks, or goes on for a reason that is there the next time.
            Ok(_) | Err(_) => {}
        }
        None
    }

    /// The process that waits is another one.
    pub(crate) fn forget(&self) {
        self.is_forgotten.store(true, Ordering::Relaxed);
    }

    /// Parks until it is this waiter's turn to ask, or until there is no point in waiting. From `parked` on it can be
    /// handed the lock.
    #[expect(
        clippy::manual_async_fn,
        reason = "it would keep its arguments twice, for each parked call"
    )]
    pub(crate) fn next(
        &self,
        limits: &WaitLimits,
        parked: impl Fn(),
    ) -> impl Future<Output = WakeReason> {
        async move {
            loop {
                if let Some(granted) =
                    self.waiter.get().and_then(|waiter| waiter.take(GrantSlot::Empty))
                {
                    self.notify_thread();
                    return WakeReason::Handed(granted);
                }
                let wake_at = match self.check(limits) {
                    Ok(wake_at) => wake_at,
                    Err(next) => return next,
                };
                parked();
                tokio::select! {
                    biased;
                    () = self.waiter().wake.notified() => {}
                    () = clock::until(wake_at) => {}
                }
            }
        }
    }

    /// Waits until there is a lock that was handed to it.
    pub(crate) async fn is_handed(&self) {
        let waiter = self.waiter();
        while !waiter.has_yet_to_take() {
            waiter.wake.notified().await;
        }
    }

    /// Until when to park, or why not.
    fn check(&self, limits: &WaitLimits) -> Result<Option<Instant>, WakeReason> {
        let now = clock::now();
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let may_nest = |waiter: &Arc<Waiter>| waiter.nests.swap(false, Ordering::Relaxed);
        if self.waiter.get().is_some_and(may_nest) && self.handle.holding(now).is_some() {
            return Err(WakeReason::Nests);
        }
        // Readers keep their order.
        let parks_first = !self.has_parked.load(Ordering::Relaxed) && !self.handle.kind.is_shared();
        let checked = self.waiters.change(|queues| {
            if queues.closed {
                return Err(WakeReason::Closed);
            }
            let reach = queues.get(self.names()).map_or(Reach::Answers, |queue| queue.reach);
            // Before the first answer it is unknown whether the lock is busy.
            let until = limits.until.filter(|_| !reach.is_silent_since(self.joined));
            if is_over(until) {
                return Err(WakeReason::TimedOut { in_outage: reach.in_outage(now) });
            }
            let gives_up_at = reach.gives_up_at(self.joined, limits.request, limits.outage);
            if is_over(gives_up_at) {
                return Err(WakeReason::OutOfReach);
            }
            // An outage has warnings of its own.
            let warn_at = limits.warn_at.filter(|_| !reach.in_outage(now));
            if is_over(warn_at) {
                return Err(WakeReason::WaitsLong);
            }
            match queues.step(self.names(), self.ticket) {
                WaitStep::Ask => Err(WakeReason::Ask(gives_up_at)),
                WaitStep::Park(at) => {
                    let waiter = self.waiter();
                    self.has_parked.store(true, Ordering::Relaxed);
                    queues.change(self.names(), |queue, _| queue.park(self.ticket, waiter));
                    Ok([at, gives_up_at, until].into_iter().flatten().min())
                }
            }
        });
        // A call that got the lock for this handle before that could not wake this waiter. One that has left the
        // queue was handed the lock itself.
        let is_in_queue = || {
            let queues = self.waiters.queues.lock();
            queues.get(self.names()).is_some_and(|queue| queue.has(self.ticket))
        };
        if parks_first && checked.is_ok() && self.handle.holding(now).is_some() && is_in_queue() {
            self.waiter().nests.store(true, Ordering::Relaxed);
            return Err(WakeReason::Nests);
        }
        checked
    }

    /// Redis reported that `holder` has the lock, for `remaining` unless it is renewed.
    pub(crate) fn record_refusal(&self, remaining: Option<Duration>, holder: Box<str>) {
        // A fair lock without a holder is the next one's.
        let lease = remaining.filter(|_| !holder.is_empty());
        let holder = (holder, lease.and_then(|lease| clock::now().checked_add(lease)));
        self.waiters.change(|queues| {
            queues.record_refusal(self.names(), self.ticket, remaining, holder);
        });
        self.notify_thread();
    }

    /// Redis was out of reach. False if the call does not wait for the end of that.
    pub(crate) fn record_failure(&self, pause: Duration) -> bool {
        let Self { ticket, joined, .. } = self;
        let waits = self.waiters.change(|queues| {
            queues
                .change(self.names(), |queue, cx| queue.record_failure(*ticket, *joined, pause, cx))
        });
        self.notify_thread();
        waits == Some(true)
    }

    /// Redis granted the lock, for `lease` unless it is renewed.
    pub(crate) fn record_grant(&self, lease: Duration) {
        self.waiters.change(|queues| queues.record_grant(self.names(), self.ticket, lease));
        // The drop finds that this waiter has left already.
    }

    /// Leaves the queue. Returns a lock that was handed off and not taken: the caller must give it back. The flag says
    /// that this client has an entry in a queue that Redis keeps, and no waiter: the caller must give that up, too.
    pub(crate) fn leave(&self) -> (Option<AcquiredHold>, bool) {
        let entry_is_left = self.waiters.change(|queues| {
            let is_first_writer = queues.is_first_writer_behind(&self.handle, self.ticket);
            let entry_is_left = queues.leave(self.names(), self.ticket);
            if is_first_writer {
                queues.change(self.names(), |queue, cx| queue.record_first_writer(cx));
            }
            entry_is_left
        });
        let granted = self.waiter.get().and_then(|waiter| waiter.take(GrantSlot::Closed));
        self.notify_thread();
        (granted, entry_is_left)
    }

    /// The client's thread may wait for this to hand on a lock that Redis has granted, or to confirm it.
    fn notify_thread(&self) {
        if self.names().is_in_order() {
            self.waiters.progress.notify_waiters();
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if *self.is_forgotten.get_mut() {
            return;
        }
        let (handed, _) = self.leave();
        self.handle.waiting.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(handed.is_none(), "BUG: a lock that was handed off went with its waiter");
    }
}
