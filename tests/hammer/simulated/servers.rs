//! The servers of a world: one; one with replicas and Sentinels; or the nodes of a cluster.

use std::fmt;

use redlatch::simulation::{ClusterView, Network, Server, ServerNumber, Settings, State};
use redlatch::{LockClient, LockClientBuilder};
use tokio::time::sleep;

use crate::prelude::*;
use crate::support::ms;
use crate::support::sentinel::MASTER;
use crate::support::simulated::{Cluster, Group};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    One,
    Sentinels,
    Cluster,
}

impl Topology {
    /// How many replicas each primary has.
    pub(crate) fn replicas(self) -> u32 {
        match self {
            Self::One => 0,
            Self::Sentinels => 2,
            Self::Cluster => 1,
        }
    }
}

pub(crate) struct Servers {
    network: Network,
    kind: Kind,
}

enum Kind {
    One(ServerNumber),
    Sentinels(Group),
    Cluster(Cluster),
}

/// One server takes the place of another one: their numbers in the group or cluster.
#[derive(Debug, Clone, Copy)]
struct Succession {
    old: usize,
    new: usize,
}

impl fmt::Display for Succession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in the place of {}", self.new, self.old)
    }
}

/// What is written takes less to a replica.
const LAG: u64 = 2 * MS;

const HOST: &str = "redis-1";
const PORT: u16 = 6379;

impl Servers {
    pub(crate) fn new(network: &Network, topology: Topology, seed: u64) -> Self {
        let one = || {
            let settings =
                Settings { host: HOST.into(), port: PORT, seed: !seed, ..Settings::default() };
            network.add(Server::new(settings), &format!("{HOST}:{PORT}"))
        };
        let kind = match topology {
            Topology::One => Kind::One(one()),
            Topology::Sentinels => Kind::Sentinels(Group::new(network, one(), seed)),
            Topology::Cluster => Kind::Cluster(Cluster::new(network, seed)),
        };
        Self { network: network.clone(), kind }
    }

    /// How a client finds them.
    pub(crate) fn way(&self) -> LockClientBuilder {
        let client = LockClient::builder();
        match &self.kind {
            Kind::One(server) => client.url(format!("redis://{}", self.network.address(*server))),
            Kind::Sentinels(group) => client.sentinel(MASTER, group.urls(&group.sentinels)),
            Kind::Cluster(cluster) => client.cluster(cluster.urls()),
        }
    }

    /// Those that may have keys.
    pub(crate) fn with_data(&self) -> Vec<ServerNumber> {
        match &self.kind {
            Kind::One(server) => vec![*server],
            Kind::Sentinels(group) => group.servers.clone(),
            Kind::Cluster(cluster) => cluster.nodes.clone(),
        }
    }

    /// All to which clients connect.
    pub(crate) fn all(&self) -> Vec<ServerNumber> {
        match &self.kind {
            Kind::Sentinels(group) => [&group.servers[..], &group.sentinels].concat(),
            _ => self.with_data(),
        }
    }

    /// Those that execute what clients ask.
    pub(crate) fn primaries(&self) -> Vec<ServerNumber> {
        match &self.kind {
            Kind::One(server) => vec![*server],
            Kind::Sentinels(group) => vec![group.servers[group.primary()]],
            Kind::Cluster(cluster) => {
                cluster.masters().into_iter().map(|node| cluster.nodes[node]).collect()
            }
        }
    }

    /// One of those; of a single one without a draw.
    pub(crate) fn pick(&self, rng: &mut Rng) -> ServerNumber {
        match self.primaries()[..] {
            [one] => one,
            ref several => several[rng.usize(..several.len())],
        }
    }

    /// The one that has that key, or would have it.
    pub(crate) fn home_of(&self, key: &str) -> ServerNumber {
        match &self.kind {
            Kind::Cluster(cluster) => cluster.nodes[cluster.node_of(key)],
            _ => self.primaries()[0],
        }
    }

    /// The slot of that key, if they are a cluster.
    pub(crate) fn slot_of(&self, key: &str) -> Option<u16> {
        match &self.kind {
            Kind::Cluster(_) => Some(ClusterView::slot_of(key)),
            _ => None,
        }
    }

    /// One that was ended runs again, and those that followed it do so again.
    pub(crate) fn start(&self, server: ServerNumber, restart: impl FnOnce(&mut Server, Duration)) {
        self.network.start(server, restart);
        match &self.kind {
            Kind::One(_) => {}
            Kind::Sentinels(group) => {
                let primary = group.primary();
                let others = (0..group.servers.len()).filter(|other| *other != primary);
                others.for_each(|other| group.follow(other, Some(primary)));
            }
            Kind::Cluster(cluster) => cluster.started(server),
        }
    }

    fn successions(&self) -> Vec<Succession> {
        match &self.kind {
            Kind::One(_) => Vec::new(),
            Kind::Sentinels(group) => {
                let old = group.primary();
                let others = (0..group.servers.len()).filter(|other| *other != old);
                others.map(|new| Succession { old, new }).collect()
            }
            Kind::Cluster(cluster) => {
                let masters = cluster.masters().into_iter();
                masters.map(|old| Succession { old, new: Cluster::other(old) }).collect()
            }
        }
    }

    fn pick_succession(&self, rng: &mut Rng) -> Option<Succession> {
        let all = self.successions();
        all.get(rng.usize(..all.len().max(1))).copied()
    }

    /// A replica takes the place of its primary in a moment in which it has all that was written. The old
    /// one follows it: at once, or, if it `dies`, after so long. The fault is over when it has taken its place.
    pub(crate) async fn fail_over(&self, rng: &mut Rng, dies: Option<Duration>) -> Option<Fault> {
        let succession = self.pick_succession(rng)?;
        let servers = self.with_data();
        let [old, new] = [succession.old, succession.new].map(|server| servers[server]);
        // What is due in the same moment is refused.
        let set = |yes| self.network.at(old, |old, _| old.set(State::Unsaved, yes));
        set(true);
        self.network.follow(new, Some(old));
        let taken_over = match dies {
            Some(time) => self.die(succession, time, rng).await,
            None => {
                self.take_over(succession, rng).await;
                self.follow(succession);
                now()
            }
        };
        set(false);
        let what = format!("{succession}, dies: {}", dies.is_some());
        Some(Fault { t1: taken_over, ..Fault::done(what, true)? })
    }

    /// A primary dies, and a replica takes its place that did not hear of the last writes.
    pub(crate) async fn lose_writes(&self, rng: &mut Rng, time: Duration) -> Option<Fault> {
        let succession = self.pick_succession(rng)?;
        let servers = self.with_data();
        // What was under way to the replica then is lost, too.
        let t0 = now().saturating_sub(LAG);
        self.network.cut_replica(servers[succession.new]);
        let deaf = ms(rng.u64(..100));
        sleep(deaf).await;
        let offset = |server: usize| self.network.at(servers[server], |server, _| server.offset());
        let is_lossy = offset(succession.old) != offset(succession.new);
        let taken_over = self.die(succession, time, rng).await;
        let what = format!("{succession}, after {deaf:?}");
        Some(Fault { t0, t1: taken_over, ..Fault::done(what, is_lossy)? })
    }

    /// A replica takes the place of its primary, and all hear that but the primary, which goes on for so long. What
    /// it writes meanwhile is lost.
    pub(crate) async fn have_two(&self, rng: &mut Rng, time: Duration) -> Option<Fault> {
        let succession = self.pick_succession(rng)?;
        let t0 = now().saturating_sub(LAG);
        self.take_over(succession, rng).await;
        sleep(time).await;
        self.follow(succession);
        Some(Fault { t0, ..Fault::done(succession.to_string(), true)? })
    }

    /// Returns when the other one has taken its place.
    async fn die(&self, succession: Succession, time: Duration, rng: &mut Rng) -> u64 {
        let old = self.with_data()[succession.old];
        self.network.kill(old);
        sleep(time / 2).await;
        self.take_over(succession, rng).await;
        let taken_over = now();
        sleep(time / 2).await;
        self.network.start(old, |server, now| server.start(now));
        self.follow(succession);
        taken_over
    }

    /// The other one has its place, and all hear that but the old one: one after the other.
    async fn take_over(&self, Succession { old, new }: Succession, rng: &mut Rng) {
        let mut hear: Vec<usize> = match &self.kind {
            Kind::One(_) => Vec::new(),
            Kind::Sentinels(group) => {
                group.promote(new);
                (0..group.sentinels.len()).collect()
            }
            Kind::Cluster(cluster) => {
                cluster.promote(new);
                (0..cluster.nodes.len()).filter(|node| ![old, new].contains(node)).collect()
            }
        };
        self.spread(&mut hear, rng).await;
    }

    /// Those hear what has changed: one after the other, in any order.
    async fn spread(&self, hear: &mut [usize], rng: &mut Rng) {
        rng.shuffle(hear);
        for one in hear {
            sleep(ms(rng.u64(..100))).await;
            match &self.kind {
                Kind::One(_) => {}
                Kind::Sentinels(group) => group.repeat(*one),
                Kind::Cluster(cluster) => cluster.hears(*one),
            }
        }
    }

    /// The old one is a replica from now on.
    fn follow(&self, Succession { old, new }: Succession) {
        match &self.kind {
            Kind::One(_) => {}
            Kind::Sentinels(group) => group.demote(old, new),
            Kind::Cluster(cluster) => cluster.recover(old),
        }
    }

    /// The slot of that key goes to another node, key by key. When it is there, an operator tells the one that had it, and
    /// the others hear of it one after the other.
    pub(crate) async fn move_slot(
        &self,
        key: &str,
        rng: &mut Rng,
        time: Duration,
    ) -> Option<String> {
        let Kind::Cluster(cluster) = &self.kind else { return None };
        let from = cluster.node_of(key);
        let others: Vec<usize> = cluster.masters().into_iter().filter(|to| *to != from).collect();
        let to = others[rng.usize(..others.len())];
        let step = time / 4;
        cluster.begin_move(key, to);
        sleep(step).await;
        // What comes to be meanwhile comes to be at the other node.
        while let Some(next) = cluster.keys_in_slot_of(from, key).first() {
            cluster.migrate(&[next]);
            sleep(step.min(ms(rng.u64(..10)))).await;
        }
        sleep(step).await;
        cluster.end_move();
        sleep(ms(rng.u64(..100))).await;
        cluster.hears(from);
        let others = (0..cluster.nodes.len()).filter(|node| ![from, to].contains(node));
        self.spread(&mut others.collect::<Vec<_>>(), rng).await;
        Some(format!("of {key} from {from} to {to}"))
    }
}
