//! Parks the calls that Redis has refused. This module drives; the [`queue`] decides; the wait loop of
//! a call is in [`crate::acquire`].
//!
//! Subscriptions live on connections of the client's own thread (see [`crate::transport`]). If they
//! shared the callers' connections, each runtime would need its own subscription to the same channel,
//! and a wake-up for a waiter in one runtime would wait behind the blocked threads of another.
//!
//! The mutex of the queues is never held across an await. No waiter is woken while it is held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};

use crate::clock;
use crate::error::ErrorKind;
use crate::handle::Handle;
use crate::host::here;
use crate::possession::Granted;
use crate::protocol::{Grant, Names};
use crate::sync::Mutex;
use crate::transport::{Node, Push, Router};

mod handoff;
mod long;
mod places;
mod queue;
mod waiter;
pub(crate) use queue::{Limits, Ticket};
use queue::{Plan, WaitQueues};
pub(crate) use waiter::{Registration, Waiter};

/// The pause after a server has refused a subscription.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(1);

/// The same if another server is responsible, or if the server refuses only for now.
const SUBSCRIBE_SOON: Duration = Duration::from_millis(20);

/// All waiters of one client.
pub(crate) struct Waiters {
    queues: Mutex<WaitQueues<Waiter>>,
    /// Notifies the drivers that they have something to send to Redis.
    changed: Notify,
    /// Notifies the client's thread that a waiter of a fair lock has asked, taken the lock, or left.
    progress: Notify,
}

/// What to wake after a change in the queues.
#[derive(Default)]
pub(crate) struct WakeList {
    head: Option<Arc<Waiter>>,
    /// Wakes the drivers, too.
    dirty: bool,
}

/// How long a waiter waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimits {
    /// When the wait is over; `None` for never.
    pub(crate) until: Option<Instant>,
    /// How long an outage of Redis may last.
    pub(crate) outage: Option<Duration>,
    /// From when on the wait is worth a warning, unless there was one.
    pub(crate) warn_at: Option<Instant>,
}

/// Why a parked waiter goes on.
pub(crate) enum Next {
    /// Ask Redis, and report the result to the [`Registration`].
    Ask,
    /// The waiter has the lock, from another holder of this client.
    Handed(Granted),
    /// The wait is worth a warning.
    WaitsLong,
    /// The wait is over. With `in_outage`, Redis is out of reach, so it is unknown whether the
    /// lock is busy.
    TimedOut {
        in_outage: bool,
    },
    /// The outage has lasted longer than the limit.
    OutOfReach,
    Closed,
}

impl Waiters {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            queues: WaitQueues::new(limits).into(),
            changed: Notify::default(),
            progress: Notify::default(),
        }
    }

    /// Whether a call for this lock waits in the queue at once, without a try of its own: see
    /// [`WaitQueues::should_queue`].
    pub(crate) fn should_queue(&self, names: &Names, until: Option<Instant>, now: Instant) -> bool {
        self.queues.lock().should_queue(names.channel(), names.key(), until, now)
    }

    /// Records the result of a call that asked Redis at `asked_at`, without waiting in the queue.
    pub(crate) fn tried(&self, names: &Names, granted: bool, asked_at: Instant) {
        self.queues.lock().tried(names.key(), granted, asked_at, clock::now());
    }

    /// Whether Redis is known to be out of reach for the waiters of this lock.
    pub(crate) fn in_outage(&self, names: &Names) -> bool {
        self.queues.lock().outage(names.channel()).is_some()
    }

    /// Redis has answered a call, sent at `asked_at`, that does not wait in the queue. Clears an
    /// earlier outage whose end was not observed.
    pub(crate) fn answered(&self, names: &Names, asked_at: Instant) {
        self.queues.lock().answered(names.channel(), asked_at);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queues.lock().closed
    }

    /// Waits in the queue of a lock until the registration is dropped. `placed` is the ticket of a waiter
    /// that has asked for a place in the queue that Redis keeps.
    pub(crate) fn join(
        &self,
        waiter: Waiter,
        remaining: Option<Duration>,
        placed: Option<Ticket>,
    ) -> Registration<'_> {
        let waiter = Arc::new(waiter);
        let now = clock::now();
        let (channel, key) = (waiter.handle.names.channel(), waiter.handle.names.key());
        let mut queues = self.queues.lock();
        let (ticket, dirty) = queues.join(channel, key, remaining, placed, waiter.clone(), now);
        let in_order = waiter.handle.kind.has_queue();
        if in_order {
            queues.takes_place(channel, ticket, remaining, placed.is_some(), now);
        }
        drop(queues);
        if dirty || in_order {
            self.changed.notify_waiters();
        }
        Registration { waiters: self, waiter, ticket }
    }

    /// The owner that Redis named last as the holder of a lock for which others wait, and until when
    /// its lease was.
    pub(crate) fn holder(&self, names: &Names) -> Option<(Box<str>, Option<Instant>)> {
        self.queues.lock().holder(names.channel(), names.key())
    }

    /// Wakes everything in `wake_list`. The caller holds no mutex: a waker may run any code, which
    /// may release another lock.
    pub(crate) fn wake_all(&self, wake_list: WakeList) {
        wake(wake_list.head);
        if wake_list.dirty {
            self.changed.notify_waiters();
        }
    }

    /// This client is about to free the lock: see [`WaitQueues::turn_ends`]. The caller has to
    /// [wake](Self::wake_all) the returned list.
    pub(crate) fn turn_ends(
        &self,
        names: &Names,
        others: Option<u32>,
        now: Instant,
    ) -> (bool, WakeList) {
        let mut queues = self.queues.lock();
        let (ends, head) = queues.turn_ends(names.channel(), names.key(), others, now);
        (ends, WakeList { head, dirty: false })
    }

    /// This client has freed the lock, and `receivers` clients have received the message.
    pub(crate) fn freed(&self, names: &Names, receivers: Option<u32>) {
        let head = self.queues.lock().freed(names.channel(), names.key(), receivers, clock::now());
        wake(head);
    }

    /// Whether a message on the lock's channel would reach this client for a while yet.
    pub(crate) fn keeps_hearing(&self, names: &Names) -> bool {
        self.queues.lock().stays_live(names.channel())
    }

    /// Whether a message on the lock's channel would reach this client.
    pub(crate) fn hears(&self, names: &Names) -> bool {
        self.queues.lock().is_live(names.channel())
    }

    /// Wakes all waiters, because the client is closed. Returns the handles whose waiters stood for this
    /// client in queues that Redis keeps: the caller must give those places up.
    pub(crate) fn close(&self) -> Vec<Arc<Handle>> {
        let (wakes, heads) = self.queues.lock().close();
        wake(wakes);
        self.changed.notify_waiters();
        heads.into_iter().map(|head| head.handle.clone()).collect()
    }

    /// Keeps the subscriptions at all servers as the queues want them, until it is dropped.
    pub(crate) async fn keep_subscribed(
        self: &Arc<Self>,
        router: &Arc<Router>,
        patience: Duration,
    ) {
        let mut drivers: Vec<(Arc<Node>, AbortHandle)> = Vec::new();
        let mut all = JoinSet::new();
        loop {
            let (nodes, changes) = router.listened();
            // Requests to a server that is gone ended with its connection.
            drivers.retain(|(node, driver)| {
                let stays = nodes.iter().any(|other| Arc::ptr_eq(node, other));
                if !stays {
                    driver.abort();
                }
                stays
            });
            for node in nodes {
                if !drivers.iter().any(|(other, _)| Arc::ptr_eq(&node, other)) {
                    let (waiters, router, at) = (self.clone(), router.clone(), node.clone());
                    let driver = async move { waiters.subscribe_at(&at, &router, patience).await };
                    drivers.push((node, all.spawn(here(driver))));
                }
            }
            // Another server may be responsible for a channel now.
            self.changed.notify_waiters();
            let Some(mut changes) = changes else { return std::future::pending().await };
            changes.changed().await;
        }
    }

    /// Keeps the subscriptions at one server.
    async fn subscribe_at(&self, node: &Arc<Node>, router: &Router, patience: Duration) {
        let mine = |channel: &str| router.is_heard_at(channel, node);
        let (mut on, mut reported) = (0, false);
        loop {
            tokio::select! {
                biased;
                () = self.dirty(on, mine) => {}
                () = self.dead(node, router, on, patience) => continue,
            }
            let connection = router.subscriber(node).await;
            if on != connection.number() {
                // Subscriptions on an earlier connection do not exist on this one.
                self.cut(on);
                on = connection.number();
            }
            let asked_at = clock::now();
            let Plan { subscribe, unsubscribe } = self.queues.lock().plan(asked_at, on, mine);
            if subscribe.is_empty() && unsubscribe.is_empty() {
                continue;
            }
            let deadline = asked_at + patience;
            let (confirmed, error) =
                router.resubscribe(&connection, &subscribe, &unsubscribe, deadline).await;
            self.subscribed(&confirmed, on);
            let refused = |channel: &&Arc<str>| !confirmed.contains(channel);
            let refused: Vec<_> = subscribe.iter().filter(refused).cloned().collect();
            self.not_subscribed(&refused, on);
            if let Some(error) = error {
                let unavailable = error.kind() == ErrorKind::Unavailable;
                let is_first = !unavailable && !std::mem::replace(&mut reported, true);
                router.events.subscription_failed(&error, is_first);
                if unavailable {
                    clock::sleep(SUBSCRIBE_SOON).await;
                    continue;
                }
                // Redis answers requests, even if it does not subscribe these channels.
                for channel in &refused {
                    self.queues.lock().answered(channel, asked_at);
                }
                clock::sleep(SUBSCRIBE_AGAIN).await;
            }
        }
    }

    /// Completes when a server has not answered in time on the connection `on` while a waiter
    /// relies on it. A server that hangs or is cut off closes no connection, and waiters only wait.
    async fn dead(&self, node: &Arc<Node>, router: &Router, on: u64, patience: Duration) {
        loop {
            // Longer than any request takes: a waiter that is parked for less costs no request.
            clock::sleep(3 * patience / 2).await;
            let counts = self.queues.lock().counts_on(on);
            if counts && !router.still_listens(node, on, patience).await {
                return;
            }
        }
    }

    /// Waits until there is something to send to a server on the connection `on`.
    async fn dirty(&self, on: u64, mine: impl Fn(&str) -> bool) {
        loop {
            let changed = self.changed.notified();
            let (dirty, next) = self.queues.lock().is_dirty(clock::now(), on, &mine);
            if dirty {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn subscribed(&self, channels: &[Arc<str>], on: u64) {
        let wakes = self.queues.lock().subscribed(channels, on, clock::now());
        wake(wakes);
    }

    fn not_subscribed(&self, channels: &[Arc<str>], on: u64) {
        let wakes = self.queues.lock().not_subscribed(channels, on, clock::now());
        wake(wakes);
    }

    /// Passes pushes from Redis to the queues, and locks that Redis grants with them to `grants`. Ends
    /// with the last connection.
    pub(crate) async fn listen(
        &self,
        router: &Router,
        pushes: UnboundedReceiver<Push>,
        grants: UnboundedSender<Grant>,
    ) {
        let mut pushes = UnboundedReceiverStream::new(pushes);
        while let Some(push) = pushes.next().await {
            match push {
                Push::Message { channel, payload } => {
                    if let Some(grant) = self.message(&channel, &payload) {
                        let _ = grants.send(grant);
                    }
                }
                Push::Dropped { number, channel } => {
                    self.not_subscribed(&[channel.into()], number);
                    self.changed.notify_waiters();
                }
                Push::Cut { number } => {
                    router.forget(number);
                    self.cut(number);
                }
            }
        }
    }

    /// A lock that this client relied on was lost: the head of each queue asks Redis.
    pub(crate) fn look(&self, names: &Names) {
        let wakes = self.queues.lock().look(names.channel(), clock::now());
        wake(wakes);
    }

    /// The connection with this number was cut.
    fn cut(&self, number: u64) {
        let wakes = self.queues.lock().cut(number, clock::now());
        wake(wakes);
        self.changed.notify_waiters();
    }
}

fn wake(waiters: impl IntoIterator<Item = Arc<Waiter>>) {
    for waiter in waiters {
        waiter.wake.notify_one();
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        // Boxed, so that the many waiters without a timer stay small.
        Some(at) => Box::pin(clock::sleep_until(at)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
