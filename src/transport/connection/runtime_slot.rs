//! One runtime's connection to a server, for one purpose. Its supervisor makes it and keeps it.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::RedisError;
use tokio::task::AbortHandle;

use super::pace::Pace;
use super::{Connection, Shared};
use crate::clock;
use crate::host::Runtime;
use crate::signal;
use crate::transport::coalescer::Coalescer;
use crate::transport::rewrite::{Replicated, Rewrite};

/// Holds one runtime's connection to a server, for one purpose.
pub(in crate::transport) struct RuntimeSlot {
    runtime: Runtime,
    /// A task that does nothing but end with its runtime.
    resident: AbortHandle,
    state: Mutex<State>,
    supervisor: Mutex<Option<AbortHandle>>,
    /// Notified of each dial that has ended.
    dialed: signal::Sender,
    /// The callers that wait for replicas there.
    pub(in crate::transport) queue: Arc<Coalescer<Rewrite, Replicated>>,
}

#[derive(Default)]
struct State {
    /// The connection in use, and since when it is.
    connection: Option<(Connection, Instant)>,
    /// The connections that were taken out of use before, and on which requests may still wait for answers.
    forgotten: Vec<Weak<Shared>>,
    has_supervisor: bool,
    pace: Pace,
    /// How long the last successful dial took.
    dial_time: Duration,
    /// The error of the last dial, until one succeeds.
    error: Option<RedisError>,
}

impl State {
    /// Takes the connection out of use, if `which` accepts it.
    fn take(&mut self, which: impl FnOnce(&Connection) -> bool) -> Option<Connection> {
        let (connection, since) = self.connection.take_if(|(connection, _)| which(connection))?;
        let now = clock::now();
        self.pace.record_end(now.saturating_duration_since(since), now);
        Some(connection)
    }
}

impl RuntimeSlot {
    pub(in crate::transport) fn new(runtime: Runtime) -> Self {
        Self {
            resident: runtime.spawn(std::future::pending::<()>()).abort_handle(),
            runtime,
            state: Mutex::default(),
            supervisor: Mutex::default(),
            dialed: signal::Sender::default(),
            queue: Arc::default(),
        }
    }

    pub(in crate::transport) fn runtime_has_ended(&self) -> bool {
        self.resident.is_finished()
    }

    /// The connection in use.
    pub(in crate::transport) fn in_use(&self) -> Option<Connection> {
        let state = self.state.lock();
        let in_use = state.connection.as_ref().map(|(connection, _)| connection);
        in_use.filter(|connection| !connection.record().is_stale()).cloned()
    }

    /// Takes the connection out of use, if `which` accepts it. Requests go on waiting on it, until the
    /// slot [leaves](Self::leave) its server.
    pub(in crate::transport) fn forget(
        &self,
        which: impl FnOnce(&Connection) -> bool,
    ) -> Option<Connection> {
        let mut state = self.state.lock();
        let connection = state.take(which)?;
        // So that they cannot pile up.
        state.forgotten.retain(|forgotten| forgotten.strong_count() > 0);
        state.forgotten.push(Arc::downgrade(&connection.shared));
        Some(connection)
    }

    /// Takes the connection out of use, if `which` accepts it, because its server must not be used any more. Returns
    /// also the connections that were taken out of use before, if requests still wait on them.
    pub(in crate::transport) fn leave(
        &self,
        which: impl FnOnce(&Connection) -> bool,
    ) -> Vec<Connection> {
        let mut state = self.state.lock();
        let in_use = state.take(which);
        let forgotten = std::mem::take(&mut state.forgotten);
        // The last clone of a connection stops its driver.
        drop(state);
        let waited_on = forgotten.iter().filter_map(Weak::upgrade);
        let waited_on = waited_on.map(|shared| Connection { shared, entry: None });
        in_use.into_iter().chain(waited_on).collect()
    }

    /// Starts the supervisor that makes the connection, unless there is one.
    pub(in crate::transport) fn supervise<F>(&self, supervisor: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if std::mem::replace(&mut self.state.lock().has_supervisor, true) {
            return;
        }
        // Not under the mutex: a runtime that has ended drops it at once.
        let supervisor = self.runtime.spawn(supervisor());
        *self.supervisor.lock() = Some(supervisor.abort_handle());
    }

    pub(in crate::transport) fn has_no_supervisor(&self) {
        self.state.lock().has_supervisor = false;
        self.dialed.send();
    }

    /// Ends a dial that is under way. The next caller begins another.
    pub(in crate::transport) fn stop(&self) {
        if let Some(supervisor) = self.supervisor.lock().take() {
            supervisor.abort();
        }
    }

    pub(in crate::transport) fn dial_time(&self) -> Duration {
        self.state.lock().dial_time
    }

    /// Notifies of each dial that has ended.
    pub(in crate::transport) fn dialed(&self) -> signal::Receiver {
        self.dialed.subscribe()
    }

    /// Whether a caller waits for the dial that is under way.
    pub(in crate::transport) fn is_awaited(&self) -> bool {
        self.dialed.is_awaited()
    }

    /// The error of the last dial, until one succeeds.
    pub(in crate::transport) fn error(&self) -> Option<RedisError> {
        self.state.lock().error.clone()
    }

    /// When the next dial may begin, after a pause that is no longer than that.
    pub(in crate::transport) fn not_before(&self, longest_pause: Duration) -> Option<Instant> {
        self.state.lock().pace.not_before(longest_pause)
    }

    /// The slot has another server now, about which nothing is known.
    pub(in crate::transport) fn reset_backoff(&self) {
        self.state.lock().pace = Pace::default();
    }

    pub(in crate::transport) fn record_failure(&self, error: RedisError) {
        let mut state = self.state.lock();
        state.pace.record_failure(clock::now());
        state.error = Some(error);
        drop(state);
        self.dialed.send();
    }

    /// From now on requests use this connection; but not if another server has become the primary
    /// since the dial began: then `is_there` is false. The node moves to that server before it
    /// searches the slots for connections to the old one: so either this sees it, or the search
    /// finds this connection.
    pub(in crate::transport) fn install(
        &self,
        connection: &Connection,
        begun: Instant,
        is_there: impl FnOnce(&str) -> bool,
    ) -> bool {
        let (number, now) = (connection.number(), clock::now());
        let mut state = self.state.lock();
        if !is_there(connection.server()) {
            return false;
        }
        let before = state.connection.replace((connection.clone(), now));
        state.dial_time = now.saturating_duration_since(begun);
        state.error = None;
        state.pace.connected();
        drop(state);
        drop(before);
        tracing::debug!(connection = number, server = connection.server(), "connected to Redis");
        self.dialed.send();
        true
    }
}

impl Drop for RuntimeSlot {
    fn drop(&mut self) {
        self.stop();
        self.resident.abort();
    }
}
