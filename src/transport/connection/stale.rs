//! Connections that this client has dropped, and what the server may still execute of them.
//!
//! A server can execute a request after the client has dropped the connection that carried it: the
//! request may be in the network, in a proxy, or in the server's socket. Behind a newer request
//! that does harm: an old release frees a new hold, an old acquire leaves a lock without a holder.
//!
//! 1. **The server closes the stale connections before it gets anything newer.** What it has not
//!    executed by then it never executes. That costs one round trip, however many there are.
//!    At a server that is out of use the client's thread closes them without waiting for a newer
//!    request: the server may come back with what other clients have been granted meanwhile.
//! 2. **Dropping a connection records it, by type.** The connection and its driver share a
//!    [`ConnectionRecord`], and each of the two records it as stale in its own `Drop`. So a
//!    timeout, a runtime that ends, a new topology and `close` all come through here. A record
//!    stays until that server has confirmed that the connection is closed.
//! 3. **A server is known by its run id**, whichever address leads to it. A restarted server has
//!    another run id, and no connection survives the restart. The address stands in for the run id
//!    where the user has no permission for `INFO`.
//! 4. A connection is identified by its id *and* its address, because a server that was restarted
//!    counts ids from one again and must not close a connection of another client.
//! 5. For a user without permission for `CLIENT INFO` or `CLIENT KILL` none of this works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::host::HashMap;

/// What tells one server process from every other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ServerId {
    Run(Box<str>),
    /// For a server that does not tell its run id.
    Address(Box<str>),
}

/// A connection as its server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: Box<str>,
    pub(super) address: Box<str>,
}

impl Identity {
    /// From the answer to `CLIENT INFO`.
    pub(super) fn parse(info: &str) -> Option<Self> {
        let field = |name| info.split_whitespace().find_map(|word| word.strip_prefix(name));
        Some(Self { id: field("id=")?.into(), address: field("addr=")?.into() })
    }
}

/// The stale connections of one client, for each server that it has ever connected to.
#[derive(Default)]
pub(super) struct Servers(Mutex<HashMap<ServerId, Arc<StaleConnections>>>);

impl Servers {
    pub(super) fn of(&self, server: ServerId) -> Arc<StaleConnections> {
        self.0.lock().entry(server).or_default().clone()
    }
}

/// What one connection and its driver share: its record, once it is stale.
pub(in crate::transport) struct ConnectionRecord {
    number: u64,
    /// Completed when it is stale, and recorded.
    stale: Once,
    /// Set before the first request is sent, if the server identifies the connection.
    at: OnceLock<(Identity, Arc<StaleConnections>)>,
    /// Notified when the connection is stale.
    ended: Notify,
}

impl ConnectionRecord {
    pub(super) fn new(number: u64) -> Self {
        Self { number, stale: Once::new(), at: OnceLock::new(), ended: Notify::new() }
    }

    pub(super) fn identified(&self, identity: Identity, server: Arc<StaleConnections>) {
        let _ = self.at.set((identity, server));
    }

    /// From now on no new request uses the connection, and its server has to close it before it
    /// gets one on another. When this returns, the record exists, also if another caller made it.
    pub(in crate::transport) fn mark_stale(&self) {
        self.stale.call_once(|| {
            if let Some((identity, server)) = self.at.get() {
                server.add(self.number, identity.clone());
            }
        });
        self.ended.notify_waiters();
    }

    /// Completes when the connection is stale: a task dropped it, or it broke.
    pub(in crate::transport) async fn ended(&self) {
        loop {
            // Before the look, so that an end in between is not missed.
            let ended = self.ended.notified();
            if self.is_stale() {
                return;
            }
            ended.await;
        }
    }

    /// The connection has never carried a request for a lock: there is nothing to record.
    pub(in crate::transport) fn carried_no_request(&self) {
        self.stale.call_once(|| {});
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale.is_completed()
    }

    /// The stale connections to the server of this one.
    pub(super) fn others(&self) -> Option<&StaleConnections> {
        self.at.get().map(|(_, server)| &**server)
    }
}

/// The stale connections to one server.
#[derive(Default)]
pub(super) struct StaleConnections {
    /// Whether `list` is not empty: usually all that a request has to check.
    any: AtomicBool,
    list: Mutex<Vec<(u64, Identity)>>,
}

impl StaleConnections {
    fn add(&self, number: u64, identity: Identity) {
        let mut list = self.list.lock();
        list.push((number, identity));
        self.any.store(true, Ordering::Release);
    }

    /// The server has closed that one.
    pub(super) fn remove(&self, number: u64) {
        let mut list = self.list.lock();
        list.retain(|(other, _)| *other != number);
        self.any.store(!list.is_empty(), Ordering::Release);
    }

    /// Whether there is anything to close.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(super) fn list(&self) -> Vec<(u64, Identity)> {
        self.list.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(id: &str) -> Identity {
        Identity { id: id.into(), address: "127.0.0.1:4711".into() }
    }

    #[test]
    fn a_connection_is_identified_by_its_id_and_its_address() {
        let info = "id=37 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name= user=default";
        assert_eq!(Identity::parse(info), Some(identity("37")));
        assert_eq!(Identity::parse("id=37 laddr=127.0.0.1:6379"), None);
    }

    #[test]
    fn a_server_is_one_under_all_its_addresses_and_another_after_a_restart() {
        let servers = Servers::default();
        let [one, again, restarted] =
            ["run a", "run a", "run b"].map(|run| servers.of(ServerId::Run(run.into())));
        assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &restarted));
    }

    #[test]
    fn a_connection_is_recorded_once_however_often_it_is_marked_stale() {
        let server = Arc::new(StaleConnections::default());
        let record = ConnectionRecord::new(7);
        record.identified(identity("37"), server.clone());
        assert!(!record.is_stale() && !server.any());
        record.mark_stale();
        record.mark_stale();
        assert!(record.is_stale() && server.any());
        assert_eq!(server.list.lock().len(), 1);
        server.remove(7);
        record.mark_stale();
        assert!(!server.any());
    }
}
