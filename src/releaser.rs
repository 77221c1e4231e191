//! Sends every release to Redis, whether or not a call awaits it.
//!
//! Each release takes the same way, because the hold state knows which release is pending (see
//! [`crate::owner`]). So a dropped guard, an `unlock` that got no answer and an acquire that was
//! dropped half-way all end here. A lock that Redis need not release first goes to the next waiter
//! of this client (see [`mod@hand_off`]).
//!
//! 1. **A call talks to Redis for an owner only through an [`OwnerSession`].** Its drop, at any
//!    point, enqueues a pending release for the background. Nothing else has to remember to.
//! 2. An undo goes behind what it undoes, on the same connection, while that connection lives.
//! 3. The client repeats a pending release until its lease has ended; then Redis has no hold left.
//! 4. To enqueue a release needs no runtime, never blocks and cannot panic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::clock;
use crate::error::{Error, ErrorKind, Loss, Outcome, log_failure};
use crate::handoff::{Confirmation, Handoffs};
use crate::loss::found_gone;
use crate::owner::{FoundBy, Granted, Owner, Permit};
use crate::protocol::{Grant, Released, Session};
use crate::transport::{Connection, Router};

mod granted;
mod hand_off;
mod jobs;
mod leave;
mod retain;
mod unlock;
use hand_off::hand_off_until_taken;
pub(crate) use jobs::{do_jobs, release_again};
use retain::retain;
pub(crate) use unlock::Unlock;

/// The longest pause between two tries of a release that fails again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Hands locks off, and enqueues releases for the background.
pub(crate) struct Releaser {
    jobs: UnboundedSender<Job>,
    handoffs: Arc<Handoffs>,
}

/// What the client's thread does in the background.
pub(crate) enum Job {
    Release(BackgroundRelease),
    /// Update Redis with the hand-offs of that owner's lock.
    Handoff(Arc<Owner>),
    /// Give up the client's place in the queue of that owner's lock: no waiter is left.
    Leave(Arc<Owner>),
    /// Hand a lock that Redis has granted to this client to its first waiter.
    Granted(Grant),
    /// Report when all jobs are done.
    Drain(oneshot::Sender<()>),
}

/// An owner that has a pending release, or may have one.
pub(crate) struct BackgroundRelease {
    owner: Arc<Owner>,
    permit: Option<Permit>,
    connection: Option<Connection>,
    /// The lease after which Redis has no hold left anyway.
    lease: Duration,
    /// Commands of the caller may still be executed: nothing is released, handed off or acquired
    /// again before Redis has answered something behind them.
    unanswered: bool,
}

impl BackgroundRelease {
    fn new(owner: Arc<Owner>, permit: Option<Permit>, lease: Duration) -> Self {
        Self { owner, permit, connection: None, lease, unanswered: false }
    }
}

impl Releaser {
    pub(crate) fn new(jobs: UnboundedSender<Job>, handoffs: Arc<Handoffs>) -> Self {
        Self { jobs, handoffs }
    }

    /// The path of a dropped guard: gives its hold back in the hold state, and hands the lock off
    /// to the next waiter of this client, or has the background release it.
    pub(crate) fn give_back(&self, owner: &Arc<Owner>, granted: &Granted) {
        owner.holds.lock().give_back(granted.hold);
        let mut permit = None;
        if self.hand_off_and_enqueue(owner, &mut permit, false).is_none() {
            // If the permit is free, this takes it now, so that a `lock` that follows at once comes
            // after the release.
            let permit = permit.or_else(|| owner.try_permit());
            let lease = granted.longest_lease();
            self.enqueue(BackgroundRelease::new(owner.clone(), permit, lease));
        }
    }

    /// Hands the lock off to the next waiter of this client, and enqueues the rest.
    fn hand_off_and_enqueue(
        &self,
        owner: &Arc<Owner>,
        permit: &mut Option<Permit>,
        confirm: bool,
    ) -> Option<Option<Confirmation>> {
        hand_off_until_taken(&self.handoffs, owner, permit, confirm, |job| {
            // It fails only when the client's thread has ended. Then the lease ends the hold, and
            // the head, which that thread would have woken, asks Redis at that time.
            if self.jobs.send(job).is_err() {
                self.handoffs.waiters.wake_head(&owner.names, None);
            }
        })
    }

    /// Completes when each job that was enqueued before is done or given up.
    pub(crate) async fn drain(&self) {
        let (done, is_done) = oneshot::channel();
        if self.jobs.send(Job::Drain(done)).is_ok() {
            let _ = is_done.await;
        }
    }

    /// Has the background give up the client's place in the queue that Redis keeps.
    pub(crate) fn leave_queue(&self, owner: &Arc<Owner>) {
        // It fails only when the client's thread has ended; then the place ends by itself.
        let _ = self.jobs.send(Job::Leave(owner.clone()));
    }

    /// Has the background hand a lock on that Redis has granted to this client.
    pub(crate) fn take_grant(&self, grant: Grant) {
        // It fails only when the client's thread has ended; then the grant ends by itself.
        let _ = self.jobs.send(Job::Granted(grant));
    }

    fn enqueue(&self, release: BackgroundRelease) {
        // It fails only when the client's thread has ended; then the lease ends the hold.
        let _ = self.jobs.send(Job::Release(release));
    }
}

/// One call's requests to Redis for one owner, under the owner's permit (invariant 1).
pub(crate) struct OwnerSession<'a> {
    pub(crate) call: Session<'a>,
    owner: &'a Arc<Owner>,
    releaser: &'a Releaser,
    permit: Option<Permit>,
    lease: Duration,
    /// Commands of the caller were sent, and may still be executed.
    pub(crate) unanswered: bool,
}

impl<'a> OwnerSession<'a> {
    /// `permit` is that of the owner, if the caller has it already. `lease` is what would end the
    /// hold if the client never released it.
    pub(crate) fn new(
        call: Session<'a>,
        owner: &'a Arc<Owner>,
        releaser: &'a Releaser,
        permit: Option<Permit>,
        lease: Duration,
    ) -> Self {
        Self { call, owner, releaser, permit, lease, unanswered: false }
    }

    /// Waits for the permit of the owner. Returns the time then, which is `now` if the permit was
    /// free.
    pub(crate) async fn acquire_permit(&mut self, now: Instant) -> Result<Instant, Error> {
        self.permit = self.owner.try_permit();
        if self.permit.is_some() {
            return Ok(now);
        }
        let permit = Box::pin(clock::timeout_at(self.call.deadline, self.owner.permit()));
        let Ok(permit) = permit.await else {
            let message = "an earlier request of this handle is still unanswered";
            return Err(Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message));
        };
        self.permit = Some(permit);
        Ok(clock::now())
    }

    /// Sends the pending release, and returns whether Redis had something to release. Only after
    /// [`acquire_permit`](Self::acquire_permit).
    pub(crate) async fn send_release(&mut self, now: Instant) -> Result<bool, Error> {
        let handoffs = &self.releaser.handoffs;
        let answered = send_release(&mut self.call, self.owner, handoffs, now).await?;
        if answered.leaves {
            self.releaser.leave_queue(self.owner);
        }
        Ok(answered.released)
    }
}

impl Drop for OwnerSession<'_> {
    fn drop(&mut self) {
        // The durations matter to what is released, not to whether something is. Guards that have all
        // run out count for nothing: a release of theirs may be on its way.
        let holds = self.owner.holds.lock();
        let pending =
            holds.may_have_pending() && holds.pending(clock::now(), Duration::ZERO).is_some();
        drop(holds);
        if pending || self.unanswered {
            self.releaser.enqueue(BackgroundRelease {
                owner: self.owner.clone(),
                permit: self.permit.take(),
                connection: self.call.connection.take(),
                lease: self.lease,
                unanswered: self.unanswered,
            });
        }
    }
}

/// What Redis has answered to a release.
struct Answered {
    /// There was something to release.
    released: bool,
    /// The release may have brought the place of a waiter that has left since: the caller must give that up.
    leaves: bool,
}

async fn send_release(
    call: &mut Session<'_>,
    owner: &Owner,
    handoffs: &Handoffs,
    now: Instant,
) -> Result<Answered, Error> {
    let (pending, sent_before) = {
        let mut holds = owner.holds.lock();
        holds.hold_again_until(|| handoffs.released_names.held_until(&owner.names));
        let Some(pending) = holds.pending(now, handoffs.config.watchdog_timeout) else {
            return Ok(Answered { released: false, leaves: false });
        };
        (pending, holds.release_sent(pending))
    };
    let server = call.router.movable_server_of(owner.names.key());
    let place = handoffs.place_in_queue(owner.kind, &owner.names);
    let brings = place.is_some_and(|place| place.since.is_some() || sent_before);
    let answer = if pending.retains {
        Box::pin(retain(call, owner, handoffs, pending.lease, place)).await
    } else {
        if pending.count == 0 && place.is_none() {
            handoffs.frees(&owner.names, now);
        }
        call.release(&owner.names, &owner.id, pending.count, pending.lease, place).await
    };
    let (released, repeated) = match answer {
        // Another client has written something else there: the hold is as gone as if deleted.
        Err(error) if error.kind() == ErrorKind::NotALock => {
            (Released::Nothing(Loss::KeyGone), false)
        }
        Err(error) => {
            if error.outcome() == Outcome::NotExecuted && !sent_before {
                owner.holds.lock().release_not_executed();
            }
            return Err(error);
        }
        Ok(answer) => answer,
    };
    if released != Released::Held {
        handoffs.freed(owner, released.receivers(), server, call.router);
    }
    let gone = if let Released::Nothing(loss) = released { Some(loss) } else { None };
    // An earlier sending that was never answered may have released it.
    if gone.is_none() || sent_before || repeated {
        owner.holds.lock().release_confirmed(pending);
    }
    // A hold that was to stay, or that this client has not released, is gone.
    let lost = pending.count > 0 || !(sent_before || repeated);
    match gone {
        Some(loss) if lost => found_gone(&handoffs.waiters, owner, FoundBy::Release, loss),
        // If the earlier sending did not release it, Redis has published nothing.
        Some(_) => handoffs.waiters.look(&owner.names),
        None => {}
    }
    // The request that gave up the place of that waiter may have been faster than this one.
    let leaves = brings && handoffs.waiters.leaves_queue(&owner.names).is_some();
    Ok(Answered { released: gone.is_none(), leaves })
}

async fn release_in_background(
    mut release: BackgroundRelease,
    router: &Router,
    handoffs: &Handoffs,
) -> Vec<Job> {
    let (owner, config) = (&release.owner, &handoffs.config);
    let mut permit = match release.permit.take() {
        Some(permit) => Some(permit),
        None => Some(owner.permit().await),
    };
    // The undo of a request that may still be on its way goes behind it, on its connection.
    let settled = release.connection.is_none() && !release.unanswered;
    let mut jobs = Vec::new();
    if settled
        && hand_off_until_taken(handoffs, owner, &mut permit, false, |job| jobs.push(job)).is_some()
    {
        return jobs;
    }
    let give_up = clock::now() + config.command_timeout + release.lease;
    let mut pause = Duration::from_millis(50);
    loop {
        let now = clock::now();
        let pending = owner.holds.lock().pending(now, config.watchdog_timeout).is_some();
        if !pending && !release.unanswered {
            return jobs;
        }
        if now >= give_up {
            if pending {
                tracing::debug!(name = %owner.names.key(), owner = %owner.id,
                    "a release could not be confirmed; its lease has ended");
            }
            // Nothing goes behind the last try, which may be under way.
            if let Some(connection) = release.connection.take() {
                router.drop_connection(&connection);
            }
            return jobs;
        }
        let mut call = Session::new(router, now + config.command_timeout);
        call.connection = release.connection.take();
        let answer = if !pending {
            // Whatever the reply says, it comes behind the commands.
            let inspected = call.inspect(&owner.names, &owner.id).await.map(drop);
            inspected.or_else(|error| if error.is_reply() { Ok(()) } else { Err(error) })
        } else {
            let released = send_release(&mut call, owner, handoffs, now).await;
            match &released {
                Ok(_) => tracing::debug!(name = %owner.names.key(), owner = %owner.id,
                    "released in the background"),
                Err(error) => log_failure!(
                    error,
                    handoffs.waiters,
                    name = owner.names.key(),
                    owner = &*owner.id,
                    "a release in the background failed; trying again"
                ),
            }
            released.map(|answered| {
                if answered.leaves {
                    jobs.push(Job::Leave(owner.clone()));
                }
            })
        };
        if answer.is_ok() {
            release.unanswered = false;
        } else {
            // The next try goes behind this one, which may be under way.
            release.connection = call.connection.take();
            clock::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests;
