//! How every lock is acquired: one try, then the wait loop (`wait_for_grant`), which tries again and
//! again.
//!
//! A call that may be the only one tries at once. If Redis refuses it, it waits in the queue (see
//! [`crate::wait`]): it asks again once the subscription is live, and then parks until a release,
//! the end of the holder's lease or a connection that came back wakes it. Or another holder of this
//! client hands the lock off to it, and it has the lock without asking (see [`crate::handoff`]).
//!
//! Dropping the loop anywhere leaves nothing behind: the drop of a [`PossessionSession`] undoes an
//! unfinished request, and the drop of a [`Registration`] leaves the queue and passes an unused
//! wake-up on to the next waiter.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::MutexGuard;

use crate::clock;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::lease::Lease;
use crate::possession::{Granted, Possession};
use crate::spans;
use crate::wait::{Next, Registration, WaitLimits, Waiter};

mod ask;
mod first_place;
mod refusal;
mod report;
mod timeout;
use first_place::FirstPlace;
pub(crate) use timeout::Wait;
use timeout::{SILENCE, answer_by, by};

/// The pause after a try that Redis did not answer, unless the connection comes back before.
const PAUSE: Duration = Duration::from_millis(500);

enum Tried {
    Granted(Granted),
    Refused {
        /// The remaining lease of the holder, if Redis reported it.
        remaining: Option<Duration>,
        holder: Box<str>,
    },
}

/// Acquires one hold; `None` if the wait ends first.
pub(crate) async fn acquire(
    engine: &Engine,
    handle: &Arc<Handle>,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Granted>, Error> {
    let requested = lease.checked(engine.config.watchdog_timeout)?;
    let begun = clock::now();
    let acquisition = Acquisition { engine, handle, lease, requested, wait, begun };

    let (mut remaining, mut place) = (None, None);
    if acquisition.goes_straight_to_redis(begun) {
        place = acquisition.first_place();
        let takes = place.as_ref().map(|place| place.ticket);
        let tried = engine.process.bind(acquisition.try_once(begun, takes)).await?;
        if !handle.kind.has_queue() {
            let granted = matches!(tried, Tried::Granted(_));
            engine.waiters.tried(&handle.names, granted, begun);
        }
        match tried {
            Tried::Granted(granted) => {
                if let Some(place) = place {
                    place.granted(acquisition.requested);
                }
                return Ok(Some(granted));
            }
            Tried::Refused { remaining: ttl, .. } => remaining = ttl,
        }
        engine.waiters.answered(&handle.names, begun);
    }
    match wait {
        Wait::Once => Ok(None),
        Wait::Until(_) | Wait::Forever => {
            engine.process.bind(acquisition.wait_in_queue(remaining, place)).await
        }
    }
}

/// A registration in the wait queue. Its drop gives back a lock that was handed off meanwhile.
struct Enqueued<'a> {
    registration: Registration<'a>,
    engine: &'a Engine,
    handle: &'a Arc<Handle>,
}

impl<'a> Deref for Enqueued<'a> {
    type Target = Registration<'a>;

    fn deref(&self) -> &Registration<'a> {
        &self.registration
    }
}

impl Drop for Enqueued<'_> {
    fn drop(&mut self) {
        let (handed, place) = self.registration.leave();
        if let Some(granted) = handed {
            self.engine.releaser.give_back(&granted);
        }
        if place {
            self.engine.releaser.leave_queue(self.handle);
        }
    }
}

/// What stays the same from try to try.
struct Acquisition<'a> {
    engine: &'a Engine,
    handle: &'a Arc<Handle>,
    lease: Lease,
    requested: Duration,
    wait: Wait,
    begun: Instant,
}

impl Acquisition<'_> {
    /// Whether this handle holds the lock already.
    fn nests(&self) -> bool {
        self.handle.holding(clock::now()).is_some()
    }

    /// Notes that this call has taken the lock that was handed off to it.
    fn claimed(&self, granted: &Granted) {
        granted.possession.holds.lock().claimed();
        self.entered(&granted.possession, false);
        spans::handed_off();
        self.engine.watchdog.watch(self.handle);
    }

    /// Whether the call tries before it queues: a nested hold never waits, `Wait::Once` is one try,
    /// and where no waiter of this client is in the queue the first try is most likely the last.
    fn goes_straight_to_redis(&self, now: Instant) -> bool {
        let until = match self.wait {
            Wait::Once => return true,
            Wait::Until(until) => Some(until),
            Wait::Forever => None,
        };
        !self.engine.waiters.should_queue(&self.handle.names, until, now) || self.nests()
    }

    /// Waits in the queue until it has the lock or the wait is over. `remaining` is the holder's
    /// lease, as a refusal just reported it.
    ///
    /// Everything but parking is boxed, so that parked futures stay small.
    async fn wait_in_queue(
        &self,
        mut remaining: Option<Duration>,
        mut place: Option<FirstPlace<'_>>,
    ) -> Result<Option<Granted>, Error> {
        let Self { engine, handle, begun, .. } = *self;
        let until = if let Wait::Until(until) = self.wait { Some(until) } else { None };
        let Some(_waits_alone) = self.lock_wait_mutex(until, &mut place).await else {
            return if engine.waiters.in_outage(&handle.names) {
                Err(self.out_of_reach())
            } else {
                Ok(None)
            };
        };
        // A call returns within its wait, or within the command timeout if that is longer.
        let last_call = until.map(|until| until.max(begun + engine.config.command_timeout));
        if self.nests() {
            match self.try_until(last_call, None).await.transpose()? {
                Some(Tried::Granted(granted)) => return Ok(Some(granted)),
                Some(Tried::Refused { remaining: ttl, .. }) => remaining = ttl,
                None => return Ok(None),
            }
        }

        let outage = until.is_none().then_some(engine.config.outage_limit);
        let warn_at = begun.checked_add(engine.config.warn_waits_longer_than);
        let limits = WaitLimits { until, outage, warn_at };
        let granted = self.wait_for_grant(limits, last_call, remaining, place).await;
        // Redis may still execute the last try, or a hand-off that came too late for this call.
        let may_have_pending = |last: &Arc<Possession>| last.holds.lock().may_have_pending();
        let pending = || handle.last().as_ref().is_some_and(may_have_pending);
        granted.map_err(|error| if pending() { error.unknown() } else { error })
    }

    /// Calls of the same handle wait here for the one of them that is in the queue: when it has the
    /// lock, they nest. In the queue they would wait for their own handle to release.
    ///
    /// A place ends there: the call in the queue, if it is younger, would wait for this one to ask.
    async fn lock_wait_mutex(
        &self,
        until: Option<Instant>,
        place: &mut Option<FirstPlace<'_>>,
    ) -> Option<MutexGuard<'_, ()>> {
        if let Ok(guard) = self.handle.wait_mutex().try_lock() {
            return Some(guard);
        }
        drop(place.take());
        Box::pin(by(until, self.handle.wait_mutex().lock())).await
    }

    /// The wait loop: parks the call, and tries again when there is a reason to ask Redis.
    async fn wait_for_grant(
        &self,
        mut limits: WaitLimits,
        last_call: Option<Instant>,
        remaining: Option<Duration>,
        place: Option<FirstPlace<'_>>,
    ) -> Result<Option<Granted>, Error> {
        let Self { engine, handle, .. } = *self;
        let mut registration = self.enqueue(remaining, place);
        let mut trouble = None;
        loop {
            match registration.next(&limits).await {
                // The waiter could not run in time: its runtime was blocked, or its caller did not
                // poll it. Another owner may have the lock by now, so it waits in the queue again.
                Next::Handed(granted) if granted.validity.is_lost() => {
                    registration = self.enqueue(None, None);
                    engine.releaser.give_back(&granted);
                }
                Next::Handed(granted) => {
                    self.claimed(&granted);
                    return Ok(Some(granted));
                }
                Next::Ask => match self.try_until(last_call, Some(&registration)).await {
                    None if engine.waiters.in_outage(&handle.names) => {
                        return Err(trouble.unwrap_or_else(|| self.out_of_reach()));
                    }
                    None => return Ok(None),
                    Some(Ok(Tried::Granted(granted))) => {
                        registration.granted(self.requested);
                        return Ok(Some(granted));
                    }
                    Some(Ok(Tried::Refused { remaining, holder })) => {
                        trouble = None;
                        registration.refused(remaining, holder);
                    }
                    Some(Err(error)) if error.kind() == ErrorKind::Unavailable => {
                        trouble = Some(error.after(trouble.take()));
                        registration.unanswered(PAUSE);
                    }
                    Some(Err(error)) => return Err(error.after(trouble)),
                },
                Next::WaitsLong => {
                    limits.warn_at = None;
                    self.waits_long();
                }
                Next::TimedOut { in_outage: false } => return Ok(None),
                Next::TimedOut { in_outage: true } | Next::OutOfReach => {
                    return Err(trouble.unwrap_or_else(|| self.out_of_reach()));
                }
                Next::Closed => return Err(Error::closed().after(trouble)),
            }
        }
    }

    fn enqueue(&self, remaining: Option<Duration>, place: Option<FirstPlace<'_>>) -> Enqueued<'_> {
        let Self { engine, handle, .. } = *self;
        let waiter = Waiter::new(handle.clone(), self.lease, self.requested, self.begun);
        let ticket = place.as_ref().map(|place| place.ticket);
        let registration = engine.waiters.join(waiter, remaining, ticket);
        if let Some(place) = place {
            place.ends();
        }
        Enqueued { registration, engine, handle }
    }

    /// Asks Redis once, unless the wait ends first. The compiler copies a future into each future
    /// around it, so this boxes the large one first, and then the one around it.
    fn try_until(
        &self,
        until: Option<Instant>,
        head: Option<&Enqueued<'_>>,
    ) -> Pin<Box<impl Future<Output = Option<Result<Tried, Error>>>>> {
        let place = head.map(|head| head.ticket());
        Box::pin(answer_by(until, Box::pin(self.try_once(clock::now(), place))))
    }
}
