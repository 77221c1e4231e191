//! What the thread of a client does, all its life.

use std::sync::Arc;
use std::thread;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::config::{Config, QUEUE_TERM};
use crate::handoff::Handoffs;
use crate::possession::Possessions;
use crate::reclaim::reclaim_after_failovers;
use crate::releaser::{Job, do_jobs};
use crate::signal;
use crate::transport::{Push, Router};
use crate::wait::Waiters;
use crate::watchdog::Watchdog;

use super::eviction::connect_and_warn;
use super::levels::export_levels;

/// What the thread of a client does.
pub(super) struct Work {
    pub(super) router: Arc<Router>,
    pub(super) pushed: UnboundedReceiver<Push>,
    pub(super) queued: UnboundedReceiver<Job>,
    pub(super) stop: signal::Receiver,
    pub(super) closed: signal::Receiver,
    pub(super) begin: Arc<Notify>,
    /// Whether the client is lazy: then this thread makes the first connections, as soon as a call needs them.
    pub(super) lazy: bool,
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) waiters: Arc<Waiters>,
    pub(super) handoffs: Arc<Handoffs>,
    pub(super) possessions: Arc<Possessions>,
    pub(super) config: Arc<Config>,
}

impl Work {
    pub(super) async fn run(self) {
        let Self { router, watchdog, waiters, handoffs, possessions, config, .. } = self;
        let _panics = ClosesOnPanic(waiters.clone());
        let timeout = config.command_timeout;
        let (grants, granted) = unbounded_channel();
        let (mut stop, mut closed) = (self.stop, self.closed);
        let renewing = async {
            tokio::select! {
                biased;
                // First: `close` stops the dial that a renewal waits for, which would begin another.
                () = stop.changed() => {}
                () = watchdog.keep_renewed(&router) => {}
            }
            // No renewal is under way any more that one could wait for.
            watchdog.answered.notify_waiters();
            std::future::pending::<()>().await;
        };
        let keeping_up = async {
            self.begin.notified().await;
            let connecting = async {
                tokio::select! {
                    biased;
                    // First, for the same reason.
                    () = closed.changed() => {}
                    () = connect_and_warn(&router, timeout), if self.lazy => {}
                }
            };
            tokio::join!(router.keep_up(), connecting);
        };
        // The jobs end with their last sender, and everything else ends with them. What there may be
        // much of comes last: however many jobs and messages there are, locks are renewed.
        tokio::select! {
            biased;
            () = renewing => {}
            () = keeping_up => {}
            () = reclaim_after_failovers(&router, &handoffs) => {}
            () = waiters.keep_subscribed(&router, timeout) => {}
            () = waiters.wake_who_waits_long(config.warn_waits_longer_than) => {}
            () = waiters.keep_entries(&router, QUEUE_TERM / 3, timeout) => {}
            () = do_jobs(self.queued, granted, &router, &handoffs) => {}
            () = waiters.listen(&router, self.pushed, grants) => {}
            () = export_levels(&router, &possessions, &waiters) => {}
        }
    }
}

/// What hears of an event panics, such as a subscriber of the log that cannot write. With this thread, all renewals end: from
/// then on the client must not grant what it cannot keep.
struct ClosesOnPanic(Arc<Waiters>);

impl Drop for ClosesOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(self.0.close());
        }
    }
}
