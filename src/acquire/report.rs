//! What a call says: an error in an outage, and in the log that it waits long, or that tasks share its
//! handle.

use std::time::Instant;

use tracing::Instrument;

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::events::{Holder, NESTED_IN_CLIENT, NESTED_IN_TASK};
use crate::handle::{Handle, is_of_this_task};
use crate::host::spawn;
use crate::lease::whole_millis;
use crate::peer::Peer;
use crate::possession::Possession;
use crate::protocol::Call;

use super::{Acquisition, Question, Server};

impl<Q> Acquisition<'_, Q> {
    /// The server that the request is sent to.
    pub(super) fn server(&self) -> Server
    where
        Q: Question,
    {
        let key = self.question.handles()[self.question.asks_for()].names.key();
        let router = &self.engine.router;
        Server { name: router.redis(Some(key), None), round_trip: router.round_trip_of(key) }
    }

    pub(super) fn in_outage(&self, handle: &Handle) -> bool {
        let round_trip = self.engine.router.round_trip_of(handle.names.key());
        self.engine.waiters.in_outage(&handle.names, round_trip)
    }

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

    /// Logs that this call waits long, and who has the lock. Where another client is that has it, a task of its own
    /// asks: the call goes on waiting.
    pub(super) fn waits_long(&self, handle: &Handle) {
        let Self { engine, begun, .. } = *self;
        let (now, names) = (clock::now(), handle.names.clone());
        let waited = whole_millis(now.saturating_duration_since(begun));
        let owner = handle.id(&engine.possessions);
        let end = engine.events.waits_long((names.key(), owner), waited, now);
        let Some(end) = end else { return };
        let (mut holder, is_own) = self.holder(handle, now);
        let client = holder.owner.as_deref().and_then(Peer::client_of).map(str::to_owned);
        let Some(client) = client.filter(|_| !is_own) else {
            engine.events.warn_of_long_wait((names.key(), owner), waited, &holder, end);
            return;
        };
        let (router, events, owner) =
            (engine.router.clone(), engine.events.clone(), owner.to_owned());
        let warn = async move {
            let call = Call::new(&router, clock::now() + router.answer_timeout());
            if let Some(Peer { host, pid, label }) = call.whereabouts(&names, &client).await {
                (holder.label, holder.host, holder.pid) = (label, Some(host), Some(pid));
            }
            events.warn_of_long_wait((names.key(), &owner), waited, &holder, end);
        };
        spawn(engine.process.bind(warn).in_current_span());
    }

    /// Who has the lock, as far as the client knows without a request, and whether it is this client.
    fn holder(&self, handle: &Handle, now: Instant) -> (Holder, bool) {
        let Self { engine, .. } = *self;
        let name = handle.names.key();
        // What this client knows is newer than what Redis said to its last refusal.
        let own = engine.possessions.holders(&|key| key == name, now).into_iter().next();
        let (owner, until) = match &own {
            Some(own) => ((*own.id()).into(), own.holds.lock().valid_until(now)),
            None => engine.waiters.holder(&handle.names).unwrap_or_default(),
        };
        let is_own = own.is_some();
        let advice = match own.filter(|_| handle.is_first_wait_for_its_client()) {
            Some(own) if is_of_this_task(&own) => NESTED_IN_TASK,
            Some(_) => NESTED_IN_CLIENT,
            None => "",
        };
        let remaining = until.and_then(|until| until.checked_duration_since(now));
        let remaining_lease = remaining.map(whole_millis);
        (Holder { owner: Some(owner), remaining_lease, advice, ..Holder::default() }, is_own)
    }
}
