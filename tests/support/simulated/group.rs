//! A primary with two replicas, and three Sentinels.

use std::cell::Cell;
use std::time::Duration;

use redis::FromRedisValue;
use redlatch::simulation::{Distance, Master, Network, Server, ServerNumber, Settings, State};

use crate::support::ms;
use crate::support::sentinel::MASTER;

pub(crate) struct Group {
    network: Network,
    pub(crate) servers: Vec<ServerNumber>,
    pub(crate) sentinels: Vec<ServerNumber>,
    /// The one of which the Sentinels were told last, and the epoch of that.
    primary: Cell<usize>,
    epoch: Cell<u64>,
}

fn host_and_port(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').expect("an address");
    (host.to_owned(), port.parse().expect("a port"))
}

impl Group {
    /// Has replicas follow a primary, and Sentinels know it.
    pub(crate) fn new(network: &Network, primary: ServerNumber, seed: u64) -> Self {
        let add = |name: &str, number: u64, port: u16, server: fn(Settings) -> Server| {
            let host = format!("{name}{number}");
            let address = format!("{host}:{port}");
            let settings = Settings { host, port, seed: seed ^ number, ..Settings::default() };
            network.add(server(settings), &address)
        };
        let replica = |number| add("replica", number, 6379, Server::new);
        let servers = vec![primary, replica(1), replica(2)];
        let sentinel = |number| add("sentinel", number, 26379, Server::sentinel);
        let sentinels = (3..6).map(sentinel).collect();
        let (primary, epoch) = (Cell::new(0), Cell::new(0));
        let group = Self { network: network.clone(), servers, sentinels, primary, epoch };
        group.lags(ms(1));
        group.follow(1, Some(0));
        group.follow(2, Some(0));
        group.tell(0);
        group
    }

    fn address(&self, server: usize) -> (String, u16) {
        host_and_port(&self.network.address(self.servers[server]))
    }

    /// How long what is written takes to the replicas from now on.
    pub(crate) fn lags(&self, each_way: Duration) {
        self.network.set_replication(Distance { each_way, ..Distance::default() });
    }

    pub(crate) fn follow(&self, server: usize, primary: Option<usize>) {
        let primary = primary.map(|primary| self.servers[primary]);
        self.network.follow(self.servers[server], primary);
    }

    /// All Sentinels name that server, those that stand still when they go on.
    pub(crate) fn tell(&self, primary: usize) {
        self.tell_of_epoch(primary, self.epoch.get() + 1);
    }

    pub(crate) fn tell_of_epoch(&self, primary: usize, epoch: u64) {
        self.primary.set(primary);
        self.epoch.set(epoch);
        (0..self.sentinels.len()).for_each(|sentinel| self.repeat(sentinel));
    }

    /// That Sentinel hears what there is to tell.
    pub(crate) fn repeat(&self, sentinel: usize) {
        let (host, port) = self.address(self.primary());
        self.knows(sentinel, host, port, None);
    }

    /// That Sentinel leads the failover from the old one, and has yet to see that all replicas follow the new one.
    pub(crate) fn leads(&self, sentinel: usize, old: usize) {
        let (host, port) = self.address(old);
        self.knows(sentinel, host, port, Some(self.address(self.primary())));
    }

    /// That Sentinel names that server, whatever the others say.
    pub(crate) fn names(&self, sentinel: usize, server: usize, epoch: u64) {
        let (host, port) = self.address(server);
        let master = Master { name: MASTER.into(), host, port, epoch, promoted: None };
        self.network.at(self.sentinels[sentinel], |sentinel, _| sentinel.know(master));
    }

    /// All Sentinels name a primary of others.
    pub(crate) fn names_another(&self, number: u64, port: u16) {
        let (name, host) = (format!("{MASTER}-{number}"), format!("another{number}"));
        for sentinel in &self.sentinels {
            let (name, host) = (name.clone(), host.clone());
            let master = Master { name, host, port, epoch: 1, promoted: None };
            self.network.at(*sentinel, |sentinel, _| sentinel.know(master));
        }
    }

    fn knows(&self, sentinel: usize, host: String, port: u16, promoted: Option<(String, u16)>) {
        let (name, epoch) = (MASTER.into(), self.epoch.get());
        let master = Master { name, host, port, epoch, promoted };
        self.network.at(self.sentinels[sentinel], |sentinel, _| sentinel.know(master));
    }

    /// The one of which the Sentinels were told last.
    pub(crate) fn primary(&self) -> usize {
        self.primary.get()
    }

    pub(crate) fn kill(&self, server: usize) {
        self.network.kill(self.servers[server]);
    }

    /// A replica becomes the primary, the other replica follows it, and the Sentinels say so. Nobody
    /// tells the old one.
    pub(crate) fn fail_over(&self, new: usize) {
        self.promote(new);
        self.tell_of_epoch(new, self.epoch.get());
    }

    /// The same, of which no Sentinel has heard yet.
    pub(crate) fn promote(&self, new: usize) {
        self.follow(new, None);
        let others = (0..3).filter(|other| ![new, self.primary()].contains(other));
        others.for_each(|other| self.follow(other, Some(new)));
        self.primary.set(new);
        self.epoch.set(self.epoch.get() + 1);
    }

    /// An old primary follows the new one, and its clients have to connect again.
    pub(crate) fn demote(&self, old: usize, new: usize) {
        self.follow(old, Some(new));
        self.network.at(self.servers[old], |server, _| {
            let clients: Vec<_> = server.clients().map(|(client, _)| client).collect();
            clients.into_iter().for_each(|client| server.kill(client));
        });
    }

    pub(crate) fn set(&self, server: usize, state: State, yes: bool) {
        self.network.at(self.servers[server], |server, _| server.set(state, yes));
    }

    pub(crate) fn ask<T: FromRedisValue>(&self, server: usize, words: &[&str]) -> T {
        super::ask_at(&self.network, self.servers[server], words)
    }

    pub(crate) fn calls(&self, server: usize, command: &str) -> u64 {
        self.network.at(self.servers[server], |server, _| server.calls(command))
    }

    /// The addresses of Sentinels, as a client is given them.
    pub(crate) fn urls(&self, sentinels: &[ServerNumber]) -> Vec<String> {
        sentinels.iter().map(|at| format!("redis://{}", self.network.address(*at))).collect()
    }
}
