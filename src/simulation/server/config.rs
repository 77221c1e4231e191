//! What a server is set to.

use super::call::{Call, Row, command, no_subcommand};
use super::command::{CONTAINER, LOADING, NO_KEYS, NO_SCRIPT, STALE};
use super::core::Core;
use super::reply::{Answer, Failure, OK, Reply, SYNTAX};
use super::settings::Version;

const ASKS: u32 = NO_SCRIPT | LOADING | STALE;

pub(super) const COMMANDS: [Row; 3] = [
    command("config", -2, CONTAINER | ASKS, NO_KEYS, no_subcommand),
    command("config|get", -3, ASKS, NO_KEYS, config_get),
    command("config|set", -4, ASKS, NO_KEYS, config_set),
];

/// Settings that a server has from the start. What is not here is not known.
const DEFAULTS: [(&str, &str); 4] = [
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("min-replicas-to-write", "0"),
    ("replica-serve-stale-data", "yes"),
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
        if call.args[2..].iter().any(|wanted| wanted.eq_ignore_ascii_case(name.as_bytes())) {
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
        if name == "maxmemory" {
            let bytes: u64 = value.parse().map_err(|_| not_memory(&value, call.version()))?;
            call.core.memory_is_full = bytes > 0 && bytes < USED_MEMORY;
        }
        call.core.config.insert(name, value);
    }
    Ok(OK)
}

/// The error for a value that is no number of bytes. Units are not known here.
fn not_memory(value: &str, version: Version) -> Failure {
    let why = "argument must be a memory value";
    Failure::from(match version {
        Version::Redis62 => {
            format!("ERR Invalid argument '{value}' for CONFIG SET 'maxmemory' - {why}")
        }
        _ => format!("ERR CONFIG SET failed (possibly related to argument 'maxmemory') - {why}"),
    })
}
