//! Requests that share a command: one run of a script for many locks costs the server, and this
//! process, far less than a run for each.
//!
//! 1. **No request waits for others.** While few requests are under way on its connection, its own
//!    task sends it at once. Otherwise it gets a batch entry, and the batch is sent as soon as the
//!    tasks have run that were ready to run by then. It waits for no answer, and for no timer.
//! 2. **A batch is short.** It has at most [`MOST`] requests.
//! 3. **The script judges each request on its own.** If the server refuses a whole batch, because
//!    the user may not use one of its keys, say, each request is sent again, unbatched.
//! 4. **A batch is sent once, on one connection**, and a second time if the server did not know
//!    the script: without the requests whose deadlines have passed. Any other retry is up to each
//!    request. So a request whose caller has gone is never sent again, nor at all if it was not
//!    sent by then. One that was sent is over before its undo is sent: the undo waits for the
//!    entry.
//!
//! A batch queue belongs to a connection, so all keys of a batch are on one server. In a cluster a
//! batch has only requests of one slot.
//!
//! No task holds the mutexes of the queue and of an entry together, or wakes another under one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Cmd, RedisResult, Script, Value};

/// With fewer requests under way a batch would cost more than it saves.
const FEW: usize = 2;

/// So many requests take about a tenth of a millisecond of the server's time.
pub(super) const MOST: usize = 32;

/// How a request takes part in a batch: the script of the batch, the request's verb in it, and how
/// many of its arguments are keys.
#[derive(Clone, Copy)]
pub(crate) struct Batchable {
    pub(crate) script: &'static Script,
    pub(crate) verb: &'static str,
    pub(crate) keys: usize,
    /// In a cluster a batch has only requests of one slot.
    pub(crate) slot: Option<u16>,
}

/// How one sending of a request ended.
#[derive(Debug)]
pub(in crate::transport) enum Reply {
    Answer(RedisResult<Value>),
    /// It has to be sent unbatched. The flag says whether it may have been executed.
    Unbatched {
        sent: bool,
    },
    /// Its deadline has passed. The flag says whether it may have been executed.
    TimedOut {
        sent: bool,
    },
}

/// The requests that wait for the next batch on one connection.
#[derive(Default)]
pub(in crate::transport) struct BatchQueue {
    pub(super) in_flight: AtomicUsize,
    entries: Mutex<Vec<Arc<BatchEntry>>>,
}

/// A request that was sent at once, while it is under way.
pub(in crate::transport) struct InFlight<'a>(&'a BatchQueue);

impl BatchQueue {
    /// The right to send a request at once, if few are under way.
    pub(in crate::transport) fn at_once(&self) -> Option<InFlight<'_>> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) < FEW {
            return Some(InFlight(self));
        }
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Returns whether it is the first: then the caller has to start the task that sends them.
    pub(super) fn push(&self, entry: Arc<BatchEntry>) -> bool {
        let mut entries = self.entries.lock();
        entries.push(entry);
        entries.len() == 1
    }

    pub(super) fn take_all(&self) -> Vec<Arc<BatchEntry>> {
        std::mem::take(&mut *self.entries.lock())
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One request in a batch.
pub(in crate::transport) struct BatchEntry {
    pub(in crate::transport) cmd: Cmd,
    pub(super) batch: Batchable,
    pub(super) deadline: Instant,
    state: Mutex<State>,
}

enum State {
    /// Not sent yet. With the waker of the task that waits.
    Queued(Option<Waker>),
    /// Sent, and not answered yet.
    Sent(Option<Waker>),
    /// It is never sent: its caller has gone.
    Cancelled,
    /// `None` if the caller has taken the reply.
    Done(Option<Reply>),
}

impl BatchEntry {
    pub(super) fn new(cmd: Cmd, batch: Batchable, deadline: Instant) -> Self {
        Self { cmd, batch, deadline, state: Mutex::new(State::Queued(None)) }
    }

    /// Marks it as sent. False if its caller has gone.
    pub(super) fn start(&self) -> bool {
        let mut state = self.state.lock();
        match &mut *state {
            State::Queued(waker) => {
                *state = State::Sent(waker.take());
                true
            }
            State::Cancelled | State::Sent(_) | State::Done(_) => false,
        }
    }

    pub(super) fn complete(&self, reply: Reply) {
        let waker = match &mut *self.state.lock() {
            State::Cancelled | State::Done(_) => return,
            state => match std::mem::replace(state, State::Done(Some(reply))) {
                State::Queued(waker) | State::Sent(waker) => waker,
                State::Cancelled | State::Done(_) => None,
            },
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(*self.state.lock(), State::Cancelled | State::Done(_))
    }

    /// Whether the request will never be sent.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(*self.state.lock(), State::Cancelled)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Reply>> {
        // Dropped when the mutex is free again: it may be the last reference to a task.
        let _before = match &mut *self.state.lock() {
            State::Cancelled => return Poll::Ready(None),
            State::Done(reply) => return Poll::Ready(reply.take()),
            State::Queued(waker) | State::Sent(waker) => waker.replace(cx.waker().clone()),
        };
        Poll::Pending
    }

    /// Waits for the reply. A caller that drops this future cancels an unsent request.
    pub(in crate::transport) async fn reply(&self) -> Reply {
        let caller = Caller(self);
        caller.0.done().await.unwrap_or(Reply::TimedOut { sent: true })
    }

    /// Waits until the request has been answered, or never will be. Only the first caller gets the
    /// reply.
    pub(in crate::transport) async fn done(&self) -> Option<Reply> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

/// A caller that waits for an entry.
struct Caller<'a>(&'a BatchEntry);

impl Drop for Caller<'_> {
    /// The caller does not wait any longer: an unsent request is never sent.
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Queued(_)) {
            *state = State::Cancelled;
        }
    }
}
