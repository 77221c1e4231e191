//! What the world does with a server, and what it may look at.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::Client;
use super::core::{Core, DBS, Db};
use super::data::{Bytes, Value};
use super::replication::following;
use super::role::{Replica, Role};
use super::view::ClusterView;
use super::{ClientId, Server, Snapshot, Update};

/// A replica that is attached to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// A state of a server that the world sets and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server's memory is full.
    FullMemory,
    /// The server loads its data.
    Loading,
    /// A script runs for too long.
    Busy,
    /// The server cannot save its data, and refuses writes.
    Unsaved,
}

impl Core {
    pub(super) fn accept(&mut self, address: &str) -> u64 {
        self.came += 1;
        let knows_all =
            self.users.get("default").is_some_and(|user| user.is_on && user.needs_no_password);
        let now = self.millis();
        let client = Client {
            id: self.came - self.came_before,
            address: address.to_owned(),
            user: "default".into(),
            is_known: knows_all,
            since: now,
            active: now,
            last_command: "NULL",
            ..Client::default()
        };
        self.clients.insert(self.came, client);
        self.came
    }
}

impl Server {
    /// The process starts: without clients, scripts and data, and with another run id. What was
    /// configured while it ran is forgotten. A Sentinel knows what it knew.
    pub fn start(&mut self, now: Duration) {
        let old = std::mem::take(&mut self.core);
        self.core = Core {
            settings: old.settings,
            table: old.table,
            now,
            random: old.random,
            dbs: vec![Db::new(); DBS],
            came: old.came,
            came_before: old.came,
            engine: old.engine,
            role: old.role,
            is_sentinel: old.is_sentinel,
            masters: old.masters,
            view: old.view,
            calls: vec![0; old.table.len()],
            ..Core::default()
        };
        self.core.run_id = self.core.random_id();
        self.core.replication_id = self.core.random_id();
        self.core.make_default_user();
    }

    /// Starts or ends a state.
    pub fn set(&mut self, state: State, yes: bool) {
        *match state {
            State::FullMemory => &mut self.core.memory_is_full,
            State::Loading => &mut self.core.is_loading,
            State::Busy => &mut self.core.is_busy,
            State::Unsaved => &mut self.core.refuses_writes,
        } = yes;
    }

    /// Forgets all scripts.
    pub fn flush_scripts(&mut self) {
        self.core.scripts.clear();
    }

    /// Ends a connection, as `CLIENT KILL` does.
    pub fn kill(&mut self, client: ClientId) {
        self.core.close(client.0);
    }

    /// From now on it is the replica of a server at that host and port, or of none.
    pub fn follow(&mut self, primary: Option<(&str, u16)>) {
        self.core.role = following(primary.map(|(host, port)| (host.to_owned(), port)));
        if primary.is_none() {
            self.core.replication_id = self.core.random_id();
        } else {
            self.core.replicas.clear();
        }
    }

    /// For a replica: whether it has a connection to its primary.
    pub fn link(&mut self, up: bool) {
        if let Role::Replica { is_linked, .. } = &mut self.core.role {
            *is_linked = up;
        }
    }

    /// Takes over all data of another server.
    pub fn load(&mut self, now: Duration, snapshot: Snapshot) {
        self.core.now = now;
        self.core.load(snapshot);
    }

    /// All its data.
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// From now on a replica at that host and port gets what is written; it has what is here now.
    pub fn attach(&mut self, replica: ReplicaId, host: &str, port: u16) {
        let acknowledged = self.core.offset;
        let replica_there = Replica { host: host.to_owned(), port, acknowledged };
        self.core.replicas.insert(replica.0, replica_there);
    }

    /// That replica is gone.
    pub fn detach(&mut self, replica: ReplicaId) {
        self.core.replicas.remove(&replica.0);
    }

    /// That replica has everything up to that offset.
    pub fn acknowledge(&mut self, now: Duration, replica: ReplicaId, offset: u64) {
        if let Some(replica) = self.core.replicas.get_mut(&replica.0) {
            replica.acknowledged = replica.acknowledged.max(offset);
        }
        self.tick(now);
    }

    /// For a replica: what its primary has changed.
    pub fn apply(&mut self, now: Duration, update: Update) {
        self.core.now = now;
        self.core.apply(update);
    }

    /// Gives keys away, as `MIGRATE` does. Another server [takes](Self::take) them.
    pub fn give(&mut self, now: Duration, keys: &[&str]) -> Update {
        self.core.now = now;
        let gone = keys.iter().map(|key| key.as_bytes()).filter_map(|key| {
            let entry = self.core.entry(0, key)?.clone();
            self.core.remove(0, key);
            Some((0, key.to_vec(), Some(entry)))
        });
        let entries = gone.collect();
        self.core.end_unit(None);
        Update { offset: 0, entries, messages: Vec::new() }
    }

    /// Takes keys that another server gives away.
    pub fn take(&mut self, now: Duration, given: Update) {
        self.core.now = now;
        for (db, key, entry) in given.entries {
            entry.into_iter().for_each(|entry| self.core.set(db, &key, entry));
        }
        self.core.end_unit(None);
    }

    /// How much it has written, or, as a replica, received.
    pub fn offset(&self) -> u64 {
        self.core.offset
    }

    /// From now on it sees its cluster like this. Subscribers of what has moved away are dropped.
    pub fn see(&mut self, view: ClusterView) {
        self.core.sees(view);
    }

    /// How it sees its cluster.
    pub fn view(&self) -> Option<&ClusterView> {
        self.core.view.as_ref()
    }

    /// What tells this process from every other.
    pub fn run_id(&self) -> &str {
        &self.core.run_id
    }

    /// Whether this server is a replica.
    pub fn is_replica(&self) -> bool {
        self.core.is_replica()
    }

    /// The connections to this server, with the addresses that they come from.
    pub fn clients(&self) -> impl Iterator<Item = (ClientId, &str)> {
        self.core.clients.iter().map(|(client, one)| (ClientId(*client), &*one.address))
    }

    /// The keys of a database that have not ended, with the milliseconds until they do.
    pub fn keys(&self, now: Duration, db: usize) -> Vec<(&[u8], Option<i64>)> {
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let left = self.core.dbs[db]
            .iter()
            .map(|(key, entry)| (&**key, entry.expires.map(|end| end - now)));
        left.filter(|(_, left)| left.is_none_or(|left| left >= 0)).collect()
    }

    /// The fields of a hash, whether or not it has ended.
    pub fn hash(&self, db: usize, key: &[u8]) -> Option<&BTreeMap<Bytes, Bytes>> {
        match &self.core.dbs[db].get(key)?.value {
            Value::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    /// How many clients would receive a message.
    pub fn subscribers(&self, channel: &[u8]) -> usize {
        let of =
            |all: &BTreeMap<Bytes, _>| all.get(channel).map_or(0, std::collections::BTreeSet::len);
        of(&self.core.channels) + of(&self.core.sharded)
    }

    /// How many clients would receive a message on one of these channels.
    pub(crate) fn listeners(&self, of: impl Fn(&[u8]) -> bool) -> usize {
        let all = self.core.channels.iter().chain(&self.core.sharded);
        let heard = all.filter(|(channel, _)| of(channel)).flat_map(|(_, clients)| clients);
        heard.collect::<std::collections::BTreeSet<_>>().len()
    }

    /// How many commands it has carried out since it started, those of scripts included.
    pub fn commands(&self) -> u64 {
        self.core.calls.iter().sum()
    }

    /// How many clients it has answered an error that begins with that code.
    pub fn errors(&self, code: &str) -> u64 {
        self.core.errors.get(code).copied().unwrap_or(0)
    }

    /// How often it has carried out that one, by its name in lower case.
    pub fn calls(&self, command: &str) -> u64 {
        let calls = self.core.table.iter().zip(&self.core.calls);
        calls.filter(|(one, _)| one.name == command).map(|(_, calls)| *calls).sum()
    }
}
