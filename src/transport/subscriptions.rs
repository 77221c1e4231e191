//! Subscriptions: on which connection, and what became of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{PushKind, RedisError, RedisResult, Value};

use super::error_class::{ErrorClass, classify, is_fatal};
use super::failure::{refused, unavailable};
use super::retry::PAUSES;
use super::{Connection, Node, Purpose, Router, Topology};
use crate::clock;
use crate::error::Error;
use crate::host::{HashMap, spawn};
use crate::signal;

/// How often the client refreshes the topology in one command timeout, while a server gives no sign of life.
const REFRESHES_PER_TIMEOUT: u32 = 3;

/// How often the client refreshes the topology before it drops the connection to a server without a sign of life. That
/// costs the requests on the connection more than a late wake-up costs a waiter.
const REFRESHES_BEFORE_DROP: u32 = 5 * REFRESHES_PER_TIMEOUT;

/// The commands for the channels of a server, and of a slot.
const PLAIN: [&str; 2] = ["SUBSCRIBE", "UNSUBSCRIBE"];
const SHARDED: [&str; 2] = ["SSUBSCRIBE", "SUNSUBSCRIBE"];

/// Which clients receive the message of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    /// The clients that are subscribed at this server.
    Plain,
    /// The clients that are subscribed at any node of the cluster.
    Everywhere,
    /// The clients that are subscribed at the node that has the channel's slot.
    Sharded,
}

/// What became of a request for subscriptions.
#[derive(Default)]
pub(crate) struct Subscribed {
    pub(crate) confirmed: Vec<Arc<str>>,
    /// What Redis will refuse again. It may grant the others that are not confirmed, soon or elsewhere.
    pub(crate) forbidden: Vec<Arc<str>>,
    pub(crate) error: Option<Error>,
}

impl Subscribed {
    fn failed(error: Option<Error>) -> Self {
        Self { error, ..Self::default() }
    }
}

impl Router {
    pub(crate) fn channels(&self) -> Channels {
        match &self.topology {
            Topology::Cluster(cluster) if cluster.is_sharded() => Channels::Sharded,
            Topology::Cluster(_) => Channels::Everywhere,
            Topology::Standalone(_) | Topology::Sentinel(_) => Channels::Plain,
        }
    }

    /// Whether [`channels`](Self::channels) is known: not before a node of a cluster has answered.
    pub(crate) fn knows_channels(&self) -> bool {
        !matches!(&self.topology, Topology::Cluster(cluster) if cluster.is_unknown())
    }

    /// The servers at which the client may have to listen, and a notification of others.
    pub(crate) fn listened(&self) -> (Vec<Arc<Node>>, Option<signal::Receiver>) {
        // Before the look, so that no change in between is missed.
        let changes = self.server_changes();
        (self.nodes(), changes)
    }

    /// Whether `node` is the server at which to listen to the channel.
    pub(crate) fn is_heard_at(&self, channel: &str, node: &Arc<Node>) -> bool {
        self.node_of(Some(channel)).is_some_and(|owner| Arc::ptr_eq(&owner, node))
    }

    /// On which of this runtime's connections the messages of a channel come, by its number, if only one server has them. 0
    /// if there is no connection to that.
    pub(crate) fn heard_on(&self) -> impl Fn(&str) -> Option<u64> {
        let is_sharded = self.channels() == Channels::Sharded;
        let nodes = if is_sharded { self.nodes() } else { Vec::new() };
        let number = |node: Arc<Node>| {
            let connection = node.runtime_slot(Purpose::Listening).in_use();
            (node, connection.map_or(0, |connection| connection.number()))
        };
        let numbers: Vec<_> = nodes.into_iter().map(number).collect();
        move |channel| {
            let owner = self.node_of(Some(channel))?;
            let its = numbers.iter().find(|(node, _)| Arc::ptr_eq(node, &owner));
            its.map(|(_, number)| *number)
        }
    }

    /// During a migration subscribers are on the source node, so a release at the target node is
    /// published there, too. The caller does not wait for that; if it fails, waiters rely on time.
    pub(super) fn publish_at_source(&self, key: Option<&str>, channel: Option<&str>) {
        let (Channels::Sharded, Some(channel)) = (self.channels(), channel) else { return };
        let Some(node) = self.node_of(key) else { return };
        let Some(connection) = node.runtime_slot(Purpose::Commands).in_use() else { return };
        let mut publish = redis::cmd("SPUBLISH");
        publish.arg(channel).arg("0");
        let answer_timeout = self.dialer.answer_timeout;
        spawn(async move {
            let published = clock::timeout(answer_timeout, connection.send(&publish)).await;
            if !matches!(published, Ok(Ok(_))) {
                tracing::debug!("could not publish a release in a slot that migrates");
            }
        });
    }

    /// The purpose of the connection on which this client listens.
    fn listening(&self) -> Purpose {
        match self.channels() {
            Channels::Sharded => Purpose::Listening,
            Channels::Plain | Channels::Everywhere => Purpose::Commands,
        }
    }

    /// Asks for a sign of life on this runtime's connection for subscriptions, if it still has that
    /// number. While none comes it refreshes the topology. In the end it drops the connection, and
    /// returns false.
    pub(crate) async fn still_listens(
        &self,
        node: &Arc<Node>,
        number: u64,
        answer_timeout: Duration,
    ) -> bool {
        let in_use = node.runtime_slot(self.listening()).in_use();
        let Some(connection) = in_use.filter(|on| on.number() == number) else { return true };
        // As good as a PING, and needs no permission that the client does not need anyway.
        let mut question = redis::cmd("CLIENT");
        question.arg("INFO");
        let mut answer = pin!(connection.send(&question));
        for _ in 0..REFRESHES_BEFORE_DROP {
            match clock::timeout_at(
                clock::now() + answer_timeout / REFRESHES_PER_TIMEOUT,
                &mut answer,
            )
            .await
            {
                Ok(Err(error)) if classify(&error) == ErrorClass::ConnectionLost => break,
                // A refusal is a sign of life, too.
                Ok(_) => return true,
                // Another server may have taken its place.
                Err(_) => self.refresh(),
            }
        }
        self.log_failure(node, &"no answer on the connection on which waiters rely");
        self.drop_connection(&connection);
        false
    }

    /// This runtime's connection for subscriptions; made if there is none, however long it takes.
    pub(crate) async fn subscriber(&self, node: &Arc<Node>) -> Connection {
        let purpose = self.listening();
        loop {
            let far = clock::now() + Duration::from_secs(3600);
            match self.connection(node, purpose, far).await {
                Ok(connection) => return connection,
                // The client listens elsewhere, and drops this future when it sees that.
                Err(_) if node.is_replaced() => std::future::pending().await,
                Err(_) => self.refresh(),
            }
        }
    }

    /// Subscribes and unsubscribes; done when Redis has answered all of it.
    pub(crate) async fn resubscribe(
        &self,
        connection: &Connection,
        subscribe: &[Arc<str>],
        unsubscribe: &[Arc<str>],
        deadline: Instant,
    ) -> Subscribed {
        let redis = format!("Redis at {}", connection.server());
        let refusal = |error: RedisError| match classify(&error) {
            ErrorClass::Fatal(kind) => refused(kind, &redis, "a subscription", false, error),
            _ => unavailable(&format!("a subscription at {redis} has to wait"), false, Some(error)),
        };
        let (mut backoff, answer_timeout) =
            (PAUSES, deadline.saturating_duration_since(clock::now()));
        loop {
            let answer =
                self.ask_once(connection, subscribe, unsubscribe, deadline, answer_timeout).await;
            let error = match answer {
                Some(Ok((confirmed, errors))) => {
                    let others = unconfirmed(subscribe, &confirmed);
                    let forbidden = others.into_iter().zip(&errors);
                    let forbidden = forbidden.filter(|(_, error)| is_fatal(error));
                    let forbidden = forbidden.map(|(channel, _)| channel).collect();
                    let says_most = errors.into_iter().max_by_key(is_fatal);
                    return Subscribed { confirmed, forbidden, error: says_most.map(refusal) };
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            let pause = backoff.next();
            match error.as_ref().map(classify) {
                Some(ErrorClass::Fatal(_)) => {
                    let forbidden = subscribe.to_vec();
                    return Subscribed { forbidden, ..Subscribed::failed(error.map(refusal)) };
                }
                // Redis is busy with a script, say. Existing subscriptions stay meanwhile.
                Some(ErrorClass::RetryLater) if clock::now() + pause < deadline => {
                    clock::sleep(pause).await;
                }
                _ => {
                    self.drop_connection(connection);
                    let message = format!("no answer from {redis} to a subscription");
                    let error = unavailable(&message, true, error);
                    return Subscribed::failed(Some(error));
                }
            }
        }
    }

    /// Asks for all of it once. Returns the confirmed channels, and the errors about the others, in their order;
    /// `None` if Redis does not answer in time.
    async fn ask_once(
        &self,
        connection: &Connection,
        subscribe: &[Arc<str>],
        unsubscribe: &[Arc<str>],
        deadline: Instant,
        answer_timeout: Duration,
    ) -> Option<RedisResult<(Vec<Arc<str>>, Vec<RedisError>)>> {
        if self.channels() == Channels::Sharded {
            let asked = self.one_by_one(connection, SHARDED, subscribe, unsubscribe);
            return clock::timeout_at(deadline, asked).await.ok();
        }
        let asked = together(connection, subscribe, unsubscribe);
        match clock::timeout_at(deadline, asked).await.ok()? {
            // One that is forbidden has Redis refuse all of them. They have as much time again.
            Err(error)
                if is_fatal(&error)
                    && !subscribe.is_empty()
                    && subscribe.len() + unsubscribe.len() > 1 =>
            {
                let asked = self.one_by_one(connection, PLAIN, subscribe, &[]);
                clock::timeout(answer_timeout, asked).await.ok()
            }
            answer => Some(answer.map(|()| (subscribe.to_vec(), Vec::new()))),
        }
    }

    /// Sends a command for each channel: they are in different slots, or one is forbidden. Confirmations are matched
    /// by name, because an unrequested message can come between (see [`Purpose::Listening`]). Returns also the errors
    /// about the other channels, in their order.
    async fn one_by_one(
        &self,
        connection: &Connection,
        [subscribes, unsubscribes]: [&str; 2],
        subscribe: &[Arc<str>],
        unsubscribe: &[Arc<str>],
    ) -> RedisResult<(Vec<Arc<str>>, Vec<RedisError>)> {
        let mut cmds = redis::pipe();
        for channel in unsubscribe {
            cmds.cmd(unsubscribes).arg(&**channel);
        }
        for channel in subscribe {
            cmds.cmd(subscribes).arg(&**channel);
        }
        let mut by_name: HashMap<&[u8], &Arc<str>> =
            subscribe.iter().map(|channel| (channel.as_bytes(), channel)).collect();
        let (mut confirmed, mut errors) = (Vec::new(), Vec::new());
        for (number, answer) in connection.send_all(&cmds).await?.into_iter().enumerate() {
            match answer {
                Value::Push { kind: PushKind::SSubscribe | PushKind::Subscribe, data } => {
                    let Some(Value::BulkString(name)) = data.first() else { continue };
                    // Each once: an unrequested message has the answer to an earlier request come as one to this.
                    confirmed.extend(by_name.remove(&**name).cloned());
                }
                Value::ServerError(error) => {
                    let error = RedisError::from(error);
                    self.note_redirect(&error, connection.server());
                    errors.extend((number >= unsubscribe.len()).then_some(error));
                }
                _ => {}
            }
        }
        Ok((confirmed, errors))
    }
}

/// Those channels that are not confirmed, in the order in which they are in `channels`.
pub(crate) fn unconfirmed(channels: &[Arc<str>], confirmed: &[Arc<str>]) -> Vec<Arc<str>> {
    if channels.len() == confirmed.len() {
        return Vec::new();
    }
    let confirmed: HashMap<&str, ()> = confirmed.iter().map(|channel| (&**channel, ())).collect();
    channels.iter().filter(|channel| !confirmed.contains_key(&***channel)).cloned().collect()
}

async fn together(
    connection: &Connection,
    subscribe: &[Arc<str>],
    unsubscribe: &[Arc<str>],
) -> RedisResult<()> {
    let answer = connection.answer(async |mut multiplexed| {
        if !unsubscribe.is_empty() {
            multiplexed.unsubscribe(names(unsubscribe)).await?;
        }
        if !subscribe.is_empty() {
            multiplexed.subscribe(names(subscribe)).await?;
        }
        Ok(())
    });
    answer.await
}

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}
