//! What the handles and guards of one client share, and the client's thread.
//!
//! One named thread with a runtime of its own renews leases, sends releases in the background and
//! listens for wake-ups. It holds nothing of the client but the shared parts, and ends by itself
//! when the client, its handles and its guards are gone and no release is pending.
//!
//! 1. **A client that has connected can work**: `connect` fails if the thread, its runtime, or the
//!    connections of the thread and of the caller's runtime cannot be made. A lazy client has its thread
//!    and the runtime, and makes connections from its first call on.
//! 2. **A client belongs to the process that connected it.** In a forked child every call returns an
//!    error before it touches anything shared, and no drop touches anything shared.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use crate::clock;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Outcome};
use crate::events::Events;
use crate::handle::Readers;
use crate::handoff::Handoffs;
use crate::host::{self, Entered, Host};
use crate::kind::Kind;
use crate::loss::Losses;
use crate::metrics::{Metrics, Series};
use crate::peer::Peer;
use crate::possession::Possessions;
use crate::process::Process;
use crate::protocol::{self, Call, Names};
use crate::releaser::{Job, Releaser};
use crate::signal;
use crate::transport::{Endpoint, Push, Router, Times};
use crate::wait::{QueueLimits, TurnLimits, Waiters};
use crate::watchdog::Watchdog;

mod eviction;
mod levels;
mod shutdown;
mod work;
use eviction::warn_of_eviction;
pub use shutdown::Shutdown;
use work::Work;

/// Everything that a client, its handles and its guards share, and the process that it belongs to.
pub(crate) struct Engine {
    pub(crate) process: Process,
    pub(crate) host: Host,
    /// When it was made.
    begun: Instant,
    parts: Arc<Parts>,
}

/// The parts, which only that process may use and drop.
pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) router: Arc<Router>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) events: Arc<Events>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) releaser: Releaser,
    stop_renewing: signal::Sender,
    pub(crate) possessions: Arc<Possessions>,
    pub(crate) readers: Readers,
    /// Whether the first call has been made, or need not be awaited.
    connects: AtomicBool,
    /// Has the thread connect.
    begin: Arc<Notify>,
}

impl Engine {
    /// Connects once, so that a wrong address or password shows here, and starts the thread.
    pub(crate) async fn start(
        host: Host,
        endpoint: Endpoint,
        config: Config,
    ) -> Result<Self, Error> {
        check_runtime()?;
        let process = Process::current();
        let start = async { (clock::now(), Parts::start(endpoint, config).await) };
        let (begun, parts) = process.bind(host.run(start)).await;
        Ok(Self { process, begun, parts: Arc::new(parts?), host })
    }

    /// Starts the thread, which does nothing before the first call.
    pub(crate) fn start_lazily(
        host: Host,
        endpoint: Endpoint,
        config: Config,
    ) -> Result<Self, Error> {
        let (begun, parts) = {
            let _on = host.enter();
            (clock::now(), Parts::start_lazily(endpoint, config)?)
        };
        Ok(Self { process: Process::current(), begun, parts: Arc::new(parts), host })
    }

    /// What a lock of that kind and name is called.
    pub(crate) fn names(&self, kind: Kind, name: &str) -> Arc<Names> {
        // In a forked child the recorder may be locked for ever, and every call is refused.
        let series = match self.process.is_this_one() {
            true => self.events.series_of(name, kind),
            false => Series::default(),
        };
        let names = self.possessions.names(kind, &self.config.name_prefix, name);
        Arc::new(names.counted_in(series))
    }

    /// Milliseconds since it was made: they wrap after 49 days.
    pub(crate) fn uptime(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.begun).as_millis() as u32
    }

    /// For callers, before they touch anything shared: an error in every process but the client's own,
    /// and outside of a runtime. With the first call a lazy client begins to connect.
    pub(crate) fn begin_call(&self) -> Result<(), Error> {
        if self.process.is_this_one() {
            check_runtime()?;
        }
        self.begin_local_call()
    }

    /// For callers whose call may send no request: an error in every process but the client's own. The caller has to
    /// [check the runtime](check_runtime) before it sends a request. To ask for the runtime counts references to it,
    /// which all its threads share.
    pub(crate) fn begin_local_call(&self) -> Result<(), Error> {
        if !self.process.is_this_one() {
            return Err(Error::another_process());
        }
        self.parts.begin_to_connect();
        Ok(())
    }

    /// For what the client knows by itself: `None` in a forked child. A lazy client begins to connect if it `connects`.
    pub(crate) fn local(&self, connects: bool) -> Option<Entered> {
        self.process.is_this_one().then(|| {
            if connects {
                self.parts.begin_to_connect();
            }
            self.host.enter()
        })
    }

    /// Runs a call about that lock, in the client's own process only.
    pub(crate) async fn call<T>(
        &self,
        lock_name: &str,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        self.run(call).await.map_err(|error| error.about(lock_name))
    }

    /// Runs a call about no lock in particular.
    pub(crate) async fn run<T>(
        &self,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        self.begin_call()?;
        self.process.bind(self.host.run(call)).await
    }

    /// The requests of a call that begins now.
    pub(crate) fn new_call(&self) -> Result<Call<'_>, Error> {
        if self.waiters.is_closed() {
            return Err(Error::closed());
        }
        Ok(Call::new(&self.router, clock::now() + self.config.command_timeout))
    }

    /// Frees a lock, whichever owner has it. False if it was free.
    pub(crate) async fn force_unlock(&self, names: &Names) -> Result<bool, Error> {
        let freed = self.new_call()?.force_unlock(names, self.config.fair_grace).await?;
        if freed {
            self.events.freed_by_force(names.key());
            if let Some(possession) = self.possessions.in_gap(names) {
                possession.holds.lock().shut_gap();
            }
        }
        Ok(freed)
    }

    /// Refuses new calls, waits for the jobs and stops renewing. Does nothing in another process.
    pub(crate) async fn close(&self) {
        if !self.process.is_this_one() {
            return;
        }
        let close = async {
            self.refuse_calls();
            // A lazy client that has made no call makes none. Behind the refusal: a call that comes in between has the
            // thread look for the servers, or is refused.
            self.connects.store(true, Ordering::Relaxed);
            let drain = self.releaser.drain();
            let _ = clock::timeout(self.config.command_timeout, drain).await;
            self.stop();
        };
        self.process.bind(self.host.run(close)).await;
    }

    /// Refuses new calls, and sends waiting ones home.
    fn refuse_calls(&self) {
        // The answer says what was granted to this client before: that message may come too late.
        for (names, behind) in self.waiters.close() {
            self.releaser.enqueue(Job::LeaveQueue(names, behind));
        }
    }

    fn stop(&self) {
        self.stop_renewing.send();
        self.router.hang_up();
        self.events.metrics.record_kept();
    }
}

impl Deref for Engine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.process.is_this_one() {
            // Never dropped (invariant 2): sockets and channels belong to the other process.
            std::mem::forget(self.parts.clone());
        }
    }
}

impl Parts {
    async fn start(endpoint: Endpoint, config: Config) -> Result<Self, Error> {
        let possessions = Arc::new(Possessions::default());
        let (router, pushed) = new_router(endpoint, &config, &possessions)?;
        router.connect().await?;
        let (parts, work) = Self::new(&router, pushed, possessions, config, false);
        parts.begin_to_connect();
        let deadline = clock::now() + parts.config.command_timeout;
        let (started, has_started) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        spawn(move |made| drop(started.send(made)), connect_and_work(router.clone(), ready, work))?;
        has_started.await.unwrap_or_else(|_| Err(has_ended()))?;
        // While the thread connects.
        warn_of_eviction(Call::new(&router, deadline)).await;
        // The thread observes its deadlines by itself.
        is_ready.await.unwrap_or_else(|_| Err(has_ended()))?;
        Ok(parts)
    }

    fn start_lazily(endpoint: Endpoint, config: Config) -> Result<Self, Error> {
        let possessions = Arc::new(Possessions::default());
        let (router, pushed) = new_router(endpoint, &config, &possessions)?;
        let (parts, work) = Self::new(&router, pushed, possessions, config, true);
        let (started, has_started) = std::sync::mpsc::channel();
        spawn(move |made| drop(started.send(made)), work)?;
        // It takes no longer than the thread takes to start.
        has_started.recv().unwrap_or_else(|_| Err(has_ended()))?;
        Ok(parts)
    }

    /// What a client has, and the work of its thread.
    fn new(
        router: &Arc<Router>,
        pushed: UnboundedReceiver<Push>,
        possessions: Arc<Possessions>,
        config: Config,
        lazy: bool,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (jobs, queued) = unbounded_channel();
        let stop_renewing = signal::Sender::default();
        let (stop, closed) = (stop_renewing.subscribe(), stop_renewing.subscribe());
        let config = Arc::new(config);
        // A client that takes longer to come hardly gets an answer in time.
        let (keep, yield_time) = (config.max_handoff_time, config.command_timeout / 4);
        let turns = TurnLimits { keep, yield_time };
        let limits =
            QueueLimits { turns, grace: config.fair_grace, request: config.command_timeout };
        let events = router.events.clone();
        let waiters = Arc::new(Waiters::new(limits));
        let losses = Arc::new(Losses { events: events.clone(), waiters: waiters.clone() });
        let watchdog = Arc::new(Watchdog::new(&config, losses.clone()));
        let answered = watchdog.answered.clone();
        let handoffs = Handoffs::new(losses.clone(), possessions.clone(), answered, config.clone());
        let handoffs = Arc::new(handoffs);
        let begin = Arc::new(Notify::new());
        let parts = Self {
            config: config.clone(),
            router: router.clone(),
            waiters: waiters.clone(),
            events,
            losses,
            watchdog: watchdog.clone(),
            releaser: Releaser::new(jobs, handoffs.clone()),
            stop_renewing,
            possessions: possessions.clone(),
            readers: Readers::default(),
            connects: AtomicBool::new(false),
            begin: begin.clone(),
        };
        let work = Work {
            router: router.clone(),
            pushed,
            queued,
            stop,
            closed,
            begin,
            lazy,
            watchdog,
            waiters,
            handoffs,
            possessions,
            config,
        };
        (parts, work.run())
    }

    /// Has the thread make the connections, unless it does.
    fn begin_to_connect(&self) {
        if !self.connects.load(Ordering::Relaxed) {
            self.connects.store(true, Ordering::Relaxed);
            self.begin.notify_one();
        }
    }
}

/// Connections need a runtime that drives them.
pub(crate) fn check_runtime() -> Result<(), Error> {
    let outside = |_| Error::invalid("outside of a Tokio runtime: await this call inside one");
    Handle::try_current().map(drop).map_err(outside)
}

/// Checks the addresses, with no I/O.
fn new_router(
    endpoint: Endpoint,
    config: &Config,
    possessions: &Arc<Possessions>,
) -> Result<(Arc<Router>, UnboundedReceiver<Push>), Error> {
    let (pushes, pushed) = unbounded_channel();
    let times = Times::new(config.command_timeout, config.watchdog_timeout);
    let replicas = config.replicas.is_some();
    let name = Peer::here(config.label.as_deref()).name(possessions.id());
    let possessions = possessions.clone();
    let held = move |of: &dyn Fn(&str) -> bool| possessions.holders(of, clock::now()).len();
    let metrics = Metrics::new(config.label.as_deref().unwrap_or_default(), &config.metrics_group);
    let (scripts, events) = (protocol::scripts(), Events::new(Box::new(held), metrics).into());
    let router = Router::new(endpoint, times, scripts, replicas, pushes, events, name)?;
    Ok((router, pushed))
}

/// Starts the thread, and reports whether it has its runtime.
fn spawn(
    started: impl FnOnce(Result<(), Error>) + Send + 'static,
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let made = |made: io::Result<()>| {
        started(made.map_err(|error| {
            unready(format!("could not make the runtime of the client's thread: {error}"))
        }));
    };
    host::spawn_thread("redlatch", made, work)
        .map_err(|error| unready(format!("could not start the client's thread: {error}")))
}

/// What the thread of a client does that connects at once. `ready` reports whether the thread could
/// connect, and is closed if the caller of `connect` was dropped.
async fn connect_and_work(
    router: Arc<Router>,
    mut ready: oneshot::Sender<Result<(), Error>>,
    work: impl Future<Output = ()>,
) {
    let connected = tokio::select! {
        biased;
        connected = router.connect_thread() => connected,
        () = ready.closed() => return,
    };
    drop(router);
    let is_connected = connected.is_ok();
    if ready.send(connected).is_ok() && is_connected {
        work.await;
    }
}

fn has_ended() -> Error {
    unready("the client's thread has ended")
}

fn unready(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
}
