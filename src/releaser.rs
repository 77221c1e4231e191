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
//! 3. The client repeats a pending release until its lease has ended; then Redis has no hold left.
//! 4. To enqueue a release needs no runtime, never blocks and cannot panic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::backoff::Backoff;
use crate::clock;
use crate::error::{Error, Outcome};
use crate::handle::Handle;
use crate::handoff::Handoffs;
use crate::possession::{
    AcquiredHold, Confirm, FoundBy, GiveBack, Held, PendingRelease, Permit, Possession, Prolong,
    Remains,
};
use crate::protocol::{Call, Grant, Names, Released, Terms};
use crate::transport::{Connection, Router};

mod gap;
mod granted;
mod jobs;
mod session;
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
    Settle(Arc<Possession>),
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
}

impl BackgroundRelease {
    fn new(possession: Arc<Possession>, permit: Option<Permit>, lease: Duration) -> Self {
        Self { possession, permit, connection: None, lease, unanswered: false }
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
        hand_off(&self.handoffs, possession, permit, confirm, |job| {
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
        self.enqueue(Job::LeaveQueue(handle.names.clone(), handle.last()));
    }

    /// Has the client's thread tell Redis of a possession, if it is not about to.
    fn settle_if(&self, needed: bool, possession: &Arc<Possession>) {
        if needed {
            self.enqueue(Job::Settle(possession.clone()));
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
fn hand_off(
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
        if handed_off.settle {
            then(Job::Settle(possession.clone()));
        }
        let Some(granted) = handed_off.declined else { return true };
        possession.holds.lock().give_back(granted.hold);
        declined = Some(granted);
    }
}

/// What Redis has answered to a release.
#[derive(Default)]
struct Answered {
    /// There was something to release.
    released: bool,
    /// The release may have brought the entry of a waiter that has left since: the caller must give that up.
    leaves_queue: bool,
    /// The writer beside these readers, for which Redis keeps the lock too long now: the caller must see to it.
    outlasts: Option<Arc<Possession>>,
}

impl Answered {
    /// What is left to do in the background.
    fn jobs(self, possession: &Arc<Possession>) -> impl Iterator<Item = Job> {
        let leave_queue = || Job::LeaveQueue(possession.names.clone(), Some(possession.clone()));
        let shortens = |writer: Arc<Possession>| {
            let lease = writer.holds.lock().longest_lease(clock::now());
            Job::Release(BackgroundRelease::new(writer, None, lease))
        };
        self.leaves_queue.then(leave_queue).into_iter().chain(self.outlasts.map(shortens))
    }
}

async fn send_release(
    call: &mut Call<'_>,
    possession: &Arc<Possession>,
    handoffs: &Handoffs,
    now: Instant,
) -> Result<Answered, Error> {
    let names = &possession.names;
    let (pending, sent_before, confirms, readers, kept) = {
        let mut holds = possession.holds.lock();
        let Some(pending) = holds.pending(now, handoffs.config.watchdog_timeout) else {
            holds.nothing_is_pending();
            return Ok(Answered::default());
        };
        let (readers, kept) = (holds.readers(), holds.keep_beside_writer());
        (pending, holds.release_sent(pending, now), holds.confirms(), readers, kept)
    };
    let server = call.router.movable_server_of(names.key());
    let entry = handoffs.queue_entry(names, false);
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
    Ok(match handoffs.prolong(call, possession, Prolong::retaining(retention)).await? {
        Ok(_) => {
            handoffs.note_release(possession, server, call.router);
            // The script tells other clients that the lease ends sooner, and this one relies on itself.
            handoffs.waiters.wake_head(names, Some(retention));
            (Released::CountLowered, false)
        }
        Err((loss, repeated)) => (Released::Nothing(loss), repeated),
    })
}

async fn release_in_background(
    mut release: BackgroundRelease,
    router: &Router,
    handoffs: &Handoffs,
) -> Vec<Job> {
    let (possession, config) = (&release.possession, &handoffs.config);
    let permit = match release.permit.take() {
        Some(permit) => permit,
        None => possession.permit().await,
    };
    // The undo of a request that may still be on its way goes behind it, on its connection.
    let settled = release.connection.is_none() && !release.unanswered;
    let mut jobs = Vec::new();
    if settled && hand_off(handoffs, possession, Some(&permit), None, |job| jobs.push(job)) {
        return jobs;
    }
    let now = clock::now();
    // The holder before a hand-off may have had a longer one.
    let lease = release.lease.max(possession.holds.lock().longest_lease(now));
    let give_up = now + config.command_timeout + lease;
    let mut backoff = Backoff::in_background();
    loop {
        let now = clock::now();
        let pending = possession.holds.lock().pending(now, config.watchdog_timeout).is_some();
        if !pending && !release.unanswered {
            possession.holds.lock().nothing_is_pending();
            return jobs;
        }
        if now >= give_up {
            if pending {
                tracing::debug!(name = %possession.names.key(), owner = %possession.id(),
                    "a release could not be confirmed within its lease");
            }
            let gap = possession.holds.lock().take_gap();
            possession.announce_end(gap);
            // Nothing goes behind the last try, which may be under way.
            if let Some(connection) = release.connection.take() {
                router.drop_connection(&connection);
            }
            return jobs;
        }
        let mut call = Call::new(router, now + config.command_timeout);
        call.connection = release.connection.take();
        let answer = if pending {
            let released = release_once(&mut call, possession, handoffs, now).await;
            released.map(|answered| jobs.extend(answered.jobs(possession)))
        } else {
            // Whatever the reply says, it comes behind the commands.
            let inspected = call.inspect(&possession.names, &possession.id()).await.map(drop);
            inspected.or_else(|error| if error.is_reply() { Ok(()) } else { Err(error) })
        };
        if answer.is_ok() {
            release.unanswered = false;
        } else {
            // The next try goes behind this one, which may be under way.
            release.connection = call.connection.take();
            clock::sleep(backoff.next()).await;
        }
    }
}

/// Tries once to release in the background, and logs what came of it.
async fn release_once(
    call: &mut Call<'_>,
    possession: &Arc<Possession>,
    handoffs: &Handoffs,
    now: Instant,
) -> Result<Answered, Error> {
    let released = send_release(call, possession, handoffs, now).await;
    match &released {
        Ok(_) => tracing::debug!(name = %possession.names.key(), owner = %possession.id(),
            "released in the background"),
        Err(error) => {
            handoffs.events.release_failed(
                error,
                (possession.names.key(), &possession.id()),
                clock::now(),
            );
        }
    }
    released
}

#[cfg(test)]
mod tests;
