//! Commands about keys, whatever their values are.

use super::call::{Call, Row, command, found, no_subcommand};
use super::command::{ALL_KEYS, FAST, GROWS, KEY, NO_KEYS, READ, TWO_KEYS, WRITE};
use super::core::DBS;
use super::data::{Bytes, Entry};
use super::glob;
use super::number;
use super::reply::{Answer, Failure, NO_SUCH_KEY, NOT_AN_INTEGER, OK, Reply, SYNTAX};
use super::settings::Version;
use super::strings::{end_in, invalid_expire};

pub(super) const COMMANDS: [Row; 27] = [
    command("del", -2, WRITE, ALL_KEYS, del),
    command("unlink", -2, WRITE | FAST, ALL_KEYS, del),
    command("exists", -2, READ | FAST, ALL_KEYS, exists),
    command("touch", -2, READ | FAST, ALL_KEYS, exists),
    command("expire", -3, WRITE | FAST, KEY, |call| expire(call, 1000, true)),
    command("pexpire", -3, WRITE | FAST, KEY, |call| expire(call, 1, true)),
    command("expireat", -3, WRITE | FAST, KEY, |call| expire(call, 1000, false)),
    command("pexpireat", -3, WRITE | FAST, KEY, |call| expire(call, 1, false)),
    command("ttl", 2, READ | FAST, KEY, |call| ttl(call, true, true)),
    command("pttl", 2, READ | FAST, KEY, |call| ttl(call, false, true)),
    command("expiretime", 2, READ | FAST, KEY, |call| ttl(call, true, false)),
    command("pexpiretime", 2, READ | FAST, KEY, |call| ttl(call, false, false)),
    command("persist", 2, WRITE | FAST, KEY, persist),
    command("type", 2, READ | FAST, KEY, |call| {
        Ok(Reply::Status(call.entry(1).map_or("none", |entry| entry.value.kind()).into()))
    }),
    command("keys", 2, READ, NO_KEYS, keys),
    command("scan", -2, READ, NO_KEYS, scan),
    command("rename", 3, WRITE, TWO_KEYS, |call| rename(call, false)),
    command("renamenx", 3, WRITE | FAST, TWO_KEYS, |call| rename(call, true)),
    command("copy", -3, WRITE | GROWS, TWO_KEYS, copy),
    command("move", 3, WRITE | FAST, KEY, move_key),
    command("dbsize", 1, READ | FAST, NO_KEYS, |call| {
        Ok(Reply::count(call.core.dbs[call.db].len()))
    }),
    command("flushdb", -1, WRITE, NO_KEYS, |call| flush(call, call.db..call.db + 1)),
    command("flushall", -1, WRITE, NO_KEYS, |call| flush(call, 0..DBS)),
    command("swapdb", 3, WRITE | FAST, NO_KEYS, swapdb),
    command("object|encoding", 3, READ, super::command::Keys::At(2, 2, 1), encoding),
    command("object", -2, super::command::CONTAINER, NO_KEYS, no_subcommand),
    command("dump", 2, READ, KEY, |call| {
        // Good for comparing, not for restoring.
        Ok(Reply::maybe(
            call.entry(1).map(|entry| format!("{:?}", entry.value).into_bytes()).as_deref(),
        ))
    }),
];

fn del(call: &mut Call<'_>) -> Answer {
    let gone = (1..call.many()).filter(|at| call.remove(*at)).count();
    Ok(Reply::count(gone))
}

fn exists(call: &mut Call<'_>) -> Answer {
    let there = (1..call.many()).filter(|at| call.entry(*at).is_some()).count();
    Ok(Reply::count(there))
}

fn expire(call: &mut Call<'_>, unit: i64, is_relative: bool) -> Answer {
    let (mut only_without, mut only_with, mut later, mut sooner) = (false, false, false, false);
    for at in 3..call.many() {
        match &*call.option(at) {
            "nx" => only_without = true,
            "xx" => only_with = true,
            "gt" => later = true,
            "lt" => sooner = true,
            _ => return Err(format!("ERR Unsupported option {}", call.text(at)).into()),
        }
    }
    if only_without && (only_with || later || sooner) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if later && sooner {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let ttl = call.int(2)?;
    let end = end_in(call, ttl, unit, is_relative).ok_or_else(|| invalid_expire(call))?;
    let Some(old) = call.entry(1).map(|entry| entry.expires) else { return Ok(Reply::Int(0)) };
    let stays = only_without && old.is_some()
        || only_with && old.is_none()
        || later && old.is_none_or(|old| end <= old)
        || sooner && old.is_some_and(|old| end >= old);
    if stays {
        return Ok(Reply::Int(0));
    }
    call.core.expire_at(call.db, call.args[1], end);
    Ok(Reply::Int(1))
}

fn ttl(call: &mut Call<'_>, in_seconds: bool, is_relative: bool) -> Answer {
    let now = call.core.millis();
    let Some(entry) = call.entry(1) else { return Ok(Reply::Int(-2)) };
    let Some(end) = entry.expires else { return Ok(Reply::Int(-1)) };
    let left = if is_relative { (end - now).max(0) } else { end };
    Ok(Reply::Int(if in_seconds { (left + 500) / 1000 } else { left }))
}

fn persist(call: &mut Call<'_>) -> Answer {
    let had_end = call.entry(1).is_some_and(|entry| entry.expires.take().is_some());
    if had_end {
        call.changed(1);
    }
    found(had_end)
}

fn keys(call: &mut Call<'_>) -> Answer {
    let pattern = call.arg(1);
    let keys = call.core.visible(call.db).map(|(key, _)| &**key);
    Ok(Reply::bulks(keys.filter(|key| glob::matches(pattern, key))))
}

const KINDS: [&str; 6] = ["string", "list", "set", "zset", "hash", "stream"];

/// What a scan is about.
pub(super) struct ScanOptions {
    cursor: u64,
    count: usize,
    pattern: Option<Bytes>,
    kind: Option<String>,
}

/// Where a scan goes on.
pub(super) fn cursor(call: &Call<'_>, at: usize) -> Result<u64, Failure> {
    let word = number::c_text(call.arg(at));
    let cursor = if call.version() > Version::Redis70 {
        str::from_utf8(word).ok().and_then(|text| text.trim_start().parse().ok())
    } else if word.is_empty() {
        Some(0)
    } else {
        let number = str::from_utf8(word).ok().and_then(|text| text.parse::<i128>().ok());
        number.filter(|number| u64::try_from(number.unsigned_abs()).is_ok()).map(|all| all as u64)
    };
    cursor.ok_or_else(|| "ERR invalid cursor".into())
}

/// The answer for a key that is not there.
pub(super) fn nothing_to_scan() -> Reply {
    Reply::Array(vec![Reply::bulk(b"0"), Reply::Array(Vec::new())])
}

/// The options from there on.
pub(super) fn scan_options(
    call: &Call<'_>,
    cursor: u64,
    mut at: usize,
) -> Result<ScanOptions, Failure> {
    let mut options = ScanOptions { cursor, count: 10, pattern: None, kind: None };
    while at < call.many() {
        match (&*call.option(at), at + 1 < call.many()) {
            ("count", true) => {
                let count = number::integer(call.arg(at + 1)).ok_or(NOT_AN_INTEGER)?;
                options.count =
                    usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            }
            ("match", true) => options.pattern = Some(call.arg(at + 1).to_vec()),
            ("type", true) if call.command.name == "scan" => {
                let kind = call.option(at + 1);
                if call.version().is_valkey() && !KINDS.contains(&&*kind) {
                    let name = String::from_utf8_lossy(call.arg(at + 1));
                    return Err(format!("ERR unknown type name '{name}'").into());
                }
                options.kind = Some(kind);
            }
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    Ok(options)
}

/// The place of a name in the order of a scan, in which names that come or go move no others.
fn place(name: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (name.iter().fold(0xcbf2_9ce4_8422_2325, fnv) >> 16) + 1
}

impl ScanOptions {
    /// A small hash or sorted set is in one piece: a scan tells all of it, wherever it is to go on.
    pub(super) fn of_small(mut self, length: usize) -> Self {
        if length <= 128 {
            (self.cursor, self.count) = (0, usize::MAX);
        }
        self
    }
}

/// The next cursor, and the names up to there.
pub(super) fn next_of_scan<'a>(
    names: impl Iterator<Item = &'a Bytes>,
    options: &ScanOptions,
) -> (Bytes, Vec<Bytes>) {
    let mut placed: Vec<(u64, &Bytes)> = names.map(|name| (place(name), name)).collect();
    placed.retain(|(place, _)| *place >= options.cursor);
    placed.sort_unstable();
    let next = placed.get(options.count).map_or(0, |(place, _)| *place);
    let now = placed.into_iter().filter(|(place, _)| next == 0 || *place < next);
    let fits = |name: &&Bytes| options.pattern.as_ref().is_none_or(|p| glob::matches(p, name));
    let names = now.map(|(_, name)| name).filter(fits).cloned().collect();
    (next.to_string().into_bytes(), names)
}

fn scan(call: &mut Call<'_>) -> Answer {
    let options = scan_options(call, cursor(call, 1)?, 2)?;
    let is_kind = |kind: &str| options.kind.as_deref().is_none_or(|wanted| wanted == kind);
    // A key that has ended is removed where its name fits, and since Redis 8.0 its type.
    let is_looked_at = |(key, entry): &(&Bytes, &Entry)| {
        options.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key))
            && (is_kind(entry.value.kind()) || call.version() <= Version::Redis70)
    };
    let looked_at = call.core.dbs[call.db].iter().filter(is_looked_at);
    let looked_at: Vec<Bytes> = looked_at.map(|(key, _)| key.clone()).collect();
    for key in looked_at {
        call.core.exists(call.db, &key);
    }
    let visible = call.core.visible(call.db);
    let names = visible.filter(|(_, entry)| is_kind(entry.value.kind())).map(|(key, _)| key);
    let (next, names) = next_of_scan(names, &options);
    let names = Reply::bulks(names.iter().map(Vec::as_slice));
    Ok(Reply::Array(vec![Reply::Bulk(next), names]))
}

fn rename(call: &mut Call<'_>, only_new: bool) -> Answer {
    let (args, db) = (call.args, call.db);
    let Some(entry) = call.entry(1).cloned() else { return Err(NO_SUCH_KEY) };
    let is_taken = only_new && call.entry(2).is_some();
    if !is_taken && args[1] != args[2] {
        call.remove(1);
        call.core.set(db, args[2], entry);
    }
    Ok(if only_new { Reply::Int((!is_taken).into()) } else { OK })
}

fn database(call: &Call<'_>, at: usize, why: &'static str) -> Result<usize, Failure> {
    let number = number::integer(call.arg(at)).ok_or_else(|| Failure::from(why))?;
    let db = usize::try_from(number).ok().filter(|db| *db < DBS);
    db.ok_or_else(|| "ERR DB index is out of range".into())
}

fn copy(call: &mut Call<'_>) -> Answer {
    let (mut to, mut replaces) = (call.db, false);
    let mut at = 3;
    while at < call.many() {
        match &*call.option(at) {
            "replace" => replaces = true,
            "db" if at + 1 < call.many() => {
                to = database(call, at + 1, "ERR value is not an integer or out of range")?;
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    let args = call.args;
    if to == call.db && args[1] == args[2] {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(entry) = call.entry(1).cloned() else { return Ok(Reply::Int(0)) };
    if !replaces && call.core.exists(to, args[2]) {
        return Ok(Reply::Int(0));
    }
    call.core.set(to, args[2], entry);
    Ok(Reply::Int(1))
}

fn move_key(call: &mut Call<'_>) -> Answer {
    let to = database(call, 2, "ERR value is not an integer or out of range")?;
    if to == call.db {
        return Err("ERR source and destination objects are the same".into());
    }
    let key = call.args[1];
    let Some(entry) = call.entry(1).cloned() else { return Ok(Reply::Int(0)) };
    if call.core.exists(to, key) {
        return Ok(Reply::Int(0));
    }
    call.remove(1);
    call.core.set(to, key, entry);
    Ok(Reply::Int(1))
}

fn flush(call: &mut Call<'_>, dbs: std::ops::Range<usize>) -> Answer {
    let fits = match call.many() {
        1 => true,
        2 => ["async", "sync"].contains(&&*call.option(1)),
        _ => false,
    };
    if !fits {
        return Err(SYNTAX);
    }
    call.core.flush(dbs);
    Ok(OK)
}

fn swapdb(call: &mut Call<'_>) -> Answer {
    if call.core.settings.cluster {
        return Err("ERR SWAPDB is not allowed in cluster mode".into());
    }
    let a = database(call, 1, "ERR invalid first DB index")?;
    let b = database(call, 2, "ERR invalid second DB index")?;
    if a == b {
        return Ok(OK);
    }
    call.core.dbs.swap(a, b);
    let keys = call.core.dbs[a].keys().chain(call.core.dbs[b].keys());
    let keys: Vec<Bytes> = keys.cloned().collect();
    for key in &keys {
        call.core.changed(a, key);
        call.core.changed(b, key);
    }
    Ok(OK)
}

fn encoding(call: &mut Call<'_>) -> Answer {
    let Some(entry) = call.entry(2) else { return Ok(Reply::Nil) };
    Ok(Reply::bulk(match entry.value.kind() {
        "string" => b"raw",
        "hash" | "zset" => b"listpack",
        "list" => b"quicklist",
        "set" => b"hashtable",
        _ => b"stream",
    }))
}
