//! What this client has of a lock: its live guards against the count in Redis.
//!
//! A possession is one unbroken time in which this client has a name, under an id that is drawn for it
//! and that no other ever has: nothing that is late can be about another possession. Redis knows the
//! client by that id. Which handle is inside, the client alone knows: to hand the lock off to another
//! handle changes the [`HoldState`] and nothing in Redis. For a moment no handle may be inside, between two of them: the
//! lock is in a [`gap`].
//!
//! A hold state is pure: no I/O, no clock. Invariants:
//!
//! 1. **At most one session of a possession is under way**: a task that talks to Redis for it holds its
//!    [`Permit`]. So the count in Redis moves only between two known numbers.
//! 2. **The undo exists before the request.** `counted` is the highest count that Redis may hold
//!    for this possession. It rises *before* an acquire is sent and falls only on an answer. Whenever
//!    `counted` is above the number of live guards, a release is *pending*, whatever the reason: a
//!    guard given back, a call dropped half-way, an answer that never came.
//! 3. **One handle is inside at a time**, and all live guards are its own.
//! 4. A possession that is lost, or that Redis has released, never comes back.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Loss;
use crate::lease::{Lease, Validity, valid_until};
use crate::protocol::Names;
use crate::stamp::Stamp;
use crate::token::{FencingToken, TokenBlock};

mod acquired_hold;
mod confirms;
mod ending;
mod few;
mod gap;
mod give_back;
mod handoff;
mod id;
mod joint;
mod lose;
mod overview;
mod pending;
mod permit;
mod registry;
mod renewal;
mod retention;
mod returned;
mod shared;
mod streak;
pub(crate) use acquired_hold::AcquiredHold;
use few::Few;
pub(crate) use gap::{Crowd, LeftInGap};
pub(crate) use give_back::{GiveBack, Remains};
pub(crate) use handoff::{Confirm, MIN_HANDOFF_VALIDITY, Recipient, Update};
pub(crate) use id::Id;
pub(crate) use joint::{Held, Joint, Part};
pub(crate) use lose::FoundBy;
pub(crate) use pending::PendingRelease;
pub(crate) use permit::Permit;
pub(crate) use registry::Possessions;
pub(crate) use renewal::Renewal;
pub(crate) use shared::Join;

/// The number of a handle, which no other handle and no possession of the client has.
pub(crate) type HandleId = u64;

/// One possession. Its guards and the background work share it.
pub(crate) struct Possession {
    pub(crate) names: Arc<Names>,
    /// The number in its id, which is the field in the hash.
    number: u64,
    writes: bool,
    /// Where it is registered.
    registry: Arc<Possessions>,
    /// A [`Permit`] is held during a session with Redis (invariant 1).
    permit_is_taken: AtomicBool,
    seldom: OnceLock<Box<Seldom>>,
    /// The task that got the first hold of the handle inside; zero for none, such as what `block_on` runs.
    pub(crate) first_task: AtomicU32,
    pub(crate) holds: Mutex<HoldState>,
}

/// What few possessions need, and without the mutex.
struct Seldom {
    waits: permit::Waits,
    /// For those who borrow it.
    id: Id,
}

impl Possession {
    fn seldom(&self) -> &Seldom {
        self.seldom
            .get_or_init(|| Box::new(Seldom { waits: permit::Waits::default(), id: self.id() }))
    }
}

/// Names one hold of a possession, so that it can never give back another.
pub(crate) type HoldId = u32;

/// A hold that was added, its validity, and the fencing token of the handle, if the lock is fenced.
pub(crate) type NewHold = (HoldId, Arc<Validity>, Option<FencingToken>);

struct Hold {
    number: HoldId,
    lease: Lease,
    validity: Arc<Validity>,
    /// The watchdog does not renew it: its call has yet to go on, or its guard is about to go (invariants 5 and 6 of
    /// [`shared`]).
    unattended: bool,
}

/// What to ask Redis for one more hold: the absolute count to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) count: u32,
    /// What Redis may have held before the request, and until when.
    before: u32,
    kept_until: Option<Instant>,
}

/// What a nested call does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// Ask for one more hold.
    Ask(Ask),
    /// A release is pending, and goes first.
    ReleaseFirst,
    /// The handle is not inside any more.
    Over,
}

/// What few possessions have. It is in a box, so that the others do without its memory.
#[derive(Default)]
struct Rare {
    /// Until when the key stays after the last release.
    retained_until: Option<Instant>,
    /// From when on the watchdog has renewed it, if there is a limit to that.
    max_hold_from: Option<Instant>,
    /// The same, once that limit is reached.
    over: Option<Instant>,
    /// No other handle may have it: Redis has released the lock before, and a server has missed that; or a renewal has
    /// found it gone between the last holder and the next one.
    ends_here: bool,
    /// What a request has found to be the reason why Redis does not have it.
    gone: Option<Loss>,
    /// The client has counted and logged that a valid hold is lost by that.
    reported: bool,
    /// Redis has not confirmed the release, and the lease is over: the client tries no more.
    given_up: bool,
    /// A release was sent, or tried, though no guard has given its hold back: it undoes a request, or takes a lock from
    /// under its guards.
    undoes: bool,
    /// Holds that Redis turned out not to have, and whose guards live on.
    lost: Vec<(HoldId, Arc<Validity>)>,
    /// Holds that were given back, and of which no answer says whether they were there to their ends.
    untold: Vec<Arc<Validity>>,
    /// How many of the holds that were given back, the oldest first, an earlier request was about that was never
    /// answered.
    unanswered: u32,
    /// The readers of the same handle that may be beside this possession, if it is that of a writer.
    readers: Option<Id>,
    /// Until when Redis may keep the lock for a lease that was longer: no request that makes it shorter is confirmed.
    kept_until: Option<Instant>,
    /// How many releases that leave holds, and requests for a lease shorter than the default one, were sent and have
    /// not been answered.
    shortening: u32,
    /// More holds were added than there are numbers.
    numbers_began_again: bool,
    /// How often Redis was asked for a lease that is shorter than before and than a default one: the answer to a renewal
    /// from before says nothing of that.
    shortened: u32,
}

#[derive(Default)]
pub(crate) struct HoldState {
    /// The handle that is inside, or was last (invariant 3).
    inside: HandleId,
    live: Few<Hold>,
    /// The holds that were given back since the last hand-off, and that Redis has not confirmed.
    given_back: Few<Arc<Validity>>,
    /// How many of the holds that were given back, the oldest first, the last request was about.
    asked: u32,
    last_number: HoldId,
    /// The highest hold count that Redis may have for this possession (invariant 2).
    counted: u32,
    /// The lease that Redis was asked for last, in milliseconds, and until when that lasts at least.
    lease: u64,
    until: Option<Stamp>,
    /// The first hold of the handle inside has a default lease, and Redis was asked for no other one.
    is_default: bool,
    /// The fencing token of the handle inside, and those for the next ones.
    token: Option<FencingToken>,
    tokens: TokenBlock,
    /// The possession is lost (invariant 4).
    lost: bool,
    /// A release of everything was never answered: it may be why nothing is left.
    release_unanswered: bool,
    /// A renewal is under way.
    renewing: bool,
    /// What the renewal of the watched leases counts from: when Redis was asked for them, or will be.
    renewal_from: Option<Stamp>,
    /// If all guards are one hold in Redis.
    shared: Option<Box<shared::Shared>>,
    /// The state that few possessions have.
    rare: Option<Box<Rare>>,
    /// What became of it by hand-offs, and what Redis has yet to hear of that.
    handed: Option<Box<handoff::HandOffState>>,
}

impl HoldState {
    /// Makes this the hold state of a new possession, and keeps the memory.
    fn begin_again(&mut self) {
        let (mut live, mut given_back) =
            (std::mem::take(&mut self.live), std::mem::take(&mut self.given_back));
        live.clear();
        given_back.clear();
        *self = Self { live, given_back, ..Self::default() };
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether the possession is lost: an answer that comes later grants nothing.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether any guard is live, valid or not.
    pub(crate) fn has_holds(&self) -> bool {
        !self.live.is_empty()
    }

    /// How many guards are live beside that hold, itself included; zero if it is lost.
    pub(crate) fn live_with(&self, hold: HoldId) -> usize {
        let is_live = self.live.iter().any(|live| live.number == hold);
        let live = self.live.iter().filter(|_| is_live);
        live.map(|live| self.guards_of(live.number)).sum()
    }

    /// Whether a live guard is still valid.
    pub(crate) fn holding(&self, now: Instant) -> bool {
        self.live.iter().any(|hold| hold.validity.check(now).is_some())
    }

    /// Whether that handle holds the lock: its next hold is then a nested one.
    pub(crate) fn holds_for(&self, handle: HandleId, now: Instant) -> bool {
        self.inside == handle && self.holding(now)
    }

    /// Whether Redis may count holds of that handle. There may be guards beside that, which are lost.
    pub(crate) fn is_of(&self, handle: HandleId) -> bool {
        self.inside == handle && self.counted > 0
    }

    /// Until when a live guard is valid.
    pub(crate) fn valid_until(&self, now: Instant) -> Option<Instant> {
        self.live.iter().filter_map(|hold| hold.validity.check(now)).max()
    }

    /// About to ask Redis for the first hold. From here on a release is pending (invariant 2).
    pub(crate) fn ask_first(&mut self, handle: HandleId) -> Ask {
        debug_assert!(self.live.is_empty() && !self.lost, "BUG: a possession that was used before");
        self.inside = handle;
        self.counted = 1;
        Ask { count: 1, before: 0, kept_until: None }
    }

    /// About to ask Redis for a nested hold.
    pub(crate) fn ask_nested(&mut self, handle: HandleId, now: Instant) -> Nesting {
        if self.inside != handle {
            return Nesting::Over;
        }
        // Also of one that is lost: a request that was under way then may have been executed.
        if self.may_have_pending() && self.counts_too_many(now) {
            return Nesting::ReleaseFirst;
        }
        if self.lost || !self.holding(now) {
            return Nesting::Over;
        }
        let (count, before) = (self.live_count() + 1, self.counted);
        self.counted = before.max(self.in_redis(count));
        let kept_until = self.rare.as_ref().and_then(|rare| rare.kept_until);
        Nesting::Ask(Ask { count, before, kept_until })
    }

    /// Redis granted `ask`, with `tokens` if the lock is fenced. Its request was sent at `sent`.
    pub(crate) fn record_grant(
        &mut self,
        ask: Ask,
        lease: Lease,
        requested: Duration,
        tokens: TokenBlock,
        sent: Instant,
    ) -> NewHold {
        self.counted = self.in_redis(ask.count);
        self.note_lease(lease);
        self.look_at_joint_holds(false);
        if ask.count == 1 {
            self.tokens = tokens;
            let drawn = self.tokens.draw();
            self.token = self.token_of_writer().or(drawn);
        }
        if lease == Lease::Watchdog && self.watched().next().is_none() {
            self.set_renewal_from(Some(sent));
        }
        self.is_default |= lease == Lease::Watchdog && ask.count == 1;
        let until = valid_until(sent, requested);
        self.reaches(requested, until);
        self.add(lease, Arc::new(Validity::new(until)))
    }

    fn add(&mut self, lease: Lease, validity: Arc<Validity>) -> NewHold {
        let number = self.new_number();
        self.live.push(Hold { number, lease, validity: validity.clone(), unattended: false });
        (number, validity, self.token)
    }

    /// A number that no guard has. Readers that come and go may keep one possession for months: then the numbers begin again,
    /// and those that are there still have to be passed over.
    fn new_number(&mut self) -> HoldId {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            let number = self.last_number;
            if number == 0 {
                self.rare().numbers_began_again = true;
                continue;
            }
            let again = self.rare.as_ref().filter(|rare| rare.numbers_began_again);
            let is_taken = again.is_some_and(|rare| {
                self.live.iter().any(|live| live.number == number)
                    || rare.lost.iter().any(|(lost, _)| *lost == number)
            });
            if !is_taken {
                return number;
            }
        }
    }

    /// Redis has confirmed that it keeps the key for that long, or longer.
    fn reaches(&mut self, lease: Duration, until: Instant) {
        self.lease = self.lease.max(lease.as_millis() as u64);
        self.set_until(self.until().max(Some(until)));
    }

    /// Redis is asked to keep the key no longer than that from now on. `below_default`: a renewal asks for more.
    fn shortens(&mut self, lease: Duration, below_default: bool, now: Instant) {
        let millis = lease.as_millis() as u64;
        if millis < self.lease {
            let kept_until = self.kept_until();
            let rare = self.rare();
            rare.shortened = rare.shortened.wrapping_add(below_default.into());
            // Whether Redis hears of it is not known yet.
            rare.kept_until = kept_until;
        }
        self.lease = millis;
        self.set_until(self.until().min(Some(valid_until(now, lease))));
    }

    /// The request was not executed, so Redis holds what it held before.
    pub(crate) fn not_executed(&mut self, ask: Ask) {
        self.counted = ask.before;
        self.rare.iter_mut().for_each(|rare| rare.kept_until = ask.kept_until);
    }

    /// Redis refused the first hold: it has nothing of this possession.
    pub(crate) fn record_refusal(&mut self) {
        self.counted = 0;
    }

    /// False if no release is pending, whatever the time.
    pub(crate) fn may_have_pending(&self) -> bool {
        self.counted > 0
    }

    /// Whether there was ever a hold.
    pub(crate) fn had_a_hold(&self) -> bool {
        self.last_number > 0
    }

    fn live_count(&self) -> u32 {
        self.in_redis(u32::try_from(self.live.len()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests;
