//! Sends the pending release of a possession, and notes what Redis has answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::{Error, Outcome};
use crate::handoff::Handoffs;
use crate::possession::{FoundBy, HoldState, PendingRelease, Possession, Update};
use crate::protocol::{Call, Released, Terms};

use super::{BackgroundRelease, Job};

/// What Redis has answered to a release.
#[derive(Default)]
pub(super) struct Answered {
    /// There was something to release.
    pub(super) released: bool,
    /// The release may have brought the entry of a waiter that has left since: the caller must give that up.
    leaves_queue: bool,
    /// The writer beside these readers, for which Redis keeps the lock too long now: the caller must see to it.
    outlasts: Option<Arc<Possession>>,
}

impl Answered {
    /// What is left to do in the background.
    pub(super) fn jobs(self, possession: &Arc<Possession>) -> impl Iterator<Item = Job> {
        let leave_queue = || Job::LeaveQueue(possession.names.clone(), Some(possession.clone()));
        let shortens = |writer: Arc<Possession>| {
            let lease = writer.holds.lock().longest_lease(clock::now());
            Job::Release(BackgroundRelease::new(writer, None, lease))
        };
        self.leaves_queue.then(leave_queue).into_iter().chain(self.outlasts.map(shortens))
    }
}

pub(super) async fn send_release(
    call: &mut Call<'_>,
    possession: &Arc<Possession>,
    handoffs: &Handoffs,
    now: Instant,
) -> Result<Answered, Error> {
    let now = renewal_ends(call.deadline, possession, handoffs, now).await;
    let names = &possession.names;
    let (pending, sent_before, confirms, readers, kept) = {
        let mut holds = possession.holds.lock();
        let Some(pending) = holds.pending(now, handoffs.config.watchdog_timeout) else {
            holds.nothing_is_pending();
            return Ok(Answered::default());
        };
        let (readers, kept) = (holds.readers(), holds.keep_beside_writer());
        (pending, holds.release_sent(pending, now), holds.confirmations_due(), readers, kept)
    };
    let server = call.router.movable_server_of(names.key());
    let entry = handoffs.bring_entry(names, false);
    let brings = entry.is_some_and(|entry| entry.since.is_some() || sent_before);
    let answer = if pending.retains {
        Box::pin(retain(call, possession, handoffs, pending.lease)).await
    } else {
        if pending.count == 0 && entry.is_none() {
            handoffs.waiters.begin_deferral(names, None, now);
        }
        let terms = Terms { count: pending.count, lease: pending.lease, tokens: 0 };
        call.release(names, &possession.id(), terms, pending.drawn, (entry, readers.as_deref()))
            .await
    };
    let (released, repeated) = answer.inspect_err(|error| {
        if error.outcome() == Outcome::NotExecuted {
            possession.holds.lock().release_not_executed(pending, sent_before);
        }
    })?;
    if released != Released::CountLowered {
        handoffs.freed(possession, released.receivers(), server, call.router);
    }
    let gone = if let Released::Nothing(loss) = released { Some(loss) } else { None };
    // An earlier sending that was never answered may have released it.
    let confirmed = gone.is_none() || sent_before || repeated;
    if confirmed {
        confirm(possession, pending, confirms);
    } else {
        possession.holds.lock().forget_asked();
    }
    // A hold that was to stay, or that this client has not released, is gone.
    let lost = pending.count > 0 || !(sent_before || repeated);
    match gone {
        Some(loss) if lost => handoffs.losses.found_gone(possession, FoundBy::Release, loss),
        // If the earlier sending did not release it, Redis has published nothing.
        Some(_) => handoffs.waiters.record_loss(names),
        None => {}
    }
    // The request that gave up the entry of that waiter may have been faster than this one.
    let leaves_queue =
        (brings || gone.is_some() && entry.is_some()) && handoffs.waiters.has_left(names);
    let outlasts = kept.filter(|_| confirmed).and_then(|kept| outlasts_readers(kept, handoffs));
    Ok(Answered { released: gone.is_none(), leaves_queue, outlasts })
}

/// The writer beside the readers that Redis has released, if Redis keeps its lock too long now.
fn outlasts_readers(
    (writer, until): (Arc<Possession>, Instant),
    handoffs: &Handoffs,
) -> Option<Arc<Possession>> {
    let timeout = handoffs.config.watchdog_timeout;
    let outlasts = writer.holds.lock().outlasts_readers(until, timeout, clock::now());
    outlasts.then_some(writer)
}

/// Waits while a renewal is under way that would make the lease longer again which the pending release leaves. Returns the
/// time then. If that is the deadline, the release is not sent, and stays pending.
async fn renewal_ends(
    deadline: Instant,
    possession: &Possession,
    handoffs: &Handoffs,
    now: Instant,
) -> Instant {
    let timeout = handoffs.config.watchdog_timeout;
    if !possession.holds.lock().release_waits_for_renewal(now, timeout) {
        return now;
    }
    let waits = |holds: &HoldState| holds.release_waits_for_renewal(clock::now(), timeout);
    let ends = handoffs.renewal_ends_while(possession, waits);
    let _ = Box::pin(clock::timeout_at(deadline, ends)).await;
    clock::now()
}

/// Redis has executed that release, and so confirmed what it was sent for, and as many hand-offs.
fn confirm(possession: &Possession, pending: PendingRelease, confirms: usize) {
    let mut holds = possession.holds.lock();
    holds.release_confirmed(pending);
    // A release of everything was sent when no hold was left, and none has come since.
    let all = pending.count == 0;
    let confirms = holds.take_confirms(if all { usize::MAX } else { confirms });
    let gap = if all { holds.take_gap() } else { None };
    drop(holds);
    for confirm in confirms {
        let _ = confirm.send(Ok(true));
    }
    possession.announce_end(gap);
}

/// Leaves the key in Redis for that long, with no handle inside: see `hold_at_least` of a guard.
async fn retain(
    call: &mut Call<'_>,
    possession: &Possession,
    handoffs: &Handoffs,
    retention: Duration,
) -> Result<(Released, bool), Error> {
    let names = &possession.names;
    possession.stays_until(clock::now() + retention);
    let server = call.router.movable_server_of(names.key());
    Ok(match handoffs.send_update(call, possession, Update::retaining(retention)).await? {
        Ok(_) => {
            handoffs.note_release(possession, server, call.router);
            // The script tells other clients that the lease ends sooner, and this one relies on itself.
            handoffs.waiters.wake_head(names, Some(retention));
            (Released::CountLowered, false)
        }
        Err((loss, repeated)) => (Released::Nothing(loss), repeated),
    })
}
