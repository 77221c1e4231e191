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

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Arg, Cmd, RedisError, RedisResult, Script, Value};

use super::Connection;
use super::error_class::{
    ErrorClass, classify, is_ask, is_cross_node, is_forbidden, is_unknown_script,
};
use crate::clock;
use crate::ready::let_ready_tasks_run;

/// With fewer requests under way a batch would cost more than it saves.
const FEW: usize = 2;

/// So many requests take about a tenth of a millisecond of the server's time.
const MOST: usize = 32;

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
pub(super) enum Reply {
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
pub(super) struct BatchQueue {
    in_flight: AtomicUsize,
    entries: Mutex<Vec<Arc<BatchEntry>>>,
}

/// A request that was sent at once, while it is under way.
pub(super) struct InFlight<'a>(&'a BatchQueue);

impl BatchQueue {
    /// The right to send a request at once, if few are under way.
    pub(super) fn at_once(&self) -> Option<InFlight<'_>> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) < FEW {
            return Some(InFlight(self));
        }
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn take_all(&self) -> Vec<Arc<BatchEntry>> {
        std::mem::take(&mut *self.entries.lock())
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One request in a batch.
pub(super) struct BatchEntry {
    pub(super) cmd: Cmd,
    batch: Batchable,
    deadline: Instant,
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
    fn new(cmd: Cmd, batch: Batchable, deadline: Instant) -> Self {
        Self { cmd, batch, deadline, state: Mutex::new(State::Queued(None)) }
    }

    /// Marks it as sent. False if its caller has gone.
    fn start(&self) -> bool {
        let mut state = self.state.lock();
        match &mut *state {
            State::Queued(waker) => {
                *state = State::Sent(waker.take());
                true
            }
            State::Cancelled | State::Sent(_) | State::Done(_) => false,
        }
    }

    fn complete(&self, reply: Reply) {
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

    /// The caller does not wait any longer: an unsent request is never sent.
    fn cancel(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Queued(_)) {
            *state = State::Cancelled;
        }
    }

    fn is_done(&self) -> bool {
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
    pub(super) async fn reply(&self) -> Reply {
        let caller = Caller(self);
        caller.0.done().await.unwrap_or(Reply::TimedOut { sent: true })
    }

    /// Waits until the request has been answered, or never will be. Only the first caller gets the
    /// reply.
    pub(super) async fn done(&self) -> Option<Reply> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

/// A caller that waits for an entry.
struct Caller<'a>(&'a BatchEntry);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Connection {
    /// Adds a request to the next batch on this connection.
    pub(super) fn entry(&self, cmd: Cmd, batch: Batchable, deadline: Instant) -> Arc<BatchEntry> {
        let entry = Arc::new(BatchEntry::new(cmd, batch, deadline));
        let mut entries = self.batch_queue().entries.lock();
        entries.push(entry.clone());
        if entries.len() == 1 {
            drop(entries);
            let sender = BatchSender::new(self.clone(), Vec::new());
            tokio::spawn(async move {
                let_ready_tasks_run().await;
                sender.collect().await;
            });
        }
        entry
    }
}

/// Sends a batch. If its runtime ends, it completes the entries when it is dropped.
struct BatchSender {
    connection: Connection,
    /// Empty until it has collected them.
    entries: Vec<Arc<BatchEntry>>,
    has_collected: bool,
    /// Whether the batch may have been executed.
    sent: AtomicBool,
}

impl BatchSender {
    fn new(connection: Connection, entries: Vec<Arc<BatchEntry>>) -> Self {
        connection.batch_queue().in_flight.fetch_add(1, Ordering::Relaxed);
        let has_collected = !entries.is_empty();
        Self { connection, entries, has_collected, sent: AtomicBool::new(false) }
    }

    /// Takes all queued entries, and sends them.
    async fn collect(mut self) {
        self.has_collected = true;
        let mut entries = self.connection.batch_queue().take_all();
        entries.retain(|entry| entry.start());
        // Those of one slot stay in the order in which they came.
        entries.sort_by_key(|entry| entry.batch.slot);
        while let Some(last) = entries.last() {
            let slot = last.batch.slot;
            let from = entries.partition_point(|entry| entry.batch.slot < slot);
            let others = entries.split_off(from.max(entries.len().saturating_sub(MOST)));
            if entries.is_empty() {
                self.entries = others;
                break;
            }
            tokio::spawn(Self::new(self.connection.clone(), others).send_batch());
        }
        self.send_batch().await;
    }

    async fn send_batch(mut self) {
        let Some(first) = self.entries.first() else { return };
        let script = first.batch.script;
        loop {
            let Some(answer) = self.ask(script).await else { return };
            match answer {
                Err(error) if is_unknown_script(&error) && self.entries.len() > 1 => {}
                answer => return self.distribute(answer),
            }
            self.sent.store(false, Ordering::Relaxed);
            match self.in_time(self.connection.load_script(script)).await {
                None => return,
                Some(Err(error)) => return self.distribute(Err(error)),
                // A request that was reported as not executed is not sent the second time.
                Some(Ok(())) => {
                    self.time_out(clock::now());
                    self.entries.retain(|entry| !entry.is_done());
                }
            }
        }
    }

    /// Sends all entries in one command. `None` if every deadline passes first.
    async fn ask(&self, script: &Script) -> Option<RedisResult<Value>> {
        let batch;
        let cmd = match &*self.entries {
            [] => return None,
            [only] => &only.cmd,
            entries => {
                batch = batch_command(script, entries);
                &batch
            }
        };
        self.sent.store(true, Ordering::Relaxed);
        self.in_time(self.connection.send(cmd)).await
    }

    /// Waits until the last deadline. Each entry times out at its own.
    async fn in_time<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let mut request = pin!(request);
        while let Some(next) = self.next_deadline() {
            match clock::timeout_at(next, &mut request).await {
                Ok(answer) => return Some(answer),
                Err(_) => self.time_out(clock::now()),
            }
        }
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.entries.iter().filter(|entry| !entry.is_done()).map(|entry| entry.deadline).min()
    }

    /// Completes the entries whose deadlines have passed.
    fn time_out(&self, now: Instant) {
        for entry in self.entries.iter().filter(|entry| entry.deadline <= now) {
            entry.complete(Reply::TimedOut { sent: self.sent.load(Ordering::Relaxed) });
        }
    }

    fn distribute(&self, answer: RedisResult<Value>) {
        match answer {
            answer if self.entries.len() == 1 => self.entries[0].complete(Reply::Answer(answer)),
            Ok(Value::Array(answers)) if answers.len() == self.entries.len() => {
                for (entry, answer) in self.entries.iter().zip(answers) {
                    entry.complete(Reply::Answer(answer.extract_error()));
                }
            }
            // Each key may be on either of two nodes: a lock that is granted on the wrong one would
            // be granted twice.
            Err(error) if is_cross_node(&error) || is_ask(&error) => {
                for entry in &self.entries {
                    entry.complete(Reply::Unbatched { sent: false });
                }
            }
            Err(error) if matches!(classify(&error), ErrorClass::Fatal(_)) => {
                tracing::debug!(%error, "the requests of a batch are sent one by one");
                let sent = !is_forbidden(&error);
                for entry in &self.entries {
                    entry.complete(Reply::Unbatched { sent });
                }
            }
            answer => {
                for entry in &self.entries {
                    entry.complete(Reply::Answer(answer.clone()));
                }
            }
        }
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        self.connection.batch_queue().in_flight.fetch_sub(1, Ordering::Relaxed);
        // Every entry is complete by now, unless the runtime ends.
        for entry in &self.entries {
            entry.complete(Reply::Answer(Err(ended())));
        }
        if !self.has_collected {
            for entry in self.connection.batch_queue().take_all() {
                entry.complete(Reply::Unbatched { sent: false });
            }
        }
    }
}

fn ended() -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the runtime of a shared call has ended").into()
}

/// One command for all entries: their keys, then the verb and the arguments of each.
fn batch_command(script: &Script, entries: &[Arc<BatchEntry>]) -> Cmd {
    // Behind the command's name, the digest and the number of keys.
    const FROM: usize = 3;
    let mut cmd = Cmd::with_capacity(FROM + 7 * entries.len(), 256 * entries.len());
    let keys: usize = entries.iter().map(|entry| entry.batch.keys).sum();
    cmd.arg("EVALSHA").arg(script.get_hash()).arg(keys);
    for BatchEntry { cmd: one, batch, .. } in entries.iter().map(|entry| &**entry) {
        push(&mut cmd, one.args_iter().skip(FROM).take(batch.keys));
    }
    for BatchEntry { cmd: one, batch, .. } in entries.iter().map(|entry| &**entry) {
        cmd.arg(batch.verb);
        push(&mut cmd, one.args_iter().skip(FROM + batch.keys));
    }
    cmd
}

fn push<'a>(cmd: &mut Cmd, args: impl Iterator<Item = Arg<&'a [u8]>>) {
    for arg in args {
        if let Arg::Simple(arg) = arg {
            cmd.arg(arg);
        }
    }
}
