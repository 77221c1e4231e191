//! Commands about keys, whatever their values are.

use super::call::{Call, Row, command, found};
use super::command::{ALL_KEYS, KEY, NO_KEYS, READ, TWO_KEYS, WRITE};
use super::core::DBS;
use super::glob;
use super::reply::{Answer, NO_SUCH_KEY, OK, Reply, SYNTAX};
use super::strings::{end_in, invalid_expire};

pub(super) const COMMANDS: [Row; 20] = [
    command("del", -2, WRITE, ALL_KEYS, del),
    command("unlink", -2, WRITE, ALL_KEYS, del),
    command("exists", -2, READ, ALL_KEYS, exists),
    command("touch", -2, READ, ALL_KEYS, exists),
    command("expire", -3, WRITE, KEY, |call| expire(call, 1000, true)),
    command("pexpire", -3, WRITE, KEY, |call| expire(call, 1, true)),
    command("expireat", -3, WRITE, KEY, |call| expire(call, 1000, false)),
    command("pexpireat", -3, WRITE, KEY, |call| expire(call, 1, false)),
    command("ttl", 2, READ, KEY, |call| ttl(call, true, true)),
    command("pttl", 2, READ, KEY, |call| ttl(call, false, true)),
    command("expiretime", 2, READ, KEY, |call| ttl(call, true, false)),
    command("pexpiretime", 2, READ, KEY, |call| ttl(call, false, false)),
    command("persist", 2, WRITE, KEY, persist),
    command("type", 2, READ, KEY, |call| {
        Ok(Reply::Status(call.entry(1).map_or("none", |entry| entry.value.kind()).into()))
    }),
    command("keys", 2, READ, NO_KEYS, keys),
    command("rename", 3, WRITE, TWO_KEYS, |call| rename(call, false)),
    command("renamenx", 3, WRITE, TWO_KEYS, |call| rename(call, true)),
    command("dbsize", 1, READ, NO_KEYS, |call| Ok(Reply::count(call.core.dbs[call.db].len()))),
    command("flushdb", -1, WRITE, NO_KEYS, |call| flush(call, call.db..call.db + 1)),
    command("flushall", -1, WRITE, NO_KEYS, |call| flush(call, 0..DBS)),
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
    Ok(Reply::Int(if in_seconds { left.saturating_add(500) / 1000 } else { left }))
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
