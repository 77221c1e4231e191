//! The gap between the last holder of a streak of hand-offs and a call that comes back.
//!
//! Those that have handed the lock on wait until Redis has confirmed that. If the last of them released the lock, its
//! release would confirm them all, and who comes back at once would have to ask Redis for the lock again: two round
//! trips for each turn of all of them. So the last one leaves the lock in a gap, with no handle inside. The client's
//! thread has Redis confirm them all meanwhile. A call that comes, or comes back, has the lock without a request; if none
//! does, the thread releases the lock.
//!
//! 1. **Nothing depends on the caller.** It has given its hold back, and whether it is polled again makes no difference.
//! 2. **Redis keeps the lock no longer than for the last holder**, should the client's process end, or than if that had
//!    renewed a default lease. So a request that is not answered in a gap is not sent again: the release is next. It is
//!    also next if only the last holder still waits after an answer.
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

/// Its drop says that it has ended: another handle is inside, Redis has released the lock, or the lock is lost. It is not
/// dropped under a mutex, because it wakes tasks.
#[derive(Default)]
pub(crate) struct Gap {
    ends: Vec<oneshot::Sender<()>>,
    /// The release is next (invariant 2).
    pub(super) is_over: bool,
}

/// What the last holder waits for.
pub(crate) struct LeftInGap {
    /// Redis has said that its hold was there to its end.
    pub(crate) confirmation: oneshot::Receiver<Result<bool, Error>>,
    pub(crate) ended: oneshot::Receiver<()>,
    /// The client's thread has to settle the possession.
    pub(crate) settle: bool,
}

/// The callers that take turns in a streak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    /// How many wait for a confirmation.
    pub(crate) waiting: usize,
    /// How many of those may come back that waited before the last answer.
    pub(crate) away: usize,
    /// No handle is inside.
    pub(crate) all_have_left: bool,
}

/// The locks of a client that are in a gap.
#[derive(Default)]
pub(super) struct Gaps {
    /// How many there are: each call looks at this.
    many: AtomicUsize,
    of: Mutex<HashMap<Box<str>, Weak<Possession>>>,
}

impl Gaps {
    fn open(&self, possession: &Arc<Possession>) {
        let mut of = self.of.lock();
        of.insert(possession.names.key().into(), Arc::downgrade(possession));
        self.many.store(of.len(), Ordering::Release);
    }

    fn close(&self, possession: &Possession) {
        let (mut of, key) = (self.of.lock(), possession.names.key());
        if of.get(key).is_some_and(|one| std::ptr::eq(one.as_ptr(), possession)) {
            of.remove(key);
        }
        self.many.store(of.len(), Ordering::Release);
    }

    /// The possession that has that lock in a gap.
    pub(super) fn of(&self, names: &Names) -> Option<Arc<Possession>> {
        if self.many.load(Ordering::Acquire) == 0 {
            return None;
        }
        let possession = self.of.lock().get(names.key())?.upgrade();
        possession.filter(|possession| *possession.names == *names)
    }
}

impl Possession {
    /// Leaves the lock in a gap, if callers wait for a confirmation, which may come back. Not while another request is
    /// under way that its caller needs, and not if it is the turn of other clients when Redis has `answered`.
    pub(crate) fn begin_gap(
        self: &Arc<Self>,
        config: &Config,
        now: Instant,
        answered: Instant,
    ) -> Option<LeftInGap> {
        let mut holds = self.holds.lock();
        let free = !self.is_permit_taken() || holds.is_prolonging();
        let is_last = holds.confirms() == 0 || holds.turn_of_others(config, answered).is_some();
        if !free || is_last || holds.hands_off_until(now).is_none() {
            return None;
        }
        let (confirm, confirmation) = oneshot::channel();
        let settle = holds.confirms_to(confirm);
        let ended = holds.gap_ends();
        self.registry.gaps.open(self);
        Some(LeftInGap { confirmation, ended, settle })
    }

    /// The gap has ended, if there was one.
    pub(crate) fn end_gap(&self, gap: Option<Gap>) {
        if gap.is_some() {
            self.registry.gaps.close(self);
        }
    }
}

impl HoldState {
    pub(crate) fn is_in_gap(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.gap.is_some())
    }

    /// The callers that take turns.
    pub(crate) fn crowd(&self) -> Crowd {
        let waiting = self.confirms();
        let before = self.handed.as_ref().map_or(0, |handed| handed.crowd);
        Crowd { waiting, away: before.saturating_sub(waiting), all_have_left: self.is_in_gap() }
    }

    /// How many tokens are to be drawn for those that may come back to a fenced lock in a gap, where none of them waits.
    pub(super) fn tokens_for_return(&self) -> u32 {
        let fenced = self.is_in_gap() && self.token.is_some();
        TokenBlock::size_for(if fenced { self.confirms() } else { 0 })
    }

    /// Completes when the gap has ended.
    fn gap_ends(&mut self) -> oneshot::Receiver<()> {
        let (ends, ended) = oneshot::channel();
        self.handed().gap.get_or_insert_default().ends.push(ends);
        ended
    }

    /// For the client's thread: completes when the gap has ended, if its last holder sees to that, which has been
    /// confirmed.
    pub(crate) fn gap_to_end(&mut self) -> Option<oneshot::Receiver<()>> {
        let gap = self.handed.as_ref()?.gap.as_ref()?;
        let sees_to_it = gap.ends.iter().any(|ends| !ends.is_closed()) && self.confirms() == 0;
        (sees_to_it && self.is_left_in_gap()).then(|| self.gap_ends())
    }

    /// Whether there is a gap, and the client's thread is about to do nothing about it.
    pub(crate) fn is_left_in_gap(&self) -> bool {
        self.handed.as_ref().is_some_and(|handed| handed.gap.is_some() && !handed.settling)
    }

    /// If there is a gap, its release is next (invariant 2).
    pub(crate) fn gap_is_over(&mut self) {
        let gap = self.handed.as_mut().and_then(|handed| handed.gap.as_mut());
        gap.into_iter().for_each(|gap| gap.is_over = true);
    }

    /// The gap ends, if there is one: the caller has to [say so](Possession::end_gap).
    pub(crate) fn take_gap(&mut self) -> Option<Gap> {
        self.handed.as_mut()?.gap.take()
    }

    /// For how long Redis is to keep a lock that is in a gap. `None` if its release is next: that confirms who still waits,
    /// too.
    pub(super) fn lease_in_gap(&self, config: &Config, now: Instant) -> Option<Duration> {
        let gap = self.handed.as_ref()?.gap.as_ref()?;
        if gap.is_over || self.freeing || self.left(now).is_zero() {
            return None;
        }
        // A lease of which Redis has not heard went with its holder.
        let is_default = self.is_default && self.unwritten_lease().is_none();
        Some(if is_default { config.watchdog_timeout } else { whole_millis(self.key_left(now)) })
    }
}
