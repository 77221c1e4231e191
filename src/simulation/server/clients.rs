//! What a server tells of its clients, and how one of them ends or holds up others.

use super::call::{Call, Row, command, found};
use super::client::{Blocked, Client};
use super::command::{ADMIN, LOADING, NO_KEYS, NO_SCRIPT, STALE};
use super::core::Core;
use super::number;
use super::reply::{Answer, Failure, NOT_AN_INTEGER, OK, Reply, SYNTAX, printed};
use super::settings::Version;

const MINE: u32 = NO_SCRIPT | LOADING | STALE;
const OTHERS: u32 = ADMIN | NO_SCRIPT | LOADING | STALE;

pub(super) const COMMANDS: [Row; 6] = [
    command("client|info", 2, MINE, NO_KEYS, |call| {
        Ok(Reply::Text(call.core.described(call.client) + "\n"))
    }),
    command("client|list", -2, OTHERS, NO_KEYS, list),
    command("client|kill", -3, OTHERS, NO_KEYS, kill),
    command("client|pause", -3, OTHERS, NO_KEYS, pause),
    command("client|unpause", 2, OTHERS, NO_KEYS, |call| {
        call.core.pause = None;
        call.core.frees_others = true;
        Ok(OK)
    }),
    command("client|unblock", -3, OTHERS, NO_KEYS, unblock),
];

impl Core {
    /// A client as `CLIENT INFO` tells of it.
    fn described(&self, client: u64) -> String {
        let of_client = &self.clients[&client];
        let now = self.millis();
        let seconds = |since: i64| now / 1000 - since / 1000;
        let queued = of_client.queue.as_ref().map(|queue| queue.requests.len());
        let queued = queued.or(of_client.executing);
        // Valkey keeps a place for them.
        let has_place = self.version().is_valkey() && of_client.has_begun;
        let many = queued.map_or(if has_place { 0 } else { -1 }, |many| many as i64);
        let mut flags = String::new();
        for (flag, is_set) in [
            ('P', of_client.subscriptions() + of_client.sharded.len() > 0),
            ('x', queued.is_some()),
            ('b', matches!(of_client.blocked, Some(Blocked::Wait { .. }))),
            ('t', of_client.tracking),
            ('d', of_client.is_dirty),
            ('r', of_client.reads_only),
            ('e', of_client.no_evict),
        ] {
            flags.extend(is_set.then_some(flag));
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let text = printed;
        let version = self.version();
        let last = of_client.last_command;
        let last = match last.split_once('|') {
            Some((container, _)) if version == Version::Redis62 => container,
            _ => last,
        };
        let mut line = format!(
            "id={} addr={} laddr={}:{} fd=8 name={} age={} idle={} flags={flags} db={} sub={} psub={}",
            of_client.id,
            of_client.address,
            self.settings.host,
            self.settings.port,
            text(&of_client.name),
            seconds(of_client.since),
            seconds(of_client.active),
            of_client.db,
            of_client.channels.len(),
            of_client.patterns.len(),
        );
        if version > Version::Redis62 {
            line += &format!(" ssub={}", of_client.sharded.len());
        }
        line += &format!(
            " multi={many} qbuf={} qbuf-free=0 argv-mem=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={last} user={} redir=-1",
            of_client.input.len(),
            of_client.user,
        );
        if version > Version::Redis62 {
            line += if of_client.resp3 { " resp=3" } else { " resp=2" };
        }
        if version > Version::Redis70 {
            line += &format!(
                " lib-name={} lib-ver={}",
                text(&of_client.library),
                text(&of_client.library_version)
            );
        }
        line
    }
}

fn is_kind(client: &Client, kind: &str) -> Result<bool, Failure> {
    let listens = client.subscriptions() + client.sharded.len() > 0;
    match kind {
        "normal" => Ok(!listens),
        "pubsub" => Ok(listens),
        "master" | "replica" | "slave" => Ok(false),
        other => Err(format!("ERR Unknown client type '{other}'").into()),
    }
}

fn list(call: &mut Call<'_>) -> Answer {
    let mut wanted: Vec<u64> = call.core.clients.keys().copied().collect();
    match call.many() {
        2 => {}
        many @ 4.. if call.option(2) == "type" && (many == 4 || call.version().is_valkey()) => {
            let kind = call.option(3);
            let unknown = || Failure::from(format!("ERR Unknown client type '{}'", call.text(3)));
            is_kind(&Client::default(), &kind).map_err(|_| unknown())?;
            if many > 4 {
                return Err(SYNTAX);
            }
            wanted.retain(|client| is_kind(&call.core.clients[client], &kind).unwrap_or(false));
        }
        4.. if call.option(2) == "id" => {
            let ids: Vec<i64> = (3..call.many())
                .map(|at| {
                    number::integer(call.arg(at))
                        .filter(|id| *id > 0)
                        .ok_or("ERR Invalid client ID")
                })
                .collect::<Result<_, _>>()?;
            wanted.retain(|client| ids.contains(&(call.core.clients[client].id as i64)));
        }
        _ => return Err(SYNTAX),
    }
    let lines: Vec<String> =
        wanted.iter().map(|client| call.core.described(*client) + "\n").collect();
    Ok(Reply::Text(lines.concat()))
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
                wanted.retain(|client| call.core.clients[client].id as i64 == id);
            }
            "addr" => wanted.retain(|client| call.core.clients[client].address == value),
            "laddr" => {
                let here = format!("{}:{}", call.core.settings.host, call.core.settings.port);
                wanted.retain(|_| here == value);
            }
            "type" => {
                let kind = value.to_ascii_lowercase();
                is_kind(&Client::default(), &kind)
                    .map_err(|_| Failure::from(format!("ERR Unknown client type '{value}'")))?;
                wanted.retain(|client| is_kind(&call.core.clients[client], &kind).unwrap_or(false));
            }
            "user" => {
                if !call.core.users.contains_key(&value) {
                    return Err(format!("ERR No such user '{value}'").into());
                }
                wanted.retain(|client| call.core.clients[client].user == value);
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

fn pause(call: &mut Call<'_>) -> Answer {
    let only_writes = match call.many() {
        3 => false,
        4 => match &*call.option(3) {
            "write" => true,
            "all" => false,
            _ => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        },
        _ => return Err(call.wrong_arity()),
    };
    let timeout =
        number::integer(call.arg(2)).ok_or("ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".into());
    }
    let until = call.core.millis().saturating_add(timeout);
    let old = call.core.pause.unwrap_or((0, true));
    call.core.pause = Some((until.max(old.0), only_writes && old.1));
    Ok(OK)
}

fn unblock(call: &mut Call<'_>) -> Answer {
    let id = call.int(2)?;
    let is_it = |client: &Client| {
        client.id as i64 == id && matches!(client.blocked, Some(Blocked::Wait { .. }))
    };
    let waiting =
        call.core.clients.iter().find(|(_, client)| is_it(client)).map(|(client, _)| *client);
    if let Some(client) = waiting
        && let Some(Blocked::Wait { until, .. }) = &mut call.core.client(client).blocked
    {
        *until = Some(i64::MIN);
        call.core.frees_others = true;
    }
    found(waiting.is_some())
}
