//! One hold that the readers of one thread have together.
//!
//! The readers of a client are one hold in Redis (see [`super::shared`]). If each of them changed the hold state, threads
//! that read one name would pass that state from core to core, and two would read less than one does. So where readers
//! take turns on a thread, the next one with a default lease makes a joint hold, and those that come after it there get a
//! part of that: they lock the mutex of the joint hold alone, and share its validity. For the hold state it is one hold.
//!
//! 1. **A joint hold lets in only the readers that the hold state would let in.** It is open for as long as the share is, and closed
//!    before a writer of this client asks to stand beside the readers. Both are written with the hold state locked: its
//!    mutex is taken before that of a joint hold.
//! 2. **The watchdog renews it while it has a part** that is not about to go. Once the watchdog has found none, a new part
//!    needs the hold state, and the caller registers the handle again.
//! 3. The last part gives the hold back as any other reader does. While the share is open, it stays as the last reader
//!    does.
//! 4. A guard that is extended gets a hold of its own: the lease of the others stays as it is.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::events::Acquires;
use crate::host;
use crate::lease::{Validity, valid_until};

use super::{AcquiredHold, GiveBack, HandleId, MIN_HANDOFF_VALIDITY, Remains};

pub(crate) struct Joint {
    pub(crate) granted: AcquiredHold,
    /// The thread whose readers take a part.
    lane: usize,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    /// The handle of each part: that handle has the guard.
    of: Vec<HandleId>,
    /// The handle of the part that stays for others, and is about to go.
    stays: Option<HandleId>,
    /// Until when a part may be added.
    open_until: Option<Instant>,
    is_closed: bool,
    is_unwatched: bool,
}

impl Parts {
    fn any(&self) -> bool {
        !self.of.is_empty() || self.stays.is_some()
    }

    fn is_open(&self, now: Instant) -> bool {
        !self.is_closed && self.open_until.is_some_and(|until| now < until)
    }
}

impl Joint {
    /// A joint hold without parts yet, of a hold that the hold state has for it.
    pub(super) fn new(granted: AcquiredHold, lane: usize, open_until: Option<Instant>) -> Self {
        let parts = Parts { open_until, ..Parts::default() };
        Self { granted, lane, parts: Mutex::new(parts) }
    }

    /// Whether the readers of the running thread take a part.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        self.is_of(host::lane())
    }

    pub(super) fn is_of(&self, lane: usize) -> bool {
        self.lane == lane
    }

    /// Takes a part for a guard of that handle, with the default lease, if the client need not ask Redis for that. `then`
    /// runs in the same step.
    pub(crate) fn take_part(
        self: &Arc<Self>,
        handle: HandleId,
        now: Instant,
        then: impl FnOnce(),
    ) -> Option<Part> {
        let mut parts = self.parts.lock();
        let until = self.granted.validity.check(now)?;
        let requested = self.granted.longest_lease();
        // As for each reader that joins those that are renewed.
        let is_renewed_in_time = valid_until(now, requested) <= until + requested / 3;
        if !parts.is_open(now)
            || parts.is_unwatched
            || now + MIN_HANDOFF_VALIDITY > until
            || !is_renewed_in_time
        {
            return None;
        }
        parts.of.push(handle);
        then();
        drop(parts);
        Some(Part::new(self, handle))
    }

    /// Takes a part with the hold state locked, which lets the guard in until `until`. `None` if it is closed, or if its hold
    /// is lost.
    pub(super) fn take_part_until(
        self: &Arc<Self>,
        handle: HandleId,
        until: Instant,
        now: Instant,
    ) -> Option<Part> {
        let mut parts = self.parts.lock();
        if parts.is_closed || !self.granted.validity.extend(until, now) {
            return None;
        }
        parts.of.push(handle);
        parts.is_unwatched = false;
        Some(Part::new(self, handle))
    }

    /// The share is open until then.
    pub(super) fn set_share(&self, open_until: Option<Instant>) {
        self.parts.lock().open_until = open_until;
    }

    /// No guard takes a part any more.
    pub(super) fn close(&self) {
        self.parts.lock().is_closed = true;
    }

    /// Whether all parts are of that handle.
    pub(super) fn is_all_of(&self, handle: HandleId) -> bool {
        let parts = self.parts.lock();
        parts.of.iter().chain(&parts.stays).all(|one| *one == handle)
    }

    /// How many guards have a part.
    pub(super) fn guards(&self) -> usize {
        let parts = self.parts.lock();
        parts.of.len() + usize::from(parts.stays.is_some())
    }

    /// Whether the joint hold has no part that the watchdog renews it for. If it has none, and the watchdog asks, the
    /// watchdog forgets it (invariant 2).
    pub(super) fn is_idle(&self, watchdog_asks: bool) -> bool {
        let mut parts = self.parts.lock();
        parts.is_unwatched |= watchdog_asks && parts.of.is_empty();
        parts.of.is_empty()
    }
}

/// On which threads readers take turns: only there a joint hold is worth it.
#[derive(Default)]
pub(super) struct Threads(Vec<Thread>);

struct Thread {
    lane: usize,
    /// The handle that came last, of those that have locked the hold state.
    last: HandleId,
    /// How often it may come before it counts as alone.
    credit: u8,
}

impl Threads {
    /// The most threads that are remembered.
    const MAX_THREADS: usize = 64;
    /// How many times in a row one handle may come before its thread no longer counts as one whose readers take turns.
    const CREDIT: u8 = 64;

    /// A reader of that handle comes. Returns whether another one came shortly before it.
    pub(super) fn takes_turns(&mut self, lane: usize, handle: HandleId) -> bool {
        let Some(thread) = self.0.iter_mut().find(|thread| thread.lane == lane) else {
            if self.0.len() == Self::MAX_THREADS {
                self.0.clear();
            }
            self.0.push(Thread { lane, last: handle, credit: 0 });
            return false;
        };
        thread.credit = match thread.last == handle {
            true => thread.credit.saturating_sub(1),
            false => Self::CREDIT,
        };
        thread.last = handle;
        thread.credit > 0
    }
}

/// What one guard has of a joint hold.
pub(crate) struct Part {
    joint: Arc<Joint>,
    handle: HandleId,
    /// A hold of its own, from when on its lease is another one (invariant 4).
    own: OnceLock<Box<AcquiredHold>>,
}

impl Part {
    fn new(joint: &Arc<Joint>, handle: HandleId) -> Self {
        Self { joint: joint.clone(), handle, own: OnceLock::new() }
    }

    pub(crate) fn joint(&self) -> &Arc<Joint> {
        &self.joint
    }

    fn leave(&self, how: GiveBack, now: Instant, leaves_side: impl FnOnce()) -> Remains {
        let Joint { granted, parts, .. } = &*self.joint;
        let mut parts = parts.lock();
        match how {
            GiveBack::AfterStay => parts.stays = None,
            _ => self.remove_from(&mut parts),
        }
        if parts.any() {
            leaves_side();
            return Remains::Readers;
        }
        if how == GiveBack::OrStay && parts.is_open(now) {
            parts.stays = Some(self.handle);
            drop(parts);
            let holds = granted.possession.holds.lock();
            if holds.has_beside(granted.hold) {
                // What its handle asks for from here on waits for the others, and not for this one.
                leaves_side();
            }
            return Remains::StillHeld;
        }
        leaves_side();
        parts.is_closed = true;
        drop(parts);
        granted.leave(GiveBack::Now, now, || {})
    }

    fn remove_from(&self, parts: &mut Parts) {
        // The one that came last is likely to go first.
        if let Some(at) = parts.of.iter().rposition(|one| *one == self.handle) {
            parts.of.swap_remove(at);
        }
    }

    /// Takes a hold of its own from here on, unless it has one, or the joint hold is lost.
    fn leave_for_own(&self, now: Instant, replaces: impl FnOnce(&Arc<Validity>, &Arc<Validity>)) {
        let Joint { granted, parts, .. } = &*self.joint;
        let mut holds = granted.possession.holds.lock();
        let until = granted.validity.check(now).filter(|_| self.own.get().is_none());
        let Some(mut hold) = until.and_then(|until| holds.hold_beside(granted.hold, until)) else {
            return;
        };
        replaces(&granted.validity, &hold.1);
        // Whatever its handle has written since.
        hold.2 = granted.token;
        let own = AcquiredHold::new(granted.possession.clone(), hold, granted.longest_lease());
        let mut parts = parts.lock();
        self.remove_from(&mut parts);
        if !parts.any() {
            parts.is_closed = true;
            holds.give_back(granted.hold);
        }
        self.own.get_or_init(|| Box::new(own));
        drop((parts, holds));
        // Those that await the loss of this guard look at its own validity from here on.
        granted.validity.wake();
    }
}

/// What a guard has: a hold, or a part of a joint one.
pub(crate) enum Held {
    Hold(AcquiredHold),
    Part(Part),
}

impl Held {
    /// Gives the hold back for its guard, unless the guard stays. In the same step `leaves_side` has its handle read no
    /// more.
    pub(crate) fn leave(&self, how: GiveBack, now: Instant, leaves_side: impl FnOnce()) -> Remains {
        match self {
            Self::Part(part) if part.own.get().is_none() => part.leave(how, now, leaves_side),
            _ => (**self).leave(how, now, leaves_side),
        }
    }

    /// Prepares a change of the lease: takes a hold of its own for a guard that has a part of a joint one. In the same
    /// step `replaces` sets the validity of the new hold in place of that of the joint one.
    pub(crate) fn leave_joint(
        &self,
        now: Instant,
        replaces: impl FnOnce(&Arc<Validity>, &Arc<Validity>),
    ) {
        if let Self::Part(part) = self {
            part.leave_for_own(now, replaces);
        }
    }
}

impl Deref for Held {
    type Target = AcquiredHold;

    fn deref(&self) -> &AcquiredHold {
        match self {
            Self::Hold(granted) => granted,
            Self::Part(part) => part.own.get().map_or(&part.joint.granted, |own| &**own),
        }
    }
}

impl Acquires for Held {
    fn is_handed_off(&self) -> bool {
        (**self).is_handed_off()
    }
}

impl From<AcquiredHold> for Held {
    fn from(granted: AcquiredHold) -> Self {
        Self::Hold(granted)
    }
}
