//! Sends every release to Redis, whether or not a call awaits it.
//!
//! Each release takes the same way, because the hold state knows which release is pending (see
//! [`crate::possession`]). So a dropped guard, an `unlock` that got no answer and an acquire that was
//! dropped half-way all end here. A lock that Redis need not release first goes to the next waiter
//! of this client (see [`crate::handoff`]).
//!
//! 1. **A call talks to Redis for a possession only through a [`PossessionSession`].** Its drop, at any
//!    point, enqueues a pending release for the background. Nothing else has to remember to.
//! 2. An undo goes behind what it undoes, on the same connection, while that connection lives.
//! 3. The client repeats a pending release until its lease has ended; then Redis has no hold left. It has a writer for
//!    as long as readers of the same handle keep the lock, and so long the client repeats its release. That of a
//!    first hold, of which no answer came, the client repeats for longer while Redis is silent: a server may grant it
//!    after a standstill, and the lease begins then.
//! 4. To enqueue a release needs no runtime, never blocks and cannot panic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::clock;
use crate::handle::Handle;
use crate::handoff::Handoffs;
use crate::possession::{AcquiredHold, Confirm, GiveBack, Held, Permit, Possession, Remains};
use crate::protocol::{Grant, Names};
use crate::transport::Connection;

mod background;
mod gap;
mod granted;
mod jobs;
mod send;
mod session;
mod standstill;
mod unlock;
pub(crate) use jobs::{do_jobs, release_again};
pub(crate) use session::PossessionSession;
pub(crate) use unlock::{ReturnedHold, Unlock};

/// Hands locks off, and enqueues releases for the background.
pub(crate) struct Releaser {
    jobs: UnboundedSender<Job>,
    handoffs: Arc<Handoffs>,
}

/// What the client's thread does in the background.
pub(crate) enum Job {
    Release(BackgroundRelease),
    /// Tell Redis what it has to hear of a possession after hand-offs.
    Update(Arc<Possession>),
    /// Give up the client's entry in the queue of that lock, because no waiter is left. The request goes behind the last
    /// request about that possession.
    LeaveQueue(Arc<Names>, Option<Arc<Possession>>),
    /// Hand a lock that Redis has granted to this client to its first waiter.
    Granted(Grant),
    /// Report when all jobs are done.
    Drain(oneshot::Sender<()>),
}

/// A possession that has a pending release, or may have one.
pub(crate) struct BackgroundRelease {
    possession: Arc<Possession>,
    permit: Option<Permit>,
    connection: Option<Connection>,
    /// The lease after which Redis has no hold left anyway.
    lease: Duration,
    /// Commands of the caller may still be executed: nothing is released, handed off or acquired
    /// again before Redis has answered something behind them.
    unanswered: bool,
    /// Redis may have yet to grant the first hold.
    is_first: bool,
}

impl BackgroundRelease {
    fn new(possession: Arc<Possession>, permit: Option<Permit>, lease: Duration) -> Self {
        let (unanswered, is_first) = (false, false);
        Self { possession, permit, connection: None, lease, unanswered, is_first }
    }

    /// What Redis has ends with the lease that the hold state knows.
    fn of_possession(possession: &Arc<Possession>) -> Self {
        Self::new(possession.clone(), None, Duration::ZERO)
    }
}

impl Releaser {
    pub(crate) fn new(jobs: UnboundedSender<Job>, handoffs: Arc<Handoffs>) -> Self {
        Self { jobs, handoffs }
    }

    /// Gives a hold back in the hold state, and hands the lock off to the next waiter of this client, or has the
    /// client's thread release it.
    pub(crate) fn give_back(&self, granted: &AcquiredHold) {
        self.follow_up(granted, granted.leave(GiveBack::Now, clock::now(), || {}));
    }

    /// The path of a dropped guard, whose hold may be a part of a joint hold: gives it back, and goes on as
    /// [`give_back`](Self::give_back) does.
    pub(crate) fn give_back_held(&self, held: &Held, how: GiveBack, now: Instant) {
        self.follow_up(held, held.leave(how, now, || {}));
    }

    /// The hold is given back. Hands the lock off, or enqueues a [`BackgroundRelease`], unless other readers remain.
    fn follow_up(&self, granted: &AcquiredHold, remains: Remains) {
        let possession = &granted.possession;
        if remains == Remains::Readers {
            return;
        }
        if !self.hand_off(possession, None, None) {
            // If the permit is free, this takes it now, so that a `lock` that follows at once comes
            // after the release.
            let permit = possession.try_permit();
            let lease = granted.longest_lease();
            let release = BackgroundRelease::new(possession.clone(), permit, lease);
            self.enqueue(Job::Release(release));
        }
    }

    /// Releases the lock under its guards, because the client ends: they are lost from here on. Returns whether one of
    /// them was valid.
    pub(crate) fn take_back(&self, possession: &Arc<Possession>) -> bool {
        let valid = possession.take_back(clock::now());
        let lease = possession.holds.lock().longest_lease(clock::now());
        let permit = possession.try_permit();
        self.enqueue(Job::Release(BackgroundRelease::new(possession.clone(), permit, lease)));
        valid
    }

    /// Hands the lock off to the next waiter of this client. The client's thread does what is left to do,
    /// whatever becomes of the caller, which asks it in the same step. False if the caller has to release it.
    fn hand_off(
        &self,
        possession: &Arc<Possession>,
        permit: Option<&Permit>,
        confirm: Option<Confirm>,
    ) -> bool {
        hand_off_until_taken(&self.handoffs, possession, permit, confirm, |job| {
            // It fails only when the client's thread has ended. Then the lease ends the hold, and
            // the head, which that thread would have woken, asks Redis at that time.
            if self.jobs.send(job).is_err() {
                self.handoffs.waiters.wake_head(&possession.names, None);
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

    /// Has the client's thread give up the client's entry in the queue that Redis keeps.
    pub(crate) fn leave_queue(&self, handle: &Handle) {
        self.enqueue(Job::LeaveQueue(handle.names.clone(), handle.possession()));
    }

    /// Has the client's thread tell Redis of a possession, if it is not about to.
    fn update_if(&self, needed: bool, possession: &Arc<Possession>) {
        if needed {
            self.enqueue(Job::Update(possession.clone()));
        }
    }

    pub(crate) fn enqueue(&self, job: Job) {
        // Sending fails only when the client's thread has ended. Then the hold, the entry or the grant ends by itself,
        // and a caller that waits for an answer gets none.
        let _ = self.jobs.send(job);
    }
}

/// Hands the lock off until a waiter has it, or has the background release it if the last one has left just as
/// it got it: that one gives it back, like a dropped guard. `then` gets the jobs of the background.
fn hand_off_until_taken(
    handoffs: &Handoffs,
    possession: &Arc<Possession>,
    permit: Option<&Permit>,
    mut confirm: Option<Confirm>,
    mut then: impl FnMut(Job),
) -> bool {
    let mut declined: Option<AcquiredHold> = None;
    loop {
        let Some(handed_off) = handoffs.hand_off(possession, permit, confirm.take()) else {
            let Some(declined) = declined else { return false };
            let lease = declined.longest_lease();
            then(Job::Release(BackgroundRelease::new(possession.clone(), None, lease)));
            return true;
        };
        if handed_off.needs_update {
            then(Job::Update(possession.clone()));
        }
        let Some(granted) = handed_off.declined else { return true };
        possession.holds.lock().give_back(granted.hold);
        declined = Some(granted);
    }
}

#[cfg(test)]
mod tests;
