//! A refusal because of what this client itself has in Redis: a grant whose message got lost, or a hold whose
//! release a server has missed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::protocol::{Call, Grant, Names, ServerClock};
use crate::releaser::{Job, PossessionSession};

use super::Acquisition;

impl<Q> Acquisition<'_, Q> {
    /// Redis has refused a waiter of a fair lock. If that was because of a grant to this client whose message got
    /// lost, or has yet to come, the client hands the lock to its first waiter now, or releases it. The oldest
    /// one had come at `came`, as the request said.
    pub(super) fn take_own_grant(
        &self,
        names: &Names,
        holder: &str,
        remaining: Option<Duration>,
        came: Option<Instant>,
        sent: Instant,
        clock: Option<ServerClock>,
    ) {
        let Some(came) = came else { return };
        if let Some(grant) = Grant::of_refusal(names, holder, remaining, came, sent, clock) {
            self.engine.releaser.enqueue(Job::Granted(grant));
        }
    }

    /// Releases the lock if its holder is a possession of this client that holds nothing: the server has
    /// missed its release. False if the holder is another one, if it released the lock after the
    /// refusal, or if Redis does not answer.
    pub(super) async fn reclaim(
        &self,
        names: &Arc<Names>,
        holder: &str,
        deadline: Instant,
    ) -> bool {
        let engine = self.engine;
        let Some((idle, permit)) = engine.possessions.claim_idle(holder, names, None) else {
            return false;
        };
        let (call, lease) = (Call::new(&engine.router, deadline), engine.config.watchdog_timeout);
        let mut session =
            PossessionSession::new(call, idle.clone(), &engine.releaser, Some(permit), lease);
        let released = Box::pin(session.send_release(clock::now())).await.unwrap_or(false);
        if released {
            engine.events.release_missed((idle.names.key(), &idle.id()), clock::now());
        }
        released
    }
}
