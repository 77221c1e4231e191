//! Requests that share a command: one run of a script for many locks costs the server, and this
//! process, far less than a run for each.
//!
//! 1. **No request waits for others.** While few requests are under way on its connection, its own
//!    task sends it at once. Otherwise it gets a batch entry, and the batch is sent as soon as the
//!    tasks have run that were ready to run by then. It waits for no answer, and for no timer.
//! 2. **A batch is short.** It has at most [`MAX_BATCH`] requests.
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

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use redis::{Arg, Cmd, RedisError, RedisResult, Script, Value};

use super::Connection;
use crate::clock;
use crate::host::spawn;
use crate::metrics::Operation;
use crate::transport::coalescer::{Coalescer, Entry, Gatherer, Joined, Unanswered};
use crate::transport::error_class::{
    ErrorClass, classify, is_ask, is_cross_node, is_fatal, is_not_begun, is_unknown_script,
};

/// While at most this many requests are under way, the next one goes alone: a batch would cost more than it saves.
const MAX_UNBATCHED: usize = 2;

/// The most requests in one batch. This many take about a tenth of a millisecond of the server's time.
const MAX_BATCH: usize = 32;

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
#[derive(Debug, Clone)]
pub(in crate::transport) enum Reply {
    Answer(RedisResult<Value>),
    /// The connection was lost before the server could execute the request.
    NotSent(RedisError),
    /// The request has to be sent without a batch. The flag says whether the server may have executed it.
    Unbatched {
        sent: bool,
    },
    /// The deadline of the request has passed. The flag says whether the server may have executed it.
    TimedOut {
        sent: bool,
    },
}

impl Unanswered for Reply {
    fn unanswered(was_sent: bool) -> Self {
        let ended = "the runtime of a shared call has ended";
        match was_sent {
            true => Self::Answer(Err(io::Error::new(io::ErrorKind::BrokenPipe, ended).into())),
            false => Self::Unbatched { sent: false },
        }
    }
}

/// One request in a batch.
pub(in crate::transport) struct Batched {
    pub(in crate::transport) cmd: Cmd,
    batch: Batchable,
    deadline: Instant,
    operation: Operation,
    /// Whether this request is the first of its batch whose operation went well.
    pub(in crate::transport) counts: AtomicBool,
}

pub(in crate::transport) type BatchEntry = Entry<Batched, Reply>;

/// The requests of one connection that may be sent in batches.
#[derive(Default)]
pub(super) struct BatchQueue {
    /// Shared by each batch that is under way, and each request that was sent at once.
    in_flight: Arc<()>,
    waiting: Arc<Coalescer<Batched, Reply>>,
}

impl Connection {
    /// The right to send a request at once, while it is under way, if few are.
    pub(in crate::transport) fn at_once(&self) -> Option<Arc<()>> {
        let in_flight = &self.shared.batch_queue.in_flight;
        (Arc::strong_count(in_flight) <= MAX_UNBATCHED).then(|| in_flight.clone())
    }

    /// Adds a request to the next batch on this connection.
    pub(in crate::transport) fn entry(
        &self,
        cmd: Cmd,
        batch: Batchable,
        deadline: Instant,
        operation: Operation,
    ) -> Arc<BatchEntry> {
        let request = Batched { cmd, batch, deadline, operation, counts: AtomicBool::new(false) };
        let (entry, gatherer) = self.shared.batch_queue.waiting.join(request);
        if let Some(gatherer) = gatherer {
            // Tokio would move the large future several times.
            spawn(Box::pin(BatchSender::new(self.clone(), Vec::new()).collect(gatherer)));
        }
        entry
    }

    /// Whether the last request through this clone will never be sent.
    pub(in crate::transport) fn is_cancelled(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.is_cancelled())
    }
}

/// Sends a batch.
struct BatchSender {
    connection: Connection,
    entries: Vec<Joined<Batched, Reply>>,
    _in_flight: Arc<()>,
}

impl BatchSender {
    fn new(connection: Connection, entries: Vec<Joined<Batched, Reply>>) -> Self {
        let _in_flight = connection.shared.batch_queue.in_flight.clone();
        Self { connection, entries, _in_flight }
    }

    /// Takes all that have joined, and sends them.
    async fn collect(mut self, mut gatherer: Gatherer<Batched, Reply>) {
        let Some(mut entries) = gatherer.gather(false).await else { return };
        // Those of one slot stay in the order in which they came.
        entries.sort_by_key(|entry| entry.request.batch.slot);
        while let Some(last) = entries.last() {
            let slot = last.request.batch.slot;
            let from = entries.partition_point(|entry| entry.request.batch.slot < slot);
            let others = entries.split_off(from.max(entries.len().saturating_sub(MAX_BATCH)));
            if entries.is_empty() {
                self.entries = others;
                break;
            }
            spawn(Box::pin(Self::new(self.connection.clone(), others).send_batch()));
        }
        self.send_batch().await;
    }

    async fn send_batch(mut self) {
        let Some(first) = self.entries.first() else { return };
        let script = first.request.batch.script;
        loop {
            let Some(answer) = self.ask(script).await else { return };
            match answer {
                Err(error) if is_unknown_script(&error) && self.entries.len() > 1 => {}
                answer => return self.distribute(answer),
            }
            match self.in_time(self.connection.load_script(script), false).await {
                None => return,
                Some(Err(error)) if classify(&error) == ErrorClass::ConnectionLost => {
                    return self.complete_all(Reply::NotSent(error));
                }
                Some(Err(error)) => return self.distribute(Err(error)),
                // A request that was reported as not executed is not sent the second time.
                Some(Ok(())) => {
                    self.time_out(clock::now(), false);
                    self.entries.retain(|entry| !entry.is_over());
                }
            }
        }
    }

    /// Sends all entries in one command. `None` if every deadline passes first.
    async fn ask(&self, script: &Script) -> Option<RedisResult<Value>> {
        let batch;
        let cmd = match &*self.entries {
            [] => return None,
            [only] => &only.request.cmd,
            entries => {
                batch = batch_command(script, entries);
                &batch
            }
        };
        self.in_time(self.connection.send(cmd), true).await
    }

    /// Waits until the last deadline. Each entry times out at its own: `sent` says whether the batch
    /// may be executed meanwhile.
    async fn in_time<T>(&self, request: impl Future<Output = T>, sent: bool) -> Option<T> {
        let mut request = pin!(request);
        while let Some(next) = self.next_deadline() {
            match clock::timeout_at(next, &mut request).await {
                Ok(answer) => return Some(answer),
                Err(_) => self.time_out(clock::now(), sent),
            }
        }
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.entries.iter().filter(|entry| !entry.is_over());
        waiting.map(|entry| entry.request.deadline).min()
    }

    /// Completes the entries whose deadlines have passed.
    fn time_out(&self, now: Instant, sent: bool) {
        for entry in self.entries.iter().filter(|entry| entry.request.deadline <= now) {
            entry.complete(Reply::TimedOut { sent });
        }
    }

    fn distribute(&self, answer: RedisResult<Value>) {
        let reply = match answer {
            answer if self.entries.len() == 1 => {
                self.entries[0].request.counts.store(true, Ordering::Relaxed);
                return self.entries[0].complete(Reply::Answer(answer));
            }
            Ok(Value::Array(answers)) if answers.len() == self.entries.len() => {
                let mut counted = 0_u32;
                for (entry, answer) in self.entries.iter().zip(answers) {
                    let answer = answer.extract_error();
                    let operation = 1 << entry.request.operation as u32;
                    if answer.is_ok() && counted & operation == 0 {
                        counted |= operation;
                        entry.request.counts.store(true, Ordering::Relaxed);
                    }
                    entry.complete(Reply::Answer(answer));
                }
                return;
            }
            // Each key may be on either of two nodes: a lock that is granted on the wrong one would
            // be granted twice.
            Err(error) if is_cross_node(&error) || is_ask(&error) => {
                Reply::Unbatched { sent: false }
            }
            Err(error) if is_fatal(&error) => {
                tracing::debug!(%error, "the requests of a batch are sent one by one");
                Reply::Unbatched { sent: !is_not_begun(&error) }
            }
            answer => Reply::Answer(answer),
        };
        self.complete_all(reply);
    }

    fn complete_all(&self, reply: Reply) {
        for entry in &self.entries {
            entry.complete(reply.clone());
        }
    }
}

/// One command for all requests: their keys, then the verb and the arguments of each.
fn batch_command(script: &Script, entries: &[Joined<Batched, Reply>]) -> Cmd {
    // The command's name, the digest and the number of keys.
    const WORDS_BEFORE_KEYS: usize = 3;
    let requests = || entries.iter().map(|entry| &entry.request);
    let mut cmd = Cmd::with_capacity(WORDS_BEFORE_KEYS + 7 * entries.len(), 256 * entries.len());
    let keys: usize = requests().map(|request| request.batch.keys).sum();
    cmd.arg("EVALSHA").arg(script.get_hash()).arg(keys);
    for Batched { cmd: one, batch, .. } in requests() {
        push(&mut cmd, one.args_iter().skip(WORDS_BEFORE_KEYS).take(batch.keys));
    }
    for Batched { cmd: one, batch, .. } in requests() {
        cmd.arg(batch.verb);
        push(&mut cmd, one.args_iter().skip(WORDS_BEFORE_KEYS + batch.keys));
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
