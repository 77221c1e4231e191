//! The release of a lock that stays for a while: see `hold_at_least` of a guard.

use std::time::Duration;

use crate::clock;
use crate::error::Error;
use crate::handoff::Handoffs;
use crate::owner::Owner;
use crate::protocol::{Place, Released, Session};

/// Leaves the key in Redis for that long, under an owner that no handle is.
pub(super) async fn retain(
    call: &mut Session<'_>,
    owner: &Owner,
    handoffs: &Handoffs,
    retention: Duration,
    place: Option<Place>,
) -> Result<(Released, bool), Error> {
    let until = clock::now() + retention;
    let server = call.router.movable_server_of(owner.names.key());
    let listens = handoffs.waiters.keeps_hearing(&owner.names);
    let retainer = owner.retainer();
    let answer = call.retain(&owner.names, &owner.id, &retainer, retention, listens, place).await?;
    if answer.0 == Released::Held {
        handoffs.note_release(owner.kind, &owner.names, server, Some(until), call.router);
        // The script tells other clients that the lease ends sooner, and this one relies on itself.
        handoffs.waiters.wake_head(&owner.names, Some(retention));
    }
    Ok(answer)
}
