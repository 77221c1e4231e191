//! The servers of a scene, each by way of a proxy, and how the topology moves on and back.

use std::sync::atomic::{AtomicUsize, Ordering};

use redis::FromRedisValue;

use super::matrix::Way;
use super::*;
use crate::support::cluster::{shards_channels, subscribers_at};

/// What a client of a cluster moves to another node: this slot, which the first node starts with.
/// It has no other.
const TAG: &str = "{late}";

const SLOTS: u16 = 16_384;

#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Topology {
    /// A primary, perhaps with a replica.
    Group(Replicated),
    /// A primary, perhaps with a replica, and a Sentinel that names it.
    Named(Replicated, Server),
    /// Two nodes of a cluster.
    Cluster([Server; 2]),
}

/// One scene at a time plays here.
pub(super) struct Servers {
    way: Way,
    topology: Topology,
    proxies: [Proxy; 2],
    /// Of the scripts of single requests.
    digests: Vec<String>,
    /// By way of which proxy the client goes to the locks at the start of a scene.
    first: AtomicUsize,
}

impl Servers {
    /// Nothing where the servers are too old for the way.
    pub(super) fn new(way: Way) -> Option<Self> {
        let topology = match way {
            Way::Timeout | Way::RuntimeEnds | Way::Close => Topology::Group(Replicated::start(0)),
            Way::Renamed | Way::FailedOver => {
                let group = Replicated::start(usize::from(way == Way::FailedOver));
                // It has to have one from the start: nobody is there, whose replicas it would lead.
                let first = "sentinel monitor first 127.0.0.1 1 99\n";
                Topology::Named(group, Server::start_sentinel(first))
            }
            Way::Announced | Way::Moved | Way::Asked => Topology::Cluster(two_nodes()?),
        };
        let [one, two] = match &topology {
            Topology::Group(group) | Topology::Named(group, _) => {
                [group.primary(), group.servers().last().expect("a server")]
            }
            Topology::Cluster(nodes) if way == Way::Announced => [&nodes[0], &nodes[0]],
            Topology::Cluster([source, target]) if way == Way::Asked => [target, source],
            Topology::Cluster([one, two]) => [one, two],
        };
        let (digests, _) = (load_scripts(one), load_scripts(two));
        let proxies = [Proxy::new(one), Proxy::new(two)];
        let servers = Self { way, topology, proxies, digests, first: AtomicUsize::new(0) };
        servers.form();
        Some(servers)
    }

    /// Brings the nodes of a cluster together, each by the address of its proxy.
    fn form(&self) {
        let Topology::Cluster(nodes) = &self.topology else { return };
        let ports = self.proxies.each_ref().map(|proxy| proxy.port());
        match self.way {
            Way::Announced => announce(&nodes[0], ports[0]),
            Way::Asked => nodes.iter().zip([ports[1], ports[0]]).for_each(|(n, p)| announce(n, p)),
            _ => nodes.iter().zip(ports).for_each(|(node, port)| announce(node, port)),
        }
        let slot: u16 = nodes[0].ask(&["CLUSTER", "KEYSLOT", TAG]);
        for (node, epoch) in nodes.iter().zip(["1", "2"]) {
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", epoch]);
        }
        let slots: Vec<String> =
            (0..SLOTS).filter(|at| *at != slot).map(|at| at.to_string()).collect();
        let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
        nodes[0].ask::<()>(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
        nodes[1].ask::<()>(&[&["CLUSTER", "ADDSLOTS"], &*slots].concat());
        let port = nodes[1].port().to_string();
        nodes[0].ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        block_until("nodes that know each other", SOON, || {
            nodes.iter().all(|node| {
                let info: String = node.ask(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
            })
        });
        if self.way == Way::Asked {
            self.begin_move(0);
        }
    }

    /// The proxy by way of which the client goes to the locks at the start of a scene, and at its
    /// end, and the other one.
    pub(super) fn proxies(&self) -> [&Proxy; 2] {
        let first = self.first.load(Ordering::Relaxed);
        [&self.proxies[first], &self.proxies[1 - first]]
    }

    /// What the server says that has the locks at the start of a scene and at its end.
    fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let server = match &self.topology {
            Topology::Group(group) | Topology::Named(group, _) => group.primary(),
            Topology::Cluster([_, target]) if self.way == Way::Asked => target,
            Topology::Cluster([one, _]) => one,
        };
        if self.way != Way::Asked {
            return server.ask(command);
        }
        let mut connection = server.connection().expect("a connection");
        redis::cmd("ASKING").exec(&mut connection).expect("a node of a cluster");
        redis::cmd(command[0]).arg(&command[1..]).query(&mut connection).expect("an answer")
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.ask(&["EXISTS", name])
    }

    /// What Redis counts for each owner of `name`.
    pub(super) fn holds(&self, name: &str) -> BTreeMap<String, u32> {
        self.ask(&["HGETALL", name])
    }

    pub(super) fn pttl(&self, name: &str) -> i64 {
        self.ask(&["PTTL", name])
    }

    fn all(&self) -> &[Server] {
        match &self.topology {
            Topology::Group(group) | Topology::Named(group, _) => group.servers(),
            Topology::Cluster(nodes) => nodes,
        }
    }

    pub(super) fn subscribers(&self, name: &str) -> u64 {
        self.all().iter().map(|server| subscribers_at(server, name)).sum()
    }

    /// Whether the server that has the locks knows every script of a single request.
    pub(super) fn knows_scripts(&self) -> bool {
        let digests: Vec<&str> = self.digests.iter().map(String::as_str).collect();
        let known: Vec<bool> = self.ask(&[&["SCRIPT", "EXISTS"], &*digests].concat());
        known.iter().all(|known| *known)
    }

    /// How many keys there are, wherever.
    pub(super) fn size(&self) -> u64 {
        self.all().iter().map(|server| server.ask::<u64>(&["DBSIZE"])).sum()
    }

    /// A name for a scene's lock, and for others beside it.
    pub(super) fn name(&self, number: u64) -> String {
        format!("{TAG}:{number}")
    }

    /// A client of these servers by way of the proxies, for which the master has that name.
    pub(super) fn builder(&self, name: &str) -> LockClientBuilder {
        match &self.topology {
            Topology::Group(group) => {
                LockClient::builder().url(self.proxies()[0].url(group.primary()))
            }
            Topology::Named(_, sentinel) => LockClient::builder().sentinel(name, [sentinel.url()]),
            Topology::Cluster(nodes) => {
                LockClient::builder().cluster(nodes.each_ref().map(Server::url))
            }
        }
    }

    /// A client that knows the primary by its own address.
    pub(super) fn beside(&self, name: &str) -> LockClientBuilder {
        match &self.topology {
            Topology::Group(group) | Topology::Named(group, _) => {
                LockClient::builder().url(group.primary().url())
            }
            Topology::Cluster(_) => self.builder(name),
        }
    }

    /// From now on the Sentinel names the master of a scene by the address of that proxy.
    pub(super) fn names(&self, name: &str, proxy: &Proxy) {
        let Topology::Named(_, sentinel) = &self.topology else { return };
        let port = proxy.port().to_string();
        // It finds no others to agree with and never fails over.
        sentinel.ask::<()>(&["SENTINEL", "MONITOR", name, "127.0.0.1", &port, "99"]);
        sentinel.ask::<()>(&["SENTINEL", "SET", name, "down-after-milliseconds", "600000"]);
    }

    pub(super) fn forgets(&self, name: &str) {
        let Topology::Named(_, sentinel) = &self.topology else { return };
        sentinel.ask::<()>(&["SENTINEL", "REMOVE", name]);
    }

    /// The locks are reached by way of the other proxy from now on. Clients are told so by a
    /// connection that breaks: never the one that has a request under way.
    pub(super) fn moves_on(&self, name: &str, back: bool) {
        let [from, to] = self.proxies();
        let to = if back { from } else { to };
        if !self.way.leads_back() && self.way.moves_on() {
            // Nothing can be closed by way of the old name.
            from.refuse(true);
        }
        match &self.topology {
            Topology::Group(_) => {}
            Topology::Named(group, sentinel) => {
                if self.way == Way::FailedOver {
                    group.failover();
                }
                self.forgets(name);
                self.names(name, to);
                // Those who listen, and those who ask.
                break_connections(sentinel);
                sentinel.ask::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
            Topology::Cluster(nodes) => {
                match self.way {
                    Way::Announced => {
                        announce(&nodes[0], to.port());
                        let address = format!(":{}@", to.port());
                        let known =
                            || nodes[1].ask::<String>(&["CLUSTER", "NODES"]).contains(&address);
                        block_until("the new address", SOON, known);
                    }
                    Way::Moved => self.moves_to(usize::from(!back)),
                    _ => return break_connections(&nodes[0]),
                }
                if !back {
                    break_connections(&nodes[1]);
                }
            }
        }
    }

    /// The scene ends where the topology has got to.
    pub(super) fn stays(&self) {
        self.proxies()[0].refuse(false);
        self.first.fetch_xor(1, Ordering::Relaxed);
    }

    /// The slot goes on its way from that node to the other.
    fn begin_move(&self, from: usize) -> [String; 3] {
        let Topology::Cluster(nodes) = &self.topology else { unreachable!("no cluster") };
        let slot = nodes[0].ask::<u16>(&["CLUSTER", "KEYSLOT", TAG]).to_string();
        let [source, target] =
            [from, 1 - from].map(|at| nodes[at].ask::<String>(&["CLUSTER", "MYID"]));
        nodes[1 - from].ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        nodes[from].ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
        [slot, source, target]
    }

    /// The slot goes to that node, with its keys.
    fn moves_to(&self, to: usize) {
        let Topology::Cluster(nodes) = &self.topology else { unreachable!("no cluster") };
        let [slot, _, target] = self.begin_move(1 - to);
        let (source, port) = (&nodes[1 - to], nodes[to].port().to_string());
        loop {
            let keys: Vec<String> = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            // A lock may have been released since.
            source.ask::<String>(&[&head, &*keys].concat());
        }
        for node in [to, 1 - to] {
            nodes[node].ask::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }
}

fn two_nodes() -> Option<[Server; 2]> {
    // The first node gives its only slot away, and is to stay a master.
    let args = ["--cluster-node-timeout", "1500", "--cluster-allow-replica-migration", "no"];
    let first = Server::start_node(&[]);
    if !shards_channels(&first) {
        eprintln!("left out: before 7.0 a node takes no new address while it runs");
        return None;
    }
    Some([0, 1].map(|_| Server::start_node(&args)))
}

fn announce(node: &Server, port: u16) {
    node.ask::<()>(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
}

fn break_connections(server: &Server) {
    server.ask::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

/// Has the server know the scripts of single requests, and returns their digests.
fn load_scripts(server: &Server) -> Vec<String> {
    scripts::ALL.map(|script| server.ask(&["SCRIPT", "LOAD", &script()])).into()
}

/// How long a request may take before the client gives it and its connection up.
pub(super) fn command_timeout(way: Way) -> Duration {
    match way {
        // Most requests have to run into it. Not shorter, because those that are not held up must
        // not, on a busy machine.
        Way::Timeout | Way::RuntimeEnds | Way::Close | Way::Asked => ms(400),
        // It is the topology that has the client drop the connection.
        Way::Renamed | Way::FailedOver | Way::Announced | Way::Moved => SOON,
    }
}
