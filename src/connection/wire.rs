//! One connection: how it is made, and how an answer on it is waited for.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisResult, Script, Value};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::Push;
use super::abandoned::Identity;
use super::together::{Line, Seat};

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
    number: u64,
    /// If the server says.
    identity: OnceLock<Arc<Identity>>,
    /// Its sender is dropped with the driver of the connection.
    driver: watch::Receiver<()>,
    line: Line,
}

impl Wire {
    pub(super) async fn dial(
        client: &redis::Client,
        number: u64,
        timeout: Duration,
        pushes: UnboundedSender<Push>,
    ) -> RedisResult<Self> {
        let (driving, driver) = watch::channel(());
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
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let (identity, line) = (OnceLock::new(), Line::default());
        let shared = Arc::new(Shared { connection, number, identity, driver, line });
        let wire = Self { shared, seat: None };
        let identity = tokio::time::timeout(timeout, Identity::of(&wire)).await;
        if let Some(identity) = identity.map_err(io::Error::from)?? {
            let _ = wire.shared.identity.set(Arc::new(identity));
        }
        Ok(wire)
    }

    /// The answer to a command, if there is one before the driver of the connection ends. Errors
    /// inside an array are part of the answer.
    pub(super) async fn ask(&self, cmd: &Cmd) -> RedisResult<Value> {
        let answer = self.answer(async |mut connection| connection.send_packed_command(cmd).await);
        match answer.await? {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
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
        let mut driver = self.shared.driver.clone();
        tokio::select! {
            biased;
            answer = asked(self.shared.connection.clone()) => answer,
            _ = driver.changed() => {
                let error = io::Error::new(io::ErrorKind::BrokenPipe, "the connection has ended");
                Err(error.into())
            }
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.shared.number
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

fn push(number: u64, info: PushInfo) -> Option<Push> {
    match (info.kind, info.data.into_iter().next()) {
        (PushKind::Message, Some(Value::BulkString(channel))) => {
            Some(Push::Message { channel: String::from_utf8(channel).ok()? })
        }
        (PushKind::Disconnection, _) => Some(Push::Cut { number }),
        _ => None,
    }
}
