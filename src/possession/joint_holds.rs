//! What the hold state knows of the joint holds of its readers: see [`super::joint`].

use std::sync::Arc;
use std::time::Instant;

use crate::lease::{Lease, Validity};

use super::joint::{Held, Joint};
use super::shared::{Join, Shared};
use super::{AcquiredHold, Hold, HoldId, HoldState, NewHold, Possession};

impl HoldState {
    pub(super) fn joint_hold(&self, hold: HoldId) -> Option<&Arc<Joint>> {
        let (_, joint) = self.shared.as_ref()?.joint().find(|(number, _)| *number == hold)?;
        Some(joint)
    }

    /// How many guards have that hold.
    pub(super) fn guards_of(&self, hold: HoldId) -> usize {
        self.joint_hold(hold).map_or(1, |joint| joint.guards())
    }

    /// The holds that guards have: a joint one may have none.
    pub(super) fn guarded(&self) -> impl Iterator<Item = &Hold> {
        self.live.iter().filter(|hold| self.guards_of(hold.number) > 0)
    }

    /// Whether there are guards whose hold is another one.
    pub(super) fn has_guards_beside(&self, hold: HoldId) -> bool {
        self.guarded().any(|live| live.number != hold)
    }

    /// Whether that joint hold was dropped, and not by a loss.
    pub(super) fn has_dropped(&self, hold: HoldId) -> bool {
        !self.over && self.live.iter().all(|live| live.number != hold)
    }

    /// Joint holds that no guard has a part of go with the last guard.
    pub(super) fn drop_empty_joint_holds(&mut self) {
        let Self { shared: Some(shared), live, rare, .. } = self else { return };
        let (dropped, kept): (Vec<_>, _) = std::mem::take(&mut shared.joint)
            .into_iter()
            .partition(|(_, joint)| joint.close_if_empty());
        shared.joint = kept;
        let is_kept = |hold: HoldId| dropped.iter().all(|(number, _)| *number != hold);
        live.retain(|hold| is_kept(hold.number));
        rare.iter_mut().for_each(|rare| rare.lost.retain(|(number, _)| is_kept(*number)));
    }

    /// Whether the call has yet to go on that was let in with that hold, or the guard is about to go that has it.
    pub(super) fn is_unattended(&self, hold: &Hold) -> bool {
        hold.unclaimed && self.joint_hold(hold.number).is_none_or(|joint| joint.is_idle(false))
    }

    /// Guards may have come or gone whose hold is a joint one: without one, the watchdog does not renew it.
    pub(super) fn look_at_joint_holds(&mut self, watchdog_asks: bool) {
        let Self { shared: Some(shared), live, .. } = self else { return };
        for (number, joint) in shared.joint() {
            if let Some(hold) = live.iter_mut().find(|hold| hold.number == number) {
                hold.unclaimed = joint.is_idle(watchdog_asks);
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
    pub(crate) fn close_joint_holds(&mut self) {
        self.shared.iter().flat_map(|shared| shared.joint()).for_each(|(_, joint)| joint.close());
        self.drop_empty_joint_holds();
    }

    /// Lets a reader join as [`HoldState::join`] does, with a part of the joint hold of its thread, where it can have that: with the default lease, while the
    /// share is open, and beside no writer.
    pub(crate) fn join_on_thread(
        &mut self,
        possession: &Arc<Possession>,
        join: Join,
        now: Instant,
    ) -> Option<(Held, bool)> {
        let can_have_part = |shared: &Shared| shared.is_open(now) && shared.writer().is_none();
        let takes_part = self.shared.as_deref().is_some_and(can_have_part)
            && join.lease == Lease::Watchdog
            && !join.has_limit;
        if !takes_part {
            let (hold, watch) = self.join(join, now)?;
            let own = AcquiredHold::new(possession.clone(), hold, join.requested);
            return Some((own.into(), watch));
        }
        let (until, watch) = self.lets_in(join, now)?;
        let take_part = |joint: &Arc<Joint>| joint.take_part_until(join.writes_as, until, now);
        let of_this_thread = |(_, joint): &(_, &Arc<Joint>)| joint.is_of_this_thread();
        let shared = self.shared.as_deref()?;
        let found = shared.joint().filter(of_this_thread).find_map(|(_, joint)| take_part(joint));
        let part = match found {
            Some(part) => part,
            None => {
                let hold = self.add(join.lease, Arc::new(Validity::new(until)));
                let number = hold.0;
                let granted = AcquiredHold::new(possession.clone(), hold, join.requested);
                granted.set_handed_off();
                let shared = self.shared.as_deref_mut()?;
                let joint = Arc::new(Joint::new(granted, shared.open_until));
                shared.joint.push((number, joint.clone()));
                take_part(&joint)?
            }
        };
        let hold = part.joint().granted.hold;
        let live = self.live.iter_mut().find(|live| live.number == hold);
        live.into_iter().for_each(|live| live.unclaimed = false);
        Some((Held::Part(part), watch))
    }
}
