//! Sends the batches of a connection (see [`super::batch`]).

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use redis::{Arg, Cmd, RedisResult, Script, Value};

use super::Connection;
use super::batch::{BatchEntry, Batchable, MOST, Reply};
use crate::clock;
use crate::host::spawn;
use crate::ready::let_ready_tasks_run;
use crate::transport::error_class::{
    ErrorClass, classify, is_ask, is_cross_node, is_forbidden, is_unknown_script,
};

impl Connection {
    /// Adds a request to the next batch on this connection.
    pub(in crate::transport) fn entry(
        &self,
        cmd: Cmd,
        batch: Batchable,
        deadline: Instant,
    ) -> Arc<BatchEntry> {
        let entry = Arc::new(BatchEntry::new(cmd, batch, deadline));
        if self.batch_queue().push(entry.clone()) {
            let sender = BatchSender::new(self.clone(), Vec::new());
            spawn(async move {
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
            spawn(Self::new(self.connection.clone(), others).send_batch());
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
            let ended = "the runtime of a shared call has ended";
            let error = io::Error::new(io::ErrorKind::BrokenPipe, ended);
            entry.complete(Reply::Answer(Err(error.into())));
        }
        if !self.has_collected {
            for entry in self.connection.batch_queue().take_all() {
                entry.complete(Reply::Unbatched { sent: false });
            }
        }
    }
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
