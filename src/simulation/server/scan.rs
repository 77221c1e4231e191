//! `SCAN` and `HSCAN`.
//!
//! The order of `SCAN` is that of a hash of the keys, and a cursor is the hash at which to go on: so a key that is
//! there all the time is found, whatever comes and goes meanwhile. `HSCAN` gives the whole hash at once, as Redis does
//! for small ones.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::call::{Call, Row, command};
use super::command::{KEY, NO_KEYS, READ};
use super::data::{Bytes, Entry, Hash as Fields};
use super::glob;
use super::number;
use super::reply::{Answer, Failure, Reply, SYNTAX};
use super::settings::Version;

pub(super) const COMMANDS: [Row; 2] =
    [command("scan", -2, READ, NO_KEYS, scan), command("hscan", -3, READ, KEY, hscan)];

struct Options<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<String>,
}

fn options<'a>(call: &Call<'a>, from: usize) -> Result<Options<'a>, Failure> {
    let mut options = Options { pattern: None, count: 10, kind: None };
    let mut at = from;
    while at < call.many() {
        let Some(value) = call.args.get(at + 1) else { return Err(SYNTAX) };
        match &*call.option(at) {
            "match" => options.pattern = Some(value),
            "count" => {
                let count = usize::try_from(call.int(at + 1)?).ok();
                options.count = count.filter(|count| *count > 0).ok_or(SYNTAX)?;
            }
            "type" if from == 2 => options.kind = Some(call.option(at + 1)),
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    Ok(options)
}

fn cursor(call: &Call<'_>, at: usize) -> Result<u64, Failure> {
    let cursor = number::integer(call.arg(at)).and_then(|cursor| u64::try_from(cursor).ok());
    cursor.ok_or_else(|| "ERR invalid cursor".into())
}

/// Where a key is in the order of cursors, which fit a signed number. Zero is the beginning.
fn place(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 1).max(1)
}

fn scan(call: &mut Call<'_>) -> Answer {
    let from = cursor(call, 1)?;
    let Options { pattern, count, kind } = options(call, 2)?;
    let all = call.core.dbs[call.db].keys().map(|key| (place(key), key));
    let mut ahead: Vec<_> = all.filter(|(place, _)| *place >= from).collect();
    ahead.sort_unstable();
    let next = ahead.get(count).map_or(0, |(place, _)| *place);
    let here = ahead.into_iter().take_while(|(place, _)| next == 0 || *place < next);
    let fits = |key: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, key));
    let here = here.map(|(_, key)| key).filter(|key| fits(key));
    let mut keys: Vec<Bytes> = here.cloned().collect();
    keys.retain(|key| is_found(call, key, kind.as_deref()));
    let found = Reply::bulks(keys.iter().map(|key| &**key));
    Ok(Reply::Array(vec![Reply::bulk(next.to_string().as_bytes()), found]))
}

/// Whether a key is there, and of that kind. One that has ended is removed; since Redis 8.0 only if it is of that kind.
fn is_found(call: &mut Call<'_>, key: &[u8], kind: Option<&str>) -> bool {
    if call.version() <= Version::Redis70 && !call.core.exists(call.db, key) {
        return false;
    }
    let entry = call.core.dbs[call.db].get(key);
    let is_kind = |entry: &Entry| kind.is_none_or(|kind| kind == entry.value.kind());
    entry.is_some_and(is_kind) && call.core.exists(call.db, key)
}

fn hscan(call: &mut Call<'_>) -> Answer {
    cursor(call, 2)?;
    let done = |found| Ok(Reply::Array(vec![Reply::bulk(b"0"), found]));
    if call.get::<Fields>(1)?.is_none() {
        return done(Reply::Array(Vec::new()));
    }
    let pattern = options(call, 3)?.pattern;
    let fields = call.get::<Fields>(1)?.into_iter().flatten();
    let found = fields.filter(|(field, _)| pattern.is_none_or(|one| glob::matches(one, field)));
    done(Reply::bulks(found.flat_map(|(field, value)| [&**field, &**value])))
}
