//! Keeps the subscriptions of a client as its queues want them, and passes on what comes on them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};

use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::host::{here, join_rest};
use crate::protocol::Grant;
use crate::transport::{Connection, Node, Push, Router, Subscribed, unconfirmed};

use super::Waiters;
use super::refused::Refused;
use super::subscriptions::Plan;

/// The pause if another server is responsible, or if the server refuses only for now.
const SUBSCRIBE_SOON: Duration = Duration::from_millis(20);

impl Waiters {
    /// Keeps the subscriptions at all servers as the queues want them, until it is dropped.
    pub(crate) async fn keep_subscribed(
        self: &Arc<Self>,
        router: &Arc<Router>,
        answer_timeout: Duration,
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
                    let driver =
                        async move { waiters.subscribe_at(&at, &router, answer_timeout).await };
                    drivers.push((node, all.spawn(here(driver))));
                }
            }
            // Another server may be responsible for a channel now. The one before may say nothing, or, as a replica, have
            // confirmed a subscription.
            let heard_on = router.heard_on();
            self.change(|queues| queues.record_moves(heard_on));
            self.changed.notify_waiters();
            let changed = async {
                match changes {
                    Some(mut changes) => changes.changed().await,
                    None => std::future::pending().await,
                }
            };
            let ended = async {
                join_rest(&mut all).await;
                std::future::pending().await
            };
            tokio::select! {
                biased;
                () = ended => {}
                () = changed => {}
            }
        }
    }

    /// Keeps the subscriptions at one server.
    async fn subscribe_at(&self, node: &Arc<Node>, router: &Router, answer_timeout: Duration) {
        let (mut on, mut reported) = (0, false);
        let mut refused = Refused::default();
        let mut dead = Box::pin(self.dead(node, router, on, answer_timeout));
        loop {
            let now = clock::now();
            let mine =
                |channel: &str| !refused.has(channel, now) && router.is_heard_at(channel, node);
            tokio::select! {
                biased;
                () = self.dirty(on, mine) => {}
                () = clock::until(refused.next(now)) => continue,
                () = &mut dead => {
                    dead.set(self.dead(node, router, on, answer_timeout));
                    continue;
                }
            }
            let connection = tokio::select! {
                biased;
                connection = router.subscriber(node) => connection,
                () = self.closed() => {
                    // Nothing is wanted any more.
                    self.queues.lock().at(clock::now()).plan(on, mine);
                    dead.set(self.dead(node, router, on, answer_timeout));
                    continue;
                }
            };
            if on != connection.number() {
                // Subscriptions on an earlier connection do not exist on this one.
                self.cut(on);
                // Another server, or another user, may grant what was refused.
                refused = Refused::default();
                on = connection.number();
                dead.set(self.dead(node, router, on, answer_timeout));
                continue;
            }
            let asked_at = clock::now();
            let plan = self.queues.lock().at(asked_at).plan(on, mine);
            if plan == Plan::default() {
                continue;
            }
            let failed = self.subscribe(router, &connection, plan, asked_at + answer_timeout).await;
            let Some((error, forbidden, waits)) = failed else { continue };
            let is_first = !forbidden.is_empty() && !std::mem::replace(&mut reported, true);
            router.events.subscription_failed(&error, is_first);
            // Redis answers requests, even if it does not subscribe these channels.
            self.change(|queues| {
                forbidden.iter().for_each(|channel| queues.record_answer_on(channel, asked_at));
            });
            refused.record(forbidden, clock::now());
            if waits {
                // The connection may be one of the past.
                dead.set(self.dead(node, router, on, answer_timeout));
                clock::sleep(SUBSCRIBE_SOON).await;
            }
        }
    }

    /// Has the server carry out that plan. If it fails, returns why, what the server forbids, and whether to ask soon
    /// for something else.
    async fn subscribe(
        &self,
        router: &Router,
        connection: &Connection,
        Plan { subscribe, unsubscribe }: Plan,
        deadline: Instant,
    ) -> Option<(Error, Vec<Arc<str>>, bool)> {
        let Subscribed { confirmed, forbidden, error } =
            router.resubscribe(connection, &subscribe, &unsubscribe, deadline).await;
        self.subscribed(&confirmed, connection.number());
        let others = unconfirmed(&subscribe, &confirmed);
        if !others.is_empty() {
            self.not_subscribed(&others, connection.number());
            // Another server may be responsible for them by now.
            self.changed.notify_waiters();
        }
        let error = error?;
        let waits = forbidden.len() < others.len() || error.kind() == ErrorKind::Unavailable;
        Some((error, forbidden, waits))
    }

    /// Completes when the client closes.
    async fn closed(&self) {
        loop {
            let changed = self.changed.notified();
            if self.queues.lock().closed {
                return;
            }
            changed.await;
        }
    }

    /// Completes when a server has not answered in time on the connection `on` while a waiter
    /// relies on it. A server that hangs or is cut off closes no connection, and waiters only wait.
    async fn dead(&self, node: &Arc<Node>, router: &Router, on: u64, answer_timeout: Duration) {
        loop {
            // Longer than any request takes: where waiters are parked for less, that costs few requests.
            clock::sleep(3 * answer_timeout / 2).await;
            let counts = self.queues.lock().subscriptions.counts_on(on);
            if counts && !router.still_listens(node, on, answer_timeout).await {
                return;
            }
        }
    }

    /// Waits until there is something to send to a server on the connection `on`.
    pub(super) async fn dirty(&self, on: u64, mine: impl Fn(&str) -> bool) {
        loop {
            let changed = self.changed.notified();
            let (dirty, next) = self.queues.lock().at(clock::now()).is_dirty(on, &mine);
            if dirty {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = clock::until(next) => {}
            }
        }
    }

    pub(super) fn subscribed(&self, channels: &[Arc<str>], on: u64) {
        self.change(|queues| queues.record_subscribed(channels, on));
    }

    pub(super) fn not_subscribed(&self, channels: &[Arc<str>], on: u64) {
        self.change(|queues| queues.record_unsubscribed(channels, on));
    }

    /// The connection with this number was cut.
    pub(super) fn cut(&self, number: u64) {
        self.change(|queues| queues.record_cut(number));
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
                    if let Some(grant) = self.process_message(&channel, &payload) {
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
}
