//! The inside of a guard, whichever kind of lock it is of: one hold, given back by `unlock` or by the drop.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{Instrument, Span};

use crate::clock;
use crate::engine::{Engine, check_runtime};
use crate::error::{Error, Loss, Outcome};
use crate::handle::Handle;
use crate::host::Entered;
use crate::lease::{Lease, MAX_LEASE, Validity};
use crate::metrics::End;
use crate::possession::{FoundBy, GiveBack, Held};
use crate::protocol::{Call, Renewed};
use crate::ready::let_ready_tasks_run;
use crate::releaser::{PossessionSession, ReturnedHold, Unlock};
use crate::spans;

/// A handle with its client. Its guards keep it: so the watchdog goes on renewing when the caller's handle is dropped.
/// It counts their references to both, where the threads of other handles count none.
pub(crate) struct ClientHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) handle: Arc<Handle>,
}

impl ClientHandle {
    pub(crate) fn new(engine: &Arc<Engine>, handle: Arc<Handle>) -> Arc<Self> {
        Arc::new(Self { engine: engine.clone(), handle })
    }
}

pub(crate) struct GuardInner {
    pub(crate) of: Arc<ClientHandle>,
    pub(crate) granted: Held,
    /// When the caller got it, in milliseconds of [`Engine::uptime`]: it takes no room here.
    acquired: u32,
    /// `unlock` does what the drop would do.
    unlocking: bool,
    /// `unlock` has others join.
    stays: bool,
    span: spans::HoldSpan,
}

impl GuardInner {
    pub(crate) fn new(of: Arc<ClientHandle>, granted: Held, acquired_in: &Span) -> Self {
        let now = {
            let _on = of.engine.host.enter();
            clock::now()
        };
        Self::acquired(of, granted, now, acquired_in)
    }

    /// A hold that its caller gets `now`.
    pub(crate) fn acquired(
        of: Arc<ClientHandle>,
        granted: Held,
        now: Instant,
        acquired_in: &Span,
    ) -> Self {
        let acquired = of.engine.uptime(now);
        let span = {
            let owner = || granted.possession.id();
            spans::HoldSpan::begin(of.handle.names.key(), owner, acquired_in)
        };
        Self { of, granted, acquired, unlocking: false, stays: false, span }
    }

    pub(crate) async fn unlock(self) -> Result<(), Error> {
        self.unlock_side((), |()| {}).await
    }

    /// Gives the hold back, and waits until Redis has confirmed that. In the same step `leaves` has the `side` of a
    /// read-write lock end, which its handle leaves with the hold.
    pub(crate) async fn unlock_side<S: Sync>(
        mut self,
        side: S,
        leaves: fn(&S),
    ) -> Result<(), Error> {
        // If this fails, the drop gives the hold back.
        let begun = match self.of.handle.kind.is_shared() {
            true => self.of.engine.begin_local_call(),
            false => self.of.engine.begin_call(),
        };
        begun.map_err(|error| error.about(self.name()))?;
        {
            let _on = self.of.engine.host.enter();
            self.end_span();
        }
        let key = self.of.handle.names.key();
        let server = || self.of.engine.router.address_of(key);
        let span = spans::release(key, || self.granted.possession.id(), false, server);
        let (host, process) = (self.of.engine.host.clone(), self.of.engine.process.clone());
        if span.is_disabled() {
            return host.run(self.release(|| leaves(&side))).await;
        }
        process.bind(host.run(self.release_in(span, || leaves(&side)))).await
    }

    async fn release_in(&mut self, span: Span, leaves_side: impl Fn() + Copy) -> Result<(), Error> {
        let released = self.release(leaves_side).instrument(span.clone()).await;
        released.inspect_err(|error| spans::failed(&span, error))
    }

    async fn release(&mut self, leaves_side: impl Fn() + Copy) -> Result<(), Error> {
        let is_shared = self.of.handle.kind.is_shared();
        let how = if is_shared { GiveBack::OrStay } else { GiveBack::Now };
        let begun = clock::now();
        self.report_run_out("and then its guard was given back", begun);
        let mut returned = ReturnedHold::begin(&self.granted, how, begun, leaves_side);
        self.stays = returned.stays();
        if self.stays {
            // If the future is dropped meanwhile, the drop gives the hold back.
            self.stay_for_readers().await;
            self.stays = false;
            returned = returned.goes(&self.granted, clock::now(), leaves_side);
        }
        let released = if let Some(result) = returned.is_over(&self.granted) {
            self.unlocking = true;
            result
        } else if is_shared && let Err(error) = check_runtime() {
            Err(error)
        } else {
            self.unlocking = true;
            self.release_returned(returned).await
        };
        released.map_err(|error| error.about(self.name()))
    }

    async fn release_returned(&self, returned: ReturnedHold) -> Result<(), Error> {
        let call = Call::new(
            &self.of.engine.router,
            returned.begun + self.of.engine.config.command_timeout,
        );
        let mut unlock = Unlock::begin(&self.of.engine.releaser, call, &self.granted, returned);
        if unlock.awaits_confirmation() {
            let confirmed =
                self.of.engine.process.bind(async move { unlock.await_confirmation().await });
            return confirmed.await;
        }
        self.of.engine.process.bind(async move { unlock.release().await }).await
    }

    /// The last reader of its client stays until other tasks have run that are ready to: one of them that reads joins
    /// it then, and the client need not ask Redis for the lock that it has just released. Where a call waits, no reader
    /// would join.
    async fn stay_for_readers(&self) {
        if self.of.engine.waiters.lets_in(&self.of.handle.names) {
            let_ready_tasks_run().await;
        }
    }

    fn end_span(&mut self) {
        let validity = &self.granted.validity;
        self.span.end(|| validity.loss(clock::now()));
    }

    /// Reports that the lease ended under the guard, unless something has: the watchdog looks after default leases only.
    fn report_run_out(&self, how: &str, now: Instant) {
        if let Some(loss) = self.granted.validity.unreported_loss(now) {
            self.granted.possession.report_loss(&self.of.engine.events, loss, how, now);
        }
    }

    /// Counts the hold: its guard has gone, or its `unlock` has ended. It ended like this, unless it was lost.
    fn ends(&self, end: End) {
        self.of.handle.names.series.held(self.of.handle.kind, || {
            let now = clock::now();
            let held = self.of.engine.uptime(now).wrapping_sub(self.acquired);
            let end = self.granted.validity.loss(now).map_or(end, End::from);
            (end, Duration::from_millis(held.into()), now)
        });
    }

    pub(crate) fn name(&self) -> &str {
        self.of.engine.config.without_prefix(self.of.handle.names.key())
    }

    pub(crate) fn owner(&self) -> &str {
        self.granted.possession.owner()
    }

    /// For what the client knows by itself. `None` in a forked child, where the hold is its parent's.
    fn local(&self) -> Option<Entered> {
        self.of.engine.process.is_this_one().then(|| self.of.engine.host.enter())
    }

    pub(super) fn hold_at_least(&self, least: Duration) {
        let Some(_on) = self.local() else { return };
        let now = clock::now();
        let held = self.of.engine.uptime(now).wrapping_sub(self.acquired);
        let left = least.min(MAX_LEASE).saturating_sub(Duration::from_millis(held.into()));
        self.granted.possession.holds.lock().hold_until(self.granted.hold, now + left);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.local().is_none_or(|_on| self.granted.validity.is_lost())
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.local().and_then(|_on| self.granted.validity.loss(clock::now()))
    }

    pub(crate) async fn lost(&self) {
        let process = &self.of.engine.process;
        if process.is_this_one() {
            process.bind(self.of.engine.host.run(self.await_loss())).await;
        }
    }

    async fn await_loss(&self) {
        let mut counts = false;
        while !counts {
            let validity = &self.granted.validity;
            // It is another one after an `extend`, if the first one was shared.
            let is_current = || Arc::ptr_eq(validity, &self.granted.validity);
            validity.lost_while(is_current).await;
            counts = is_current();
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        let Some(_on) = self.local() else { return Duration::ZERO };
        let now = clock::now();
        self.granted.validity.check(now).map_or(Duration::ZERO, |until| until - now)
    }

    /// An error if it is lost.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_lost() { Err(self.not_held()) } else { Ok(()) }
    }

    /// The lease that it asks for, from now on: a default one, or what is left of its own.
    pub(crate) fn lease_left(&self) -> Result<Lease, Error> {
        self.check()?;
        let _on = self.of.engine.host.enter();
        let lease =
            self.granted.possession.holds.lock().lease_left(self.granted.hold, clock::now());
        lease.ok_or_else(|| self.not_held())
    }

    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.extend_side(lease, |_, _| {}).await
    }

    /// Sets the lease anew. A reader that has its hold together with others first leaves them for a hold of its own,
    /// and `replaces` their validity by that of its own.
    pub(crate) async fn extend_side(
        &self,
        lease: Duration,
        replaces: impl FnOnce(&Arc<Validity>, &Arc<Validity>) + Send,
    ) -> Result<(), Error> {
        let lease = Lease::Fixed(lease);
        let extend = async {
            let lease = lease.checked(self.of.engine.config.watchdog_timeout)?;
            self.extend_to(lease, replaces).await
        };
        self.of.engine.call(self.name(), extend).await
    }

    async fn extend_to(
        &self,
        lease: Duration,
        replaces: impl FnOnce(&Arc<Validity>, &Arc<Validity>),
    ) -> Result<(), Error> {
        let Self { of, granted, .. } = self;
        let engine = &of.engine;
        let mut session = self.session(lease).await?;
        granted.leave_joint(clock::now(), replaces);
        granted.asks_for(lease);
        let possession = &granted.possession;
        possession.holds.lock().asks_for_lease(Lease::Fixed(lease), lease, clock::now());
        let lock = (&*possession.names, &*possession.id());
        // Until Redis has answered something behind it, it may set this lease for the holder of that time.
        session.unanswered = true;
        let renewed = session.call.renew(&[lock], lease).await;
        session.record_answer(&renewed);
        let Renewed { held, sent, repeated } = renewed?;
        if let [Err(loss)] = *held {
            engine.losses.found_gone(possession, FoundBy::Extension, loss);
            // The lock may have been there still when Redis got the request for the first time.
            let outcome = if repeated { Outcome::Unknown } else { Outcome::NotExecuted };
            return Err(self.was_lost(outcome));
        }
        let extended = possession.holds.lock().extended(granted.hold, lease, sent, clock::now());
        if extended { Ok(()) } else { Err(self.was_lost(Outcome::Executed)) }
    }

    /// A session of its possession, in which this hold is valid.
    pub(super) async fn session(&self, lease: Duration) -> Result<PossessionSession<'_>, Error> {
        let Self { of, granted, .. } = self;
        let engine = &of.engine;
        if granted.validity.is_lost() {
            return Err(self.was_lost(Outcome::NotExecuted));
        }
        let call = Call::new(&engine.router, clock::now() + engine.config.command_timeout);
        let mut session =
            PossessionSession::new(call, granted.possession.clone(), &engine.releaser, None, lease);
        session.acquire_permit(clock::now()).await?;
        if granted.validity.is_lost() {
            return Err(self.was_lost(Outcome::NotExecuted));
        }
        Ok(session)
    }

    /// What a caller learns whose work the loss has stopped.
    pub(crate) fn not_held(&self) -> Error {
        self.was_lost(Outcome::NotExecuted).about(self.name())
    }

    pub(super) fn was_lost(&self, outcome: Outcome) -> Error {
        Error::lost(self.of.handle.names.key(), self.loss(), outcome)
    }

    pub(crate) async fn run_until_lost<F: Future>(&self, fut: F) -> Result<F::Output, Error> {
        let value = tokio::select! {
            biased;
            () = self.lost() => None,
            value = fut => Some(value),
        };
        match value {
            Some(value) if !self.is_lost() => Ok(value),
            _ => Err(self.not_held()),
        }
    }

    /// Adds to what its guard shows of itself.
    pub(crate) fn show(&self, shown: &mut fmt::DebugStruct<'_, '_>) {
        shown.field("name", &self.name()).field("owner", &self.owner());
        // In a forked child a mutex of the parent may be locked for ever.
        if self.of.engine.process.is_this_one() {
            let holds = self.granted.possession.holds.lock().live_with(self.granted.hold);
            shown.field("holds", &holds);
        }
        shown.field("remaining", &self.remaining());
        shown.field("lost", &self.is_lost()).field("loss", &self.loss());
    }
}

impl Drop for GuardInner {
    /// The path of a dropped guard begins here. It goes on with [`Releaser::give_back_held`], which hands the lock off
    /// or enqueues a job, and then with `release_in_background` on the client's thread.
    ///
    /// [`Releaser::give_back_held`]: crate::releaser::Releaser::give_back_held
    fn drop(&mut self) {
        let Some(_on) = self.local() else { return self.span.forget() };
        if self.unlocking {
            return self.ends(End::Released);
        }
        let now = clock::now();
        let how = if self.stays { GiveBack::AfterStay } else { GiveBack::Now };
        self.of.engine.releaser.give_back_held(&self.granted, how, now);
        // Behind that: what hears of it may panic.
        self.report_run_out("and then its guard was dropped", now);
        self.ends(End::Dropped);
        self.end_span();
    }
}
