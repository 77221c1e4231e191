//! The readers of one client, which have one hold in Redis: pure state.
//!
//! All calls that read use one handle, so all their guards are in one possession. Redis counts one hold for
//! them, which the first of them asks for and the last one releases.
//!
//! 1. **A guard that joins is valid no longer than Redis has confirmed**, and no longer than its own lease.
//!    Where that is too short, it asks Redis.
//! 2. **The share is open for a short time** after Redis has said that no other client waits to write. After that a
//!    new reader asks Redis whether that is still so: no stream of readers keeps a writer out.
//! 3. Redis may keep the lock for the longest lease of these guards. When the guard that needed it is given
//!    back, a release is pending that makes it shorter. Once Redis has executed that beside a writer, one is
//!    pending for the writer: no other client looks at the leases of these guards then.
//! 4. **Beside a writer no other handle reads.** A handle that reads and writes has a guard here, and Redis lets
//!    all readers of the client in as one. So from before the request that brings the two together, until Redis
//!    has released the writer, only a reader of that handle joins.
//! 5. **The last reader stays for those that are about to come**, while the share is open: its `unlock` goes to the end
//!    of the tasks that are ready to run. So readers that read for a short time, again and again, are one hold in Redis and
//!    not one after the other. Meanwhile its lease is not renewed, as below. The last one that has a part of a joint
//!    hold stays in the same way (see [`super::joint`]).
//! 6. **A reader can be let in before its call goes on** (see [`crate::acquire`]). Until then the watchdog does not
//!    renew its lease, as that of a hand-off: a call that is never polled again does not keep a writer out for ever.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::host;
use crate::lease::{Lease, Validity, valid_until};
use crate::token::FencingToken;

use super::handoff::MIN_HANDOFF_VALIDITY;
use super::{
    AcquiredHold, HandleId, Held, Hold, HoldId, HoldState, Id, Joint, NewHold, Possession,
    joint::Threads,
};

#[derive(Default)]
pub(super) struct Shared {
    /// Until when a reader may join that came last (invariant 2).
    open_until: Option<Instant>,
    /// Whether not all leases are the default one.
    uneven: bool,
    /// The writer beside these readers, or the last one that was (invariant 4). Its mutex is taken under this one.
    writer: Option<Arc<Possession>>,
    /// The joint holds among these holds: each has the guards of several readers.
    joint: Vec<(HoldId, Weak<Joint>)>,
    /// Which threads have readers that take turns: there the next reader begins a joint hold.
    pub(super) threads: Threads,
}

impl Shared {
    /// The joint holds, with the holds that they are here.
    fn joint(&self) -> impl Iterator<Item = (HoldId, Arc<Joint>)> {
        self.joint.iter().filter_map(|(hold, joint)| Some((*hold, joint.upgrade()?)))
    }

    /// Whether a reader may join that comes now.
    fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    /// The writer that Redis may have beside these readers.
    fn writer(&self) -> Option<&Arc<Possession>> {
        self.writer.as_ref().filter(|writer| writer.holds.lock().may_have_pending())
    }
}

/// A reader that wants to join those that its client has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Join {
    pub(crate) handle: HandleId,
    pub(crate) lease: Lease,
    /// The lease in whole milliseconds.
    pub(crate) requested: Duration,
    /// The reader may join whether or not the share is open.
    pub(crate) passes: bool,
    /// The reader's handle reads or writes already.
    pub(crate) recurs: bool,
    /// The number of the reader's handle where that handle writes, and whether it does.
    pub(crate) writes_as: HandleId,
    pub(crate) writes: bool,
    /// There is a limit to how long the watchdog renews a lease.
    pub(crate) has_limit: bool,
    /// The reader still waits in the queue, and is let in from there.
    pub(crate) is_let_in: bool,
}

impl HoldState {
    /// Whether all guards are one hold in Redis.
    pub(crate) fn set_shared(&mut self, shared: bool) {
        self.shared = shared.then(Box::default);
    }

    /// How many holds Redis has for that many guards.
    pub(super) fn in_redis(&self, guards: u32) -> u32 {
        if self.shared.is_some() { guards.min(1) } else { guards }
    }

    /// A guard has that lease, or asks for it.
    pub(super) fn note_lease(&mut self, lease: Lease) {
        if let Some(shared) = &mut self.shared {
            shared.uneven |= lease != Lease::Watchdog;
        }
    }

    /// A holder is about to ask Redis for that lease: Redis may keep the lock for it, answered or not. So the next
    /// holder tells Redis of its own; of readers, a release is pending that makes the lease shorter (invariant 3).
    pub(crate) fn asks_for_lease(&mut self, lease: Lease, requested: Duration, now: Instant) {
        self.note_lease(lease);
        self.is_default &= lease == Lease::Watchdog;
        if self.shared.as_ref().is_some_and(|shared| shared.uneven) {
            self.may_be_kept_until(valid_until(now, requested));
        }
    }

    /// Redis has said whether other clients wait to write: none does if the share is `open_until` then.
    pub(crate) fn set_share(&mut self, open_until: Option<Instant>) {
        if let Some(shared) = &mut self.shared {
            shared.open_until = open_until;
            shared.joint().for_each(|(_, joint)| joint.set_share(open_until));
        }
    }

    /// Redis is asked for a reader beside that writer, or for that writer beside these readers.
    pub(crate) fn stand_beside(&mut self, writer: &Arc<Possession>) {
        if let Some(shared) = &mut self.shared {
            shared.writer = Some(writer.clone());
        }
    }

    /// Redis may keep the lock until then, for a request that it may never answer. Returns what was known before.
    pub(crate) fn may_be_kept_until(&mut self, until: Instant) -> Option<Instant> {
        let longest = self.kept_until().max(Some(until));
        std::mem::replace(&mut self.rare().kept_until, longest)
    }

    /// That request was not executed.
    pub(crate) fn is_kept_as(&mut self, before: Option<Instant>) {
        self.rare().kept_until = before;
    }

    /// The fencing token of the writer beside which these readers are let in.
    pub(super) fn token_of_writer(&self) -> Option<FencingToken> {
        self.shared.as_ref()?.writer.as_ref()?.holds.lock().token
    }

    /// A writer is beside these readers, with that token: those that come from now on have it, too.
    pub(crate) fn follow(&mut self, writer: Option<FencingToken>) {
        self.token = writer.or(self.token);
    }

    /// The writer that Redis may have beside these readers, if it is that of this handle.
    pub(crate) fn writer_of(&self, handle: HandleId) -> Option<Arc<Possession>> {
        let writer = self.shared.as_ref()?.writer()?;
        writer.holds.lock().is_of(handle).then(|| writer.clone())
    }

    /// Whether there are readers, and all of them are of that handle: `own` says it of a hold that is not a joint one.
    pub(crate) fn are_all(
        &self,
        handle: HandleId,
        own: impl Fn(&Arc<Validity>) -> bool,
        now: Instant,
    ) -> bool {
        let is_own = |hold: &Hold| {
            self.joint_hold(hold.number)
                .map_or_else(|| own(&hold.validity), |joint| joint.is_all_of(handle))
        };
        let mut valid = self.live.iter().filter(|hold| hold.validity.check(now).is_some());
        !self.lost && self.holding(now) && valid.all(is_own)
    }

    fn joint_hold(&self, hold: HoldId) -> Option<Arc<Joint>> {
        let (_, joint) = self.shared.as_ref()?.joint.iter().find(|(number, _)| *number == hold)?;
        joint.upgrade()
    }

    /// How many guards have that hold.
    pub(super) fn guards_of(&self, hold: HoldId) -> usize {
        self.joint_hold(hold).map_or(1, |joint| joint.guards())
    }

    /// Whether there are guards whose hold is another one.
    pub(super) fn has_beside(&self, hold: HoldId) -> bool {
        self.live.iter().any(|live| live.number != hold)
    }

    /// Whether the call has yet to go on that was let in with that hold, or the guard is about to go that has it.
    pub(super) fn is_unattended(&self, hold: &Hold) -> bool {
        hold.unattended && self.joint_hold(hold.number).is_none_or(|joint| joint.is_idle(false))
    }

    /// Whether no guard works under that hold: its call has yet to go on, or its guard is about to go.
    pub(super) fn has_no_guard(&self, hold: &Hold) -> bool {
        self.unclaimed() == Some(hold.number) || self.is_unattended(hold)
    }

    /// Guards may have come or gone whose hold is a joint one: without one, the watchdog does not renew it.
    pub(super) fn look_at_joint_holds(&mut self, watchdog_asks: bool) {
        let Self { shared: Some(shared), live, .. } = self else { return };
        for (number, joint) in shared.joint() {
            if let Some(hold) = live.iter_mut().find(|hold| hold.number == number) {
                hold.unattended = joint.is_idle(watchdog_asks);
            }
        }
    }

    /// No guard has that hold any more, joint or not.
    pub(super) fn forget_joint_hold(&mut self, hold: HoldId) {
        self.shared
            .iter_mut()
            .for_each(|shared| shared.joint.retain(|(number, _)| *number != hold));
    }

    /// Adds a hold with the default lease beside that one, which is a live one. Redis has one for both.
    pub(super) fn hold_beside(&mut self, hold: HoldId, until: Instant) -> Option<NewHold> {
        let is_live = self.live.iter().any(|live| live.number == hold);
        is_live.then(|| self.add(Lease::Watchdog, Arc::new(Validity::new(until))))
    }

    /// From here on no reader comes in but by this hold state.
    pub(crate) fn close_joint_holds(&self) {
        self.shared.iter().flat_map(|shared| shared.joint()).for_each(|(_, joint)| joint.close());
    }

    /// Whether that handle writes here. If it does, these readers of it may be beside this writer from here on.
    pub(crate) fn takes_readers(&mut self, handle: HandleId, readers: Id) -> bool {
        let takes = self.is_of(handle) && !self.live.is_empty();
        if takes {
            self.set_readers(readers);
        }
        takes
    }

    /// The readers of the same handle, with that id, may be beside this writer from here on. The client does not hand
    /// this writer off any more.
    pub(crate) fn set_readers(&mut self, readers: Id) {
        self.rare().readers = Some(readers);
    }

    /// The readers that may be beside this writer.
    pub(crate) fn readers(&self) -> Option<Id> {
        self.rare.as_ref()?.readers
    }

    /// The writer beside these readers, and until when Redis keeps the lock for them.
    pub(crate) fn keep_beside_writer(&self) -> Option<(Arc<Possession>, Instant)> {
        self.shared.as_ref()?.writer().cloned().zip(self.kept_until())
    }

    /// Until when Redis may keep the lock.
    pub(super) fn kept_until(&self) -> Option<Instant> {
        self.rare.as_ref().and_then(|rare| rare.kept_until).max(self.until())
    }

    /// The readers beside this writer need less from now on, and Redis may keep the lock until then. Returns whether a
    /// release is pending because of that (invariant 3).
    pub(crate) fn outlasts_readers(
        &mut self,
        until: Instant,
        watchdog_timeout: Duration,
        now: Instant,
    ) -> bool {
        self.set_until(self.until().max(Some(until)));
        self.counted > 0 && self.pending(now, watchdog_timeout).is_some()
    }

    /// Whether no other handle takes this possession over: these are readers, or a reader may be beside it.
    pub(super) fn is_of_one_handle(&self) -> bool {
        self.shared.is_some() || self.readers().is_some()
    }

    /// Whether these read, and with equal leases.
    pub(super) fn is_even(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| !shared.uneven)
    }

    /// Whether readers are left after one was given back, so that Redis has nothing to hear.
    pub(super) fn is_shared_still(&self, now: Instant) -> bool {
        self.is_even() && !self.lost && self.holding(now)
    }

    /// The last reader, if another handle may join it.
    pub(super) fn last_of_open_share(&mut self, now: Instant) -> Option<&mut Hold> {
        let shared = self.shared.as_ref().filter(|shared| shared.is_open(now))?;
        let joins = !self.lost && self.live.len() == 1 && shared.writer().is_none();
        self.live.first_mut().filter(|_| joins)
    }

    /// Whether Redis keeps the lock for longer than the guards need that are left (invariant 3).
    pub(super) fn keeps_too_long(&self, promised: Option<Duration>, now: Instant) -> bool {
        let uneven = self.shared.as_ref().map_or(self.readers().is_some(), |shared| shared.uneven);
        let keeps = |lease: Duration| self.kept_until().is_some_and(|until| until > now + lease);
        uneven && self.counted > 0 && promised.is_some_and(keeps)
    }

    /// Lets a reader join with a hold of its own, if that needs no request. Says, too, whether the caller has to see to it
    /// that the watchdog renews its lease: that of another reader is renewed as a rule, and both are one in Redis.
    pub(crate) fn join(&mut self, join: Join, now: Instant) -> Option<(NewHold, bool)> {
        let (until, watch) = self.lets_in(join, now)?;
        let added = self.add(join.lease, Arc::new(Validity::new(until)));
        self.live.iter_mut().rev().take(1).for_each(|hold| hold.unattended = join.is_let_in);
        Some((added, watch))
    }

    /// Lets a reader join with a part of the joint hold of its thread, where it can have that: with the default lease,
    /// while the share is open, and beside no writer. Else it joins as [`join`](Self::join) has it. A reader that comes
    /// to its thread again and again with no other in between has a hold of its own: it would be the last one of a
    /// joint hold each time.
    pub(crate) fn join_on_thread(
        &mut self,
        possession: &Arc<Possession>,
        join: Join,
        now: Instant,
    ) -> Option<(Held, bool)> {
        let lane = host::lane();
        let mut can_have_part = |shared: &mut Shared| {
            let takes_turns = shared.threads.takes_turns(lane, join.writes_as);
            let has_joint = shared.joint().any(|(_, joint)| joint.is_of(lane));
            (takes_turns || has_joint) && shared.is_open(now) && shared.writer().is_none()
        };
        let takes_part = self.shared.as_deref_mut().is_some_and(&mut can_have_part)
            && join.lease == Lease::Watchdog
            && !join.has_limit;
        if !takes_part {
            let (hold, watch) = self.join(join, now)?;
            let own = AcquiredHold::new(possession.clone(), hold, join.requested);
            return Some((own.into(), watch));
        }
        let (until, watch) = self.lets_in(join, now)?;
        let take_part = |joint: &Arc<Joint>| joint.take_part_until(join.writes_as, until, now);
        let of_this_thread = |(_, joint): &(_, Arc<Joint>)| joint.is_of(lane);
        let shared = self.shared.as_deref()?;
        let found = shared.joint().filter(of_this_thread).find_map(|(_, joint)| take_part(&joint));
        let part = match found {
            Some(part) => part,
            None => {
                let hold = self.add(join.lease, Arc::new(Validity::new(until)));
                let number = hold.0;
                let granted = AcquiredHold::new(possession.clone(), hold, join.requested);
                granted.set_handed_off();
                let shared = self.shared.as_deref_mut()?;
                let joint = Arc::new(Joint::new(granted, lane, shared.open_until));
                shared.joint.push((number, Arc::downgrade(&joint)));
                take_part(&joint)?
            }
        };
        let hold = part.joint().granted.hold;
        let live = self.live.iter_mut().find(|live| live.number == hold);
        live.into_iter().for_each(|live| live.unattended = false);
        Some((Held::Part(part), watch))
    }

    /// Lets a reader in until then, if that needs no request.
    fn lets_in(&mut self, join: Join, now: Instant) -> Option<(Instant, bool)> {
        let Join { handle, lease, requested, passes, recurs, writes_as, writes, has_limit, .. } =
            join;
        let shared = self.shared.as_ref()?;
        let is_beside = match shared.writer() {
            Some(writer) => writer.holds.lock().is_of(writes_as),
            // Redis lets no reader of others in beside a writer: these are lost, or will be.
            None => !writes,
        };
        if !is_beside {
            return None;
        }
        let is_open = shared.is_open(now);
        let lives = self.counted > 0 && !self.lost && !self.release_unanswered;
        if !(passes || is_open) || !lives || !self.holds_for(handle, now) {
            return None;
        }
        let until = self.until().filter(|until| now + MIN_HANDOFF_VALIDITY <= *until)?;
        let own = valid_until(now, requested);
        self.look_at_joint_holds(false);
        let watched = self.watched().any(|hold| hold.validity.check(now).is_some());
        if lease == Lease::Watchdog {
            if !watched && own <= until {
                // Its lease is in force, and is renewed a period from now.
                self.set_renewal_from(Some(now));
            } else if !watched && (self.renewal_from.is_none() || own > until + requested / 3) {
                // Else the next renewal is in time for it, as for one that joins those that are renewed.
                return None;
            }
            if has_limit {
                // For a handle it counts from its first hold.
                let before = self.rare().max_hold_from.filter(|_| recurs);
                self.rare().max_hold_from = before.or(Some(now));
            }
        } else if own > until {
            return None;
        }
        self.note_lease(lease);
        Some((own.min(until), lease == Lease::Watchdog && (!watched || has_limit)))
    }
}
