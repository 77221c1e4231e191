//! The differences that are wanted, each with its reason. All else has to be the same.

use super::resp::Value;
use super::steps::Like;

/// What is compared in another way than for equality, or not at all, and why.
pub(crate) const WANTED: &[(&str, &str)] = &[
    (
        "the order of HGETALL, HKEYS, HVALS, SMEMBERS, SINTER, SUNION, SDIFF, KEYS, SCAN, HSCAN, \
         SSCAN, ZSCAN, PUBSUB CHANNELS and of an UNSUBSCRIBE from everything",
        "Redis has none: it follows from the addresses and the seed of its tables",
    ),
    ("what SRANDMEMBER and HRANDFIELD choose", "it is random"),
    ("the order of the lines of INFO commandstats and errorstats", "the same"),
    ("the order of what several patterns of one client match", "the same"),
    (
        "math.random in Redis 7.0 and later without math.randomseed before",
        "it goes on from script to script",
    ),
    (
        "LSET and LINDEX at the smallest number",
        "it overflows in Valkey, which takes the element at the other end",
    ),
    (
        "the piece of its answer that an EXEC sends before a CLIENT KILL in it ends its connection",
        "nobody can read it",
    ),
    (
        "CONFIG with mistakes in it",
        "it reads names as patterns and as texts of C, and the settings of a server are many",
    ),
    (
        "sections and fields of CLIENT INFO, CLIENT LIST and INFO beside those in `FIELDS`",
        "they are about the process: its buffers, its memory, its sockets",
    ),
];

/// Fields that both servers tell alike.
const FIELDS: &[&str] = &[
    "id",
    "addr",
    "name",
    "flags",
    "db",
    "sub",
    "psub",
    "ssub",
    "multi",
    "cmd",
    "user",
    "resp",
    "redis_version",
    "role",
    "connected_slaves",
    "maxmemory_policy",
    "loading",
    "pubsub_channels",
    "pubsub_patterns",
    "cluster_enabled",
];

/// The answers of a connection as they are compared.
pub(crate) fn compared(mut values: Vec<Value>, likes: &[Like]) -> Vec<Value> {
    sort_patterns(&mut values);
    for like in likes {
        values = match like {
            Like::Same => values,
            Like::AnyOrder => values.into_iter().map(Value::sorted).collect(),
            Like::Columns => columns(values),
            Like::Shape => values.into_iter().map(Value::shape).collect(),
            Like::Fields => {
                values.into_iter().map(|value| value.rewritten(&sorted_fields)).collect()
            }
        }
    }
    values
}

/// Sorts what comes of one message.
fn sort_patterns(values: &mut [Value]) {
    let message = |value: &Value| match value {
        Value::Many(_, Some(words))
            if words.first() == Some(&Value::Bulk(b"pmessage".to_vec())) =>
        {
            Some(words[2..].to_vec())
        }
        _ => None,
    };
    for same in values.chunk_by_mut(|a, b| message(a).is_some() && message(a) == message(b)) {
        same.sort_by(|a, b| a.partial_cmp(b).expect("no floats"));
    }
}

/// The first elements of all arrays, then the second ones.
fn columns(values: Vec<Value>) -> Vec<Value> {
    let mut columns: Vec<Vec<Value>> = Vec::new();
    for value in values {
        let row = match value {
            Value::Many(_, Some(row)) => row,
            other => vec![other],
        };
        columns.resize(columns.len().max(row.len()), Vec::new());
        columns.iter_mut().zip(row).for_each(|(column, one)| column.push(one));
    }
    columns.into_iter().map(|column| Value::Many(b'*', Some(column)).sorted()).collect()
}

fn sorted_fields(text: &str) -> String {
    let lines = text.lines().map(fields).filter(|line| !line.is_empty());
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines.join("\n")
}

/// What of a line is compared.
fn fields(line: &str) -> String {
    if line.starts_with("db") && !line.contains("distrib") || line.starts_with("errorstat_") {
        return line.split(",avg_ttl").next().unwrap_or(line).to_owned();
    }
    if let Some((command, figures)) = line.strip_prefix("cmdstat_").and_then(|l| l.split_once(':'))
    {
        let calls = figures.split(',').next().unwrap_or(figures);
        // A command that was only refused.
        return if calls == "calls=0" { String::new() } else { format!("{command} {calls}") };
    }
    let known = |word: &&str| {
        let name = word.split(['=', ':']).next().unwrap_or(word);
        FIELDS.contains(&name)
    };
    line.split(' ').filter(known).collect::<Vec<_>>().join(" ")
}
