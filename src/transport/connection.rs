//! One connection: how it is made, and how requests wait for answers on it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, PushInfo, PushKind, RedisError, RedisResult,
    Script, Value,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::error_class::is_fatal;
use super::{Push, version};
use crate::clock;
use crate::host::{Driven, connect, here, spawn};

pub(super) mod batch;
mod deadline;
pub(super) mod dial;
mod introduce;
pub(super) mod pace;
pub(super) mod runtime_slot;
mod silence;
mod stale;

use batch::{BatchEntry, BatchQueue, Reply};
use deadline::DeadlineTimer;
pub(super) use introduce::{ask_first, is_primary};
use silence::Silence;
use stale::{ConnectionRecord, Identity, StaleConnections};

/// One connection. A request on a clone of it comes after what was sent before.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    /// The entry of the last request that was sent through this clone, if it is in a batch. The
    /// next request waits until that one is over, so that it is behind it.
    pub(super) entry: Option<Arc<BatchEntry>>,
}

struct Shared {
    driven: Driven,
    info: ConnectionInfo,
    record: Arc<ConnectionRecord>,
    timer: Arc<DeadlineTimer>,
    batch_queue: BatchQueue,
    silence: Silence,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.record.mark_stale();
    }
}

/// Dropped with the driver of a connection.
struct Driver {
    record: Arc<ConnectionRecord>,
    timer: Arc<DeadlineTimer>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // First: a caller that learns of the end sends again, after the stale ones are closed.
        self.record.mark_stale();
        self.timer.end();
    }
}

/// Where a connection comes from.
struct ConnectionInfo {
    number: u64,
    /// The address to which it was made.
    server: String,
    /// To reach the server again.
    client: redis::Client,
}

impl Connection {
    /// Makes a connection. Call [`introduce`](Self::introduce) before any request uses it. The
    /// server may take `answer_timeout` for each answer.
    async fn dial(
        info: ConnectionInfo,
        answer_timeout: Duration,
        pushes: UnboundedSender<Push>,
    ) -> RedisResult<Self> {
        let number = info.number;
        let record = Arc::new(ConnectionRecord::new(number));
        let timer = Arc::new(DeadlineTimer::default());
        let driver = Driver { record: record.clone(), timer: timer.clone() };
        let config = AsyncConnectionConfig::new()
            // This module has its own deadlines: the driver's default of 500 ms would report a
            // slow server's grant as a failure.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |info| {
                let _goes_with_the_driver = &driver;
                push(number, info).map_or(Ok(()), |push| pushes.send(push))
            });
        let begun = clock::now();
        let driven = open(&info.client, config, answer_timeout).await?;
        let opened = clock::now().saturating_duration_since(begun);
        spawn(timer.clone().run());
        let batch_queue = BatchQueue::default();
        let silence = Silence::new(opened / round_trips(&info.client));
        let shared = Arc::new(Shared { driven, info, record, timer, batch_queue, silence });
        Ok(Self { shared, entry: None })
    }

    /// Sends a command. Returns its answer, if that comes in time and before the driver of the
    /// connection ends.
    pub(super) async fn ask(&self, cmd: &Cmd, deadline: Instant) -> Reply {
        let mut multiplexed = self.shared.driven.connection.clone();
        let mut request = pin!(multiplexed.send_packed_command(cmd));
        let timer = &self.shared.timer;
        let tick = timer.tick();
        if timer.has_ended() {
            return Reply::NotSent(ended());
        }
        timer.by(deadline);
        tokio::select! {
            biased;
            answer = &mut request => return Reply::Answer(answer.and_then(top_level_error)),
            () = tick => {}
        }
        if clock::now() >= deadline {
            return Reply::TimedOut { sent: true };
        }
        // Rare, and each waiting request has the size of this future.
        Box::pin(self.answer_in_time(request, deadline)).await
    }

    /// The answer to a request whose deadline is not the next one: it has a timer of its own.
    async fn answer_in_time(
        &self,
        request: impl Future<Output = RedisResult<Value>>,
        deadline: Instant,
    ) -> Reply {
        let answer = async {
            tokio::select! {
                biased;
                answer = request => answer.and_then(top_level_error),
                () = self.shared.timer.ended() => Err(ended()),
            }
        };
        let answer = clock::timeout_at(deadline, answer).await;
        answer.map_or(Reply::TimedOut { sent: true }, Reply::Answer)
    }

    /// Sends a command, behind an `ASKING`, to a server that is about to get the slot of the key. Returns the answer as
    /// [`ask`](Self::ask) does.
    pub(super) async fn ask_with_asking(&self, cmd: &Cmd, deadline: Instant) -> Reply {
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(cmd.clone());
        let asked = self
            .answer(async |mut multiplexed| multiplexed.send_packed_commands(&both, 1, 1).await);
        match clock::timeout_at(deadline, asked).await {
            Ok(answer) => Reply::Answer(
                answer.and_then(|mut answers| top_level_error(answers.pop().unwrap_or(Value::Nil))),
            ),
            Err(_) => Reply::TimedOut { sent: true },
        }
    }

    /// Sends several commands, in order. Errors are answers.
    pub(super) async fn send_all(&self, cmds: &redis::Pipeline) -> RedisResult<Vec<Value>> {
        let many = cmds.len();
        self.answer(async |mut multiplexed| multiplexed.send_packed_commands(cmds, 0, many).await)
            .await
    }

    /// Sends one command, however long the answer takes.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let answer =
            self.answer(async |mut multiplexed| multiplexed.send_packed_command(cmd).await);
        answer.await.and_then(top_level_error)
    }

    /// Loads a script into the server.
    pub(super) async fn load_script(&self, script: &Script) -> RedisResult<()> {
        self.answer(async |mut multiplexed| script.load_async(&mut multiplexed).await)
            .await
            .map(drop)
    }

    /// Loads several scripts into the server, all at once.
    async fn load_scripts(&self, scripts: Vec<&'static Script>) -> RedisResult<()> {
        let mut loads = JoinSet::new();
        for script in scripts {
            let connection = self.clone();
            loads.spawn(here(async move { connection.load_script(script).await }));
        }
        let mut loaded = Ok(());
        while let Some(load) = loads.join_next().await {
            loaded = loaded.and(load.unwrap_or_else(|_| Err(ended())));
        }
        loaded
    }

    /// Has the server close the stale connections to it, if there are any. Callers that come
    /// meanwhile do the same: none may wait for another, whose future may not be polled any more.
    /// Fails if this connection broke or is stale itself, and while the server is busy.
    pub(super) async fn close_stale(&self) -> RedisResult<()> {
        let Some(stale) = self.stale_connections() else { return Ok(()) };
        let list = stale.list();
        // Another caller was faster.
        if list.is_empty() {
            return Ok(());
        }
        if list.iter().any(|(number, _)| *number == self.number()) {
            let stale = "the connection is stale";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, stale).into());
        }
        let mut kills = redis::pipe();
        for (_, Identity { id, address }) in &list {
            let kill = kills.cmd("CLIENT").arg("KILL");
            kill.arg("ID").arg(&**id).arg("ADDR").arg(&**address);
        }
        let answers = self.send_all(&kills).await?;
        for ((number, _), answer) in list.into_iter().zip(answers) {
            match answer.extract_error() {
                Err(error) if !is_fatal(&error) => return Err(error),
                Err(error) => tracing::debug!(%error, "may not close a stale connection"),
                Ok(_) => {}
            }
            stale.remove(number);
        }
        Ok(())
    }

    /// The answer to a request on this connection, or an error if its driver ends first.
    ///
    /// The driver's own error is not enough: a request that enters its queue just as it ends is
    /// neither sent nor refused, and would wait forever.
    pub(super) async fn answer<T>(
        &self,
        asked: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        tokio::select! {
            biased;
            answer = asked(self.shared.driven.connection.clone()) => answer,
            () = self.shared.timer.ended() => Err(ended()),
        }
    }

    /// Ends it although requests wait for answers: callers send them again on another connection.
    pub(super) fn end(&self) {
        self.shared.record.mark_stale();
        self.shared.timer.end();
    }

    /// To reach its server again.
    pub(super) fn client(&self) -> &redis::Client {
        &self.shared.info.client
    }

    pub(crate) fn number(&self) -> u64 {
        self.shared.info.number
    }

    /// The address of the server.
    pub(super) fn server(&self) -> &str {
        &self.shared.info.server
    }

    /// The stale connections to the same server, if it is known and there are any.
    fn stale_connections(&self) -> Option<&StaleConnections> {
        self.shared.record.others().filter(|stale| stale.any())
    }

    /// Whether the connection is stale.
    pub(super) fn record(&self) -> &Arc<ConnectionRecord> {
        &self.shared.record
    }

    /// Whether something has to be over before the next request is sent through this clone.
    pub(super) fn has_to_wait(&self) -> bool {
        self.entry.is_some() || self.stale_connections().is_some()
    }
}

/// Connects to a server, which may take `answer_timeout` for each answer.
pub(super) async fn open(
    client: &redis::Client,
    config: AsyncConnectionConfig,
    answer_timeout: Duration,
) -> RedisResult<Driven> {
    let config = config.set_connection_timeout(None);
    let connected = connect(client, config);
    clock::within(answer_timeout * round_trips(client), connected)
        .await
        .map_err(version::understood)
}

/// Until a connection can send commands: TCP, TLS and `HELLO`.
fn round_trips(client: &redis::Client) -> u32 {
    if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) { 4 } else { 2 }
}

fn ended() -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection has ended").into()
}

/// Errors inside an array are part of the answer.
fn top_level_error(answer: Value) -> RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

fn push(number: u64, info: PushInfo) -> Option<Push> {
    let mut data = info.data.into_iter();
    match (info.kind, data.next()) {
        (PushKind::Message | PushKind::SMessage, Some(Value::BulkString(channel))) => {
            let channel = String::from_utf8(channel).ok()?;
            let payload = match data.next() {
                Some(Value::BulkString(payload)) => payload,
                _ => Vec::new(),
            };
            Some(Push::Message { channel, payload })
        }
        (PushKind::SUnsubscribe, Some(Value::BulkString(channel))) => {
            Some(Push::Dropped { number, channel: String::from_utf8(channel).ok()? })
        }
        (PushKind::Disconnection, _) => Some(Push::Cut { number }),
        _ => None,
    }
}
