//! A cluster of three masters, each with a replica.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use redis::FromRedisValue;
use redlatch::simulation::{
    ClusterNode, ClusterView, Distance, Network, Server, ServerNumber, Settings,
};

use crate::support::{channel, ms};

const MASTERS: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// The masters are the nodes 0 to 2, and the replicas of these 3 to 5.
pub(crate) struct Cluster {
    network: Network,
    pub(crate) nodes: Vec<ServerNumber>,
    view: RefCell<Vec<ClusterNode>>,
    /// A slot on its way, and from where to where.
    moves: Cell<Option<(u16, usize, usize)>>,
}

fn id(node: usize) -> String {
    format!("{node:040x}")
}

impl Cluster {
    pub(crate) fn new(network: &Network, seed: u64) -> Self {
        let node = |number: usize| {
            let host = format!("node{number}");
            let address = format!("{host}:6379");
            let settings =
                Settings { host, seed: seed ^ number as u64, cluster: true, ..Settings::default() };
            network.add(Server::new(settings), &address)
        };
        let seen = |number: usize| ClusterNode {
            id: id(number),
            host: format!("node{number}"),
            port: 6379,
            epoch: number as u64 % 3 + 1,
            slots: MASTERS.get(number).copied().into_iter().collect(),
            primary: (number > 2).then(|| id(number - 3)),
            has_failed: false,
        };
        let nodes: Vec<_> = (0..6).map(node).collect();
        let view = RefCell::new((0..6).map(seen).collect());
        let cluster = Self { network: network.clone(), nodes, view, moves: Cell::new(None) };
        cluster.lags(ms(1));
        (3..6).for_each(|replica| cluster.follow(replica, Some(replica - 3)));
        cluster.agrees();
        cluster
    }

    fn follow(&self, node: usize, primary: Option<usize>) {
        self.network.follow(self.nodes[node], primary.map(|primary| self.nodes[primary]));
    }

    /// How long what is written takes to the replicas from now on.
    pub(crate) fn lags(&self, each_way: Duration) {
        self.network.set_replication(Distance { each_way, ..Distance::default() });
    }

    /// All nodes have the same view.
    fn agrees(&self) {
        (0..self.nodes.len()).for_each(|node| self.hears(node));
    }

    /// That node has the newest view.
    pub(crate) fn hears(&self, node: usize) {
        let (me, nodes) = (id(node), self.view.borrow().clone());
        let mut view = ClusterView { me, nodes, ..ClusterView::default() };
        if let Some((slot, from, to)) = self.moves.get() {
            view.migrating.extend((from == node).then(|| (slot, id(to))));
            view.importing.extend((to == node).then(|| (slot, id(from))));
        }
        self.network.at(self.nodes[node], |node, _| node.see(view));
    }

    pub(crate) fn kill(&self, node: usize) {
        self.network.kill(self.nodes[node]);
    }

    pub(crate) fn stop(&self, node: usize) {
        self.network.stop(self.nodes[node]);
    }

    pub(crate) fn go_on(&self, node: usize) {
        self.network.go_on(self.nodes[node]);
    }

    /// A node that was killed is there again, with nothing in it.
    pub(crate) fn start(&self, node: usize) {
        self.network.start(self.nodes[node], |server, now| server.start(now));
        self.agrees();
    }

    /// A node that was killed is there again. Its replica follows it.
    pub(crate) fn started(&self, server: ServerNumber) {
        let node = self.nodes.iter().position(|node| *node == server).expect("one of its nodes");
        self.follow(Self::other(node), Some(node));
        self.agrees();
    }

    /// Nodes of another cluster have the addresses of those nodes, which were killed, and all slots there.
    pub(crate) fn give_away(&self, nodes: &[usize]) {
        for node in nodes {
            self.network.start(self.nodes[*node], |server, now| server.start(now));
        }
        self.make_anew(nodes);
    }

    /// Those nodes are of another cluster from now on, and have all slots there.
    pub(crate) fn make_anew(&self, nodes: &[usize]) {
        let stranger = |node: &usize| ClusterNode {
            id: format!("f{node:039x}"),
            host: format!("node{node}"),
            port: 6379,
            epoch: 9,
            slots: if nodes.len() == 1 { vec![(0, 16_383)] } else { vec![MASTERS[*node]] },
            ..ClusterNode::default()
        };
        let strangers: Vec<_> = nodes.iter().map(stranger).collect();
        for (node, me) in nodes.iter().zip(&strangers) {
            let (me, nodes) = (me.id.clone(), strangers.clone());
            let view = ClusterView { me, nodes, ..ClusterView::default() };
            self.network.at(self.nodes[*node], |node, _| node.see(view));
        }
    }

    /// A server of another kind has the address of that node, which was killed: it is of no cluster.
    pub(crate) fn replace_by_one_server(&self, node: usize) {
        self.network.start(self.nodes[node], |server, now| {
            *server = Server::new(Settings::default());
            server.start(now);
        });
    }

    /// That node believes that the cluster cannot be used.
    pub(crate) fn fails(&self, node: usize) {
        let (me, nodes) = (id(node), self.view.borrow().clone());
        let view = ClusterView { me, nodes, is_down: true, ..ClusterView::default() };
        self.network.at(self.nodes[node], |node, _| node.see(view));
    }

    /// Each node has one other that takes its place.
    pub(crate) fn other(node: usize) -> usize {
        (node + 3) % 6
    }

    /// Those that have slots.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let view = self.view.borrow();
        (0..view.len()).filter(|node| view[*node].primary.is_none()).collect()
    }

    /// A replica has the slots of its master from now on.
    pub(crate) fn take_over(&self, replica: usize) {
        self.replace(replica);
        self.agrees();
    }

    /// The same, of which the master hears nothing.
    pub(crate) fn take_over_unheard(&self, replica: usize) {
        self.replace(replica);
        let others = (0..self.nodes.len()).filter(|node| *node != Self::other(replica));
        others.for_each(|node| self.hears(node));
    }

    /// The same. The master is cut off from all others, and says so: it has the view of before.
    pub(crate) fn take_over_cut_off(&self, replica: usize) {
        let (old, nodes) = (Self::other(replica), self.view.borrow().clone());
        self.take_over_unheard(replica);
        let view = ClusterView { me: id(old), nodes, is_down: true, ..ClusterView::default() };
        self.network.at(self.nodes[old], |node, _| node.see(view));
    }

    /// A node whose place was taken follows the one that took it.
    pub(crate) fn recover(&self, node: usize) {
        self.view.borrow_mut()[node].has_failed = false;
        self.follow(node, Some(Self::other(node)));
        self.agrees();
    }

    /// The same, of which no other node has heard yet.
    pub(crate) fn promote(&self, replica: usize) {
        self.replace(replica);
        self.hears(replica);
    }

    fn replace(&self, replica: usize) {
        let old = Self::other(replica);
        self.follow(replica, None);
        let mut view = self.view.borrow_mut();
        let newest = view.iter().map(|node| node.epoch).max().unwrap_or(0);
        view[old].has_failed = true;
        view[old].primary = Some(id(replica));
        view[replica].slots = std::mem::take(&mut view[old].slots);
        (view[replica].primary, view[replica].epoch) = (None, newest + 1);
    }

    /// An operator gives the slots of a node that is gone to a master that was there.
    pub(crate) fn give_slots(&self, gone: usize, to: usize) {
        {
            let mut view = self.view.borrow_mut();
            let newest = view.iter().map(|node| node.epoch).max().unwrap_or(0);
            view[gone].has_failed = true;
            let slots = std::mem::take(&mut view[gone].slots);
            view[to].slots.extend(slots);
            view[to].epoch = newest + 1;
        }
        self.agrees();
    }

    /// A slot is on its way from one master to another.
    pub(crate) fn begin_move(&self, name: &str, to: usize) {
        let (slot, from) = (ClusterView::slot_of(name), self.node_of(name));
        self.moves.set(Some((slot, from, to)));
        self.agrees();
    }

    /// These keys go where their slot goes.
    pub(crate) fn migrate(&self, keys: &[&str]) {
        let (_, from, to) = self.moves.get().expect("a move");
        self.network.migrate(self.nodes[from], self.nodes[to], keys);
    }

    /// The keys of that node that have the slot of this one.
    pub(crate) fn keys_in_slot_of(&self, node: usize, key: &str) -> Vec<String> {
        let slot = ClusterView::slot_of(key);
        self.network.at(self.nodes[node], |node, now| {
            let keys = node.keys(now, 0).into_iter();
            let keys = keys.map(|(key, _)| String::from_utf8_lossy(key).into_owned());
            keys.filter(|key| ClusterView::slot_of(key) == slot).collect()
        })
    }

    /// The move is over, and all nodes know it.
    pub(crate) fn finish_move(&self) {
        self.end_move();
        self.agrees();
    }

    /// The move is over, of which no node has heard yet but the one that has the slot now.
    pub(crate) fn end_move(&self) {
        let (slot, from, to) = self.moves.take().expect("a move");
        let mut view = self.view.borrow_mut();
        let newest = view.iter().map(|node| node.epoch).max().unwrap_or(0);
        let ranges = std::mem::take(&mut view[from].slots);
        for (first, last) in ranges {
            if (first..=last).contains(&slot) {
                view[from].slots.extend((first < slot).then(|| (first, slot - 1)));
                view[from].slots.extend((slot < last).then(|| (slot + 1, last)));
            } else {
                view[from].slots.push((first, last));
            }
        }
        view[to].slots.push((slot, slot));
        view[to].epoch = newest + 1;
        drop(view);
        self.hears(to);
    }

    /// The master that has the slot of that name.
    pub(crate) fn node_of(&self, name: &str) -> usize {
        let slot = ClusterView::slot_of(name);
        let view = self.view.borrow();
        let has = |node: &ClusterNode| node.slots.iter().any(|(a, b)| (*a..=*b).contains(&slot));
        view.iter().position(has).expect("a master of the slot")
    }

    /// A name that is at home on that node.
    pub(crate) fn name_at(&self, node: usize, stem: &str) -> String {
        let names = (0..).map(|number| format!("{stem}:{number}"));
        names.into_iter().find(|name| self.node_of(name) == node).expect("one of many")
    }

    /// A client of another make takes the lock for a minute.
    pub(crate) fn hold_by_hand(&self, name: &str) {
        let node = self.node_of(name);
        self.ask::<()>(node, &["HSET", name, "somebody:1", "1"]);
        self.ask::<()>(node, &["PEXPIRE", name, "60000"]);
    }

    /// It gives the lock back, and tells those who listen where the slot is now.
    pub(crate) fn free_by_hand(&self, name: &str) {
        let node = self.node_of(name);
        self.ask::<()>(node, &["DEL", name]);
        self.ask::<u64>(node, &["SPUBLISH", &channel(name), "0"]);
    }

    /// How many clients are subscribed at that node to the channel of the lock.
    pub(crate) fn listeners(&self, node: usize, name: &str) -> u64 {
        self.ask::<(String, u64)>(node, &["PUBSUB", "SHARDNUMSUB", &channel(name)]).1
    }

    /// The addresses of the first masters, as a client is given them.
    pub(crate) fn urls(&self) -> Vec<String> {
        let url = |node: &ServerNumber| format!("redis://{}", self.network.address(*node));
        self.nodes[..3].iter().map(url).collect()
    }

    pub(crate) fn ask<T: FromRedisValue>(&self, node: usize, words: &[&str]) -> T {
        super::ask_at(&self.network, self.nodes[node], words)
    }

    pub(crate) fn errors(&self, node: usize, code: &str) -> u64 {
        self.network.at(self.nodes[node], |server, _| server.errors(code))
    }

    pub(crate) fn calls(&self, node: usize, command: &str) -> u64 {
        self.network.at(self.nodes[node], |server, _| server.calls(command))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.ask::<u64>(self.node_of(name), &["EXISTS", name]) == 1
    }
}
