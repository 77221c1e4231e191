//! What a call says: an error in an outage, and in the log that it waits long, or that tasks share its
//! handle.

use std::time::Instant;

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::handle::is_of_this_task;
use crate::lease::whole_millis;
use crate::possession::Possession;

use super::Acquisition;

impl Acquisition<'_> {
    pub(super) fn out_of_reach(&self) -> Error {
        let redis = self.engine.router.redis(Some(self.handle.names.key()), None);
        let message = format!("{redis} could not be reached while a call waited for the lock");
        Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
    }

    /// This task got a hold, `nested` in others of its handle or not. Logs it if tasks share the handle.
    pub(super) fn entered(&self, possession: &Possession, nested: bool) {
        const SHARED: &str = "two tasks hold a lock at the same time, unless its guard was moved to \
            this one: a handle re-enters, and they share one; a task that has to wait for the others \
            needs a clone of it";
        if !self.handle.entered(possession, nested) {
            return;
        }
        let (handle, possessions) = (self.handle, &self.engine.possessions);
        let (name, owner) = (handle.names.key(), handle.id(possessions));
        match self.engine.waiters.shared_handles.admit(clock::now()) {
            Some(others) => tracing::warn!(name, owner, "{SHARED}{others}"),
            None => tracing::debug!(name, owner, "{SHARED}"),
        }
    }

    /// This call waits since before `warn_at`. Logs that, and who has the lock.
    pub(super) fn waits_long(&self, warn_at: Instant) {
        let Self { engine, handle, .. } = *self;
        let (now, name) = (clock::now(), handle.names.key());
        let threshold = engine.config.warn_waits_longer_than;
        let waited = whole_millis(threshold + now.saturating_duration_since(warn_at));
        let Some(others) = engine.waiters.long_waits.admit(now) else {
            tracing::debug!(
                name,
                owner = handle.id(&engine.possessions),
                ?waited,
                "a call waits long for a lock"
            );
            return;
        };
        // What this client knows is newer than what Redis said to its last refusal.
        let own = engine.possessions.holders(&|key| key == name, now).into_iter().next();
        let (holder, until) = match &own {
            Some(own) => ((*own.id).into(), own.holds.lock().valid_until(now)),
            None => engine.waiters.holder(&handle.names).unwrap_or_default(),
        };
        let advice = match own.filter(|_| handle.is_first_wait_for_its_client()) {
            Some(own) if is_of_this_task(&own) => {
                "; this task holds it by another handle: a nested call needs the same handle"
            }
            Some(_) => {
                "; this client holds it by another handle: a call that is nested in that hold \
                 needs the same handle"
            }
            None => "",
        };
        let lease = until.and_then(|until: Instant| until.checked_duration_since(now));
        let remaining_lease = lease.map(|lease| tracing::field::debug(whole_millis(lease)));
        tracing::warn!(
            name,
            owner = handle.id(&engine.possessions),
            ?waited,
            holder,
            remaining_lease,
            "a call waits long for a lock{advice}{others}"
        );
    }
}
