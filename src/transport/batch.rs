//! Requests that share a call: many names in one run of a script cost the server, and this
//! process, far less than one name each.
//!
//! 1. **Nothing waits for company.** A request on a connection with hardly any under way is sent
//!    at once, by its own task. Else it takes a entry, and what has one leaves as soon as the tasks
//!    have run that were ready to run by then. No answer is waited for, and no timer.
//! 2. **A call is short.** It carries at most [`MOST`] requests.
//! 3. **Each is judged on its own**, by the script. A call that is refused as a whole, because
//!    the user may not use one of its keys, say, is as if nobody had shared it: each request is
//!    sent again, alone.
//! 4. **A call is one sending on one connection**, and a second one if the server did not know the
//!    script: without the requests whose deadlines have passed. Sending again is up to each
//!    request, so one whose caller has gone is never sent again, nor at all if it had not left by
//!    then. What did leave is over before its undo is sent: the undo waits for the entry.
//!
//! A line belongs to a connection, so all keys of a call are on one server. In a cluster they
//! have to be in one slot, too: there a call carries those who are.
//!
//! The mutexes of the line and of a entry are never held together, and nobody is woken under one.

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

/// With fewer calls under way a entry would cost more than it saves.
const FEW: usize = 2;

/// So many names take about a tenth of a millisecond of the server's time.
const MOST: usize = 32;

/// How a script is called that does the work of many: which, by which name it knows this request,
/// and how many of its arguments are keys.
#[derive(Clone, Copy)]
pub(crate) struct Batchable {
    pub(crate) script: &'static Script,
    pub(crate) verb: &'static str,
    pub(crate) keys: usize,
    /// In a cluster only what is in one slot can be in one call.
    pub(crate) slot: Option<u16>,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Reply {
    Answer(RedisResult<Value>),
    /// It has to be sent without company. The flag says whether it may have been executed.
    Unbatched {
        sent: bool,
    },
    /// Its deadline has passed. The flag says whether it may have been executed.
    TimedOut {
        sent: bool,
    },
}

/// The requests of one connection that share calls.
#[derive(Default)]
pub(super) struct BatchQueue {
    in_flight: AtomicUsize,
    entries: Mutex<Vec<Arc<BatchEntry>>>,
}

/// A request that was sent at once, while it is under way.
pub(super) struct InFlight<'a>(&'a BatchQueue);

impl BatchQueue {
    /// The right to send a request at once, if hardly any is under way.
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

/// One request's place in a call.
pub(super) struct BatchEntry {
    pub(super) cmd: Cmd,
    batch: Batchable,
    deadline: Instant,
    state: Mutex<State>,
}

enum State {
    /// Not sent, and whoever waits for it.
    Queued(Option<Waker>),
    /// On its way.
    Sent(Option<Waker>),
    /// It was never sent: the caller had gone before.
    Cancelled,
    /// `None` if the caller has heard it.
    Done(Option<Reply>),
}

impl BatchEntry {
    fn new(cmd: Cmd, batch: Batchable, deadline: Instant) -> Self {
        Self { cmd, batch, deadline, state: Mutex::new(State::Queued(None)) }
    }

    /// From here on it is sent. False if its caller has gone.
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

    /// The caller does not wait any longer: what has not left stays here.
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
        // Dropped when the mutex is free again: it may be all that is left of a task.
        let _before = match &mut *self.state.lock() {
            State::Cancelled => return Poll::Ready(None),
            State::Done(reply) => return Poll::Ready(reply.take()),
            State::Queued(waker) | State::Sent(waker) => waker.replace(cx.waker().clone()),
        };
        Poll::Pending
    }

    /// What becomes of the request. Whoever drops this leaves the entry.
    pub(super) async fn reply(&self) -> Reply {
        let caller = Caller(self);
        caller.0.done().await.unwrap_or(Reply::TimedOut { sent: true })
    }

    /// Waits until the request has been answered, or never will be. What became of it is for the
    /// first who asks.
    pub(super) async fn done(&self) -> Option<Reply> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

/// A caller who waits in a entry.
struct Caller<'a>(&'a BatchEntry);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Connection {
    /// Gives a request a entry in the next call on this connection.
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

/// Whoever sends a call. If it goes away with its runtime, so do the entries.
struct BatchSender {
    connection: Connection,
    /// Empty until it has set out.
    entries: Vec<Arc<BatchEntry>>,
    has_collected: bool,
    /// Whether what it carries may have been executed.
    sent: AtomicBool,
}

impl BatchSender {
    fn new(connection: Connection, entries: Vec<Arc<BatchEntry>>) -> Self {
        connection.batch_queue().in_flight.fetch_add(1, Ordering::Relaxed);
        let has_collected = !entries.is_empty();
        Self { connection, entries, has_collected, sent: AtomicBool::new(false) }
    }

    /// Takes everybody who has a entry, and carries them.
    async fn collect(mut self) {
        self.has_collected = true;
        let mut entries = self.connection.batch_queue().take_all();
        entries.retain(|entry| entry.start());
        // In the order in which they came, as far as they are in one slot.
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
                // A caller who was told that its request was not executed is not in the next call.
                Some(Ok(())) => {
                    self.time_out(clock::now());
                    self.entries.retain(|entry| !entry.is_done());
                }
            }
        }
    }

    /// The answer to all of them in one call. `None` if every deadline passed first.
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

    /// Waits until the last deadline. Each entry is told when its own has passed.
    async fn in_time<T>(&self, asked: impl Future<Output = T>) -> Option<T> {
        let mut asked = pin!(asked);
        while let Some(next) = self.next_deadline() {
            match clock::timeout_at(next, &mut asked).await {
                Ok(answer) => return Some(answer),
                Err(_) => self.time_out(clock::now()),
            }
        }
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.entries.iter().filter(|entry| !entry.is_done()).map(|entry| entry.deadline).min()
    }

    /// No answer, for those whose time is up.
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
            // Each may be at another of two nodes: one that is granted where it is not yet would be
            // granted twice.
            Err(error) if is_cross_node(&error) || is_ask(&error) => {
                for entry in &self.entries {
                    entry.complete(Reply::Unbatched { sent: false });
                }
            }
            Err(error) if matches!(classify(&error), ErrorClass::Fatal(_)) => {
                tracing::debug!(%error, "requests that shared a call are sent one by one");
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
        // Everybody has been told by now, unless the runtime ends.
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

/// One command that does what many do: their keys, then what to do for each, and its arguments.
fn batch_command(script: &Script, entries: &[Arc<BatchEntry>]) -> Cmd {
    // Behind the verb, the digest and the number of keys.
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
