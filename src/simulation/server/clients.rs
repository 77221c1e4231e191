//! What a server tells of its clients, and how one of them ends or holds up others.

use super::call::{Call, Row, command};
use super::client::Client;
use super::command::{LOADING, NO_KEYS, NO_SCRIPT, STALE};
use super::core::Core;
use super::number;
use super::reply::{Answer, Failure, NOT_AN_INTEGER, OK, Reply, SYNTAX, printed};
use super::settings::Version;

const TELLS: u32 = NO_SCRIPT | LOADING | STALE;

pub(super) const COMMANDS: [Row; 4] = [
    command("client|info", 2, TELLS, NO_KEYS, |call| {
        Ok(Reply::Text(call.core.described(call.client) + "\n"))
    }),
    command("client|list", -2, TELLS, NO_KEYS, list),
    command("client|kill", -3, TELLS, NO_KEYS, kill),
    command("client|pause", 4, TELLS, NO_KEYS, pause),
];

impl Core {
    /// A client as `CLIENT INFO` tells of it.
    fn described(&self, client: u64) -> String {
        let of_client = &self.clients[&client];
        let now = self.millis();
        let seconds = |since: i64| now / 1000 - since / 1000;
        let flags = if of_client.hears() { "P" } else { "N" };
        let version = self.version();
        let last = of_client.last_command;
        let last = match last.split_once('|') {
            Some((container, _)) if version == Version::Redis62 => container,
            _ => last,
        };
        let mut line = format!(
            "id={} addr={} laddr={}:{} fd=8 name={} age={} idle={} flags={flags} db={} sub={} psub=0",
            of_client.id,
            of_client.address,
            self.settings.host,
            self.settings.port,
            printed(&of_client.name),
            seconds(of_client.since),
            seconds(of_client.active),
            of_client.db,
            of_client.channels.len(),
        );
        if version > Version::Redis62 {
            line += &format!(" ssub={}", of_client.sharded.len());
        }
        line += &format!(
            " multi=-1 qbuf={} qbuf-free=0 argv-mem=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={last} user={} redir=-1",
            of_client.input.len(),
            of_client.user,
        );
        if version > Version::Redis62 {
            line += if of_client.resp3 { " resp=3" } else { " resp=2" };
        }
        if version > Version::Redis70 {
            line += &format!(
                " lib-name={} lib-ver={}",
                printed(&of_client.library),
                printed(&of_client.library_version)
            );
        }
        line
    }
}

/// Whether a client is of that kind.
fn kind(name: &str) -> Result<fn(&Client) -> bool, Failure> {
    match &*name.to_ascii_lowercase() {
        "normal" => Ok(|client| !client.hears()),
        "pubsub" => Ok(Client::hears),
        "master" | "replica" | "slave" => Ok(|_| false),
        _ => Err(format!("ERR Unknown client type '{name}'").into()),
    }
}

fn list(call: &mut Call<'_>) -> Answer {
    let mut is_wanted: fn(&Client) -> bool = |_| true;
    let many = call.many();
    if many >= 4 && call.option(2) == "type" && (many == 4 || call.version().is_valkey()) {
        is_wanted = kind(&call.text(3))?;
    } else if many > 2 {
        return Err(SYNTAX);
    }
    if many > 4 {
        return Err(SYNTAX);
    }
    let wanted = call.core.clients.iter().filter(|(_, client)| is_wanted(client));
    Ok(Reply::Text(wanted.map(|(client, _)| call.core.described(*client) + "\n").collect()))
}

/// Holds up all clients, or those that write.
fn pause(call: &mut Call<'_>) -> Answer {
    let only_writes = match &*call.option(3) {
        "write" => true,
        "all" => false,
        _ => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
    };
    let timeout = call.int(2).ok().filter(|timeout| *timeout >= 0);
    let timeout = timeout.ok_or("ERR timeout is not an integer or out of range")?;
    let now = call.core.millis();
    let until = now.saturating_add(timeout);
    let old = call.core.pause.filter(|(until, _)| *until > now).unwrap_or((0, true));
    call.core.pause = Some((until.max(old.0), only_writes && old.1));
    Ok(OK)
}

fn kill(call: &mut Call<'_>) -> Answer {
    if call.many() == 3 {
        let address = call.text(2);
        let found = call.core.clients.iter().find(|(_, client)| client.address == address);
        let client = *found.ok_or("ERR No such client")?.0;
        call.core.close(client);
        return Ok(OK);
    }
    let mut wanted: Vec<u64> = call.core.clients.keys().copied().collect();
    let mut skips_me = true;
    let mut at = 2;
    while at < call.many() {
        // Valkey takes any number of ids.
        if call.version().is_valkey() && call.option(at) == "id" {
            let ids = call.args[at + 1..].iter().map_while(|word| number::integer(word));
            let ids: Vec<i64> = ids.collect();
            if ids.iter().any(|id| *id <= 0) {
                return Err("ERR client-id should be greater than 0".into());
            }
            wanted.retain(|client| ids.contains(&(call.core.clients[client].id as i64)));
            at += 1 + ids.len();
            continue;
        }
        if at + 1 == call.many() {
            return Err(SYNTAX);
        }
        let value = call.text(at + 1);
        match &*call.option(at) {
            "id" => {
                let out_of_range = "ERR client-id should be greater than 0";
                let id = number::integer(value.as_bytes());
                let id = match call.version() {
                    Version::Redis62 => id.ok_or(NOT_AN_INTEGER)?,
                    _ => id.filter(|id| *id > 0).ok_or(out_of_range)?,
                };
                // In Redis 6.2 zero is none.
                wanted.retain(|client| id == 0 || call.core.clients[client].id as i64 == id);
            }
            "addr" => wanted.retain(|client| call.core.clients[client].address == value),
            "type" => {
                let is_wanted = kind(&value)?;
                wanted.retain(|client| is_wanted(&call.core.clients[client]));
            }
            "skipme" => match &*value.to_ascii_lowercase() {
                "yes" => skips_me = true,
                "no" => skips_me = false,
                _ => return Err(SYNTAX),
            },
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    if skips_me {
        wanted.retain(|client| *client != call.client);
    }
    wanted.iter().for_each(|client| call.core.close(*client));
    Ok(Reply::count(wanted.len()))
}
