//! One connection: how it is made, and how an answer on it is waited for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::Push;
use super::abandoned::Identity;

/// One connection. What is sent on a clone of it comes after what was sent before.
#[derive(Clone)]
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    pub(super) number: u64,
    /// If the server says.
    pub(super) identity: Option<Arc<Identity>>,
    /// Its sender is dropped with the driver of the connection.
    driver: watch::Receiver<()>,
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
        let mut wire = Self { connection, number, identity: None, driver };
        let identity = tokio::time::timeout(timeout, Identity::of(&wire)).await;
        wire.identity = identity.map_err(io::Error::from)??.map(Arc::new);
        Ok(wire)
    }

    /// The answer to what was asked on this connection, or an error if its driver ends first.
    ///
    /// The driver's own word is not enough: a request that enters its queue just as it ends is
    /// neither sent nor refused, and would wait for ever.
    pub(super) async fn answer<T>(
        &self,
        asked: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let mut driver = self.driver.clone();
        tokio::select! {
            biased;
            answer = asked(self.connection.clone()) => answer,
            _ = driver.changed() => {
                let error = io::Error::new(io::ErrorKind::BrokenPipe, "the connection has ended");
                Err(error.into())
            }
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
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
