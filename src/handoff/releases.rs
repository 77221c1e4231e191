//! A lock that is released to all clients instead of handed off.

use std::time::Instant;

use crate::clock;
use crate::protocol::Names;
use crate::transport::{Router, Server};

use super::Handoffs;

impl Handoffs {
    /// This client is about to release the lock to all clients.
    pub(crate) fn frees(&self, names: &Names, now: Instant) {
        let (_, wake_list) = self.waiters.turn_ends(names, None, now);
        self.waiters.wake_all(wake_list);
    }

    /// A request to `server` has released the lock to all clients, and `receivers` of them have its
    /// message.
    pub(crate) fn freed(
        &self,
        names: &Names,
        receivers: Option<u32>,
        server: Option<Server>,
        router: &Router,
    ) {
        self.note_release(names, server, router);
        self.waiters.freed(names, receivers);
    }

    /// Notes the release for a server that has missed it and becomes responsible, or is already.
    pub(crate) fn note_release(&self, names: &Names, server: Option<Server>, router: &Router) {
        let Some(server) = server else { return };
        self.released_names.note(names, server, clock::now());
        if router.server_of(names.key()) != server {
            self.released_names.moved_meanwhile.notify_one();
        }
    }
}
