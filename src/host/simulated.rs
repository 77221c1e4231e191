//! Machines that are simulated, beside the real one.
//!
//! A task that runs on a simulated machine finds it in a variable of its thread, which the future around
//! it sets for each poll and each drop. Where that variable is not set, the machine is the real one.

use std::cell::RefCell;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{self, Handle};
use tokio::task::{AbortHandle, JoinHandle};

/// Iterates in the same order in each run of one seed.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Hashes a text: to the same number in each run.
pub(crate) fn hash(text: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A connection's bytes.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A simulated machine.
pub(crate) trait Machine: Send + Sync {
    /// `None` for real time.
    fn now(&self) -> Option<Instant>;

    /// Sleeps for that long by the machine's own clock. `None` for real time.
    fn sleep(&self, duration: Duration) -> Option<BoxFuture<()>>;

    /// Connects a runtime of this machine to a server.
    fn connect(
        &self,
        runtime: u64,
        addr: &ConnectionAddr,
    ) -> BoxFuture<io::Result<Box<dyn Stream>>>;

    fn random(&self) -> u64;

    /// The name of this machine; `None` for that of the real one.
    fn name(&self) -> Option<String>;

    /// What drives the threads of its clients; `None` for real threads.
    fn handle(&self) -> Option<Handle>;

    /// A number for a runtime of a client's thread.
    fn new_runtime(&self) -> u64;

    /// A task was spawned in a runtime of this machine.
    fn spawned(&self, runtime: u64, task: AbortHandle);

    /// Whether the machine's tasks run. If they do not, wakes the task when they do.
    fn runs(&self, cx: &mut Context<'_>) -> bool;

    /// What a task waits for that is not polled at once, because others keep the processors busy.
    fn late(&self) -> Option<BoxFuture<()>>;
}

/// Where a task runs: a simulated machine, and a runtime there. Zero is whatever runtime polls the task.
#[derive(Clone)]
struct Place {
    machine: Arc<dyn Machine>,
    runtime: u64,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// The machine of a client, and the runtime there; `None` for the real machine.
#[derive(Clone, Default)]
pub(crate) struct Host(Option<Place>);

/// On a machine, until this is dropped.
pub(crate) struct Entered {
    /// Where the thread was before, if that has changed.
    before: Option<Option<Place>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // The earlier value is dropped after the borrow has ended.
            let _ended = replace_place(before);
        }
    }
}

impl Host {
    /// The machine of the calling task.
    pub(crate) fn current() -> Self {
        Self(place())
    }

    /// A host on that runtime of a machine; zero is whatever runtime polls the task.
    pub(crate) fn of(machine: Arc<dyn Machine>, runtime: u64) -> Self {
        Self(Some(Place { machine, runtime }))
    }

    /// Has a future run on this machine. A task that runs on it already stays in its runtime.
    pub(crate) fn run<F: Future>(&self, future: F) -> OnHost<F> {
        OnHost { host: self.clone(), future: Some(Box::pin(future)) }
    }

    /// Has the calling code run on this machine until the value is dropped.
    pub(crate) fn enter(&self) -> Entered {
        let Some(place) = &self.0 else { return Entered { before: None } };
        let is_there = with_place(|current| {
            current.is_some_and(|current| Arc::ptr_eq(&current.machine, &place.machine))
        });
        let before = (!is_there).then(|| replace_place(self.0.clone()));
        Entered { before }
    }

    /// Has a task of that runtime run on this machine until the value is dropped.
    fn enter_runtime(&self) -> Entered {
        Entered { before: self.0.is_some().then(|| replace_place(self.0.clone())) }
    }
}

/// A future on a machine. It is dropped there, too.
pub(crate) struct OnHost<F> {
    host: Host,
    /// `None` when it has ended.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for OnHost<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { host, future } = &mut *self;
        if let Some(place) = &host.0
            && !place.machine.runs(cx)
        {
            return Poll::Pending;
        }
        let _on = host.enter();
        let polled = future.as_mut().expect("BUG: a future was polled after its end");
        let value = ready!(polled.as_mut().poll(cx));
        *future = None;
        Poll::Ready(value)
    }
}

impl<F> Drop for OnHost<F> {
    fn drop(&mut self) {
        let _on = self.host.enter();
        self.future = None;
    }
}

/// A task of one runtime of a machine.
pub(crate) struct Here<F> {
    on: OnHost<F>,
    late: Option<BoxFuture<()>>,
}

impl<F: Future> From<OnHost<F>> for Here<F> {
    fn from(on: OnHost<F>) -> Self {
        Self { on, late: None }
    }
}

impl<F> Drop for Here<F> {
    fn drop(&mut self) {
        let _on = self.on.host.enter_runtime();
        self.on.future = None;
    }
}

impl<F: Future> Future for Here<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { on, late } = &mut *self;
        let _on = on.host.enter_runtime();
        if late.is_none() {
            *late = on.host.0.as_ref().and_then(|place| place.machine.late());
        }
        if let Some(busy) = late {
            ready!(busy.as_mut().poll(cx));
            *late = None;
        }
        Pin::new(on).poll(cx)
    }
}

/// Keeps a future on the machine of the calling task, and in its runtime there, wherever it is spawned.
pub(crate) fn here<F: Future>(future: F) -> Here<F> {
    Host::current().run(future).into()
}

/// Spawns a task on the machine of the calling task, in its runtime there.
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    Runtime::current().spawn(task)
}

/// Where the running thread is. One that ends may drop a guard behind its variables: then it is on the real machine.
fn with_place<T>(look: impl Fn(Option<&Place>) -> T) -> T {
    PLACE.try_with(|place| look(place.borrow().as_ref())).unwrap_or_else(|_| look(None))
}

fn place() -> Option<Place> {
    with_place(|place| place.cloned())
}

/// Puts the running thread there, and returns where it was.
fn replace_place(place: Option<Place>) -> Option<Place> {
    PLACE.try_with(|current| current.replace(place)).ok().flatten()
}

/// The time of a simulated machine.
pub(crate) fn now() -> Option<Instant> {
    with_place(|place| place.and_then(|place| place.machine.now()))
}

/// A sleep on a simulated machine.
pub(crate) fn sleep(duration: Duration) -> Option<BoxFuture<()>> {
    place().and_then(|place| place.machine.sleep(duration))
}

/// A random number.
pub(crate) fn random() -> u64 {
    place()
        .map_or_else(|| RandomState::new().build_hasher().finish(), |place| place.machine.random())
}

/// The thread on which the caller runs: on a simulated machine one of two, by chance.
pub(crate) fn lane() -> usize {
    place().map_or_else(super::real_lane, |place| (place.machine.random() % 2) as usize)
}

/// The name of the machine, and the id of the process.
pub(crate) fn machine() -> (String, u32) {
    // A simulated machine has one process.
    let simulated = place().and_then(|place| place.machine.name());
    simulated.map_or_else(super::real_machine, |name| (name, 1))
}

pub(crate) fn new_uuid() -> uuid::Uuid {
    let Some(place) = place() else { return uuid::Uuid::new_v4() };
    let bytes = u128::from(place.machine.random()) << 64 | u128::from(place.machine.random());
    uuid::Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid()
}

/// A connection, whose driver ends with this.
pub(crate) struct Driven {
    pub(crate) connection: MultiplexedConnection,
    /// The `redis` crate keeps that of a connection on the real machine.
    driver: Option<AbortHandle>,
}

impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.abort();
        }
    }
}

pub(crate) async fn connect(
    client: &redis::Client,
    config: AsyncConnectionConfig,
) -> RedisResult<Driven> {
    let Some(Place { machine, runtime }) = place() else {
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        return Ok(Driven { connection, driver: None });
    };
    let info = client.get_connection_info();
    let stream = machine.connect(runtime, info.addr()).await?;
    let settings = info.redis_settings();
    let opened = MultiplexedConnection::new_with_config(settings, stream, config).await;
    let (connection, driver) = opened?;
    let driver = spawn(driver).abort_handle();
    Ok(Driven { connection, driver: Some(driver) })
}

/// Starts a thread of that name with a runtime of its own, which runs `main`. `started` learns whether
/// the runtime could be made. On a simulated machine the thread is a task.
pub(crate) fn spawn_thread(
    name: &str,
    started: impl FnOnce(io::Result<()>) + Send + 'static,
    main: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let host = Host(place().map(|place| {
        let runtime = place.machine.new_runtime();
        Place { runtime, ..place }
    }));
    let handle = host.0.as_ref().and_then(|place| place.machine.handle());
    let main = Here::from(host.run(main));
    if let Some(handle) = handle {
        started(Ok(()));
        handle.spawn(main);
        return Ok(());
    }
    super::real_thread(name, started, main)
}

/// A runtime, which drives the connections that its tasks use.
#[derive(Clone)]
pub(crate) struct Runtime {
    handle: Handle,
    host: Host,
}

/// Identifies a runtime: by its id in Tokio, and by its number on a simulated machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuntimeId(runtime::Id, u64);

impl Runtime {
    /// The runtime of the calling task.
    pub(crate) fn current() -> Self {
        Self { handle: Handle::current(), host: Host::current() }
    }

    pub(crate) fn of(host: Host) -> Self {
        Self { handle: Handle::current(), host }
    }

    pub(crate) fn id(&self) -> RuntimeId {
        RuntimeId(self.handle.id(), self.host.0.as_ref().map_or(0, |place| place.runtime))
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let task = self.handle.spawn(Here::from(self.host.run(task)));
        if let Some(place) = &self.host.0 {
            place.machine.spawned(place.runtime, task.abort_handle());
        }
        task
    }
}
