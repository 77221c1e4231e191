//! The state of a server, which all commands work on: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::client::Client;
use super::command::Command;
use super::data::{Bytes, Entry};
use super::master::Master;
use super::reply::{Digits, Reply};
use super::role::{Replica, Role};
use super::script::{Ran, Script};
use super::settings::{Settings, Version};
use super::user::User;
use super::view::ClusterView;
use super::{ClientId, Effect, Message};

/// Keys by their names.
pub(super) type Db = BTreeMap<Bytes, Entry>;

pub(super) const DBS: usize = 16;

/// The script that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) db: usize,
    /// The script has written: what memory and role forbid is allowed from here on.
    pub(super) has_written: bool,
    pub(super) is_asking: bool,
    pub(super) client: u64,
}

/// What runs scripts.
pub(super) trait Engine: Send + Sync {
    /// Makes a script ready. The error is the language's own.
    fn compile(&self, body: &[u8]) -> Result<Script, String>;

    /// Runs a script on the server.
    fn run(&self, core: &mut Core, script: &Script, keys: &[&[u8]], argv: &[&[u8]]) -> Ran;
}

/// The default is a server that has not been started.
#[derive(Default)]
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) table: &'static [Command],
    pub(super) now: Duration,
    pub(super) run_id: String,
    pub(super) random: u64,
    pub(super) dbs: Vec<Db>,
    pub(super) clients: BTreeMap<u64, Client>,
    /// How many clients have come, and how many of them before the last restart.
    pub(super) came: u64,
    pub(super) came_before: u64,
    /// The client whose request is at work.
    pub(super) current: Option<u64>,
    pub(super) effects: Vec<Effect>,
    /// How many of them are older than what arrived last.
    pub(super) sent: usize,
    /// What the client at work hears behind its answer.
    pub(super) own_pushes: Vec<Reply>,
    pub(super) channels: BTreeMap<Bytes, BTreeSet<u64>>,
    pub(super) sharded: BTreeMap<Bytes, BTreeSet<u64>>,
    pub(super) engine: Option<Arc<dyn Engine>>,
    pub(super) scripts: BTreeMap<[u8; 40], Arc<Script>>,
    pub(super) script: Option<Running>,
    pub(super) users: BTreeMap<String, User>,
    pub(super) config: BTreeMap<String, String>,
    /// Until when clients are paused, and whether only those that write.
    pub(super) pause: Option<(i64, bool)>,
    pub(super) memory_is_full: bool,
    /// The server cannot save its data.
    pub(super) refuses_writes: bool,
    pub(super) is_loading: bool,
    /// A script runs for too long.
    pub(super) is_busy: bool,
    pub(super) role: Role,
    pub(super) replicas: BTreeMap<u64, Replica>,
    pub(super) replication_id: String,
    /// How much has been replicated.
    pub(super) offset: u64,
    /// The keys and messages of which the replicas have yet to hear.
    pub(super) changed_keys: BTreeSet<(usize, Bytes)>,
    pub(super) published: Vec<Message>,
    pub(super) view: Option<ClusterView>,
    /// The server is a Sentinel, which knows this of primaries.
    pub(super) is_sentinel: bool,
    pub(super) masters: Vec<Master>,
    /// The earliest end of a key, or something earlier.
    pub(super) first_end: Option<i64>,
    pub(super) last_cycle: i64,
    /// How often each command was carried out, by its position in the table.
    pub(super) calls: Vec<u64>,
    /// How many errors clients got as answers, by their codes.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Core {
    pub(super) fn version(&self) -> Version {
        self.settings.version
    }

    /// Milliseconds since the epoch.
    pub(super) fn millis(&self) -> i64 {
        i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) fn client(&mut self, client: u64) -> &mut Client {
        self.clients.get_mut(&client).expect("BUG: the client has gone")
    }

    /// Whether the next request of a client may be carried out.
    pub(super) fn takes_requests_of(&self, client: u64) -> bool {
        let of_client = self.clients.get(&client);
        of_client.is_some_and(|one| one.waits.is_none() && !one.is_paused && !one.is_closing)
    }

    /// The next of the numbers that look random.
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A random number below `many`.
    pub(super) fn random_below(&mut self, many: usize) -> usize {
        (self.random() % many.max(1) as u64) as usize
    }

    /// That many of `all` by chance, at different places.
    pub(super) fn choose<T>(&mut self, all: &mut Vec<T>, many: usize) {
        if many < all.len() {
            for at in 0..many {
                let other = at + self.random_below(all.len() - at);
                all.swap(at, other);
            }
            all.truncate(many);
        }
    }

    pub(super) fn random_id(&mut self) -> String {
        (0..40).map(|_| char::from(b"0123456789abcdef"[self.random_below(16)])).collect()
    }

    pub(super) fn double(&self, number: f64) -> Reply {
        Reply::Double(number, self.digits())
    }

    pub(super) fn digits(&self) -> Digits {
        Digits::of_version(self.version())
    }

    /// Sends something to a client that it did not ask for, or an answer.
    pub(super) fn send(&mut self, client: u64, reply: &Reply) {
        let Some(to) = self.clients.get(&client) else { return };
        let resp3 = to.resp3;
        let is_new = self.effects.len() > self.sent;
        let bytes = match self.effects.last_mut() {
            Some(Effect::Send { client: last, bytes }) if last.0 == client && is_new => bytes,
            _ => {
                let bytes = Vec::with_capacity(64);
                self.effects.push(Effect::Send { client: ClientId(client), bytes });
                match self.effects.last_mut() {
                    Some(Effect::Send { bytes, .. }) => bytes,
                    _ => unreachable!("pushed above"),
                }
            }
        };
        reply.write(resp3, bytes);
    }

    /// Sends a message to a client. Up to Redis 7.0 the client at work hears it in front of its answer.
    pub(super) fn push(&mut self, client: u64, push: Reply) {
        if self.current == Some(client) && self.version() > Version::Redis70 {
            self.own_pushes.push(push)
        } else {
            self.send(client, &push)
        }
    }

    /// Ends the connection of a client: that of the client at work behind its answer, that of another
    /// one at once, and what it was to hear is not sent if it was not sent yet.
    pub(super) fn close(&mut self, client: u64) {
        if self.current == Some(client) {
            self.client(client).is_closing = true;
        } else if self.clients.contains_key(&client) {
            let mut at = 0;
            self.effects.retain(|effect| {
                at += 1;
                let is_its = matches!(effect, Effect::Send { client: to, .. } if to.0 == client);
                !is_its || at <= self.sent
            });
            self.end(client);
        }
    }

    /// Ends the connection of a client, behind what was sent to it.
    pub(super) fn end(&mut self, client: u64) {
        self.forget(client);
        self.effects.push(Effect::Close { client: ClientId(client) });
    }

    /// Forgets a client.
    pub(super) fn forget(&mut self, client: u64) {
        let Some(gone) = self.clients.remove(&client) else { return };
        gone.channels.iter().for_each(|channel| leave(&mut self.channels, channel, client));
        gone.sharded.iter().for_each(|channel| leave(&mut self.sharded, channel, client));
    }
}

/// Takes a client out of those that are at `name`.
pub(super) fn leave(all: &mut BTreeMap<Bytes, BTreeSet<u64>>, name: &Bytes, client: u64) {
    if let Some(those) = all.get_mut(name) {
        those.remove(&client);
        if those.is_empty() {
            all.remove(name);
        }
    }
}
