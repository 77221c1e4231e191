//! The rooms of one client, and the thread that does what nobody awaits.
//!
//! One named thread with a runtime of its own renews leases, pays releases that nobody awaits and
//! listens for wake-ups. It holds nothing of the client but the shared rooms, and ends by itself
//! when the client, its handles and its guards are gone and their debts are paid.

use std::sync::Arc;

use tokio::sync::mpsc::unbounded_channel;

use crate::clock;
use crate::config::Config;
use crate::connection::{Link, Site};
use crate::error::{Error, ErrorKind, Outcome};
use crate::holds::Owners;
use crate::protocol::Call;
use crate::reclaim::reclaim_after_failovers;
use crate::relay::Relay;
use crate::releaser::{Releaser, pay_debts};
use crate::waiters::Waiters;
use crate::watchdog::Watchdog;

/// Everything that a client, its handles and its guards share.
pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    pub(crate) link: Arc<Link>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) releaser: Releaser,
    stop_renewing: tokio::sync::watch::Sender<bool>,
    pub(crate) owners: Arc<Owners>,
}

impl Engine {
    /// Connects once, so that a wrong address or password shows here, and starts the thread.
    pub(crate) async fn start(site: Site, config: Config) -> Result<Self, Error> {
        let (pushes, pushed) = unbounded_channel();
        let link = Arc::new(Link::new(site, config.command_timeout, pushes)?);
        link.connect().await?;
        warn_of_eviction(Call::new(&link, clock::now() + config.command_timeout)).await;

        let (jobs, to_pay) = unbounded_channel();
        let (stop_renewing, mut stop) = tokio::sync::watch::channel(false);
        let config = Arc::new(config);
        let waiters = Arc::new(Waiters::default());
        let owners = Arc::new(Owners::default());
        let watchdog = Arc::new(Watchdog::new(&config, &waiters));
        let relay = Arc::new(Relay::new(&waiters, &watchdog, &config));
        let engine = Self {
            config: config.clone(),
            link: link.clone(),
            waiters: waiters.clone(),
            watchdog: watchdog.clone(),
            releaser: Releaser::new(jobs, relay.clone()),
            stop_renewing,
            owners: owners.clone(),
        };
        let work = async move {
            let renewing = async {
                tokio::select! {
                    () = watchdog.keep_renewed(&link) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                std::future::pending::<()>().await;
            };
            // Paying debts ends with the last sender of jobs, and everything else ends with it.
            tokio::select! {
                () = pay_debts(to_pay, &link, &relay, &config) => {}
                () = renewing => {}
                () = link.keep_up() => {}
                () = reclaim_after_failovers(&link, &relay, &owners, &config) => {}
                () = waiters.keep_subscribed(&link, config.command_timeout) => {}
                () = waiters.listen(&link, pushed) => {}
            }
        };
        std::thread::Builder::new()
            .name("redlatch".into())
            .spawn(move || run(work))
            .map_err(|error| no_thread(&error))?;
        Ok(engine)
    }

    /// Refuses new calls, pays all debts and stops renewing.
    pub(crate) async fn close(&self) {
        self.waiters.close();
        if !seeded!("close-forgets") {
            let flush = self.releaser.flush();
            let _ = tokio::time::timeout(self.config.command_timeout, flush).await;
        }
        self.stop_renewing.send_replace(true);
        self.link.hang_up();
    }
}

/// A server that may throw a lock away gives it to two. Every policy but one may, because locks
/// have a TTL. Whoever may not ask goes without the warning.
async fn warn_of_eviction(mut call: Call<'_>) {
    match call.maxmemory_policy().await {
        Ok(Some(policy)) if policy != "noeviction" => {
            tracing::warn!(%policy, "Redis may evict locks when its memory is full: \
                set maxmemory-policy to noeviction");
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "could not ask whether Redis may evict locks"),
    }
}

/// The thread. Without a runtime there is nothing it could do; then leases simply end.
fn run(work: impl Future<Output = ()>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => tracing::error!(%error, "the client's thread has no runtime"),
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    let message = format!("could not start the client's thread: {error}");
    Error::new(ErrorKind::Unavailable, Outcome::NotExecuted, message)
}
