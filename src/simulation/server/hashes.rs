//! Commands about hashes.

use super::call::{Call, Row, command, found};
use super::command::{GROWS, KEY, READ, WRITE};
use super::data::{Bytes, Hash};
use super::number;
use super::reply::{Answer, OK, OVERFLOW, Reply, SYNTAX};
use super::strings::float_sum;

const SETS: u32 = WRITE | GROWS;
const GETS: u32 = READ;

pub(super) const COMMANDS: [Row; 15] = [
    command("hset", -4, SETS, KEY, |call| hset(call).map(Reply::Int)),
    command("hmset", -4, SETS, KEY, |call| hset(call).map(|_| OK)),
    command("hsetnx", 4, SETS, KEY, hsetnx),
    command("hget", 3, GETS, KEY, |call| {
        let field = call.arg(2);
        let hash = call.get::<Hash>(1)?;
        Ok(Reply::maybe(hash.and_then(|hash| hash.get(field)).map(Vec::as_slice)))
    }),
    command("hmget", -3, GETS, KEY, hmget),
    command("hdel", -3, WRITE, KEY, hdel),
    command("hexists", 3, GETS, KEY, |call| {
        let field = call.arg(2);
        found(call.get::<Hash>(1)?.is_some_and(|hash| hash.contains_key(field)))
    }),
    command("hlen", 2, GETS, KEY, |call| {
        Ok(Reply::count(call.get::<Hash>(1)?.map_or(0, Hash::len)))
    }),
    command("hstrlen", 3, GETS, KEY, |call| {
        let field = call.arg(2);
        let value = call.get::<Hash>(1)?.and_then(|hash| hash.get(field));
        Ok(Reply::count(value.map_or(0, Vec::len)))
    }),
    command("hkeys", 2, READ, KEY, |call| {
        let hash = call.get::<Hash>(1)?;
        Ok(Reply::bulks(hash.into_iter().flat_map(Hash::keys).map(Vec::as_slice)))
    }),
    command("hvals", 2, READ, KEY, |call| {
        let hash = call.get::<Hash>(1)?;
        Ok(Reply::bulks(hash.into_iter().flat_map(Hash::values).map(Vec::as_slice)))
    }),
    command("hgetall", 2, READ, KEY, |call| {
        let hash = call.get::<Hash>(1)?;
        let fields = hash.into_iter().flatten();
        Ok(Reply::Map(fields.map(|(k, v)| (Reply::bulk(k), Reply::bulk(v))).collect()))
    }),
    command("hincrby", 4, SETS, KEY, hincrby),
    command("hincrbyfloat", 4, SETS, KEY, hincrbyfloat),
    command("hrandfield", -2, READ, KEY, hrandfield),
];

/// How many fields are new.
fn hset(call: &mut Call<'_>) -> Result<i64, super::reply::Failure> {
    let pairs = call.pairs(2)?;
    let hash = call.make::<Hash>(1)?;
    let mut new = 0;
    for (field, value) in pairs {
        new += i64::from(hash.insert(field.to_vec(), value.to_vec()).is_none());
    }
    call.changed(1);
    Ok(new)
}

fn hsetnx(call: &mut Call<'_>) -> Answer {
    let (field, value) = (call.arg(2), call.arg(3));
    let hash = call.make::<Hash>(1)?;
    let is_new = !hash.contains_key(field);
    if is_new {
        hash.insert(field.to_vec(), value.to_vec());
        call.changed(1);
    }
    found(is_new)
}

fn hmget(call: &mut Call<'_>) -> Answer {
    let fields = &call.args[2..];
    let hash = call.get::<Hash>(1)?;
    let value = |field: &&[u8]| hash.and_then(|hash| hash.get(*field)).map(Vec::as_slice);
    Ok(Reply::Array(fields.iter().map(|field| Reply::maybe(value(field))).collect()))
}

fn hdel(call: &mut Call<'_>) -> Answer {
    let fields = &call.args[2..];
    let Some(hash) = call.get_mut::<Hash>(1)? else { return Ok(Reply::Int(0)) };
    let gone = fields.iter().filter(|field| hash.remove(**field).is_some()).count();
    if gone > 0 {
        call.changed(1);
    }
    Ok(Reply::count(gone))
}

fn field(call: &mut Call<'_>) -> Result<Option<Bytes>, super::reply::Failure> {
    let field = call.arg(2);
    Ok(call.get::<Hash>(1)?.and_then(|hash| hash.get(field)).cloned())
}

fn set_field(call: &mut Call<'_>, value: Bytes) -> Result<(), super::reply::Failure> {
    let field = call.arg(2).to_vec();
    call.make::<Hash>(1)?.insert(field, value);
    call.changed(1);
    Ok(())
}

fn hincrby(call: &mut Call<'_>) -> Answer {
    let by = call.int(3)?;
    let old = match field(call)? {
        Some(text) => number::integer(&text).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(OVERFLOW)?;
    set_field(call, sum.to_string().into_bytes())?;
    Ok(Reply::Int(sum))
}

fn hincrbyfloat(call: &mut Call<'_>) -> Answer {
    call.float(3)?;
    let old = field(call)?;
    let sum = float_sum(old.as_deref(), call.arg(3), "ERR hash value is not a float".into())?;
    set_field(call, sum.clone().into_bytes())?;
    Ok(Reply::Bulk(sum.into_bytes()))
}

fn hrandfield(call: &mut Call<'_>) -> Answer {
    if call.many() == 2 {
        let many = call.get::<Hash>(1)?.map_or(0, Hash::len);
        let at = if many > 1 { call.core.random_below(many) } else { 0 };
        let name = call.get::<Hash>(1)?.and_then(|hash| hash.keys().nth(at));
        return Ok(Reply::maybe(name.map(Vec::as_slice)));
    }
    let count = call.signed_count(2)?;
    let with_values = call.many() > 3;
    if call.many() > 4 || with_values && call.option(3) != "withvalues" {
        return Err(SYNTAX);
    }
    let fields = call.get::<Hash>(1)?.into_iter().flatten();
    let mut all: Vec<(Bytes, Bytes)> = fields.map(|(k, v)| (k.clone(), v.clone())).collect();
    if count >= 0 {
        call.core.choose(&mut all, count as usize);
    } else if !all.is_empty() {
        let picked = (0..count.unsigned_abs()).map(|_| call.core.random_below(all.len()));
        all = picked.map(|at| all[at].clone()).collect();
    }
    let resp3 = call.resp3;
    let reply = all.into_iter().flat_map(|(field, value)| match (with_values, resp3) {
        (false, _) => vec![Reply::Bulk(field)],
        (true, false) => vec![Reply::Bulk(field), Reply::Bulk(value)],
        (true, true) => vec![Reply::Array(vec![Reply::Bulk(field), Reply::Bulk(value)])],
    });
    Ok(Reply::Array(reply.collect()))
}
