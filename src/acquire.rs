//! How every lock is acquired: the wait loop (`wait_for_grant`), which asks Redis when there is a reason to.
//!
//! A call that may wait joins the queue of its client first (see [`crate::wait`]), without I/O. The head of the
//! queue asks at once. If Redis refuses it, the client subscribes; the head asks again once the subscription is
//! live, and then parks until a release, the end of the holder's lease or a connection that came back wakes it.
//! Or another holder of this client hands the lock off to it, and it has the lock without asking (see
//! [`crate::handoff`]). A nested call, and one that does not wait, asks once and joins no queue.
//!
//! Dropping the loop anywhere leaves nothing behind: the drop of a [`PossessionSession`] undoes an
//! unfinished request, and the drop of a [`Registration`] leaves the queue and passes an unused
//! wake-up on to the next waiter.
//!
//! [`PossessionSession`]: crate::releaser::PossessionSession
//! [`Registration`]: crate::wait::Registration

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::clock;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::events::Acquires;
use crate::handle::{Handle, Sides};
use crate::lease::Lease;
use crate::metrics::Waits;
use crate::possession::{AcquiredHold, Held, Possession};
use crate::spans;
use crate::wait::{Reached, Ticket, WaitLimits, WakeReason};

mod all;
mod ask;
mod enqueued;
mod readers;
mod refusal;
mod report;
mod stage;
mod timeout;
pub(crate) use all::acquire_all;
use enqueued::Enqueued;
pub(crate) use readers::{acquire_to_read, acquire_to_write, read_beside};
use stage::Stage;
use timeout::{Server, answer_by, longest_wait};
pub(crate) use timeout::{Wait, forever};

/// The pause after a try that Redis did not answer, unless the connection comes back before.
const PAUSE_AFTER_SILENCE: Duration = Duration::from_millis(500);

enum Tried<G> {
    Granted(G),
    Refused {
        /// The handle of the lock that another owner has.
        of: usize,
        /// The remaining lease of the holder, if Redis reported it.
        remaining: Option<Duration>,
        holder: Box<str>,
    },
}

/// What a call asks Redis for: one lock, or several at once.
trait Question: Copy + Send + Sync {
    /// What a call has that was granted all it asks for: a hold, or one of each lock.
    type Holds: Send;

    /// The handles of the locks that the call asks for, one for each lock.
    fn handles(&self) -> &[Arc<Handle>];

    /// Which lock the request is about that is under way, or that Redis did not answer.
    fn asks_for(&self) -> usize {
        0
    }

    /// The call waits in that place.
    fn note_place(&self, _: Ticket) {}

    /// Whether the caller reads or writes already, and asks to read: then it passes all that wait.
    fn recurs(&self) -> bool {
        false
    }

    /// Joins the readers of this client, if the question is about one of them.
    fn join_readers(_: &Acquisition<'_, Self>, _passes: bool) -> Option<Self::Holds> {
        None
    }

    /// Takes a lock that its last holder has left in a gap.
    fn fill_gap(_: &Acquisition<'_, Self>) -> Option<Self::Holds> {
        None
    }

    /// Asks Redis once. The call can wait for the answer until `gives_up_at`. `ticket` is that of a waiter.
    fn try_once(
        acquisition: &Acquisition<'_, Self>,
        now: Instant,
        gives_up_at: Option<Instant>,
        ticket: Option<Ticket>,
    ) -> impl Future<Output = Result<Tried<Self::Holds>, Error>> + Send;

    /// Whether a lock that is handed off is all that the call asks for.
    fn takes_hand_offs(&self) -> bool {
        true
    }

    /// What a waiter has that was handed such a lock.
    fn handed(acquisition: &Acquisition<'_, Self>, granted: AcquiredHold) -> Self::Holds;

    /// The call has what it asks for: other calls of this client may have it, too.
    fn has_acquired(acquisition: &Acquisition<'_, Self>, _: &Self::Holds) {
        for handle in acquisition.question.handles() {
            acquisition.engine.waiters.wake_to_nest(handle);
        }
    }

    /// Whether the call has been refused so often that it has to go about it in another way.
    fn is_starved(_: &Acquisition<'_, Self>) -> bool {
        false
    }
}

/// One hold of one lock.
#[derive(Clone, Copy)]
struct One<'a> {
    handle: &'a Arc<Handle>,
    /// The two sides of the caller's handle, if the lock is a read-write lock.
    sides: Option<&'a Sides>,
    /// The call asks to read, and its caller reads or writes already.
    recurs: bool,
}

/// Acquires one hold; `None` if the wait ends first.
pub(crate) async fn acquire(
    engine: &Engine,
    handle: &Arc<Handle>,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Held>, Error> {
    let attempt = engine.events.attempt(&handle.names.series, Some(handle.kind));
    let one = One { handle, sides: None, recurs: false };
    let granted = acquire_one(engine, one, lease, wait).await;
    attempt.end(&granted);
    granted
}

async fn acquire_one(
    engine: &Engine,
    one: One<'_>,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Held>, Error> {
    Acquisition::new(engine, one, lease, wait)?.acquire().await
}

/// What stays the same from try to try.
struct Acquisition<'a, Q> {
    engine: &'a Engine,
    question: Q,
    lease: Lease,
    requested: Duration,
    wait: Wait,
    begun: Instant,
    stage: Stage,
    /// Redis has granted what it asks for, and the replicas have yet to.
    awaits_replicas: AtomicBool,
}

impl<'a, Q: Question> Acquisition<'a, Q> {
    /// Checks the lease, before any I/O.
    fn new(engine: &'a Engine, question: Q, lease: Lease, wait: Wait) -> Result<Self, Error> {
        let requested = lease.checked(engine.config.watchdog_timeout)?;
        let (begun, stage, awaits_replicas) = (clock::now(), Stage::Whole, AtomicBool::default());
        Ok(Self { engine, question, lease, requested, wait, begun, stage, awaits_replicas })
    }

    /// Whether each of the handles holds its lock already. A reader of which its caller is none waits for its turn.
    fn nests(&self) -> bool {
        let now = clock::now();
        let holds =
            |handle: &Arc<Handle>| !handle.kind.is_shared() && handle.holding(now).is_some();
        self.question.recurs() || self.question.handles().iter().all(holds)
    }

    /// Notes that this call has taken the lock that came to it without a request.
    fn claimed(&self, handle: &Arc<Handle>, granted: &AcquiredHold) {
        // What hears of it may panic: until the call takes it, the hold is not renewed.
        if granted.is_handed_off() {
            spans::handed_off();
        }
        let requested = granted.longest_lease();
        granted.possession.holds.lock().takes(granted.hold, requested, clock::now());
        self.entered(handle, &granted.possession, false);
        self.engine.watchdog.watch(handle);
    }

    /// Acquires what the call asks for; `None` if the wait ends first, or if the call is starved.
    async fn acquire(&self) -> Result<Option<Q::Holds>, Error> {
        let granted = self.ask_or_wait().await?;
        if let Some(granted) = granted.as_ref().filter(|_| !self.question.recurs()) {
            Q::has_acquired(self, granted);
        }
        Ok(granted)
    }

    /// Futures that are large are boxed, so that those of parked calls stay small.
    async fn ask_or_wait(&self) -> Result<Option<Q::Holds>, Error> {
        let Self { engine, begun, .. } = *self;
        let process = &engine.process;
        let taken = Q::join_readers(self, self.question.recurs()).or_else(|| Q::fill_gap(self));
        if taken.is_some() {
            return Ok(taken);
        }
        if matches!(self.wait, Wait::Once) || self.nests() {
            let tried = process.bind(Q::try_once(self, begun, None, None)).await?;
            let granted = self.granted_outside(tried, begun);
            if granted.is_some() || matches!(self.wait, Wait::Once) {
                return Ok(granted);
            }
            // The holds on which it was to nest were lost meanwhile.
        }
        let limits = self.limits();
        let (mut waiting, mut trouble) = (self.enqueue(limits.until), None);
        // The first request of a head is most likely its last one.
        if let Some((gives_up_at, ticket)) = waiting.asks_at_once(&limits) {
            // Not later than it joined, unless it is one that waits already.
            let asked_at = if self.waits_again() { clock::now() } else { waiting.joined() };
            let tried = process.bind(Q::try_once(self, asked_at, gives_up_at, Some(ticket)));
            let tried = match self.until_answer(gives_up_at) {
                // Most calls, whose large future is moved once, into its box.
                None => Some(tried.await),
                Some(until) => process.bind(self.answer_by(until, tried)).await,
            };
            if let Some(result) = self.process_answer(tried, asked_at, &mut waiting, &mut trouble) {
                if self.waits_again() {
                    self.waited(&result);
                }
                return self.may_be_pending(result);
            }
        }
        let granted = {
            let _waits = self.waits();
            let granted = self.wait_for_grant(&mut waiting, limits, trouble);
            process.bind(granted).await
        };
        self.waited(&granted);
        self.may_be_pending(granted)
    }

    /// The hold that a try got which was made at `asked_at`, outside of the queue.
    fn granted_outside(&self, tried: Tried<Q::Holds>, asked_at: Instant) -> Option<Q::Holds> {
        let handles = self.question.handles();
        let (granted, about) = match tried {
            Tried::Granted(granted) => (Some(granted), handles),
            Tried::Refused { of, .. } => (None, &handles[of..=of]),
        };
        for handle in about {
            self.engine.waiters.record_try(&handle.names, granted.is_some(), asked_at);
        }
        granted
    }

    fn waits(&self) -> Option<Waits> {
        let several = self.question.handles().len() > 1;
        let first = self.question.handles().first();
        first.map(|one| one.names.series.waits((!several).then_some(one.kind)))
    }

    /// Redis may still execute the last try, or a hand-off that came too late for this call.
    fn may_be_pending<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let may_have_pending = |last: Arc<Possession>| last.holds.lock().may_have_pending();
        let is_pending = |handle: &Arc<Handle>| handle.possession().is_some_and(may_have_pending);
        let pending = || self.question.handles().iter().any(is_pending);
        result.map_err(|error| if pending() { error.unknown() } else { error })
    }

    /// The wait loop: parks the call, and tries again when there is a reason to ask Redis.
    async fn wait_for_grant(
        &self,
        waiting: &mut Enqueued<'a>,
        mut limits: WaitLimits,
        mut trouble: Option<Error>,
    ) -> Result<Option<Q::Holds>, Error> {
        loop {
            match waiting.next(&limits).await {
                // The waiter could not run in time: its runtime was blocked, or its caller did not
                // poll it. Another owner may have the lock by now, so it waits in the queue again.
                WakeReason::Handed(granted) if granted.validity.is_lost() => {
                    waiting.registration.join_again(limits.until);
                    self.engine.releaser.give_back(&granted);
                }
                WakeReason::Handed(granted) => {
                    self.claimed(waiting.handle(), &granted);
                    return Ok(Some(Q::handed(self, granted)));
                }
                WakeReason::Ask(gives_up_at) => {
                    let asked_at = clock::now();
                    let ticket = Some(waiting.ticket());
                    let tried = self.try_until(asked_at, gives_up_at, ticket).await;
                    let result = self.process_answer(tried, asked_at, waiting, &mut trouble);
                    if let Some(result) = result {
                        return result;
                    }
                }
                // Another call of this handle has the lock.
                WakeReason::Nests => {
                    if let Some(granted) = Q::join_readers(self, true) {
                        return Ok(Some(granted));
                    }
                    let asked_at = clock::now();
                    let Some(tried) = self.unless_handed(waiting, asked_at).await else { continue };
                    let tried = match tried {
                        Some(tried) => tried.map_err(|error| error.after(trouble.take()))?,
                        None => return Ok(None),
                    };
                    if let Tried::Refused { of, .. } = tried {
                        self.wait_for(of, Reached::Answered(asked_at), waiting);
                    }
                    if let Some(granted) = self.granted_outside(tried, asked_at) {
                        return Ok(Some(granted));
                    }
                }
                WakeReason::WaitsLong => {
                    limits.warn_at = None;
                    self.waits_long(waiting.handle());
                }
                WakeReason::TimedOut { in_outage: false } => return Ok(None),
                WakeReason::TimedOut { in_outage: true } | WakeReason::OutOfReach => {
                    return Err(trouble.unwrap_or_else(|| self.out_of_reach(waiting.handle())));
                }
                WakeReason::Closed => return Err(Error::closed().after(trouble)),
            }
        }
    }

    /// What became of a try of a waiter: the result of the call, or `None` if it goes on waiting.
    fn process_answer(
        &self,
        tried: Option<Result<Tried<Q::Holds>, Error>>,
        asked_at: Instant,
        waiting: &mut Enqueued<'a>,
        trouble: &mut Option<Error>,
    ) -> Option<Result<Option<Q::Holds>, Error>> {
        let asks_for = self.question.asks_for();
        let asked = &self.question.handles()[asks_for];
        match tried {
            None if self.in_outage(asked) => {
                Some(Err(trouble.take().unwrap_or_else(|| self.out_of_reach(asked))))
            }
            None => Some(Ok(None)),
            Some(Ok(Tried::Granted(granted))) => {
                waiting.record_grant(self.requested);
                self.record_grant_of_others(waiting.of, asked_at);
                Some(Ok(Some(granted)))
            }
            Some(Ok(Tried::Refused { of, remaining, holder })) => {
                *trouble = None;
                if of == waiting.of {
                    waiting.record_refusal(remaining, holder);
                }
                self.wait_for(of, Reached::Answered(asked_at), waiting);
                Q::is_starved(self).then_some(Ok(None))
            }
            Some(Err(error)) => {
                let is_outage = error.kind() == ErrorKind::Unavailable;
                // Others wait for the other locks, whose server may answer.
                if is_outage {
                    self.wait_for(asks_for, Reached::Silent(asked_at), waiting);
                }
                let waits = is_outage && waiting.record_failure(PAUSE_AFTER_SILENCE);
                let error = error.after(trouble.take());
                if !waits {
                    return Some(Err(error));
                }
                *trouble = Some(error);
                None
            }
        }
    }

    /// The other locks have been granted together with the one for which the call has waited.
    fn record_grant_of_others(&self, of: usize, asked_at: Instant) {
        for (at, handle) in self.question.handles().iter().enumerate() {
            if at != of {
                self.engine.waiters.record_try(&handle.names, true, asked_at);
            }
        }
    }
}
