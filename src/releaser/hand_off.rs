//! What a release does when it hands the lock off to the next waiter of the same client.
//!
//! 1. **The client updates Redis whatever becomes of the caller.** The caller asks the client's
//!    thread for that in the same step in which it hands the lock off: before an await, and not by a
//!    drop. So it needs no worker of the caller's runtime, which the new holder may block, and no
//!    poll of the caller's future, which may never come.

use std::sync::Arc;

use crate::handoff::{Confirmation, HandedOff, Handoffs};
use crate::owner::{Owner, Permit};

use super::{BackgroundRelease, Job};

/// Hands the lock off to the next waiter of this client, if there is one: `None` if the caller has
/// to release it. `then` gets the jobs of the background.
pub(super) fn hand_off_until_taken(
    handoffs: &Handoffs,
    owner: &Arc<Owner>,
    permit: &mut Option<Permit>,
    confirm: bool,
    then: impl FnMut(Job),
) -> Option<Option<Confirmation>> {
    let handed_off = handoffs.hand_off(owner, permit, confirm)?;
    Some(until_taken(handoffs, owner, handed_off, then))
}

/// The rest of it, once the lock is handed off for the first time.
pub(super) fn until_taken(
    handoffs: &Handoffs,
    owner: &Arc<Owner>,
    mut handed_off: HandedOff,
    mut then: impl FnMut(Job),
) -> Option<Confirmation> {
    let confirmation = handed_off.confirmation.take();
    let mut from = owner.clone();
    loop {
        if handed_off.flush {
            then(Job::Handoff(from));
        }
        // A waiter that leaves just as it gets the lock gives it back, like a dropped guard.
        let Some((owner, granted)) = handed_off.declined else {
            return confirmation;
        };
        owner.holds.lock().give_back(granted.hold);
        let mut permit = None;
        handed_off = match handoffs.hand_off(&owner, &mut permit, false) {
            Some(handed_off) => handed_off,
            None => {
                let lease = granted.longest_lease();
                then(Job::Release(BackgroundRelease::new(owner, permit, lease)));
                return confirmation;
            }
        };
        from = owner;
    }
}
