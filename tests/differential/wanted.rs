//! The differences that are wanted, each with its reason. All else has to be the same.

use super::resp::Value;
use super::steps::Like;

/// What is compared in another way than for equality, or not at all, and why.
pub(crate) const WANTED: &[(&str, &str)] = &[
    (
        "the order of HGETALL, HKEYS, HVALS, SMEMBERS, SINTER, SUNION, SDIFF, KEYS, PUBSUB CHANNELS \
         and of an UNSUBSCRIBE from everything",
        "Redis has none: it follows from the addresses and the seed of its tables",
    ),
    (
        "SCAN and HSCAN in pages, and with mistakes in them",
        "a cursor follows from the tables of a server: the simulated one has an order of its own, and gives a \
         hash at once",
    ),
    ("what SRANDMEMBER, HRANDFIELD and math.random choose, seeded or not", "it is random"),
    (
        "LSET and LINDEX at the smallest number",
        "it overflows in Valkey, which takes the element at the other end",
    ),
    (
        "INCRBYFLOAT and HINCRBYFLOAT of other numbers than quarters, and with mistakes in them",
        "Redis adds in 80 bits and shows seventeen decimals, so 1000 and 6.58 are \
         1006.58000000000000002; the simulated server adds in 64 and shows fifteen digits",
    ),
    (
        "CONFIG with mistakes in it",
        "it reads names as patterns; Redis has hundreds of settings, of which four are simulated",
    ),
    (
        "fields of CLIENT INFO and INFO beside those in `FIELDS`",
        "they are about the process: its buffers, its memory, its sockets",
    ),
    (
        "the patch level of HELLO's version and of redis_version",
        "the simulated server says one of each line, and the differences between them are not simulated",
    ),
    (
        "options that are not in the templates",
        "they are not simulated: no script of the client needs them, and they are answered with an \
         error, as unknown commands are",
    ),
    (
        "what a script returns in a table with `double`, `map`, `set`, `big_number` or \
         `verbatim_string`, redis.setresp, and a first line `#!lua`",
        "they are not simulated: no script of the client needs them",
    ),
    (
        "MULTI, EXEC and WATCH, PSUBSCRIBE, RANDOMKEY, ranges BYLEX, streams, several databases in \
         one command, and lines without lengths",
        "they are not simulated: neither the client sends them, nor do people have them carried out \
         under a lock",
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
    "cmd",
    "user",
    "resp",
    "redis_version",
    "role",
    "connected_slaves",
];

/// The answers of a connection as they are compared.
pub(crate) fn compared(mut values: Vec<Value>, likes: &[Like]) -> Vec<Value> {
    values = values.into_iter().map(without_patch_level_of_hello).collect();
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

/// `7.0` of `7.0.15`.
pub(crate) fn without_patch_level(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(line, _)| line)
}

fn without_patch_level_of_hello(mut value: Value) -> Value {
    if let Value::Many(_, Some(fields)) = &mut value
        && let [Value::Bulk(_), Value::Bulk(_), Value::Bulk(name), Value::Bulk(version), ..] =
            &mut fields[..]
        && name == b"version"
    {
        *version = without_patch_level(&String::from_utf8_lossy(version)).into();
    }
    value
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
    if line.starts_with("db") && !line.contains("distrib") {
        return line.split(",avg_ttl").next().unwrap_or(line).to_owned();
    }
    let known = |word: &&str| {
        let name = word.split(['=', ':']).next().unwrap_or(word);
        FIELDS.contains(&name)
    };
    let words: Vec<&str> = line.split(' ').filter(known).collect();
    match words[..] {
        [version] if version.starts_with("redis_version:") => without_patch_level(version).into(),
        _ => words.join(" "),
    }
}
