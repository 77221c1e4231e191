//! An `unlock`: gives a hold back, and waits until Redis has confirmed that.
//!
//! 1. Before the first await, it removes the hold from the hold state, and hands the lock off if a
//!    waiter of this client can take it. From there on the client's thread finishes the hand-off, or
//!    the drop of the [`OwnerSession`] enqueues the release.
//! 2. To wait for the confirmation of a hand-off takes a small future, to ask Redis a large one. The
//!    guard boxes one of them, so they are apart: many waiters of one client hand off.

use std::sync::Arc;
use std::time::Instant;

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::handoff::Confirmation;
use crate::lease::Validity;
use crate::owner::{Granted, Owner};
use crate::protocol::Session;
use crate::spans;

use super::{OwnerSession, Releaser};

pub(crate) struct Unlock<'a> {
    session: OwnerSession<'a>,
    validity: &'a Validity,
    begun: Instant,
    /// The lock was lost before `unlock` was called.
    ran_out: bool,
    /// The hold state still counted the hold.
    counts: bool,
    handed_off: Option<Option<Confirmation>>,
}

impl<'a> Unlock<'a> {
    pub(crate) fn begin(
        releaser: &'a Releaser,
        call: Session<'a>,
        owner: &'a Arc<Owner>,
        granted: &'a Granted,
        begun: Instant,
    ) -> Self {
        let Granted { hold, validity, .. } = granted;
        let ran_out = validity.check(begun).is_none();
        let counts = owner.holds.lock().give_back(*hold);
        let handed_off =
            counts.then(|| releaser.hand_off_and_enqueue(owner, &mut None, true)).flatten();
        let lease = granted.longest_lease();
        let session = OwnerSession::new(call, owner, releaser, None, lease);
        Self { session, validity, begun, ran_out, counts, handed_off }
    }

    pub(crate) fn is_handed_off(&self) -> bool {
        self.handed_off.is_some()
    }

    /// Waits until Redis has confirmed the hand-off.
    pub(crate) async fn await_handoff(&mut self) -> Result<(), Error> {
        let confirmation = self.handed_off.take().flatten();
        let executed = self.confirmed(confirmation).await;
        self.outcome(executed)
    }

    async fn confirmed(&mut self, confirmation: Option<Confirmation>) -> Result<bool, Error> {
        let confirmation = confirmation.expect("BUG: a hand-off without a confirmation");
        spans::handed_off();
        match clock::timeout_at(self.session.call.deadline, confirmation).await {
            // For example, no memory for a token: a release needs none.
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Server => {
                Box::pin(self.refused(error)).await
            }
            Ok(Ok(confirmed)) => confirmed,
            _ => {
                let message = "no answer for a hand-off";
                Err(Error::new(ErrorKind::Unavailable, Outcome::Unknown, message))
            }
        }
    }

    async fn refused(&mut self, error: Error) -> Result<bool, Error> {
        let now = self.session.acquire_permit(clock::now()).await.map_err(|_| error)?;
        self.session.send_release(now).await
    }

    /// Has Redis release the lock, if no waiter of this client takes it after all.
    pub(crate) async fn release(&mut self) -> Result<(), Error> {
        let executed = self.hand_off_or_release().await;
        self.outcome(executed)
    }

    async fn hand_off_or_release(&mut self) -> Result<bool, Error> {
        let session = &mut self.session;
        let now = session.acquire_permit(self.begun).await?;
        let hand_off =
            || session.releaser.hand_off_and_enqueue(session.owner, &mut session.permit, true);
        match self.counts.then(hand_off).flatten() {
            None => session.send_release(now).await,
            Some(confirmation) => self.confirmed(confirmation).await,
        }
    }

    fn outcome(&self, executed: Result<bool, Error>) -> Result<(), Error> {
        let owner = self.session.owner;
        let executed = match executed {
            Ok(executed) => executed,
            Err(error) => {
                // The drop of the session, or the hand-off, goes on with it in the background.
                let goes_on = self.counts && owner.holds.lock().may_have_pending();
                let error = if goes_on { error.unknown() } else { error };
                // Whether or not Redis released it: it was lost before.
                return Err(if self.ran_out { self.lost(error.outcome()) } else { error });
            }
        };
        let released = self.counts && !self.ran_out && !self.validity.is_gone();
        if released {
            return Ok(());
        }
        let outcome = if executed { Outcome::Executed } else { Outcome::NotExecuted };
        Err(self.lost(outcome))
    }

    fn lost(&self, outcome: Outcome) -> Error {
        Error::lost(self.session.owner.names.key(), self.validity.loss(clock::now()), outcome)
    }
}
