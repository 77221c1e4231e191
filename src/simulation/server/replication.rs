//! A primary and its replicas: what goes from one to the other, `WAIT`, and what a replica refuses.
//!
//! What is replicated is not the commands but the values that they leave, which is simpler and comes
//! to the same.

use super::call::{Call, Row, command};
use super::client::Wait;
use super::command::{LOADING, NO_KEYS, NO_SCRIPT, STALE};
use super::core::Core;
use super::data::Entry;
use super::number;
use super::reply::{Answer, Failure, OK, Reply};
use super::role::{Replica, Role};
use super::settings::Version;
use super::{Effect, Snapshot, Update};

pub(super) const COMMANDS: [Row; 4] = [
    command("wait", 3, NO_SCRIPT, NO_KEYS, wait),
    command("role", 1, NO_SCRIPT | LOADING | STALE, NO_KEYS, role),
    command("replicaof", 3, NO_SCRIPT | STALE, NO_KEYS, replicaof),
    command("slaveof", 3, NO_SCRIPT | STALE, NO_KEYS, replicaof),
];

impl Core {
    pub(super) fn is_replica(&self) -> bool {
        self.role != Role::Primary
    }

    /// Whether data may not grow. A replica leaves that to its primary.
    pub(super) fn memory_is_short(&self) -> bool {
        self.memory_is_full && !self.is_replica()
    }

    /// For a command that writes.
    pub(super) fn may_write(&self) -> Result<(), Failure> {
        if self.refuses_writes && !self.is_replica() {
            return Err("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.".into());
        }
        if self.is_replica() {
            return Err("READONLY You can't write against a read only replica.".into());
        }
        if self.config_number("min-replicas-to-write") > self.replicas.len() as i64 {
            return Err("NOREPLICAS Not enough good replicas to write.".into());
        }
        Ok(())
    }

    /// Whether the state of the server allows a command that is known for these.
    pub(super) fn state_allows(
        &self,
        stale: bool,
        loading: bool,
        busy: bool,
    ) -> Result<(), Failure> {
        let is_stale = matches!(self.role, Role::Replica { is_linked: false, .. });
        if is_stale && self.config("replica-serve-stale-data") == "no" && !stale {
            return Err(
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
                    .into(),
            );
        }
        let name = if self.version().is_valkey() { "Valkey" } else { "Redis" };
        if self.is_loading && !loading {
            return Err(format!("LOADING {name} is loading the dataset in memory").into());
        }
        if self.is_busy && !busy {
            return Err(format!(
                "BUSY {name} is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            )
            .into());
        }
        Ok(())
    }

    /// Notes a key for the replicas.
    pub(super) fn note_change(&mut self, db: usize, key: &[u8]) {
        if !self.replicas.is_empty() {
            self.changed_keys.insert((db, key.to_vec()));
        }
    }

    /// Notes a message for the replicas, whose clients hear it, too.
    pub(super) fn note_message(&mut self, channel: &[u8], message: &[u8]) {
        if !self.replicas.is_empty() {
            self.published.push((channel.to_vec(), message.to_vec()));
        }
    }

    /// Sends what a command, a script or a transaction has changed to the replicas.
    pub(super) fn end_unit(&mut self, client: Option<u64>) {
        let (changed, published) = (&mut self.changed_keys, &mut self.published);
        let has_written = !changed.is_empty() || !published.is_empty();
        if has_written {
            let keys = std::mem::take(changed);
            let messages = std::mem::take(published);
            let size: usize = keys.iter().map(|(_, key)| key.len() + 32).sum();
            self.offset += (size + 32 * messages.len()) as u64;
            let entries = keys.into_iter().map(|(db, key)| {
                let entry = self.dbs[db].get(&key).cloned();
                (db, key, entry)
            });
            let update = Update { offset: self.offset, entries: entries.collect(), messages };
            self.effects.push(Effect::Replicate(update));
        }
        // Redis 7.0 takes any command for a write.
        let offset = self.offset;
        if let Some(client) = client.and_then(|client| self.clients.get_mut(&client))
            && (has_written || self.settings.version <= Version::Redis70)
        {
            client.offset = offset;
        }
    }

    pub(super) fn apply(&mut self, update: Update) {
        for (db, key, entry) in update.entries {
            match entry {
                Some(entry) => {
                    self.expects_end(entry.expires);
                    self.dbs[db].insert(key.clone(), entry);
                }
                None => drop(self.dbs[db].remove(&key)),
            }
            self.changed(db, &key);
        }
        for (channel, message) in update.messages {
            self.publish_here(&channel, &message);
        }
        self.offset = update.offset;
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            dbs: self.dbs.clone(),
            offset: self.offset,
            replication_id: self.replication_id.clone(),
        }
    }

    pub(super) fn load(&mut self, snapshot: Snapshot) {
        self.flush(0..self.dbs.len());
        self.dbs = snapshot.dbs;
        self.offset = snapshot.offset;
        self.replication_id = snapshot.replication_id;
        let ends: Vec<i64> = self
            .dbs
            .iter()
            .flat_map(|db| db.values())
            .filter_map(|entry: &Entry| entry.expires)
            .collect();
        ends.into_iter().for_each(|end| self.expects_end(Some(end)));
    }

    /// How many replicas have what was written up to there.
    fn replicas_at(&self, offset: u64) -> i64 {
        self.replicas.values().filter(|replica| replica.acknowledged >= offset).count() as i64
    }

    /// Answers clients whose wait is over.
    pub(super) fn answer_waits(&mut self) -> Vec<u64> {
        let now = self.millis();
        let mut over = Vec::new();
        for (client, of_client) in &self.clients {
            let Some(Wait { replicas, offset, until }) = of_client.waits else { continue };
            let have = self.replicas_at(offset);
            if have >= replicas || until.is_some_and(|until| until <= now) {
                over.push((*client, have));
            }
        }
        for (client, have) in &over {
            self.client(*client).waits = None;
            self.send(*client, &Reply::Int(*have));
        }
        over.into_iter().map(|(client, _)| client).collect()
    }
}

fn wait(call: &mut Call<'_>) -> Answer {
    if call.core.is_replica() {
        let since = if call.version().is_valkey() { "" } else { "since Redis 4.0 " };
        return Err(format!("ERR WAIT cannot be used with replica instances. Please also note that {since}if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.").into());
    }
    let replicas = call.int(1)?;
    let timeout =
        number::integer(call.arg(2)).ok_or("ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".into());
    }
    let client = call.client;
    let offset = call.core.client(client).offset;
    let have = call.core.replicas_at(offset);
    if have >= replicas || call.core.script.is_some() {
        return Ok(Reply::Int(have));
    }
    let until = (timeout > 0).then(|| call.core.millis().saturating_add(timeout));
    call.core.client(client).waits = Some(Wait { replicas, offset, until });
    Ok(Reply::Later)
}

fn role(call: &mut Call<'_>) -> Answer {
    let text = |text: &str| Reply::bulk(text.as_bytes());
    let offset = Reply::Int(call.core.offset as i64);
    if call.core.is_sentinel {
        let names = call.core.masters.iter().map(|master| text(&master.name)).collect();
        return Ok(Reply::Array(vec![text("sentinel"), Reply::Array(names)]));
    }
    Ok(Reply::Array(match &call.core.role {
        Role::Primary => {
            let replicas =
                call.core.replicas.values().map(|Replica { host, port, acknowledged }| {
                    Reply::Array(vec![
                        text(host),
                        text(&port.to_string()),
                        text(&acknowledged.to_string()),
                    ])
                });
            vec![text("master"), offset, Reply::Array(replicas.collect())]
        }
        Role::Replica { host, port, is_linked } => {
            let state = if *is_linked { "connected" } else { "connect" };
            vec![text("slave"), text(host), Reply::Int((*port).into()), text(state), offset]
        }
    }))
}

/// The server takes its new role at once. That it gets the data of its primary is up to the world.
fn replicaof(call: &mut Call<'_>) -> Answer {
    if call.core.settings.cluster {
        return Err("ERR REPLICAOF not allowed in cluster mode.".into());
    }
    let primary = if call.option(1) == "no" && call.option(2) == "one" {
        None
    } else {
        let port = match call.int(2) {
            Ok(port) if call.version() == Version::Redis62 => port as u16,
            Err(failure) if call.version() == Version::Redis62 => return Err(failure),
            port => port
                .ok()
                .and_then(|port| u16::try_from(port).ok())
                .ok_or("ERR Invalid master port")?,
        };
        Some((call.text(1), port))
    };
    let now = match &call.core.role {
        Role::Primary => None,
        Role::Replica { host, port, .. } => Some((host.clone(), *port)),
    };
    if primary.is_some() && primary == now {
        return Ok(Reply::Status("OK Already connected to specified master".into()));
    }
    call.core.role = following(primary.clone());
    call.core.effects.push(Effect::Follow { primary });
    Ok(OK)
}

/// The role of a server with that primary.
pub(super) fn following(primary: Option<(String, u16)>) -> Role {
    primary.map_or(Role::Primary, |(host, port)| Role::Replica { host, port, is_linked: false })
}
