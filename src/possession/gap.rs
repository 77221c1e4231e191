//! A lock in a gap: Redis counts it for this client, and no handle is inside.
//!
//! *Why.* Those that have handed the lock on wait until Redis has confirmed that. If the last of them released the lock,
//! the release would confirm them all, and those that come back at once would have to ask Redis for the lock again: two
//! round trips for each turn of all of them. With the gap it is one.
//!
//! *It begins* when an `unlock` finds no waiter, while other callers wait for their confirmation. The client's thread has
//! Redis confirm them all then. (The drop of a guard releases the lock: it waits for nothing.)
//!
//! *It ends* when a call takes the lock, without a request; else when the client's thread releases the lock, or finds it
//! lost.
//!
//! *It lasts* for the answer that is on its way, one more request, a round trip in which the last holder may have the
//! lock released, and the release.
//!
//! 1. **Nothing depends on the last holder.** It has given its hold back. If it is not polled again, the client's thread
//!    releases the lock.
//! 2. **Should the process end, Redis keeps the lock for no longer** than the last holder's lease, or than one default
//!    lease after the last answer. So the client does not repeat a request in the gap that was not answered: the release
//!    is next. It is also next if the last holder alone still waits after an answer.
//! 3. There is no gap if the lock could not be handed off either, where other clients have their turn, and where Redis
//!    keeps a queue.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::error::Error;
use crate::host::HashMap;
use crate::lease::whole_millis;
use crate::protocol::Names;
use crate::token::TokenBlock;

use super::{HoldState, Possession};

/// In so many round trips Redis has certainly heard of the lease of a call that takes the lock from a gap, however late.
const ROUND_TRIPS_OF_GAP: u32 = 4;

/// Its drop says that it has ended. It is not dropped under a mutex, because it wakes tasks.
#[derive(Default)]
pub(crate) struct Gap {
    /// Dropped with it, never sent to.
    ends: Vec<oneshot::Sender<()>>,
    /// Invariant 2.
    release_is_next: bool,
    /// No call may take the lock.
    pub(super) is_shut: bool,
}

/// What the last holder waits for.
pub(crate) struct LeftInGap {
    /// Redis has said that its hold was there to its end.
    pub(crate) confirmation: oneshot::Receiver<Result<bool, Error>>,
    pub(crate) ended: oneshot::Receiver<()>,
    /// The client's thread has to update Redis.
    pub(crate) needs_update: bool,
}

/// The callers that take turns in a streak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    /// How many wait for a confirmation.
    pub(crate) waiting: usize,
    /// How many waited before the last answer and may come back: it has confirmed them.
    pub(crate) away: usize,
    pub(crate) is_in_gap: bool,
}

/// The locks of a client that are in a gap.
#[derive(Default)]
pub(super) struct Gaps {
    /// How many there are: each call looks at this.
    many: AtomicUsize,
    by_key: Mutex<HashMap<Box<str>, Weak<Possession>>>,
}

impl Gaps {
    fn open(&self, possession: &Arc<Possession>) {
        let mut by_key = self.by_key.lock();
        by_key.insert(possession.names.key().into(), Arc::downgrade(possession));
        self.many.store(by_key.len(), Ordering::Release);
    }

    fn close(&self, possession: &Possession) {
        let (mut by_key, key) = (self.by_key.lock(), possession.names.key());
        if by_key.get(key).is_some_and(|one| std::ptr::eq(one.as_ptr(), possession)) {
            by_key.remove(key);
        }
        self.many.store(by_key.len(), Ordering::Release);
    }

    /// The possession that has that lock in a gap.
    pub(super) fn find(&self, names: &Names) -> Option<Arc<Possession>> {
        if self.many.load(Ordering::Acquire) == 0 {
            return None;
        }
        let possession = self.by_key.lock().get(names.key())?.upgrade();
        // Locks of several kinds may have one key.
        possession.filter(|possession| *possession.names == *names)
    }
}

impl Possession {
    /// Leaves the lock in a gap, if callers wait for a confirmation: they may come back. Not while another request is
    /// under way that its caller needs, and not if it is the turn of other clients by the time of an answer.
    pub(crate) fn begin_gap(
        self: &Arc<Self>,
        config: &Config,
        now: Instant,
        round_trip: Duration,
    ) -> Option<LeftInGap> {
        let mut holds = self.holds.lock();
        let may_come_back =
            holds.lasts_for(ROUND_TRIPS_OF_GAP, round_trip, now) && holds.has_callers_that_wait(1);
        let others_turn = holds.turn_of_others(config, now + round_trip).is_some();
        let can_be_handed_off = self.may_hand_off(&holds) && holds.hands_off_until(now).is_some();
        if !may_come_back || others_turn || !can_be_handed_off {
            return None;
        }
        let (confirm, confirmation) = oneshot::channel();
        let needs_update = holds.confirms_to(confirm);
        let ended = holds.wait_for_end_of_gap();
        self.registry.gaps.open(self);
        Some(LeftInGap { confirmation, ended, needs_update })
    }

    /// Tells those that wait for it that the gap has ended, if there was one.
    pub(crate) fn announce_end(&self, gap: Option<Gap>) {
        if gap.is_some() {
            self.registry.gaps.close(self);
        }
    }
}

impl HoldState {
    pub(crate) fn is_in_gap(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.gap.is_some())
    }

    /// An operator has freed the lock: no call may take it from the gap, if there is one.
    pub(crate) fn shut_gap(&mut self) {
        let gap = self.handed.as_mut().and_then(|handed| handed.gap.as_mut());
        gap.into_iter().for_each(|gap| gap.is_shut = true);
    }

    /// The callers that take turns.
    pub(crate) fn crowd(&self) -> Crowd {
        let waiting = self.confirmations_due();
        let before = self.handed.as_ref().map_or(0, |handed| handed.crowd);
        Crowd { waiting, away: before.saturating_sub(waiting), is_in_gap: self.is_in_gap() }
    }

    /// How many tokens are to be drawn for those that may come back to a fenced lock in a gap: none of them is in the
    /// queue to be counted there.
    pub(super) fn tokens_for_return(&self) -> u32 {
        let fenced = self.is_in_gap() && self.token.is_some();
        TokenBlock::size_for(if fenced { self.confirmations_due() } else { 0 })
    }

    /// Completes when the gap has ended.
    fn wait_for_end_of_gap(&mut self) -> oneshot::Receiver<()> {
        let (ends, ended) = oneshot::channel();
        self.handed().gap.get_or_insert_default().ends.push(ends);
        ended
    }

    /// For the client's thread: completes when the gap has ended, if its last holder has been confirmed and has yet to
    /// end it.
    pub(crate) fn end_of_gap_by_holder(&mut self) -> Option<oneshot::Receiver<()>> {
        let gap = self.handed.as_ref()?.gap.as_ref()?;
        let holder_waits =
            gap.ends.iter().any(|ends| !ends.is_closed()) && self.confirmations_due() == 0;
        (holder_waits && self.gap_needs_release()).then(|| self.wait_for_end_of_gap())
    }

    /// Whether there is a gap, and the client's thread has nothing left to ask Redis in it.
    pub(crate) fn gap_needs_release(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.gap.is_some() && !handed.update_queued)
    }

    /// If there is a gap, its release is next (invariant 2).
    pub(crate) fn stop_requests_in_gap(&mut self) {
        let gap = self.handed.as_mut().and_then(|handed| handed.gap.as_mut());
        gap.into_iter().for_each(|gap| gap.release_is_next = true);
    }

    /// The gap ends, if there is one: the caller has to [announce](Possession::announce_end) that.
    pub(crate) fn take_gap(&mut self) -> Option<Gap> {
        self.handed.as_mut()?.gap.take()
    }

    /// For how long Redis is to keep a lock that is in a gap. `None` if its release is next: that confirms who still waits,
    /// too.
    pub(super) fn lease_in_gap(&self, config: &Config, now: Instant) -> Option<Duration> {
        let gap = self.handed.as_ref()?.gap.as_ref()?;
        if gap.release_is_next || self.release_unanswered || self.left(now).is_zero() {
            return None;
        }
        // A lease of which Redis has not heard went with its holder.
        let is_default = self.is_default && self.unwritten_lease().is_none();
        Some(if is_default { config.watchdog_timeout } else { whole_millis(self.key_left(now)) })
    }
}
