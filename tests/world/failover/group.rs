//! A primary with two replicas, and three Sentinels. What Sentinels would do, the test does.

use std::cell::Cell;

use redis::FromRedisValue;
use redlatch::simulation::{Master, State};

use super::WATCHDOG;
use crate::prelude::*;

const MASTER: &str = "primary";

pub(super) struct Group<'s> {
    scene: &'s Scene,
    pub(super) servers: Vec<ServerNumber>,
    pub(super) sentinels: Vec<ServerNumber>,
    epoch: Cell<u64>,
}

fn host_and_port(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').expect("an address");
    (host.to_owned(), port.parse().expect("a port"))
}

impl<'s> Group<'s> {
    pub(super) fn new(scene: &'s Scene) -> Self {
        let add = |name: &str, number: u64, port: u16, server: fn(Settings) -> Server| {
            let host = format!("{name}{number}");
            let address = format!("{host}:{port}");
            let settings = Settings { host, port, seed: number, ..Settings::default() };
            scene.network.add(server(settings), &address)
        };
        let replica = |number| add("replica", number, 6379, Server::new);
        let servers = vec![scene.server, replica(1), replica(2)];
        let sentinel = |number| add("sentinel", number, 26379, Server::sentinel);
        let sentinels = (3..6).map(sentinel).collect();
        let group = Self { scene, servers, sentinels, epoch: Cell::new(0) };
        scene.network.set_distance(Distance { each_way: ms(1), ..Distance::default() });
        group.lags(ms(1));
        group.follow(1, Some(0));
        group.follow(2, Some(0));
        group.tell(0);
        group
    }

    fn address(&self, server: usize) -> (String, u16) {
        host_and_port(&self.scene.network.address(self.servers[server]))
    }

    /// How long what is written takes to the replicas from now on.
    pub(super) fn lags(&self, each_way: Duration) {
        self.scene.network.set_replication(Distance { each_way, ..Distance::default() });
    }

    pub(super) fn follow(&self, server: usize, primary: Option<usize>) {
        let primary = primary.map(|primary| self.servers[primary]);
        self.scene.network.follow(self.servers[server], primary);
    }

    /// All Sentinels name that server, those that stand still when they go on.
    pub(super) fn tell(&self, primary: usize) {
        self.tell_of_epoch(primary, self.epoch.get() + 1);
    }

    pub(super) fn tell_of_epoch(&self, primary: usize, epoch: u64) {
        let (host, port) = self.address(primary);
        self.epoch.set(epoch);
        let master = Master { name: MASTER.into(), host, port, epoch };
        for sentinel in &self.sentinels {
            self.scene.network.at(*sentinel, |sentinel, _| sentinel.know(master.clone()));
        }
    }

    pub(super) fn kill(&self, server: usize) {
        self.scene.network.kill(self.servers[server]);
    }

    /// A replica becomes the primary, the other replica follows it, and the Sentinels say so. Nobody
    /// tells the old one.
    pub(super) fn fail_over(&self, new: usize) {
        self.follow(new, None);
        (1..3).filter(|other| *other != new).for_each(|other| self.follow(other, Some(new)));
        self.tell(new);
    }

    /// An old primary follows the new one, and its clients have to connect again.
    pub(super) fn demote(&self, old: usize, new: usize) {
        self.follow(old, Some(new));
        self.scene.network.at(self.servers[old], |server, _| {
            let clients: Vec<_> = server.clients().map(|(client, _)| client).collect();
            clients.into_iter().for_each(|client| server.kill(client));
        });
    }

    pub(super) fn set(&self, server: usize, state: State, yes: bool) {
        self.scene.network.at(self.servers[server], |server, _| server.set(state, yes));
    }

    pub(super) fn builder(&self) -> LockClientBuilder {
        self.builder_of(&self.sentinels)
    }

    pub(super) fn builder_of(&self, sentinels: &[ServerNumber]) -> LockClientBuilder {
        let url = |at: &ServerNumber| format!("redis://{}", self.scene.network.address(*at));
        LockClient::builder().sentinel(MASTER, sentinels.iter().map(url))
    }

    pub(super) async fn client(&self, options: LockClientBuilder) -> (Machine, LockClient) {
        let machine = self.scene.machine(Distance { each_way: ms(1), ..Distance::default() });
        let client = machine.run(options.connect()).await.expect("connecting");
        (machine, client)
    }

    pub(super) async fn connect(&self, options: LockClientBuilder) -> LockClient {
        self.client(options).await.1
    }

    pub(super) fn ask<T: FromRedisValue>(&self, server: usize, words: &[&str]) -> T {
        self.scene.ask_at(self.servers[server], words)
    }

    pub(super) fn calls(&self, server: usize, command: &str) -> u64 {
        self.scene.network.at(self.servers[server], |server, _| server.calls(command))
    }

    /// Nobody holds anything at the primary, and no key there is without an end but tokens.
    pub(super) fn is_empty(&self) {
        let is_replica =
            |server: &ServerNumber| self.scene.network.at(*server, |server, _| server.is_replica());
        let primary = self.servers[1..].iter().find(|server| !is_replica(server));
        let primary = *primary.unwrap_or(&self.servers[0]);
        let keys: Vec<String> = self.scene.ask_at(primary, &["KEYS", "*"]);
        assert!(keys.iter().all(|key| key.starts_with("redisson_lock_token:")), "{keys:?}");
    }
}

/// One client of a group, of which each write is at the replicas at once.
pub(super) fn failed_over(play_it: impl AsyncFnOnce(&Group<'_>, LockClient)) {
    play(0, async |scene| {
        let group = Group::new(scene);
        let options = group.builder().watchdog_timeout(WATCHDOG);
        let (machine, client) = group.client(options).await;
        machine.run(play_it(&group, client)).await;
    });
}
