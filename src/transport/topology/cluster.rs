//! The nodes of a cluster, and which of them has which slot.
//!
//! 1. **A caller never fetches the map.** It uses the map that the client has, and follows `MOVED`
//!    and `ASK`. A caller that finds the map wrong requests a new one from the client's own thread,
//!    and retries meanwhile.
//! 2. The client asks several nodes for a new map, one a moment after the other, and takes the
//!    first answer: one node that hangs delays nothing, and meanwhile those that failed are asked
//!    again. It takes the map of a node that is cut off from the others only if no other node has one. The map of
//!    another cluster, which has the address of a node that is gone ([`members`]), counts only from an address that
//!    the builder named, and after the client has looked for a node of this cluster that serves requests for
//!    [long](Silence::is_long), on new connections and on those that are there.
//! 3. Connections to a node that has no slot any more go out of use, so that waiters that listened
//!    there listen elsewhere. A node without slots to which `ASK` leads stays: it is about to get its first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use redis::{ConnectionInfo, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::clock;
use crate::error::Error;
use crate::host::{here, random};
use crate::signal;
use crate::transport::connection::dial::Dialer;
use crate::transport::error_class::{ErrorClass, classify, redirection};
use crate::transport::{Connection, Node, Router, address};

mod looks;
mod map;
mod members;
mod news;
mod view;
use looks::{Pace, Silence};
use map::{Address, Map};
use members::Members;
pub(super) use view::who_are_you;
use view::{Look, View, whom_do_you_know};

/// How long the client waits for the answer of a node before it asks the next node as well.
pub(in crate::transport) const NEXT_NODE_DELAY: Duration = Duration::from_millis(100);

/// How much longer the pause is after no node has answered, or the first one after none serves requests.
const PAUSE_AFTER_SILENCE: Duration = Duration::from_millis(250);

pub(in crate::transport) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    map: RwLock<Map<Node>>,
    /// As of the last map.
    members: RwLock<Members>,
    /// Whether releases are published on sharded channels.
    sharded: AtomicBool,
    refresh_requested: Notify,
    /// Notified of every new map.
    changed: signal::Sender,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Result<Self, Error> {
        // Checks that the addresses are usable.
        for seed in &seeds {
            Node::new(seed.clone())?;
        }
        Ok(Self {
            seeds,
            map: RwLock::default(),
            members: RwLock::default(),
            sharded: AtomicBool::new(false),
            refresh_requested: Notify::new(),
            changed: signal::Sender::default(),
        })
    }

    /// The node of a slot; or any node, if possible one that is connected.
    pub(super) fn node_of(&self, slot: Option<u16>) -> Option<Arc<Node>> {
        match slot {
            Some(slot) => self.map.read().owner(slot).cloned(),
            None => {
                let nodes = self.nodes();
                nodes.iter().find(|node| node.is_connected()).or(nodes.first()).cloned()
            }
        }
    }

    /// The one node that the builder named, if it named no other.
    pub(super) fn only_seed(&self) -> Option<ConnectionInfo> {
        let [seed] = &*self.seeds else { return None };
        Some(seed.clone())
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map.read().nodes().map(|(_, node)| node.clone()).collect()
    }

    /// Whether no node has reported the slots yet.
    pub(in crate::transport) fn is_unknown(&self) -> bool {
        self.map.read().nodes().next().is_none()
    }

    pub(in crate::transport) fn is_sharded(&self) -> bool {
        self.sharded.load(Ordering::Relaxed)
    }

    pub(super) fn changes(&self) -> signal::Receiver {
        self.changed.subscribe()
    }

    pub(super) fn refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Where a `MOVED` or an `ASK` of the server at `from` points to, and whether that is for good.
    pub(super) fn note_redirect(
        &self,
        error: &RedisError,
        from: &str,
    ) -> Option<(Arc<Node>, bool)> {
        let (slot, host, port, for_good) = redirection(error)?;
        let (from, _) = address::host_and_port(from)?;
        // It does not know the name of the other node yet, or has the same one.
        let host = if host.is_empty() || host == "?" { from } else { host };
        let mut map = self.map.write();
        let address = (host.to_owned(), port);
        let node = map.node(address.clone(), |address| self.make(address)).ok()?;
        if for_good {
            let is_new = map.assign(slot, &node, clock::now());
            drop(map);
            self.refresh();
            if is_new {
                self.changed.send();
            }
        } else {
            map.note_ask(address, clock::now());
        }
        Some((node, for_good))
    }

    /// Whether the server at the other end of a new connection, which has answered [`who_are_you`], is no node of this
    /// cluster. That takes a round trip more if the client does not know its id.
    pub(super) async fn is_stranger(
        &self,
        id: RedisResult<Value>,
        connection: &Connection,
        answer_timeout: Duration,
    ) -> RedisResult<bool> {
        let id = match id {
            Ok(id) => id,
            // Another refusal says that this user may not ask.
            Err(error) => return Ok(error.to_string().contains("cluster support disabled")),
        };
        if self.members.read().has(&id) {
            return Ok(false);
        }
        let asked = clock::within(answer_timeout, connection.send(&whom_do_you_know())).await;
        let members = Members::parse(asked)?;
        Ok(!self.members.read().may_be(&members))
    }

    fn make(&self, address: &Address) -> Result<Node, Error> {
        let (host, port) = address;
        Node::new(address::at(&self.seeds[0], host, *port))
    }

    /// Finds the nodes for the first time.
    pub(in crate::transport) async fn find_nodes(
        &self,
        router: &Router,
        deadline: Instant,
    ) -> RedisResult<()> {
        let asked_at = clock::now();
        let view = clock::timeout_at(deadline, self.view(Vec::new(), &router.dialer, true));
        self.apply(view.await.map_err(io::Error::from)??, asked_at, router);
        Ok(())
    }

    /// Fetches a new map on request, if there is [news](Self::news), and while no node serves requests, until this
    /// future is dropped.
    pub(super) async fn keep_up(&self, router: &Router) {
        let (mut reported, mut silence, mut again) = (None, Silence::default(), None);
        let mut pauses = Backoff::new(PAUSE_AFTER_SILENCE, LONGEST_PAUSE);
        let (answer_timeout, mut turn) = (router.dialer.answer_timeout, random());
        let mut pace = Pace::new(answer_timeout, router.dialer.longest_pause, clock::now());
        loop {
            tokio::select! {
                biased;
                () = self.refresh_requested.notified() => {}
                () = clock::until(again.take()) => {}
                // Of the node that is asked first then.
                () = self.news(&mut turn, answer_timeout) => turn = turn.wrapping_sub(1),
            }
            turn = turn.wrapping_add(1);
            let known = self.nodes_from(turn).iter().map(|node| node.info()).collect();
            let asked_at = clock::now();
            pace.look(asked_at);
            let any_cluster = silence.is_long(asked_at, answer_timeout)
                && !self.serves_still(answer_timeout).await;
            match self.view(known, &router.dialer, any_cluster).await {
                Ok(view) => {
                    reported = None;
                    if view.is_ok {
                        silence = Silence::default();
                        pauses.reset();
                    } else {
                        again = Some(clock::now() + pauses.next());
                    }
                    self.apply(view, asked_at, router);
                    router.connect_to_new();
                }
                Err(error) => {
                    // Once an outage, and again if the reason is another one: each ten seconds at most.
                    let reason = Some(error.to_string());
                    if reported != reason && router.events.slots_unknown(&error, clock::now()) {
                        reported = reason;
                    }
                    self.refresh_requested.notify_one();
                    clock::sleep(PAUSE_AFTER_SILENCE).await;
                }
            }
            let is_there =
                |node: &Arc<Node>| node.is_connected() && !router.events.is_silent(node.number);
            let nodes = self.nodes();
            let all_there = !nodes.is_empty() && nodes.iter().all(is_there);
            clock::sleep_until(pace.not_before(all_there, clock::now())).await;
        }
    }

    /// With each turn another node in front, and not the same one for all clients. Behind them are nodes to which `ASK` led:
    /// one that is about to get its first slots has yet to hear of the others.
    fn nodes_from(&self, turn: u64) -> Vec<Arc<Node>> {
        let map = self.map.read();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (address, node) in map.nodes() {
            let nodes = if map.is_asked(address) { &mut last } else { &mut first };
            nodes.push(node.clone());
        }
        let many = u64::try_from(first.len()).unwrap_or(1).max(1);
        first.rotate_left(usize::try_from(turn % many).unwrap_or(0));
        first.extend(last);
        first
    }

    fn replicas(&self) -> Vec<ConnectionInfo> {
        let replica = |(host, port): &Address| address::at(&self.seeds[0], host, *port);
        self.map.read().replicas().map(replica).collect()
    }

    /// Whether a node of the cluster serves requests on a connection that is there: then it only takes no new ones.
    async fn serves_still(&self, answer_timeout: Duration) -> bool {
        let mut asked = JoinSet::new();
        // Those of all runtimes: one that is not polled hears no answer.
        for connection in self.nodes().iter().flat_map(|node| node.connections()) {
            asked.spawn(here(async move {
                let mut questions = redis::pipe();
                questions.add_command(view::how_are_you()).add_command(whom_do_you_know());
                clock::within(answer_timeout, connection.send_all(&questions)).await
            }));
        }
        while let Some(answered) = asked.join_next().await {
            let Ok(Ok(answers)) = answered else { continue };
            let mut answers = answers.into_iter().map(Value::extract_error);
            let [state, members] =
                std::array::from_fn(|_| answers.next().unwrap_or(Ok(Value::Nil)));
            let is_ours = |members: Members| self.members.read().may_be(&members);
            if Members::parse(members).is_ok_and(is_ours) && view::serves(state).unwrap_or(false) {
                return true;
            }
        }
        false
    }

    /// Goes by that view from now on. As in Redisson, the first node that answers decides how releases are published,
    /// because waiters have to listen there.
    fn apply(&self, view: View, asked_at: Instant, router: &Router) {
        if self.is_unknown() {
            self.sharded.store(view.sharded, Ordering::Relaxed);
        }
        let now = clock::now();
        let make = |address: &_| self.make(address);
        let gone = self.map.write().replace(view.ranges, asked_at, now, make);
        let is_ours = self.members.write().renew(view.members);
        if !is_ours {
            router.events.cluster_replaced();
        }
        self.changed.send();
        for node in gone.unwrap_or_default() {
            router.retire(node.retire());
            // From now on no failure of that server begins an outage.
            router.log_replaced(&node);
        }
    }

    /// The first answer, of the nodes that are known, then of the seeds, which may be of another cluster if
    /// `any_cluster`, and then of the replicas.
    async fn view(
        &self,
        mut known: Vec<ConnectionInfo>,
        dialer: &Dialer,
        any_cluster: bool,
    ) -> RedisResult<View> {
        let answer_timeout = dialer.answer_timeout;
        let seeds = known.len()..known.len() + self.seeds.len();
        known.extend(self.seeds.iter().cloned().chain(self.replicas()));
        let round = NEXT_NODE_DELAY * u32::try_from(known.len()).unwrap_or(u32::MAX);
        let mut look = Look::begin(known, &seeds, round, dialer);
        // By then the last node has been asked, or as many as are enough.
        let all_asked = clock::now() + round.min(answer_timeout / 2);
        let (mut second_best, mut trouble, mut until) = (None, None, None);
        loop {
            let Some(answer) = clock::by(until, look.next()).await.flatten() else { break };
            match answer {
                Ok((view, is_seed, took)) => {
                    let is_ours = self.members.read().may_be(&view.members);
                    if view.is_ok && is_ours {
                        return Ok(view);
                    }
                    if !(is_ours || any_cluster && is_seed && view.is_ok) {
                        let stranger = io::Error::other("a node of another cluster answers");
                        trouble.get_or_insert(stranger.into());
                        continue;
                    }
                    let rank = (view.is_ok, is_ours);
                    if second_best.as_ref().is_none_or(|(best, _)| rank > *best) {
                        second_best = Some((rank, view));
                    }
                    if !is_ours {
                        continue;
                    }
                    // The others are not much farther away, unless they hang.
                    until = until.max(Some(all_asked + NEXT_NODE_DELAY.max(2 * took)));
                }
                // A refusal says more than a lost connection.
                Err(error)
                    if trouble.is_none() || classify(&error) != ErrorClass::ConnectionLost =>
                {
                    trouble = Some(error);
                }
                Err(_) => {}
            }
        }
        let no_answer = || io::Error::other("no node of the cluster answers").into();
        second_best.map(|(_, view)| view).ok_or_else(|| trouble.unwrap_or_else(no_answer))
    }
}
