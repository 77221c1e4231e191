//! What the handles and guards of one client share, and the client's thread.
//!
//! One named thread with a runtime of its own renews leases, sends releases in the background and
//! listens for wake-ups. It holds nothing of the client but the shared parts, and ends by itself
//! when the client, its handles and its guards are gone and no release is pending.
//!
//! 1. **A client that has connected can work**: `connect` fails if the thread, its runtime, or the
//!    connections of the thread and of the caller's runtime cannot be made.
//! 2. **A client belongs to the process that connected it.** In a forked child every call returns an
//!    error before it touches anything shared, and no drop touches anything shared.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::clock;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Outcome};
use crate::handoff::Handoffs;
use crate::owner::Owners;
use crate::process::Process;
use crate::protocol::{self, Session};
use crate::reclaim::reclaim_after_failovers;
use crate::releaser::{Releaser, do_jobs};
use crate::transport::{Endpoint, Router};
use crate::wait::{Limits, Waiters};
use crate::watchdog::Watchdog;

/// Everything that a client, its handles and its guards share, and the process that it belongs to.
pub(crate) struct Engine {
    pub(crate) process: Process,
    /// When it was made.
    begun: Instant,
    parts: Arc<Parts>,
}

/// The parts, which only that process may use and drop.
pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) router: Arc<Router>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) releaser: Releaser,
    stop_renewing: tokio::sync::watch::Sender<bool>,
    pub(crate) owners: Arc<Owners>,
}

impl Engine {
    /// Connects once, so that a wrong address or password shows here, and starts the thread.
    pub(crate) async fn start(endpoint: Endpoint, config: Config) -> Result<Self, Error> {
        let (process, begun) = (Process::current(), clock::now());
        let parts = process.bind(Parts::start(endpoint, config)).await?;
        Ok(Self { process, begun, parts: Arc::new(parts) })
    }

    /// Milliseconds since it was made: they wrap after 49 days.
    pub(crate) fn uptime(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.begun).as_millis() as u32
    }

    /// An error in every process but the client's own. For callers, before they touch anything shared.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process.is_this_one() { Ok(()) } else { Err(Error::another_process()) }
    }

    /// Refuses new calls, waits for the jobs and stops renewing. Does nothing in another process.
    pub(crate) async fn close(&self) {
        if !self.process.is_this_one() {
            return;
        }
        let close = async {
            self.waiters.close();
            let drain = self.releaser.drain();
            let _ = tokio::time::timeout(self.config.command_timeout, drain).await;
            self.stop_renewing.send_replace(true);
            self.router.hang_up();
        };
        self.process.bind(close).await;
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
        let (pushes, pushed) = unbounded_channel();
        let (patience, replicas) = (config.command_timeout, config.replicas.is_some());
        let router = Router::new(endpoint, patience, protocol::scripts(), replicas, pushes)?;
        router.connect().await?;

        let (jobs, queued) = unbounded_channel();
        let (stop_renewing, mut stop) = tokio::sync::watch::channel(false);
        let config = Arc::new(config);
        // A client that takes longer to come hardly gets an answer in time.
        let limits = Limits { run: config.max_handoff_time, room: config.command_timeout / 4 };
        let waiters = Arc::new(Waiters::new(limits));
        let owners = Arc::new(Owners::default());
        let watchdog = Arc::new(Watchdog::new(&config, &waiters));
        let handoffs = Arc::new(Handoffs::new(&waiters, &watchdog, &config));
        let parts = Self {
            config: config.clone(),
            router: router.clone(),
            waiters: waiters.clone(),
            watchdog: watchdog.clone(),
            releaser: Releaser::new(jobs, handoffs.clone()),
            stop_renewing,
            owners: owners.clone(),
        };
        let work = async move {
            let renewing = async {
                tokio::select! {
                    () = watchdog.keep_renewed(&router) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                std::future::pending::<()>().await;
            };
            // The jobs end with their last sender, and everything else ends with them.
            tokio::select! {
                () = do_jobs(queued, &router, &handoffs) => {}
                () = renewing => {}
                () = router.keep_up() => {}
                () = reclaim_after_failovers(&router, &handoffs, &owners) => {}
                () = waiters.keep_subscribed(&router, config.command_timeout) => {}
                () = waiters.listen(&router, pushed) => {}
            }
        };
        let deadline = clock::now() + parts.config.command_timeout;
        let (ready, is_ready) = oneshot::channel();
        let thread_router = parts.router.clone();
        std::thread::Builder::new()
            .name("redlatch".into())
            .spawn(move || run(&thread_router, ready, work))
            .map_err(|error| unready(format!("could not start the client's thread: {error}")))?;
        // While the thread connects.
        warn_of_eviction(Session::new(&parts.router, deadline)).await;
        // The thread observes its deadlines by itself.
        is_ready.await.unwrap_or_else(|_| Err(unready("the client's thread has ended")))?;
        Ok(parts)
    }
}

/// A server that evicts a held lock grants it to a second owner. Every policy but one may evict it,
/// because locks have a TTL. A user who may not run `INFO` gets no warning.
async fn warn_of_eviction(mut call: Session<'_>) {
    match call.maxmemory_policy().await {
        Ok(Some(policy)) if policy != "noeviction" => {
            tracing::warn!(%policy, "Redis may evict locks when its memory is full: \
                set maxmemory-policy to noeviction");
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "could not ask whether Redis may evict locks"),
    }
}

/// The thread. It makes its own runtime: if the caller made it and the thread could not start, the
/// caller would drop the runtime inside its own, and that panics. `ready` reports whether the thread
/// could connect, and is closed if the caller of `connect` was dropped.
fn run(
    router: &Arc<Router>,
    mut ready: oneshot::Sender<Result<(), Error>>,
    work: impl Future<Output = ()>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("could not make the runtime of the client's thread: {error}");
            let _ = ready.send(Err(unready(message)));
            return;
        }
    };
    runtime.block_on(async {
        let connected = tokio::select! {
            connected = router.connect_thread() => connected,
            () = ready.closed() => return,
        };
        let is_connected = connected.is_ok();
        if ready.send(connected).is_ok() && is_connected {
            work.await;
        }
    });
}

fn unready(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
}
