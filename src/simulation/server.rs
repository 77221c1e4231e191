//! A simulated Redis server: a state machine without I/O, clock or threads.
//!
//! It is told the time and what has arrived, and says what it sends. It speaks RESP2 and RESP3 as
//! Redis does, and runs scripts in the same Lua. Nothing in it depends on anything but what it was
//! told: the same calls have the same effects, in the same order.
//!
//! A request goes through [`request`] (out of the bytes), [`dispatch`] (may it be carried out?) and
//! a function of the table of commands, which each group of commands has a part of. All of them work
//! on one [`core::Core`]. It knows the commands that the client, its scripts and those who look at it
//! need, and those that people have carried out under a lock; others it refuses as unknown. What is
//! different from real servers, on purpose, is in `tests/differential/wanted.rs`.

use std::sync::LazyLock;
use std::time::Duration;

mod acl;
mod api;
mod call;
mod client;
mod clients;
mod cluster;
mod command;
mod config;
mod connection;
mod control;
mod core;
mod data;
mod dispatch;
mod glob;
mod hashes;
mod info;
mod keys;
mod keyspace;
mod lists;
mod lua;
mod master;
mod number;
mod pubsub;
mod replication;
mod reply;
mod request;
mod role;
mod scan;
mod script;
mod scripting;
mod sentinel;
mod sets;
mod settings;
mod sha1;
mod sorted_sets;
mod strings;
mod user;
mod values;
mod view;

use crate::host::HashMap;

use call::Row;
use command::Command;
pub use control::{ReplicaId, State};
use core::Core;
use data::{Bytes, Entry};
pub use master::Master;
use reply::Reply;
use request::Parsed;
pub use settings::{Settings, Version};
pub use view::{ClusterNode, ClusterView};

/// A connection to a server. No two connections have the same, restarts of the server included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

/// What a server does.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// The server sends these bytes to a client: answers and messages, in order.
    Send {
        /// The receiver.
        client: ClientId,
        /// Behind what was sent before.
        bytes: Vec<u8>,
    },
    /// The server ends the connection, behind what was sent on it.
    Close {
        /// The connection that ends.
        client: ClientId,
    },
    /// Each attached replica receives this.
    Replicate(Update),
    /// `REPLICAOF` was called: it is the replica of the server at that host and port, or of none.
    Follow {
        /// The server whose data this one wants.
        primary: Option<(String, u16)>,
    },
}

/// What one command, script or transaction has changed, for the replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    offset: u64,
    entries: Vec<(usize, Bytes, Option<Entry>)>,
    messages: Vec<Message>,
}

/// A channel, and what is published on it.
type Message = (Bytes, Bytes);

impl Update {
    /// What a replica acknowledges that has this.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// All data of a server at a moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    dbs: Vec<core::Db>,
    offset: u64,
    replication_id: String,
}

impl Snapshot {
    /// What a replica acknowledges that has this.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// All commands, in the order of their names, with what they do.
static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let mut table = [
        &acl::COMMANDS[..],
        &clients::COMMANDS,
        &cluster::COMMANDS,
        &config::COMMANDS,
        &connection::COMMANDS,
        &hashes::COMMANDS,
        &info::COMMANDS,
        &keys::COMMANDS,
        &lists::COMMANDS,
        &pubsub::COMMANDS,
        &replication::COMMANDS,
        &scan::COMMANDS,
        &scripting::COMMANDS,
        &sentinel::COMMANDS,
        &sets::COMMANDS,
        &sorted_sets::COMMANDS,
        &strings::COMMANDS,
    ]
    .concat();
    table.sort_by_key(|row| row.command.name);
    table.iter_mut().enumerate().for_each(|(index, row)| row.command.index = index);
    table
});

/// The commands of the table, without what they do.
static NAMES: LazyLock<Vec<Command>> =
    LazyLock::new(|| TABLE.iter().map(|row| row.command).collect());

static BY_NAME: LazyLock<HashMap<&[u8], &Command>> =
    LazyLock::new(|| NAMES.iter().map(|command| (command.name.as_bytes(), command)).collect());

/// One server process, which can be stopped and started again.
pub struct Server {
    core: Core,
}

impl Server {
    /// A server that has just been started, without data.
    pub fn new(settings: Settings) -> Self {
        let random = settings.seed;
        let core = Core { settings, table: &NAMES, random, ..Core::default() };
        let mut server = Self { core };
        server.start(Duration::ZERO);
        server
    }

    /// A client has connected from this address. `now` is the server's own clock, since the epoch.
    pub fn accept(&mut self, now: Duration, address: &str) -> ClientId {
        self.core.now = now;
        ClientId(self.core.accept(address))
    }

    /// These bytes have arrived from a client. A client that is gone is ignored.
    pub fn receive(&mut self, now: Duration, client: ClientId, bytes: &[u8]) {
        self.core.now = now;
        let Some(of_client) = self.core.clients.get_mut(&client.0) else { return };
        of_client.input.extend_from_slice(bytes);
        self.core.sent = self.core.effects.len();
        self.work(client.0);
    }

    /// The client has ended its connection, or the network has.
    pub fn closed(&mut self, now: Duration, client: ClientId) {
        self.core.now = now;
        self.core.forget(client.0);
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn next_timer(&self) -> Option<Duration> {
        let waits = self.core.clients.values().filter_map(|client| client.waits.as_ref()?.until);
        let is_paused = self.core.clients.values().any(|client| client.is_paused);
        let pause = self.core.pause.map(|(until, _)| until).filter(|_| is_paused);
        let first = waits.chain(pause).chain(self.core.next_cycle()).min()?;
        Some(Duration::from_millis(u64::try_from(first).unwrap_or(0)))
    }

    /// Does what was put off until now.
    pub fn tick(&mut self, now: Duration) {
        self.core.now = now;
        self.core.cycle();
        self.core.end_unit(None);
        let mut free = self.core.answer_waits();
        free.extend(self.core.end_pause());
        free.into_iter().for_each(|client| self.work(client));
    }

    /// What it does because of all that it was told since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.core.sent = 0;
        std::mem::take(&mut self.core.effects)
    }

    /// Carries out the requests of a client, as far as they have arrived.
    fn work(&mut self, client: u64) {
        let core = &mut self.core;
        let Some(of_client) = core.clients.get_mut(&client) else { return };
        let input = std::mem::take(&mut of_client.input);
        let mut at = 0;
        core.current = Some(client);
        while core.takes_requests_of(client) {
            let Some(length) = next(core, client, &input[at..]) else { break };
            at += length;
        }
        core.current = None;
        let Some(of_client) = core.clients.get_mut(&client) else { return };
        if of_client.is_closing {
            core.end(client);
        } else {
            of_client.input = if at == 0 { input } else { input[at..].to_vec() };
        }
    }
}

/// Carries out the first request of the input. Returns how long it is; `None` if it has not arrived.
fn next(core: &mut Core, client: u64, input: &[u8]) -> Option<usize> {
    let known = core.client(client).is_known;
    match request::parse(input, known) {
        Parsed::Incomplete => None,
        Parsed::Invalid(why) => {
            core.send(client, &Reply::Error(why.into()));
            core.close(client);
            None
        }
        Parsed::Request(words, length) => {
            let is_done = words.is_empty() || dispatch::request(core, client, &words);
            is_done.then_some(length)
        }
    }
}

#[cfg(test)]
mod tests;
