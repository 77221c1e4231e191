//! The real machine, the only one without the feature `test-util`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};
use tokio::runtime::{self, Handle};
use tokio::task::JoinHandle;

pub(crate) use super::{real_lane as lane, real_machine as machine, real_thread as spawn_thread};

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Hashes a text: to the same number as long as the process lives.
pub(crate) fn hash(text: &str) -> u64 {
    static SEED: LazyLock<foldhash::fast::RandomState> = LazyLock::new(Default::default);
    SEED.hash_one(text)
}

/// The machine of a client.
#[derive(Clone, Default)]
pub(crate) struct Host;

/// On a machine, until this is dropped.
pub(crate) struct Entered;

impl Host {
    /// The machine of the calling task.
    pub(crate) fn current() -> Self {
        Self
    }

    /// Has a future run on this machine.
    pub(crate) fn run<F: Future>(&self, future: F) -> F {
        future
    }

    /// Has the calling code run on this machine until the value is dropped.
    pub(crate) fn enter(&self) -> Entered {
        Entered
    }
}

/// Keeps a future on the machine of the calling task, wherever it is spawned.
pub(crate) fn here<F: Future>(future: F) -> F {
    future
}

/// Spawns a task in the runtime of the calling task.
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// The time of a simulated machine.
pub(crate) fn now() -> Option<Instant> {
    None
}

/// A sleep on a simulated machine.
pub(crate) fn sleep(_: Duration) -> Option<std::future::Ready<()>> {
    None
}

/// A random number.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub(crate) fn new_uuid() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}

/// A connection, whose driver ends with its last clone.
pub(crate) struct Driven {
    pub(crate) connection: MultiplexedConnection,
}

pub(crate) async fn connect(
    client: &redis::Client,
    config: AsyncConnectionConfig,
) -> RedisResult<Driven> {
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(Driven { connection })
}

/// A runtime, which drives the connections that its tasks use.
#[derive(Clone)]
pub(crate) struct Runtime(Handle);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuntimeId(runtime::Id);

impl Runtime {
    /// The runtime of the calling task.
    pub(crate) fn current() -> Self {
        Self(Handle::current())
    }

    pub(crate) fn id(&self) -> RuntimeId {
        RuntimeId(self.0.id())
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.spawn(task)
    }
}
