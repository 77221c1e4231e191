//! One connection: how it is made, and how an answer on it is waited for.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, RedisResult, Script, Value};
use tokio::sync::mpsc::UnboundedSender;

use super::Push;
use super::abandoned::{Abandoned, Identity};
use super::pulse::{Driving, Pulse};
use super::together::{Line, Seat, Told};
use super::version;
use crate::clock;

/// One connection. What is sent on a clone of it comes after what was sent before.
#[derive(Clone)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
    /// The seat of the last request that was sent by way of this clone, if it shares a call. It
    /// has to be over before what is sent next is behind it.
    pub(super) seat: Option<Arc<Seat>>,
}

struct Shared {
    connection: MultiplexedConnection,
    birth: Birth,
    /// If the server says.
    identity: OnceLock<Arc<Identity>>,
    pulse: Arc<Pulse>,
    line: Line,
}

/// Where a connection comes from.
pub(super) struct Birth {
    pub(super) number: u64,
    /// The address that it was made to.
    pub(super) server: String,
    /// What else was connected to that server and given up.
    pub(super) abandoned: Arc<Abandoned>,
    /// Dials since a command was last answered.
    pub(super) unanswered: Arc<AtomicU32>,
}

impl Wire {
    pub(super) async fn dial(
        client: &redis::Client,
        birth: Birth,
        timeout: Duration,
        pushes: UnboundedSender<Push>,
    ) -> RedisResult<Self> {
        let number = birth.number;
        let pulse = Arc::new(Pulse::default());
        let driving = Driving(pulse.clone());
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            // Deadlines are this room's own: the driver's default of 500 ms would report a
            // slow server's grant as a failure.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |info| {
                let _goes_with_the_driver = &driving;
                match push(number, info) {
                    Some(push) => pushes.send(push),
                    None => Ok(()),
                }
            });
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(version::understood)?;
        tokio::spawn(pulse.clone().keep());
        let (identity, line) = (OnceLock::new(), Line::default());
        let shared = Arc::new(Shared { connection, birth, identity, pulse, line });
        let wire = Self { shared, seat: None };
        let identity = tokio::time::timeout(timeout, Identity::of(&wire)).await;
        if let Some(identity) = identity.map_err(io::Error::from)?? {
            let _ = wire.shared.identity.set(Arc::new(identity));
        }
        Ok(wire)
    }

    /// The answer to a command, if there is one in time and before the driver of the connection
    /// ends.
    pub(super) async fn ask(&self, cmd: &Cmd, deadline: Instant) -> Told {
        let mut connection = self.shared.connection.clone();
        let mut asked = pin!(connection.send_packed_command(cmd));
        let pulse = &self.shared.pulse;
        loop {
            let beat = pulse.beat();
            if pulse.has_ended() {
                return Told::Answer(Err(ended()));
            }
            pulse.by(deadline);
            tokio::select! {
                biased;
                answer = &mut asked => return Told::Answer(answer.and_then(top_level_error)),
                () = beat => {}
            }
            if clock::now() >= deadline {
                return Told::Silence { sent: true };
            }
        }
    }

    /// The same where a key is taken in whose slot is about to belong to the server.
    pub(super) async fn ask_aside(&self, cmd: &Cmd, deadline: Instant) -> Told {
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(cmd.clone());
        let asked =
            self.answer(async |mut connection| connection.send_packed_commands(&both, 1, 1).await);
        match clock::timeout_at(deadline, asked).await {
            Ok(answer) => Told::Answer(
                answer.and_then(|mut answers| top_level_error(answers.pop().unwrap_or(Value::Nil))),
            ),
            Err(_) => Told::Silence { sent: true },
        }
    }

    /// Each of several commands, in order. Errors are answers.
    pub(super) async fn send_all(&self, cmds: &redis::Pipeline) -> RedisResult<Vec<Value>> {
        let many = cmds.len();
        self.answer(async |mut connection| connection.send_packed_commands(cmds, 0, many).await)
            .await
    }

    /// The same, however long it takes.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let answer = self.answer(async |mut connection| connection.send_packed_command(cmd).await);
        answer.await.and_then(top_level_error)
    }

    /// Has the server learn a script.
    pub(super) async fn teach(&self, script: &Script) -> RedisResult<()> {
        self.answer(async |mut connection| script.load_async(&mut connection).await).await.map(drop)
    }

    /// The answer to what was asked on this connection, or an error if its driver ends first.
    ///
    /// The driver's own word is not enough: a request that enters its queue just as it ends is
    /// neither sent nor refused, and would wait for ever.
    pub(super) async fn answer<T>(
        &self,
        asked: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        tokio::select! {
            biased;
            answer = asked(self.shared.connection.clone()) => answer,
            () = self.shared.pulse.ended() => Err(ended()),
        }
    }

    /// Nobody waits for an answer on it any more: what was asked is asked again elsewhere.
    pub(super) fn end(&self) {
        self.shared.pulse.end();
    }

    pub(crate) fn number(&self) -> u64 {
        self.shared.birth.number
    }

    /// The address of the server.
    pub(super) fn server(&self) -> &str {
        &self.shared.birth.server
    }

    pub(super) fn abandoned(&self) -> &Abandoned {
        &self.shared.birth.abandoned
    }

    /// A command was answered: the next cut is a new one.
    pub(super) fn answered(&self) {
        let unanswered = &self.shared.birth.unanswered;
        if unanswered.load(Ordering::Relaxed) != 0 {
            unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the last request by way of this clone will never be sent.
    pub(super) fn is_left(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.is_left())
    }

    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.shared.identity.get()
    }

    pub(super) fn line(&self) -> &Line {
        &self.shared.line
    }
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
    match (info.kind, info.data.into_iter().next()) {
        (PushKind::Message | PushKind::SMessage, Some(Value::BulkString(channel))) => {
            Some(Push::Message { channel: String::from_utf8(channel).ok()? })
        }
        (PushKind::SUnsubscribe, Some(Value::BulkString(channel))) => {
            Some(Push::Dropped { number, channel: String::from_utf8(channel).ok()? })
        }
        (PushKind::Disconnection, _) => Some(Push::Cut { number }),
        _ => None,
    }
}
