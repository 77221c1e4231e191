//! What a call says: an error in an outage, and in the log that it waits long, or that tasks share its
//! handle.

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::events::{Holder, NESTED_IN_CLIENT, NESTED_IN_TASK};
use crate::handle::{Handle, is_of_this_task};
use crate::lease::whole_millis;
use crate::possession::Possession;

use super::Acquisition;

impl<Q> Acquisition<'_, Q> {
    pub(super) fn out_of_reach(&self, handle: &Handle) -> Error {
        let redis = self.engine.router.redis(Some(handle.names.key()), None);
        let message = format!("{redis} could not be reached while a call waited for the lock");
        Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
    }

    /// This task got a hold, `nested` in others of its handle or not. Logs it if tasks share the handle.
    pub(super) fn entered(&self, handle: &Handle, possession: &Possession, nested: bool) {
        let engine = self.engine;
        // Readers share a handle by design.
        if !handle.kind.is_shared() && handle.entered(possession, nested) {
            let of = (handle.names.key(), handle.id(&engine.possessions));
            engine.events.handle_shared(of, clock::now());
        }
    }

    /// Logs that this call waits long, and who has the lock.
    pub(super) fn waits_long(&self, handle: &Handle) {
        let Self { engine, begun, .. } = *self;
        let (now, name) = (clock::now(), handle.names.key());
        let waited = whole_millis(now.saturating_duration_since(begun));
        let holder = || {
            // What this client knows is newer than what Redis said to its last refusal.
            let own = engine.possessions.holders(&|key| key == name, now).into_iter().next();
            let (owner, until) = match &own {
                Some(own) => ((*own.id).into(), own.holds.lock().valid_until(now)),
                None => engine.waiters.holder(&handle.names).unwrap_or_default(),
            };
            let advice = match own.filter(|_| handle.is_first_wait_for_its_client()) {
                Some(own) if is_of_this_task(&own) => NESTED_IN_TASK,
                Some(_) => NESTED_IN_CLIENT,
                None => "",
            };
            let remaining = until.and_then(|until| until.checked_duration_since(now));
            Holder { owner: Some(owner), remaining_lease: remaining.map(whole_millis), advice }
        };
        engine.events.waits_long((name, handle.id(&engine.possessions)), waited, holder, now);
    }
}
