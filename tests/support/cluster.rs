//! A Redis Cluster: masters that share the slots, with or without a replica each.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use redis::{FromRedisValue, RedisError, RedisResult, from_redis_value};

pub(crate) use super::replicas::is_primary as is_master;
use super::{Server, block_until, channel, unpoisoned};
use view::View;

mod view;

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;

/// Nodes in the order in which they were started: three masters, then a replica for each of them
/// if there are any.
pub(crate) struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
    moving: Mutex<()>,
}

/// A node that answers no other for so long is suspected.
const NODE_TIMEOUT: &str = "1500";

/// A new cluster takes two seconds before it accepts writes, and a takeover several.
const CHANGE: Duration = Duration::from_secs(30);

/// A slot on its way from one master to another. A test can stand between any two of its steps.
///
/// There is one at a time: a master that gets a slot becomes the newest authority on all its slots,
/// one that it has just given away included, if it has not been told yet.
pub(crate) struct Move<'a> {
    cluster: &'a Cluster,
    _alone: MutexGuard<'a, ()>,
    pub(crate) slot: u16,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Cluster {
    /// Three masters.
    pub(crate) fn start() -> Self {
        Self::start_with(0, &[])
    }

    /// Three masters with a replica each, or without any.
    ///
    /// With the arguments `["--cluster-require-full-coverage", "no"]` the others go on when a
    /// master is gone; otherwise none of them does.
    pub(crate) fn start_with(replicas: usize, args: &[&str]) -> Self {
        assert!(replicas <= 1, "one replica a master is enough");
        let eager = ["--repl-diskless-sync-delay", "0", "--cluster-node-timeout", NODE_TIMEOUT];
        let args = [&eager, args].concat();
        let count = MASTERS * (1 + replicas);
        let nodes: Vec<Server> = (0..count).map(|_| Server::start_node(&args)).collect();
        let ids = nodes.iter().map(|node| node.ask(&["CLUSTER", "MYID"])).collect();
        let cluster = Self { nodes, ids, moving: Mutex::default() };
        cluster.form();
        cluster
    }

    fn form(&self) {
        for (at, node) in self.nodes.iter().enumerate() {
            // Else they would quarrel about it later.
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if let Some(slots) = slots_of(at) {
                // One by one: Redis 6.2 knows of no ranges.
                let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
                let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
                node.ask::<()>(&[&["CLUSTER", "ADDSLOTS"], &*slots].concat());
            }
        }
        for node in &self.nodes {
            for other in self.nodes.iter().filter(|other| other.port() != node.port()) {
                let port = other.port().to_string();
                node.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port]);
            }
        }
        for (replica, master) in (MASTERS..self.nodes.len()).zip(0..) {
            // Refused until it knows that master.
            let ask = ["CLUSTER", "REPLICATE", &self.ids[master]];
            let takes = || self.nodes[replica].try_ask::<()>(&ask).is_ok();
            block_until("a master that is known", CHANGE, takes);
        }
        self.agrees();
    }

    pub(crate) fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Where the nodes are, replicas included.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// A name for a lock whose slot the `master`th node had at the start.
    pub(crate) fn name_at(&self, master: usize, stem: &str) -> String {
        let slots = slots_of(master).expect("a master");
        let named = (0..).map(|number| format!("{stem}:{number}"));
        named.into_iter().find(|name| slots.contains(&self.slot_of(name))).expect("endless")
    }

    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        self.any().ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// Which node is responsible for the key, as the others see it. It may be down.
    pub(crate) fn node_of(&self, key: &str) -> usize {
        self.route(key, &["EXISTS", key], |_| ()).0
    }

    /// What the responsible node answers. That of a slot that moves may send on to where it goes.
    pub(crate) fn ask_at<T: FromRedisValue>(&self, key: &str, command: &[&str]) -> T {
        let read = |answer: RedisResult<redis::Value>| {
            let value = answer.unwrap_or_else(|error| panic!("{command:?}: {error}"));
            from_redis_value(value).unwrap_or_else(|error| panic!("{command:?}: {error}"))
        };
        match self.route(key, command, read) {
            (_, Some(value)) => value,
            (node, None) => panic!("{command:?}: node {node} is down"),
        }
    }

    /// Asks whoever is up, goes where that one says, and so on. The answer's node is the one that
    /// has the slot, even if that one says that the key is on its way already.
    fn route<T>(
        &self,
        key: &str,
        command: &[&str],
        read: impl FnOnce(RedisResult<redis::Value>) -> T,
    ) -> (usize, Option<T>) {
        let mut at = self.place(self.any().port());
        for _ in 0..10 {
            let node = &self.nodes[at];
            if !node.is_up() {
                return (at, None);
            }
            let answer: RedisResult<redis::Value> = node.try_ask(command);
            match answer.as_ref().err().and_then(redirected) {
                Some(("ASK", port)) => {
                    let to = &self.nodes[self.place(port)];
                    to.ask::<()>(&["ASKING"]);
                    return (at, Some(read(to.try_ask(command))));
                }
                Some((_, port)) => at = self.place(port),
                None => return (at, Some(read(answer))),
            }
        }
        panic!("the nodes do not agree about who has {key}");
    }

    /// Any node that answers.
    fn any(&self) -> &Server {
        self.up().next().expect("a node that is up").1
    }

    fn up(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_up())
    }

    fn place(&self, port: u16) -> usize {
        let at = self.nodes.iter().position(|node| node.port() == port);
        at.expect("a node of this cluster")
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.ask_at(name, &["EXISTS", name])
    }

    /// What Redis counts for each owner of `name`.
    pub(crate) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        self.ask_at(name, &["HGETALL", name])
    }

    /// As [`Server::pttl`].
    pub(crate) fn pttl(&self, name: &str) -> i64 {
        self.ask_at(name, &["PTTL", name])
    }

    /// How many connections wait for a release of `name`, in whichever way, on all nodes that are
    /// up.
    pub(crate) fn subscribers(&self, name: &str) -> u64 {
        self.up().map(|(_, node)| subscribers_at(node, name)).sum()
    }

    /// How many keys there are on the masters that are up.
    pub(crate) fn size(&self) -> u64 {
        let masters = self.up().filter(|(_, node)| is_master(node));
        masters.map(|(_, node)| node.ask::<u64>(&["DBSIZE"])).sum()
    }

    /// How often a command was carried out on all nodes that are up.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.up().map(|(_, node)| node.calls(command)).sum()
    }

    /// Takes `name` as a client of another make would, or as one that has since died.
    pub(crate) fn hold_by_hand(&self, name: &str, owner: &str, lease: Duration) {
        self.ask_at::<()>(name, &["HSET", name, owner, "1"]);
        self.ask_at::<()>(name, &["PEXPIRE", name, &lease.as_millis().to_string()]);
    }

    /// Gives `name` back as a client of another make would: it publishes where the slot is.
    pub(crate) fn free_by_hand(&self, name: &str) {
        self.ask_at::<()>(name, &["DEL", name]);
        let node = &self.nodes[self.node_of(name)];
        let publish = if shards_channels(node) { "SPUBLISH" } else { "PUBLISH" };
        node.ask::<()>(&[publish, &channel(name), "0"]);
    }

    /// Announces that `slot` goes to the master `to`: from now on it has what comes new.
    pub(crate) fn begin_move(&self, slot: u16, to: usize) -> Move<'_> {
        let alone = unpoisoned(&self.moving);
        let owner = View::of(&self.nodes[to]).owner_of(slot).expect("a slot that is served");
        let from = self.place(owner);
        assert_ne!(from, to, "the slot is there already");
        let text = slot.to_string();
        let set = ["CLUSTER", "SETSLOT", &text];
        self.nodes[to].ask::<()>(&[&set[..], &["IMPORTING", &self.ids[from]]].concat());
        self.nodes[from].ask::<()>(&[&set[..], &["MIGRATING", &self.ids[to]]].concat());
        Move { cluster: self, _alone: alone, slot, from, to }
    }

    /// All steps of a move.
    pub(crate) fn move_slot(&self, slot: u16, to: usize) {
        let move_ = self.begin_move(slot, to);
        move_.migrate_keys();
        move_.finish();
    }

    /// SIGKILL.
    pub(crate) fn kill_node(&self, node: usize) {
        self.nodes[node].kill();
    }

    /// SIGSTOP, until [`Server::resume`].
    pub(crate) fn pause_node(&self, node: usize) {
        self.nodes[node].pause();
    }

    /// The replica of a master, if it was started with one.
    pub(crate) fn replica_of(&self, master: usize) -> usize {
        master + MASTERS
    }

    /// A planned failover: the replica takes over, and loses nothing. Returns when all agree.
    pub(crate) fn failover_to(&self, replica: usize) {
        // Refused while it believes that its master is away, as on a machine that is busy.
        block_until("a failover that begins", CHANGE, || {
            self.nodes[replica].try_ask::<()>(&["CLUSTER", "FAILOVER"]).is_ok()
        });
        self.is_master_now(replica);
        self.agrees();
    }

    /// Waits until the node, which was a replica, has taken over, and all that are up know of it.
    pub(crate) fn is_master_now(&self, node: usize) {
        block_until("a replica that has taken over", CHANGE, || {
            self.up().all(|(_, other)| View::of(other).sees(&self.ids[node], "master"))
        });
    }

    /// Waits until all that are up know that the node is down.
    pub(crate) fn is_missed(&self, node: usize) {
        block_until("a node that is missed", CHANGE, || {
            self.up().all(|(_, other)| View::of(other).misses(&self.ids[node]))
        });
    }

    /// Waits until every node that is up sees those that are up, and all slots served by the same
    /// masters, and until replicas are in step.
    pub(crate) fn agrees(&self) {
        block_until("nodes that agree", CHANGE, || {
            let views: Vec<View> = self.up().map(|(_, node)| View::of(node)).collect();
            let roles = |view: &View| {
                self.up().all(|(at, node)| {
                    view.sees(&self.ids[at], if is_master(node) { "master" } else { "slave" })
                })
            };
            views.iter().all(|view| {
                view.knows(self.nodes.len())
                    && view.serves_all()
                    && view.serves_the_same_as(&views[0])
                    && roles(view)
            }) && self.up().all(|(_, node)| {
                let link = node.info("master_link_status");
                is_ok(node) && link.is_none_or(|link| link == "up")
            })
        });
    }
}

impl Move<'_> {
    /// Takes the keys over that are there now, whichever they are.
    pub(crate) fn migrate_keys(&self) {
        let (from, slot) = (&self.cluster.nodes[self.from], self.slot.to_string());
        loop {
            let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                return;
            }
            // A lock may have been released since.
            self.send(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    /// Takes these keys over, and leaves others of the slot where they are.
    pub(crate) fn migrate(&self, keys: &[&str]) {
        assert_eq!(self.send(keys), "OK", "nothing to take over");
    }

    fn send(&self, keys: &[&str]) -> String {
        let (from, to) = (&self.cluster.nodes[self.from], &self.cluster.nodes[self.to]);
        let port = to.port().to_string();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        from.ask(&[&head, keys].concat())
    }

    /// The slot is the other's now, and all nodes know.
    pub(crate) fn finish(&self) {
        let cluster = self.cluster;
        self.finish_at(self.to);
        self.finish_at(self.from);
        for (at, _) in cluster.up().filter(|(at, _)| ![self.from, self.to].contains(at)) {
            // Replicas hear of it from their masters.
            if is_master(&cluster.nodes[at]) {
                self.finish_at(at);
            }
        }
        cluster.agrees();
    }

    /// One node is told that the slot is the other's. The target comes first, then the source;
    /// those who are not told hear of it from the others, some time.
    pub(crate) fn finish_at(&self, node: usize) {
        let (slot, id) = (self.slot.to_string(), &self.cluster.ids[self.to]);
        self.cluster.nodes[node].ask::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", id]);
    }
}

/// The slots that a master has at the start.
fn slots_of(node: usize) -> Option<std::ops::Range<u16>> {
    let bound = |at: usize| (usize::from(SLOTS) * at / MASTERS) as u16;
    (node < MASTERS).then(|| bound(node)..bound(node + 1))
}

fn is_ok(node: &Server) -> bool {
    let info: String = node.ask(&["CLUSTER", "INFO"]);
    info.lines().any(|line| line == "cluster_state:ok")
}

/// How many connections wait for a release of `name` at one node.
pub(crate) fn subscribers_at(node: &Server, name: &str) -> u64 {
    let count = |kind| {
        let (_, count): (String, u64) = node.try_ask(&["PUBSUB", kind, &channel(name)])?;
        RedisResult::Ok(count)
    };
    // Redis 6.2 knows no sharded channels.
    count("NUMSUB").expect("a count") + count("SHARDNUMSUB").unwrap_or(0)
}

/// Whether what is published on this node for the slot of `name` reaches somebody: on a sharded
/// channel who listens here, on a classic one who listens anywhere.
pub(crate) fn listeners_at(cluster: &Cluster, name: &str, node: usize) -> bool {
    if shards_channels(&cluster.nodes[node]) {
        subscribers_at(&cluster.nodes[node], name) > 0
    } else {
        cluster.subscribers(name) > 0
    }
}

/// Whether the server has channels that belong to a slot, as from Redis 7.0 on.
pub(crate) fn shards_channels(node: &Server) -> bool {
    let known: Vec<redis::Value> = node.ask(&["COMMAND", "INFO", "SPUBLISH"]);
    known.iter().any(|command| *command != redis::Value::Nil)
}

/// Where an error sends its reader.
fn redirected(error: &RedisError) -> Option<(&'static str, u16)> {
    let (kind, detail) = match error.code()? {
        "MOVED" => ("MOVED", error.detail()?),
        "ASK" => ("ASK", error.detail()?),
        _ => return None,
    };
    Some((kind, detail.rsplit_once(':')?.1.parse().ok()?))
}
