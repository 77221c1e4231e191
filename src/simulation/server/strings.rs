//! Commands about strings.

use super::call::{Call, Row, command};
use super::command::{ALL_KEYS, GROWS, KEY, Keys, READ, WRITE};
use super::data::{Bytes, Entry, Value};
use super::number;
use super::reply::{
    Answer, Failure, NOT_A_FLOAT, NOT_AN_INTEGER, OK, OVERFLOW, Reply, SYNTAX, WRONG_TYPE,
};
use super::settings::Version;

const SETS: u32 = WRITE | GROWS;
const PAIRS: Keys = Keys::At(1, -1, 2);

pub(super) const COMMANDS: [Row; 20] = [
    command("get", 2, READ, KEY, |call| Ok(Reply::maybe(text(call, 1)?.as_deref()))),
    command("set", -3, SETS, KEY, set),
    command("setex", 4, SETS, KEY, |call| setex(call, 1000)),
    command("psetex", 4, SETS, KEY, |call| setex(call, 1)),
    command("setnx", 3, SETS, KEY, setnx),
    command("getset", 3, SETS, KEY, getset),
    command("getdel", 2, WRITE, KEY, getdel),
    command("getex", -2, WRITE, KEY, getex),
    command("incr", 2, SETS, KEY, |call| add(call, 1)),
    command("decr", 2, SETS, KEY, |call| add(call, -1)),
    command("incrby", 3, SETS, KEY, |call| {
        let by = call.int(2)?;
        add(call, by)
    }),
    command("decrby", 3, SETS, KEY, |call| {
        let by = call.int(2)?;
        // Redis 6.2 does not see that there is no such number.
        let negated = by.checked_neg().or((call.version() == Version::Redis62).then_some(by));
        let negated = negated.ok_or("ERR decrement would overflow")?;
        add(call, negated)
    }),
    command("incrbyfloat", 3, SETS, KEY, add_float),
    command("append", 3, SETS, KEY, append),
    command("strlen", 2, READ, KEY, |call| {
        Ok(Reply::count(text(call, 1)?.map_or(0, |text| text.len())))
    }),
    command("getrange", 4, READ, KEY, getrange),
    command("setrange", 4, SETS, KEY, setrange),
    command("mget", -2, READ, ALL_KEYS, mget),
    command("mset", -3, SETS, PAIRS, |call| mset(call, false)),
    command("msetnx", -3, SETS, PAIRS, |call| mset(call, true)),
];

fn text(call: &mut Call<'_>, at: usize) -> Result<Option<Bytes>, Failure> {
    Ok(call.get::<Bytes>(at)?.cloned())
}

/// When a key ends that lives for so many units of so many milliseconds. `None` if that cannot be.
pub(super) fn end_in(call: &Call<'_>, ttl: i64, unit: i64, is_relative: bool) -> Option<i64> {
    let ttl = ttl.checked_mul(unit)?;
    if is_relative { ttl.checked_add(call.core.millis()) } else { Some(ttl) }
}

pub(super) fn invalid_expire(call: &Call<'_>) -> Failure {
    let name = call.command.name;
    Failure::from(match call.version() {
        Version::Redis62 => format!("ERR invalid expire time in {name}"),
        _ => format!("ERR invalid expire time in '{name}' command"),
    })
}

/// The end that the words `EX 10` and their like say, which stand at `at`.
fn end_of(call: &Call<'_>, at: usize) -> Result<i64, Failure> {
    let (unit, is_relative) = match &*call.option(at) {
        "ex" => (1000, true),
        "px" => (1, true),
        "exat" => (1000, false),
        _ => (1, false),
    };
    let ttl = call.int(at + 1)?;
    if ttl <= 0 {
        return Err(invalid_expire(call));
    }
    end_in(call, ttl, unit, is_relative).ok_or_else(|| invalid_expire(call))
}

/// What stands behind the value of a `SET`, or behind the key of a `GETEX`.
#[derive(Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    gets: bool,
    keeps_end: bool,
    takes_end: bool,
    /// Where a new end stands.
    end_at: Option<usize>,
}

fn options(call: &Call<'_>, mut at: usize) -> Result<Options, Failure> {
    let sets = call.command.name == "set";
    let mut options = Options::default();
    while at < call.many() {
        let word = call.option(at);
        // The same unit may come again.
        let may_end = !options.keeps_end
            && !options.takes_end
            && options.end_at.is_none_or(|end| call.option(end) == word);
        match &*word {
            "nx" if sets && !options.only_old => options.only_new = true,
            "xx" if sets && !options.only_new => options.only_old = true,
            "get" if sets => options.gets = true,
            "keepttl" if sets && options.end_at.is_none() => options.keeps_end = true,
            "persist" if !sets && options.end_at.is_none() => options.takes_end = true,
            "ex" | "px" | "exat" | "pxat" if may_end && at + 1 < call.many() => {
                options.end_at = Some(at);
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    Ok(options)
}

fn set(call: &mut Call<'_>) -> Answer {
    let Options { only_new, only_old, gets, keeps_end, end_at, .. } = options(call, 3)?;
    if gets && only_new && call.version() == Version::Redis62 {
        return Err(SYNTAX);
    }
    let expires = end_at.map(|at| end_of(call, at)).transpose()?;
    let old = if gets { text(call, 1)? } else { None };
    let found = call.entry(1).map(|entry| entry.expires);
    if only_new && found.is_some() || only_old && found.is_none() {
        return Ok(Reply::maybe(old.as_deref()));
    }
    let expires = if keeps_end { found.flatten() } else { expires };
    let (args, db) = (call.args, call.db);
    let value = Value::Text(args[2].to_vec());
    call.core.set(db, args[1], Entry { value, expires });
    // Clients find out when one of them looks at the key.
    if call.version().is_valkey() && expires.is_some_and(|end| end <= call.core.millis()) {
        call.remove(1);
    }
    Ok(if gets { Reply::maybe(old.as_deref()) } else { OK })
}

fn setex(call: &mut Call<'_>, unit: i64) -> Answer {
    let ttl = call.int(2)?;
    let end = end_in(call, ttl, unit, true).filter(|_| ttl > 0);
    let end = end.ok_or_else(|| invalid_expire(call))?;
    let args = call.args;
    let entry = Entry { value: Value::Text(args[3].to_vec()), expires: Some(end) };
    call.core.set(call.db, args[1], entry);
    Ok(OK)
}

fn setnx(call: &mut Call<'_>) -> Answer {
    let is_new = call.entry(1).is_none();
    if is_new {
        call.set(1, Value::Text(call.arg(2).to_vec()));
    }
    super::call::found(is_new)
}

fn getset(call: &mut Call<'_>) -> Answer {
    let old = text(call, 1)?;
    call.set(1, Value::Text(call.arg(2).to_vec()));
    Ok(Reply::maybe(old.as_deref()))
}

fn getdel(call: &mut Call<'_>) -> Answer {
    let old = text(call, 1)?;
    call.remove(1);
    Ok(Reply::maybe(old.as_deref()))
}

fn getex(call: &mut Call<'_>) -> Answer {
    let Options { takes_end, end_at, .. } = options(call, 2)?;
    let end = end_at.map(|at| end_of(call, at));
    if let Some(Err(failure)) = &end
        && call.version().is_valkey()
    {
        return Err(failure.clone());
    }
    let Some(old) = text(call, 1)? else { return Ok(Reply::Nil) };
    if let Some(end) = end {
        let end = end?;
        call.core.expire_at(call.db, call.args[1], end);
    }
    if takes_end
        && let Some(entry) = call.entry(1)
        && entry.expires.take().is_some()
    {
        call.changed(1);
    }
    Ok(Reply::Bulk(old))
}

/// Sets a string, whose end stays.
fn replace(call: &mut Call<'_>, value: Bytes) -> Result<(), Failure> {
    *call.make::<Bytes>(1)? = value;
    call.changed(1);
    Ok(())
}

fn add(call: &mut Call<'_>, by: i64) -> Answer {
    let old = match call.get::<Bytes>(1)? {
        Some(text) => number::integer(text).ok_or(NOT_AN_INTEGER)?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    replace(call, sum.to_string().into_bytes())?;
    Ok(Reply::Int(sum))
}

/// The sum of what is there and what comes to it. Redis adds in 80 bits, and writes 17 decimals.
pub(super) fn float_sum(
    old: Option<&[u8]>,
    by: &[u8],
    not_old: Failure,
) -> Result<String, Failure> {
    let old = old.map_or(Some(0.0), number::float).ok_or(not_old)?;
    let sum = old + number::float(by).ok_or(NOT_A_FLOAT)?;
    if !sum.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    // Fifteen digits are those that people mean: 0.1 and 0.2 are 0.3.
    let in_front = sum.abs().log10().max(0.0) as usize + 1;
    let text = format!("{sum:.*}", 15_usize.saturating_sub(in_front));
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    Ok(if text == "-0" { "0".into() } else { text.into() })
}

fn add_float(call: &mut Call<'_>) -> Answer {
    let old = text(call, 1)?;
    let sum = float_sum(old.as_deref(), call.arg(2), NOT_A_FLOAT)?;
    replace(call, sum.clone().into_bytes())?;
    Ok(Reply::Bulk(sum.into_bytes()))
}

fn append(call: &mut Call<'_>) -> Answer {
    let more = call.arg(2);
    let mut value = text(call, 1)?.unwrap_or_default();
    value.extend_from_slice(more);
    let length = value.len();
    replace(call, value)?;
    Ok(Reply::count(length))
}

fn getrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (call.int(2)?, call.int(3)?);
    let value = text(call, 1)?.unwrap_or_default();
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::bulk(b""));
    }
    // A range that ends in front of the string has its first byte.
    let end = if end < 0 { (end + value.len() as i64).max(0) } else { end };
    let range = number::range(start, end, value.len());
    Ok(Reply::bulk(range.map_or(&[][..], |(start, end)| &value[start..=end])))
}

fn setrange(call: &mut Call<'_>) -> Answer {
    const LONGEST: usize = 512 * 1024 * 1024;
    let (offset, part) = (call.int(2)?, call.arg(3));
    let offset = usize::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    let mut value = text(call, 1)?.unwrap_or_default();
    if part.is_empty() {
        return Ok(Reply::count(value.len()));
    }
    let end = offset.saturating_add(part.len());
    if end > LONGEST {
        return Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    }
    value.resize(value.len().max(end), 0);
    value[offset..end].copy_from_slice(part);
    let length = value.len();
    replace(call, value)?;
    Ok(Reply::count(length))
}

fn mget(call: &mut Call<'_>) -> Answer {
    let values = (1..call.many()).map(|at| match text(call, at) {
        Ok(value) => Ok(Reply::maybe(value.as_deref())),
        Err(failure) if failure == WRONG_TYPE => Ok(Reply::Nil),
        Err(failure) => Err(failure),
    });
    values.collect::<Result<_, _>>().map(Reply::Array)
}

fn mset(call: &mut Call<'_>, only_new: bool) -> Answer {
    let pairs = call.pairs(1)?;
    if only_new {
        let any = pairs.iter().any(|(key, _)| call.core.exists(call.db, key));
        if any {
            return Ok(Reply::Int(0));
        }
    }
    for (key, value) in pairs {
        let entry = Entry { value: Value::Text(value.to_vec()), expires: None };
        call.core.set(call.db, key, entry);
    }
    Ok(if only_new { Reply::Int(1) } else { OK })
}
