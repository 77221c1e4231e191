//! What one owner holds: its live guards against the count in Redis.
//!
//! An owner is a handle, `<uuid of the client>:<number>`. Its [`HoldState`] is pure state: no I/O,
//! no clock. Invariants:
//!
//! 1. **At most one session of an owner is under way**: a task that talks to Redis for it holds its
//!    [`Permit`]. So the count in Redis moves only between two known numbers.
//! 2. **The undo exists before the request.** `counted` is the highest count that Redis may hold
//!    for this owner. It rises *before* an acquire is sent and falls only on an answer. Whenever
//!    `counted` is above the number of live guards, a release is *pending*, whatever the reason: a
//!    guard given back, a call dropped half-way, an answer that never came.
//! 3. **A generation is one unbroken possession**, from a first hold to the last one given back or
//!    to loss. An answer about one generation says nothing about another.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub(crate) use crate::kind::Kind;
use crate::lease::{Lease, Validity, valid_until, whole_millis};
use crate::protocol::Names;
use crate::token::FencingToken;

mod handoff;
mod lose;
mod owners;
mod permit;
mod renewal;
mod retention;
mod tasks;
pub(crate) use handoff::{HandoffStart, LEAST, Streak};
pub(crate) use lose::FoundBy;
pub(crate) use owners::Owners;
pub(crate) use permit::Permit;
pub(crate) use renewal::Renewal;

/// A lock's name as one owner uses it. Shared by its handle, its guards and the background work.
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) names: Names,
    /// The field in the hash.
    pub(crate) id: Box<str>,
    /// Where it is registered.
    owners: Option<Arc<Owners>>,
    /// A [`Permit`] is held during a session with Redis (invariant 1).
    permit: Semaphore,
    /// Created for the first call that waits.
    wait_mutex: OnceLock<Box<tokio::sync::Mutex<()>>>,
    /// The task that got the first hold; zero for none, such as what `block_on` runs.
    first_task: AtomicU32,
    /// Whether the log has a warning about it: see [`tasks`].
    sharing_reported: AtomicBool,
    own_wait_reported: AtomicBool,
    pub(crate) holds: Mutex<HoldState>,
}

impl Owner {
    pub(crate) fn new(kind: Kind, names: Names, id: String) -> Self {
        Self {
            kind,
            names,
            id: id.into(),
            owners: None,
            permit: Semaphore::new(1),
            wait_mutex: OnceLock::new(),
            first_task: AtomicU32::new(0),
            sharing_reported: AtomicBool::new(false),
            own_wait_reported: AtomicBool::new(false),
            holds: Mutex::default(),
        }
    }

    /// Held by the one call of this owner that waits in the wait queue. Other calls of this owner
    /// wait for it here: once it has the lock they nest.
    pub(crate) fn wait_mutex(&self) -> &tokio::sync::Mutex<()> {
        self.wait_mutex.get_or_init(Box::default)
    }
}

/// A granted hold: what a guard is made of.
pub(crate) struct Granted {
    pub(crate) hold: HoldId,
    pub(crate) validity: Arc<Validity>,
    /// The longest lease that the client has asked for, in milliseconds.
    lease: AtomicU64,
    /// If the lock is fenced.
    pub(crate) token: Option<FencingToken>,
}

impl Granted {
    pub(crate) fn new(
        hold: HoldId,
        validity: Arc<Validity>,
        lease: Duration,
        token: Option<FencingToken>,
    ) -> Self {
        Self { hold, validity, lease: AtomicU64::new(lease.as_millis() as u64), token }
    }

    /// The client is about to ask for this lease, too.
    pub(crate) fn asks_for(&self, lease: Duration) {
        self.lease.fetch_max(lease.as_millis() as u64, Ordering::Relaxed);
    }

    /// For how long Redis may keep the lock from now on, whatever it has answered.
    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_millis(self.lease.load(Ordering::Relaxed))
    }
}

/// Names one hold of one generation, so that it can never give back another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HoldId {
    generation: u64,
    number: u64,
}

struct Hold {
    number: u64,
    lease: Lease,
    validity: Arc<Validity>,
}

/// What to ask Redis for one more hold: the absolute count to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) count: u32,
    /// What Redis may have held before the request.
    before: u32,
}

/// A release that Redis has not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingRelease {
    pub(crate) count: u32,
    /// The longest lease that is promised to a remaining hold, or for how long the key stays.
    pub(crate) lease: Duration,
    /// No hold remains, and the key stays all the same.
    pub(crate) retains: bool,
    /// How many of the holds in `given_back` it is about.
    given_back: usize,
}

/// What few generations have.
#[derive(Default)]
struct Rare {
    generation: u64,
    /// Until when the key stays after the last release.
    held_until: Option<Instant>,
    /// From when on the watchdog has renewed it, if there is a limit to that.
    renewed_from: Option<Instant>,
    /// Redis has released the lock before, and a server has missed that.
    release_missed: bool,
}

#[derive(Default)]
pub(crate) struct HoldState {
    generation: u64,
    live: Vec<Hold>,
    /// Given back, and Redis has not confirmed it.
    given_back: Vec<Arc<Validity>>,
    next_number: u64,
    /// The highest hold count that Redis may have for this owner (invariant 2).
    counted: u32,
    /// The fencing token of this generation, if the lock is fenced.
    token: Option<FencingToken>,
    /// A release of everything was never answered: it may be why nothing is left.
    freeing: bool,
    /// Whether the watchdog has this owner on its list.
    watched: bool,
    /// Whether [`Owners`] has it.
    registered: bool,
    /// When the watched leases were last known to be in force: what their renewal counts from.
    renewed_at: Option<Instant>,
    /// What few owners have.
    rare: Option<Box<Rare>>,
    /// How the first hold of this generation came, if by a hand-off.
    origin: Option<Box<handoff::HandoffOrigin>>,
}

impl HoldState {
    /// What this generation has of these.
    fn rare(&mut self) -> &mut Rare {
        let rare = self.rare.get_or_insert_default();
        if rare.generation != self.generation {
            **rare = Rare { generation: self.generation, ..Rare::default() };
        }
        rare
    }

    /// Whether any guard is live, valid or not.
    pub(crate) fn has_holds(&self) -> bool {
        !self.live.is_empty()
    }

    /// How many guards are live in the generation of that hold.
    pub(crate) fn live_with(&self, hold: HoldId) -> usize {
        if hold.generation == self.generation { self.live.len() } else { 0 }
    }

    /// Whether a live guard is still valid: the next hold is then a nested one.
    pub(crate) fn holding(&self, now: Instant) -> bool {
        self.valid_until(now).is_some()
    }

    /// Until when a live guard is valid.
    pub(crate) fn valid_until(&self, now: Instant) -> Option<Instant> {
        self.live.iter().filter_map(|hold| hold.validity.check(now)).max()
    }

    /// [Asks](Self::ask), unless a release is pending.
    pub(crate) fn ask_unless_pending(&mut self, now: Instant) -> Option<Ask> {
        let pending = self.may_have_pending() && self.pending(now, Duration::ZERO).is_some();
        (!pending).then(|| self.ask(now))
    }

    /// About to ask Redis for one more hold. From here on a release is pending (invariant 2).
    pub(crate) fn ask(&mut self, now: Instant) -> Ask {
        let count = if self.holding(now) {
            u32::try_from(self.live.len() + 1).unwrap_or(u32::MAX)
        } else {
            self.live.clear();
            self.generation += 1;
            1
        };
        let before = self.counted;
        self.counted = before.max(count);
        Ask { count, before }
    }

    /// Redis granted `ask`, whose request was sent at `sent`. The caller then checks whether the
    /// watchdog needs this owner ([`start_watching`](Self::start_watching)).
    pub(crate) fn granted(
        &mut self,
        ask: Ask,
        lease: Lease,
        validity: Arc<Validity>,
        sent: Instant,
    ) -> HoldId {
        if ask.count == 1 {
            self.origin = None;
        }
        self.add(ask, lease, validity, sent)
    }

    fn add(&mut self, ask: Ask, lease: Lease, validity: Arc<Validity>, sent: Instant) -> HoldId {
        self.counted = ask.count;
        if ask.count == 1 {
            // The new hold has taken over what an earlier generation left behind.
            self.given_back.clear();
        }
        self.next_number += 1;
        let number = self.next_number;
        let watching = self.live.iter().any(|hold| hold.lease == Lease::Watchdog);
        if lease == Lease::Watchdog && !watching {
            self.renewed_at = Some(sent);
        }
        if self.live.is_empty() {
            // As a rule it is the only one.
            self.live.reserve_exact(1);
        }
        self.live.push(Hold { number, lease, validity });
        HoldId { generation: self.generation, number }
    }

    /// Keeps the fencing token that came with a first hold, and returns that of this generation.
    pub(crate) fn fenced(&mut self, first: Option<FencingToken>) -> Option<FencingToken> {
        self.token = first.or(self.token);
        self.token
    }

    /// The request was not executed, so Redis holds what it held before.
    pub(crate) fn not_executed(&mut self, ask: Ask) {
        self.counted = ask.before;
    }

    /// A guard gives its hold back. From here on a release is pending, unless its generation is
    /// over: then this returns false, and the hold is lost, even if its validity is not marked yet.
    pub(crate) fn give_back(&mut self, hold: HoldId) -> bool {
        if hold.generation != self.generation {
            return false;
        }
        if let Some(at) = self.live.iter().position(|live| live.number == hold.number) {
            let Hold { validity, .. } = self.live.swap_remove(at);
            if self.counted > 0 {
                self.given_back.push(validity);
            }
        }
        true
    }

    /// False if no release is pending, whatever the time.
    pub(crate) fn may_have_pending(&self) -> bool {
        self.counted > 0
    }

    /// The pending release, if there is one.
    pub(crate) fn pending(
        &self,
        now: Instant,
        watchdog_timeout: Duration,
    ) -> Option<PendingRelease> {
        let mut lease = None;
        for hold in &self.live {
            let Some(until) = hold.validity.check(now) else {
                continue;
            };
            let promised = match hold.lease {
                // Its deadline may be later, if it was extended: with the margin for that time.
                Lease::Watchdog => {
                    let left = until - now;
                    let extended = left + left / 99 + Duration::from_millis(1);
                    watchdog_timeout.max(whole_millis(extended))
                }
                // Without the margin that its deadline has: Redis has to keep the requested lease,
                // and every guard's deadline stays ahead of the key's.
                Lease::Fixed(requested) => {
                    let margin = requested - (valid_until(now, requested) - now);
                    whole_millis(until - now + margin)
                }
            };
            lease = lease.max(Some(promised));
        }
        // Guards that are all lost keep nothing in Redis.
        let count = match lease {
            Some(_) => u32::try_from(self.live.len()).unwrap_or(u32::MAX),
            None => 0,
        };
        let retention = if lease.is_none() { self.retention(now) } else { None };
        let lease = lease.or(retention).unwrap_or(Duration::from_millis(1));
        let (retains, given_back) = (retention.is_some(), self.given_back.len());
        (self.counted > count).then_some(PendingRelease { count, lease, retains, given_back })
    }

    /// The pending release is about to be sent. Returns whether an earlier request may already have
    /// freed the lock.
    pub(crate) fn release_sent(&mut self, pending: PendingRelease) -> bool {
        let before = self.freeing;
        self.freeing |= pending.count == 0;
        before && pending.count == 0
    }

    /// The request was not executed, so it cannot have freed anything.
    pub(crate) fn release_not_executed(&mut self) {
        self.freeing = false;
    }

    /// Redis has executed the pending release.
    pub(crate) fn release_confirmed(&mut self, pending: PendingRelease) {
        self.counted = self.counted.min(pending.count);
        self.freeing = false;
        self.given_back.drain(..pending.given_back.min(self.given_back.len()));
    }
}

#[cfg(test)]
mod tests;
