//! An `unlock`: a hold is given back, and Redis confirms it.
//!
//! 1. The hold goes in the account, and the lock perhaps to the next waiter of this client, before
//!    the first await. From there on the relay sees to it, or the drop of the [`Exchange`].
//! 2. To wait for the confirmation of a hand-off takes a small future, to ask Redis a large one. A
//!    caller puts either into a box, so they are apart: crowds of one client hand off.

use std::sync::Arc;
use std::time::Instant;

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::handoff::Confirmed;
use crate::holds::{Granted, Owner};
use crate::lease::Term;
use crate::protocol::Call;

use super::passage::confirmed;
use super::{Exchange, Releaser};

pub(crate) struct Unlock<'a> {
    exchange: Exchange<'a>,
    term: &'a Term,
    begun: Instant,
    /// The lock was lost before.
    ran_out: bool,
    /// The hold was still counted.
    counts: bool,
    handed_off: Option<Option<Confirmed>>,
}

impl<'a> Unlock<'a> {
    pub(crate) fn begin(
        releaser: &'a Releaser,
        call: Call<'a>,
        owner: &'a Arc<Owner>,
        granted: &'a Granted,
        begun: Instant,
    ) -> Self {
        let Granted { hold, term, lease, .. } = granted;
        let ran_out = term.until(begun).is_none();
        let counts = owner.account.lock().give_back(*hold);
        let handed_off = counts.then(|| releaser.hand_off(owner, &mut None, true)).flatten();
        let exchange = Exchange::new(call, owner, releaser, *lease);
        Self { exchange, term, begun, ran_out, counts, handed_off }
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_off.is_some()
    }

    /// Waits until Redis has confirmed the hand-off.
    pub(crate) async fn confirmed(&mut self) -> Result<(), Error> {
        let told = self.handed_off.take().flatten();
        let executed = match confirmed(told, self.exchange.call.deadline).await {
            // For want of memory for a token, say: a release needs none.
            Err(error) if error.kind() == ErrorKind::Server => Box::pin(self.refused(error)).await,
            confirmed => confirmed,
        };
        self.outcome(executed)
    }

    async fn refused(&mut self, error: Error) -> Result<bool, Error> {
        let now = self.exchange.enter(clock::now()).await.map_err(|_| error)?;
        self.exchange.pay(now).await
    }

    /// Has Redis release the lock, if no waiter of this client takes it after all.
    pub(crate) async fn paid(&mut self) -> Result<(), Error> {
        let executed = self.pay().await;
        self.outcome(executed)
    }

    async fn pay(&mut self) -> Result<bool, Error> {
        let exchange = &mut self.exchange;
        let now = exchange.enter(self.begun).await?;
        let hand_off = || exchange.releaser.hand_off(exchange.owner, &mut exchange.gate, true);
        match self.counts.then(hand_off).flatten() {
            None => exchange.pay(now).await,
            Some(told) => match confirmed(told, exchange.call.deadline).await {
                Err(error) if error.kind() == ErrorKind::Server => {
                    Box::pin(self.refused(error)).await
                }
                confirmed => confirmed,
            },
        }
    }

    fn outcome(&self, executed: Result<bool, Error>) -> Result<(), Error> {
        let owner = self.exchange.owner;
        let executed = match executed {
            Ok(executed) => executed,
            Err(error) => {
                // The drop of the exchange, or the relay, goes on with it in the background.
                let goes_on = self.counts && owner.account.lock().may_owe();
                let error = if goes_on { error.unknown() } else { error };
                // Whether or not it could be released: it was lost before.
                let lost = || Error::lost(owner.names.key(), error.outcome());
                return Err(if self.ran_out { lost() } else { error });
            }
        };
        let released = self.counts && !self.ran_out && !self.term.is_gone();
        if released {
            return Ok(());
        }
        let outcome = if executed { Outcome::Executed } else { Outcome::NotExecuted };
        Err(Error::lost(owner.names.key(), outcome))
    }
}
