//! What a server is set to.

use super::call::{Call, Row, command, no_subcommand};
use super::command::{ADMIN, CONTAINER, LOADING, NO_KEYS, NO_SCRIPT, STALE};
use super::core::Core;
use super::glob;
use super::reply::{Answer, Failure, OK, Reply, SYNTAX};
use super::settings::Version;

pub(super) const ADMINS: u32 = ADMIN | NO_SCRIPT | LOADING | STALE;

pub(super) const COMMANDS: [Row; 4] = [
    command("config", -2, CONTAINER | ADMINS, NO_KEYS, no_subcommand),
    command("config|get", -3, ADMINS, NO_KEYS, config_get),
    command("config|set", -4, ADMINS, NO_KEYS, config_set),
    command("config|resetstat", 2, ADMINS, NO_KEYS, |call| {
        call.core.calls.fill(0);
        call.core.errors.clear();
        call.core.expired = 0;
        Ok(OK)
    }),
];

/// Settings that a server has from the start. What is not here is not known.
const DEFAULTS: [(&str, &str); 30] = [
    ("acllog-max-len", "128"),
    ("appendonly", "no"),
    ("bind", "127.0.0.1"),
    ("busy-reply-threshold", "5000"),
    (
        "client-output-buffer-limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    ("cluster-allow-reads-when-down", "no"),
    ("cluster-enabled", "no"),
    ("cluster-node-timeout", "15000"),
    ("cluster-require-full-coverage", "yes"),
    ("databases", "16"),
    ("hz", "10"),
    ("latency-monitor-threshold", "0"),
    ("lua-time-limit", "5000"),
    ("maxclients", "10000"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("min-replicas-max-lag", "10"),
    ("min-replicas-to-write", "0"),
    ("notify-keyspace-events", ""),
    ("proto-max-bulk-len", "536870912"),
    ("repl-diskless-sync", "yes"),
    ("repl-ping-replica-period", "10"),
    ("repl-timeout", "60"),
    ("replica-read-only", "yes"),
    ("replica-serve-stale-data", "yes"),
    ("requirepass", ""),
    ("save", ""),
    ("slowlog-log-slower-than", "10000"),
    ("stop-writes-on-bgsave-error", "yes"),
    ("timeout", "0"),
];

/// A server with less than that has its memory full.
pub(super) const USED_MEMORY: u64 = 1_000_000;

impl Core {
    pub(super) fn config(&self, name: &str) -> &str {
        let default =
            || DEFAULTS.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        self.config.get(name).map_or_else(default, String::as_str)
    }

    pub(super) fn config_number(&self, name: &str) -> i64 {
        // The usual case costs nothing.
        if self.config.is_empty() {
            return 0;
        }
        self.config(name).parse().unwrap_or(0)
    }
}

fn config_get(call: &mut Call<'_>) -> Answer {
    let mut pairs = Vec::new();
    for (name, _) in DEFAULTS {
        let wanted = call.args[2..]
            .iter()
            .any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()));
        if wanted {
            let value = call.core.config(name).as_bytes();
            pairs.push((Reply::bulk(name.as_bytes()), Reply::bulk(value)));
        }
    }
    Ok(Reply::Map(pairs))
}

fn config_set(call: &mut Call<'_>) -> Answer {
    let pairs = call.pairs(2).map_err(|_| SYNTAX)?;
    for (name, _) in &pairs {
        let name = String::from_utf8_lossy(name);
        if !DEFAULTS.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            return Err(Failure::from(match call.version() {
                Version::Redis62 => format!("ERR Unsupported CONFIG parameter: {name}"),
                _ => format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"),
            }));
        }
    }
    for (name, value) in pairs {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let value = String::from_utf8_lossy(value).into_owned();
        match &*name {
            "maxmemory" => {
                let bytes = bytes(&value).ok_or_else(|| not_memory(&value, call.version()))?;
                call.core.memory_is_full = bytes > 0 && bytes < USED_MEMORY;
                call.core.config.insert(name, bytes.to_string());
                continue;
            }
            "requirepass" => {
                let user = call.core.users.get_mut("default").expect("always there");
                user.passwords.clear();
                user.needs_no_password = value.is_empty();
                user.passwords.extend((!value.is_empty()).then(|| value.clone()));
            }
            _ => {}
        }
        call.core.config.insert(name, value);
    }
    Ok(OK)
}

fn not_memory(value: &str, version: Version) -> Failure {
    let why = "argument must be a memory value";
    Failure::from(match version {
        Version::Redis62 => {
            format!("ERR Invalid argument '{value}' for CONFIG SET 'maxmemory' - {why}")
        }
        _ => format!("ERR CONFIG SET failed (possibly related to argument 'maxmemory') - {why}"),
    })
}

/// A number of bytes, with or without a unit.
fn bytes(text: &str) -> Option<u64> {
    let text = text.split('\0').next()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if digits.is_empty() && text.is_empty() {
        return Some(0);
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
