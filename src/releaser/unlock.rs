//! An `unlock`: gives a hold back, and waits until Redis has confirmed that.
//!
//! 1. Before the first await, it removes the hold from the hold state, and hands the lock off if a waiter of this
//!    client can take it, or leaves it in a gap for those that may come back (see [`crate::possession`]). (The last reader
//!    of a client may stay for a moment before that.) From there on the client's thread asks Redis whether the hold was
//!    there to its end, and ends the gap, or the drop of the [`PossessionSession`] enqueues the release.
//! 2. Most unlocks of a contended lock only wait for a confirmation, which takes a small future; to ask Redis takes a
//!    large one. The guard boxes one of them, so they are apart.

use std::time::Instant;

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::handoff::gone_when_asked_again;
use crate::possession::{AcquiredHold, GiveBack, Held, Remains};
use crate::protocol::Call;
use crate::ready::let_ready_tasks_run;
use crate::spans;

use super::{PossessionSession, Releaser};

/// Whether Redis found the lock there when the hold had ended.
type Confirmation = oneshot::Receiver<Result<bool, Error>>;

/// A hold that its guard has given back, and what remains of it.
#[derive(Clone, Copy)]
pub(crate) struct ReturnedHold {
    pub(crate) begun: Instant,
    remains: Remains,
    /// The lock was lost before `unlock` was called.
    ran_out: bool,
}

impl ReturnedHold {
    /// Gives the hold back, unless it stays. In the same step, `leaves_side` has its
    /// handle read no more.
    pub(crate) fn begin(
        granted: &Held,
        how: GiveBack,
        begun: Instant,
        leaves_side: impl FnOnce(),
    ) -> Self {
        let ran_out = granted.validity.check(begun).is_none();
        let remains = granted.leave(how, begun, leaves_side);
        Self { begun, remains, ran_out }
    }

    /// Whether the guard has stayed, so that the hold has yet to be given back.
    pub(crate) fn stays(self) -> bool {
        self.remains == Remains::StillHeld
    }

    /// Gives the hold back now, after the guard has stayed. The lock was not lost when `unlock` was called.
    pub(crate) fn goes(self, granted: &Held, now: Instant, leaves_side: impl FnOnce()) -> Self {
        Self {
            ran_out: self.ran_out,
            ..Self::begin(granted, GiveBack::AfterStay, now, leaves_side)
        }
    }

    /// The hold state still counted the hold.
    fn counts(self) -> bool {
        self.remains != Remains::Lost
    }

    /// What the unlock came to, if Redis has nothing to hear of it.
    pub(crate) fn is_over(self, granted: &AcquiredHold) -> Option<Result<(), Error>> {
        (self.remains == Remains::Readers).then(|| self.outcome(granted, false))
    }

    fn outcome(self, granted: &AcquiredHold, executed: bool) -> Result<(), Error> {
        if self.counts() && !self.ran_out && !granted.validity.is_gone() {
            return Ok(());
        }
        let outcome = if executed { Outcome::Executed } else { Outcome::NotExecuted };
        Err(lost(granted, outcome))
    }
}

fn lost(granted: &AcquiredHold, outcome: Outcome) -> Error {
    let AcquiredHold { possession, validity, .. } = granted;
    Error::lost(possession.names.key(), validity.loss(clock::now()), outcome)
}

pub(crate) struct Unlock<'a> {
    session: PossessionSession<'a>,
    granted: &'a AcquiredHold,
    returned: ReturnedHold,
    /// It has handed the lock off, or left it in a gap.
    confirmation: Option<Confirmation>,
    /// It has left the lock in a gap, which has yet to end.
    gap: Option<oneshot::Receiver<()>>,
}

impl<'a> Unlock<'a> {
    pub(crate) fn begin(
        releaser: &'a Releaser,
        call: Call<'a>,
        granted: &'a AcquiredHold,
        returned: ReturnedHold,
    ) -> Self {
        let (possession, lease) = (granted.possession.clone(), granted.longest_lease());
        let session = PossessionSession::new(call, possession, releaser, None, lease);
        let mut unlock = Self { session, granted, returned, confirmation: None, gap: None };
        if returned.counts() {
            let waits = unlock.has_next_waiter();
            unlock.confirmation = if waits { unlock.hand_off() } else { unlock.begin_gap() };
        }
        unlock
    }

    fn begin_gap(&mut self) -> Option<Confirmation> {
        let left = self.session.releaser.begin_gap(&self.session.possession)?;
        self.session.ends();
        self.gap = Some(left.ended);
        Some(left.confirmation)
    }

    fn has_next_waiter(&self) -> bool {
        let PossessionSession { releaser, possession, .. } = &self.session;
        releaser.handoffs.waiters.has_next_waiter(&possession.names)
    }

    fn hand_off(&mut self) -> Option<Confirmation> {
        let PossessionSession { releaser, possession, permit, .. } = &self.session;
        let (confirm, confirmation) = oneshot::channel();
        let handed_off = releaser.hand_off(possession, permit.as_ref(), Some(confirm));
        handed_off.then(|| {
            spans::handed_off();
            self.session.ends();
            confirmation
        })
    }

    pub(crate) fn awaits_confirmation(&self) -> bool {
        self.confirmation.is_some()
    }

    /// Waits until Redis has confirmed that the hold was there to its end, and until the gap has ended that it has left.
    pub(crate) async fn await_confirmation(&mut self) -> Result<(), Error> {
        let confirmation = self.confirmation.take().expect("BUG: no confirmation to wait for");
        let mut executed = self.confirmed(confirmation).await;
        // If the hold was lost, the client's thread sees to the gap.
        if let Some(ended) = self.gap.take().filter(|_| executed.as_ref().is_ok_and(|there| *there))
        {
            executed = self.end_gap(ended).await.and(executed);
        }
        self.outcome(executed)
    }

    /// Lets those come back that were confirmed together with this one: they were woken before it. Then has the lock
    /// released, and fails if that is not answered: an `unlock` that is `Ok` leaves no lock behind with no holder.
    async fn end_gap(&self, mut ended: oneshot::Receiver<()>) -> Result<(), Error> {
        let_ready_tasks_run().await;
        let has_ended = ended.try_recv() != Err(TryRecvError::Empty);
        if has_ended {
            return Ok(());
        }
        self.session.releaser.release_gap(&self.session.possession);
        let ended = clock::timeout_at(self.session.call.deadline, ended).await;
        ended.map(drop).map_err(|_| self.unanswered())
    }

    fn unanswered(&self) -> Error {
        let message = format!("{} has not answered the release", self.session.redis());
        Error::new(ErrorKind::Unavailable, Outcome::Unknown, message)
    }

    async fn confirmed(&self, confirmation: Confirmation) -> Result<bool, Error> {
        let answer = clock::timeout_at(self.session.call.deadline, confirmation).await;
        let answer = answer.ok().and_then(Result::ok);
        let executed = answer.unwrap_or_else(|| Err(self.unanswered()))?;
        // Other holds may be lost by the same finding, and this one not be: a request that was not answered is about it.
        let AcquiredHold { possession, validity, .. } = self.granted;
        if !executed && possession.holds.lock().is_untold(validity) {
            return Err(gone_when_asked_again());
        }
        Ok(executed)
    }

    /// Has Redis release the lock, if no waiter of this client takes it after all.
    pub(crate) async fn release(&mut self) -> Result<(), Error> {
        let executed = self.hand_off_or_release().await;
        self.outcome(executed)
    }

    async fn hand_off_or_release(&mut self) -> Result<bool, Error> {
        let now = self.session.acquire_permit(self.returned.begun).await?;
        let hands_off = self.returned.counts() && self.has_next_waiter();
        let mut executed = false;
        let mut confirmation = if hands_off { self.hand_off() } else { None };
        if confirmation.is_none() {
            executed = self.session.send_release(now).await?;
            confirmation = self.confirmation_by_another()?;
        }
        match confirmation {
            Some(confirmation) => self.confirmed(confirmation).await,
            None => Ok(executed),
        }
    }

    /// Another call of this handle may have handed the lock off after this hold. If no request has said since that this
    /// hold was there, the client's thread asks. Fails if it has asked twice, and cannot tell any more.
    fn confirmation_by_another(&mut self) -> Result<Option<Confirmation>, Error> {
        let AcquiredHold { possession, validity, .. } = self.granted;
        let (needs_update, confirmation) = {
            let mut holds = possession.holds.lock();
            if holds.is_untold(validity) {
                return Err(gone_when_asked_again());
            }
            if !holds.is_unconfirmed(validity) {
                return Ok(None);
            }
            let (confirm, confirmation) = oneshot::channel();
            (holds.confirms_to(confirm), confirmation)
        };
        self.session.releaser.update_if(needs_update, possession);
        self.session.ends();
        Ok(Some(confirmation))
    }

    fn outcome(&self, executed: Result<bool, Error>) -> Result<(), Error> {
        let Self { granted, returned, .. } = self;
        executed.map_or_else(
            |error| {
                // The drop of the session, or the hand-off, goes on with it in the background.
                let holds = &granted.possession.holds;
                let goes_on = holds.lock().may_have_pending();
                let error = if goes_on { error.unknown() } else { error };
                // Whether or not Redis released it: it was lost before.
                Err(if returned.ran_out { lost(granted, error.outcome()) } else { error })
            },
            |executed| returned.outcome(granted, executed),
        )
    }
}
