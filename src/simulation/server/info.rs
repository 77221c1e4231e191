//! What a server tells of itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::call::{Call, Row, command, no_subcommand};
use super::command::{ADMIN, CONTAINER, FAST, Keys, LOADING, NO_KEYS, NO_SCRIPT, READ, STALE};
use super::config::{ADMINS, USED_MEMORY};
use super::core::Core;
use super::master::Master;
use super::reply::{Answer, OK, Reply, SYNTAX};
use super::role::Role;
use super::settings::Version;

/// Its name, whether it is shown without being asked for, and its text.
type Section = (&'static str, bool, fn(&Core) -> String);

pub(super) const COMMANDS: [Row; 15] = [
    command("info", -1, LOADING | STALE, NO_KEYS, info),
    command("time", 1, LOADING | STALE | FAST, NO_KEYS, |call| {
        let now = call.core.now;
        let texts = [now.as_secs().to_string(), now.subsec_micros().to_string()];
        Ok(Reply::bulks(texts.iter().map(|text| text.as_bytes())))
    }),
    command("debug", -2, ADMINS, NO_KEYS, debug),
    command("command", -1, CONTAINER | LOADING | STALE, NO_KEYS, no_subcommand),
    command("command|count", 2, LOADING | STALE, NO_KEYS, |call| {
        let own = call.core.table.iter().filter(|one| !one.name.contains('|'));
        Ok(Reply::count(own.count()))
    }),
    command("command|getkeys", -3, LOADING | STALE, NO_KEYS, getkeys),
    command("command|info", -2, LOADING | STALE, NO_KEYS, |call| {
        let known = |name: &&[u8]| {
            call.core.table.iter().find(|one| one.name.as_bytes().eq_ignore_ascii_case(name))
        };
        let shown = |name: &&[u8]| {
            known(name).map_or(Reply::NilArray, |one| {
                Reply::Array(vec![Reply::bulk(one.name.as_bytes()), Reply::Int(one.arity.into())])
            })
        };
        Ok(Reply::Array(call.args[2..].iter().map(shown).collect()))
    }),
    command("command|docs", -2, LOADING | STALE, NO_KEYS, |_| Ok(Reply::Map(Vec::new()))),
    command("memory", -2, CONTAINER | READ, NO_KEYS, no_subcommand),
    command("memory|usage", -3, READ, Keys::At(2, 2, 1), |call| {
        let length = call.arg(2).len();
        let size = call.entry(2).map(|entry| entry.value.size() + length + 48);
        Ok(size.map_or(Reply::Nil, Reply::count))
    }),
    command("save", 1, ADMIN | NO_SCRIPT, NO_KEYS, |_| Ok(OK)),
    command("slowlog", -2, CONTAINER | ADMINS, NO_KEYS, no_subcommand),
    command("slowlog|len", 2, ADMINS, NO_KEYS, |_| Ok(Reply::Int(0))),
    command("slowlog|reset", 2, ADMINS, NO_KEYS, |_| Ok(OK)),
    command("slowlog|get", -2, ADMINS, NO_KEYS, |_| Ok(Reply::Array(Vec::new()))),
];

impl Core {
    pub(super) fn mode(&self) -> &'static str {
        match (self.is_sentinel, self.settings.cluster) {
            (true, _) => "sentinel",
            (false, true) => "cluster",
            (false, false) => "standalone",
        }
    }
}

fn debug(call: &mut Call<'_>) -> Answer {
    match &*call.option(1) {
        "sleep" => {
            let seconds = call.float(2)?.max(0.0);
            let sleep = std::time::Duration::from_secs_f64(seconds.min(1e9));
            call.core.asleep_until = Some(call.core.now + sleep);
            call.core.sleeper = Some(call.client);
            return Ok(Reply::Later);
        }
        "set-active-expire" => call.core.expires_actively = call.int(2)? != 0,
        "jmap" | "quicklist-packed-threshold" | "change-repl-id" => {}
        _ => return Err(SYNTAX),
    }
    Ok(OK)
}

fn getkeys(call: &mut Call<'_>) -> Answer {
    let words = &call.args[2..];
    let name = String::from_utf8_lossy(words[0]).to_ascii_lowercase();
    let command = call.core.table.iter().find(|one| one.name == name);
    let command = command.ok_or("ERR Invalid command specified")?;
    if !command.fits(words.len(), call.version()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys = command.keys_of(words);
    if keys.is_empty() {
        return Err("ERR The command has no key arguments".into());
    }
    Ok(Reply::bulks(keys))
}

fn info(call: &mut Call<'_>) -> Answer {
    if call.version() == Version::Redis62 && call.many() > 2 {
        return Err(SYNTAX);
    }
    let wanted: Vec<String> = (1..call.many()).map(|at| call.option(at)).collect();
    let everything = ["all", "everything"];
    let is_wanted = |name: &str, by_default: bool| {
        wanted.iter().any(|one| one == name || everything.contains(&&**one))
            || by_default && (wanted.is_empty() || wanted.iter().any(|one| one == "default"))
    };
    let nothing = |_: &Core| String::new();
    let sections: [Section; 13] = [
        ("CPU", true, nothing),
        ("Modules", true, nothing),
        ("Server", true, server),
        ("Clients", true, clients),
        ("Memory", true, memory),
        ("Persistence", true, persistence),
        ("Stats", true, stats),
        ("Replication", true, replication),
        ("Commandstats", false, commandstats),
        ("Errorstats", true, errorstats),
        ("Cluster", true, |core| {
            format!("cluster_enabled:{}\r\n", u8::from(core.settings.cluster))
        }),
        ("Keyspace", true, keyspace),
        ("Sentinel", call.core.is_sentinel, sentinel),
    ];
    let mut text = String::new();
    for (name, by_default, section) in sections {
        if is_wanted(&name.to_ascii_lowercase(), by_default) {
            if !text.is_empty() {
                text += "\r\n";
            }
            let _ = write!(text, "# {name}\r\n{}", section(call.core));
        }
    }
    Ok(Reply::Text(text))
}

fn lines(fields: &[(&str, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
}

fn server(core: &Core) -> String {
    let version = core.version();
    let mut fields = vec![("redis_version", version.of_redis().to_owned())];
    if version.is_valkey() {
        fields.push(("server_name", "valkey".into()));
        fields.push(("valkey_version", version.own().into()));
    }
    let mode = core.mode();
    let up = core.now.saturating_sub(core.started).as_secs();
    fields.extend([
        (if version.is_valkey() { "server_mode" } else { "redis_mode" }, mode.to_owned()),
        ("process_id", core.settings.process.to_string()),
        ("run_id", core.run_id.clone()),
        ("tcp_port", core.settings.port.to_string()),
        ("server_time_usec", core.now.as_micros().to_string()),
        ("uptime_in_seconds", up.to_string()),
    ]);
    lines(&fields)
}

fn clients(core: &Core) -> String {
    let listening = core.clients.values().filter(|one| one.subscriptions() + one.sharded.len() > 0);
    let blocked = core.clients.values().filter(|one| one.blocked.is_some());
    lines(&[
        ("connected_clients", core.clients.len().to_string()),
        ("maxclients", core.config("maxclients").into()),
        ("blocked_clients", blocked.count().to_string()),
        ("pubsub_clients", listening.count().to_string()),
    ])
}

fn memory(core: &Core) -> String {
    lines(&[
        ("used_memory", USED_MEMORY.to_string()),
        ("maxmemory", core.config("maxmemory").into()),
        ("maxmemory_policy", core.config("maxmemory-policy").into()),
        ("number_of_cached_scripts", core.scripts.len().to_string()),
    ])
}

fn persistence(core: &Core) -> String {
    lines(&[
        ("loading", u8::from(core.is_loading).to_string()),
        ("rdb_changes_since_last_save", core.changes.to_string()),
        ("rdb_bgsave_in_progress", "0".into()),
        ("aof_enabled", "0".into()),
    ])
}

fn stats(core: &Core) -> String {
    lines(&[
        ("total_connections_received", (core.came - core.came_before).to_string()),
        ("total_commands_processed", core.calls.iter().sum::<u64>().to_string()),
        ("expired_keys", core.expired.to_string()),
        ("evicted_keys", "0".into()),
        ("pubsub_channels", core.channels.len().to_string()),
        ("pubsub_patterns", core.patterns.len().to_string()),
        ("pubsubshard_channels", core.sharded.len().to_string()),
        ("total_error_replies", core.errors.values().sum::<u64>().to_string()),
    ])
}

fn replication(core: &Core) -> String {
    let mut fields = Vec::new();
    match &core.role {
        Role::Primary => fields.push(("role".to_owned(), "master".to_owned())),
        Role::Replica { host, port, is_linked } => {
            let state = if *is_linked { "up" } else { "down" };
            for (name, value) in [
                ("role", "slave"),
                ("master_host", host),
                ("master_port", &port.to_string()),
                ("master_link_status", state),
                ("slave_repl_offset", &core.offset.to_string()),
                ("slave_read_only", "1"),
            ] {
                fields.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    fields.push(("connected_slaves".into(), core.replicas.len().to_string()));
    for (at, replica) in core.replicas.values().enumerate() {
        let (host, port, offset) = (&replica.host, replica.port, replica.acknowledged);
        let said = format!("ip={host},port={port},state=online,offset={offset},lag=0");
        fields.push((format!("slave{at}"), said));
    }
    fields.push(("master_replid".into(), core.replication_id.clone()));
    fields.push(("master_repl_offset".into(), core.offset.to_string()));
    fields.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()
}

fn sentinel(core: &Core) -> String {
    let mut lines = format!("sentinel_masters:{}\r\n", core.masters.len());
    for (at, master) in core.masters.iter().enumerate() {
        let Master { name, host, port, replicas, sentinels, is_down, .. } = master;
        let status = if *is_down { "odown" } else { "ok" };
        let (slaves, sentinels) = (replicas.len(), sentinels.len() + 1);
        lines += &format!(
            "master{at}:name={name},status={status},address={host}:{port},slaves={slaves},sentinels={sentinels}\r\n"
        );
    }
    lines
}

fn commandstats(core: &Core) -> String {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for (command, calls) in core.table.iter().zip(&core.calls).filter(|(_, calls)| **calls > 0) {
        let container = command.name.split('|').next().unwrap_or(command.name);
        let name = if core.version() == Version::Redis62 { container } else { command.name };
        *all.entry(name).or_default() += calls;
    }
    let more = "usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0";
    all.iter().map(|(name, calls)| format!("cmdstat_{name}:calls={calls},{more}\r\n")).collect()
}

fn errorstats(core: &Core) -> String {
    core.errors.iter().map(|(code, count)| format!("errorstat_{code}:count={count}\r\n")).collect()
}

fn keyspace(core: &Core) -> String {
    let with_keys = core.dbs.iter().enumerate().filter(|(_, keys)| !keys.is_empty());
    with_keys
        .map(|(db, keys)| {
            let expires = keys.values().filter(|entry| entry.expires.is_some()).count();
            format!("db{db}:keys={},expires={expires},avg_ttl=0\r\n", keys.len())
        })
        .collect()
}
