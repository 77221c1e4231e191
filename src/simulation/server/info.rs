//! What a server tells of itself.

use super::call::{Call, Row, command};
use super::command::{LOADING, NO_KEYS, STALE};
use super::config::USED_MEMORY;
use super::core::Core;
use super::reply::{Answer, Reply, SYNTAX};
use super::settings::Version;

/// The name of a section, and its text.
type Section = (&'static str, fn(&Core) -> String);

pub(super) const COMMANDS: [Row; 2] = [
    command("info", -1, LOADING | STALE, NO_KEYS, info),
    command("time", 1, LOADING | STALE, NO_KEYS, |call| {
        let now = call.core.now;
        let texts = [now.as_secs().to_string(), now.subsec_micros().to_string()];
        Ok(Reply::bulks(texts.iter().map(|text| text.as_bytes())))
    }),
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

fn info(call: &mut Call<'_>) -> Answer {
    if call.version() == Version::Redis62 && call.many() > 2 {
        return Err(SYNTAX);
    }
    let wanted: Vec<String> = (1..call.many()).map(|at| call.option(at)).collect();
    let everything = ["all", "everything", "default"];
    let is_wanted = |name: &str| {
        wanted.is_empty() || wanted.iter().any(|one| one == name || everything.contains(&&**one))
    };
    let clients = |core: &Core| lines(&[("connected_clients", core.clients.len().to_string())]);
    let sections: [Section; 6] = [
        ("Server", server),
        ("Clients", clients),
        ("Memory", memory),
        ("Persistence", |core| lines(&[("loading", u8::from(core.is_loading).to_string())])),
        ("Replication", replication),
        ("Keyspace", keyspace),
    ];
    let mut text = String::new();
    for (name, section) in sections {
        if is_wanted(&name.to_ascii_lowercase()) {
            if !text.is_empty() {
                text += "\r\n";
            }
            text += &format!("# {name}\r\n{}", section(call.core));
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
    let mode = if version.is_valkey() { "server_mode" } else { "redis_mode" };
    fields.extend([(mode, core.mode().to_owned()), ("run_id", core.run_id.clone())]);
    lines(&fields)
}

fn memory(core: &Core) -> String {
    lines(&[
        ("used_memory", USED_MEMORY.to_string()),
        ("maxmemory", core.config("maxmemory").into()),
        ("maxmemory_policy", core.config("maxmemory-policy").into()),
    ])
}

fn replication(core: &Core) -> String {
    lines(&[
        ("role", if core.is_replica() { "slave" } else { "master" }.into()),
        ("connected_slaves", core.replicas.len().to_string()),
        ("master_repl_offset", core.offset.to_string()),
    ])
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
