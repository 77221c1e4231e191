//! Who waits for replicas: the pure state (see [`crate::transport::replicas`]).

use parking_lot::Mutex;
use redis::{Cmd, RedisError, Script};
use tokio::sync::oneshot;

/// How to write a granted lock again as it is.
#[derive(Clone)]
pub(crate) struct Rewrite {
    pub(crate) cmd: Cmd,
    pub(crate) script: &'static Script,
}

/// How many replicas have the lock, or the error that kept the client from finding out.
pub(crate) type Replicated = Result<u64, Option<RedisError>>;

/// One caller: what it was granted, and where it waits.
type Caller = (Rewrite, oneshot::Sender<Replicated>);

/// The callers that wait for replicas of one server.
#[derive(Default)]
pub(in crate::transport) struct ReplicaQueue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<Caller>,
    /// Whether a task sends for the callers.
    busy: bool,
}

impl ReplicaQueue {
    /// Returns whether the caller has to start the task that sends.
    pub(in crate::transport) fn join(&self, caller: Caller) -> bool {
        let mut state = self.0.lock();
        state.waiting.push(caller);
        !std::mem::replace(&mut state.busy, true)
    }

    /// Empty if no caller waits: then the next caller that joins starts a task again.
    pub(in crate::transport) fn take(&self) -> Vec<Caller> {
        let mut state = self.0.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        // A caller that has gone needs no answer.
        waiting.retain(|(_, told)| !told.is_closed());
        state.busy = !waiting.is_empty();
        waiting
    }
}
