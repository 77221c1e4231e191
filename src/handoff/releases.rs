//! A lock that is released to all clients instead of handed off.

use crate::clock;
use crate::error::{Error, ErrorKind, Outcome};
use crate::possession::Possession;
use crate::protocol::{Names, QueueEntry};
use crate::transport::{Router, ServerEpoch};

use super::Handoffs;

impl Handoffs {
    /// This client's entry in the queue of that lock, if Redis keeps one, for a request that brings it
    /// there.
    pub(crate) fn bring_entry(&self, names: &Names, ahead: bool) -> Option<QueueEntry> {
        names.is_in_order().then(|| self.waiters.bring_entry(names, &self.config, ahead))
    }

    /// A request to `server` has released the lock to all clients, and `receivers` of them have its
    /// message.
    pub(crate) fn freed(
        &self,
        possession: &Possession,
        receivers: Option<u32>,
        server: Option<ServerEpoch>,
        router: &Router,
    ) {
        self.note_release(possession, server, router);
        if !possession.names.is_in_order() {
            self.waiters.record_release(&possession.names, receivers);
        }
    }

    /// Notes the release for a server that has missed it and becomes responsible, or is already.
    pub(crate) fn note_release(
        &self,
        possession: &Possession,
        server: Option<ServerEpoch>,
        router: &Router,
    ) {
        let Some(server) = server else { return };
        let (names, granted) = (&possession.names, possession.granted_at());
        self.released_names.note(names, granted, server, clock::now());
        if router.server_of(names.key()) != server {
            self.released_names.moved_meanwhile.notify_one();
        }
    }
}

/// Redis had no hold when a request came for the second time, which it may have executed before.
pub(crate) fn gone_when_asked_again() -> Error {
    let message = "the lock was gone when it was asked for again";
    Error::new(ErrorKind::Unavailable, Outcome::Unknown, message)
}
