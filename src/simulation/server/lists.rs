//! Commands about lists and streams.

use std::collections::VecDeque;

use super::call::{Call, Row, command};
use super::command::{FAST, GROWS, KEY, READ, TWO_KEYS, WRITE};
use super::data::{Bytes, Stream, Value};
use super::number;
use super::reply::{Answer, Failure, NO_SUCH_KEY, OK, OUT_OF_RANGE, Reply, SYNTAX, WRONG_TYPE};
use super::settings::Version;

/// A stream, and the last id in it.
type At<'c> = (&'c mut Stream, &'c mut (u64, u64));

type List = VecDeque<Bytes>;

const SETS: u32 = WRITE | GROWS | FAST;

pub(super) const COMMANDS: [Row; 18] = [
    command("lpush", -3, SETS, KEY, |call| push(call, true, true)),
    command("rpush", -3, SETS, KEY, |call| push(call, false, true)),
    command("lpushx", -3, SETS, KEY, |call| push(call, true, false)),
    command("rpushx", -3, SETS, KEY, |call| push(call, false, false)),
    command("lpop", -2, WRITE | FAST, KEY, |call| pop(call, true)),
    command("rpop", -2, WRITE | FAST, KEY, |call| pop(call, false)),
    command("llen", 2, READ | FAST, KEY, |call| {
        Ok(Reply::count(call.get::<List>(1)?.map_or(0, List::len)))
    }),
    command("lrange", 4, READ, KEY, |call| {
        let (start, end) = (call.int(2)?, call.int(3)?);
        let Some(list) = call.get::<List>(1)? else { return Ok(Reply::Array(Vec::new())) };
        let range = number::range(start, end, list.len());
        let range = range.into_iter().flat_map(|(start, end)| list.range(start..=end));
        Ok(Reply::bulks(range.map(Vec::as_slice)))
    }),
    command("lindex", 3, READ, KEY, |call| {
        let at = call.int(2);
        let Some(list) = call.get::<List>(1)? else { return Ok(Reply::Nil) };
        let at = at?;
        let at = if at < 0 { at + list.len() as i64 } else { at };
        let found = usize::try_from(at).ok().and_then(|at| list.get(at));
        Ok(Reply::maybe(found.map(Vec::as_slice)))
    }),
    command("lset", 4, WRITE | GROWS, KEY, lset),
    command("lrem", 4, WRITE, KEY, lrem),
    command("ltrim", 4, WRITE, KEY, ltrim),
    command("linsert", 5, WRITE | GROWS, KEY, linsert),
    command("lmove", 5, WRITE | GROWS, TWO_KEYS, lmove),
    command("rpoplpush", 3, WRITE | GROWS, TWO_KEYS, |call| move_one(call, false, true)),
    command("xadd", -5, SETS, KEY, xadd),
    command("xlen", 2, READ | FAST, KEY, |call| {
        Ok(Reply::count(stream(call)?.map_or(0, |(all, _)| all.len())))
    }),
    command("xrange", -4, READ, KEY, xrange),
];

fn push(call: &mut Call<'_>, in_front: bool, makes: bool) -> Answer {
    let elements = &call.args[2..];
    if !makes && call.get::<List>(1)?.is_none() {
        return Ok(Reply::Int(0));
    }
    let list = call.make::<List>(1)?;
    for element in elements {
        if in_front { list.push_front(element.to_vec()) } else { list.push_back(element.to_vec()) }
    }
    let many = list.len();
    call.changed(1);
    Ok(Reply::count(many))
}

fn pop(call: &mut Call<'_>, in_front: bool) -> Answer {
    let count = match call.many() {
        2 => None,
        3 => Some(call.count(2)?),
        _ => return Err(call.wrong_arity()),
    };
    let Some(list) = call.get_mut::<List>(1)? else {
        return Ok(if count.is_some() { Reply::NilArray } else { Reply::Nil });
    };
    let many = count.unwrap_or(1).min(list.len());
    let popped: Vec<Bytes> = (0..many)
        .filter_map(|_| if in_front { list.pop_front() } else { list.pop_back() })
        .collect();
    if many > 0 {
        call.changed(1);
    }
    Ok(match count {
        None => Reply::maybe(popped.first().map(Vec::as_slice)),
        Some(_) => Reply::Array(popped.into_iter().map(Reply::Bulk).collect()),
    })
}

fn lset(call: &mut Call<'_>) -> Answer {
    let element = call.arg(3).to_vec();
    let at = call.int(2);
    let list = call.get_mut::<List>(1)?.ok_or(NO_SUCH_KEY)?;
    let at = at?;
    let at = if at < 0 { at + list.len() as i64 } else { at };
    *usize::try_from(at).ok().and_then(|at| list.get_mut(at)).ok_or(OUT_OF_RANGE)? = element;
    call.changed(1);
    Ok(OK)
}

fn lrem(call: &mut Call<'_>) -> Answer {
    let count =
        if call.version() > Version::Redis70 { call.signed_count(2)? } else { call.int(2)? };
    let element = call.arg(3);
    let Some(list) = call.get_mut::<List>(1)? else { return Ok(Reply::Int(0)) };
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let before = list.len();
    let mut stays = |one: &Bytes| {
        let goes = left > 0 && one == element;
        left -= u64::from(goes);
        !goes
    };
    let mut kept: Vec<Bytes> = if count < 0 {
        list.drain(..).rev().filter(&mut stays).collect()
    } else {
        list.drain(..).filter(&mut stays).collect()
    };
    if count < 0 {
        kept.reverse();
    }
    *list = kept.into();
    let gone = before - list.len();
    if gone > 0 {
        call.changed(1);
    }
    Ok(Reply::count(gone))
}

fn ltrim(call: &mut Call<'_>) -> Answer {
    let (start, end) = (call.int(2)?, call.int(3)?);
    if let Some(list) = call.get_mut::<List>(1)? {
        *list = match number::range(start, end, list.len()) {
            Some((start, end)) => list.range(start..=end).cloned().collect(),
            None => List::new(),
        };
        call.changed(1);
    }
    Ok(OK)
}

fn linsert(call: &mut Call<'_>) -> Answer {
    let behind = match &*call.option(2) {
        "before" => 0,
        "after" => 1,
        _ => return Err(SYNTAX),
    };
    let (pivot, element) = (call.arg(3), call.arg(4).to_vec());
    let Some(list) = call.get_mut::<List>(1)? else { return Ok(Reply::Int(0)) };
    let Some(at) = list.iter().position(|one| one == pivot) else { return Ok(Reply::Int(-1)) };
    list.insert(at + behind, element);
    let many = list.len();
    call.changed(1);
    Ok(Reply::count(many))
}

fn lmove(call: &mut Call<'_>) -> Answer {
    let side = |at: usize| match &*call.option(at) {
        "left" => Ok(true),
        "right" => Ok(false),
        _ => Err(SYNTAX),
    };
    let (from, to) = (side(3)?, side(4)?);
    move_one(call, from, to)
}

fn move_one(call: &mut Call<'_>, from_front: bool, to_front: bool) -> Answer {
    if call.get::<List>(1)?.is_none() {
        return Ok(Reply::Nil);
    }
    call.get::<List>(2)?;
    let list = call.get_mut::<List>(1)?.ok_or(NO_SUCH_KEY)?;
    let element = if from_front { list.pop_front() } else { list.pop_back() };
    let element = element.expect("no list is empty");
    let list = call.make::<List>(2)?;
    if to_front {
        list.push_front(element.clone())
    } else {
        list.push_back(element.clone())
    }
    call.changed(1);
    call.changed(2);
    Ok(Reply::Bulk(element))
}

/// The stream at the key, and the last id that it has had.
fn stream<'c>(call: &'c mut Call<'_>) -> Result<Option<At<'c>>, Failure> {
    match call.entry(1).map(|entry| &mut entry.value) {
        None => Ok(None),
        Some(Value::Stream(all, last)) => Ok(Some((all, last))),
        Some(_) => Err(WRONG_TYPE),
    }
}

const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// An id, in which the number may be missing. Spaces may stand in front of both.
fn id(word: &[u8], missing: u64) -> Result<(u64, u64), Failure> {
    let text = str::from_utf8(word).map_err(|_| INVALID_ID)?;
    let (time, number) = text.split_once('-').map_or((text, None), |(a, b)| (a, Some(b)));
    let parsed =
        |text: &str| text.trim_ascii_start().parse().map_err(|_| Failure::from(INVALID_ID));
    Ok((parsed(time)?, number.map_or(Ok(missing), parsed)?))
}

fn xadd(call: &mut Call<'_>) -> Answer {
    let now = u64::try_from(call.core.millis()).unwrap_or(0);
    let word = call.arg(2);
    let given = if word == b"*" { None } else { Some(id(word, 0)?) };
    let fields: Vec<(Bytes, Bytes)> =
        call.pairs(3)?.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    if given == Some((0, 0)) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let last = stream(call)?.map_or((0, 0), |(_, last)| *last);
    let id = given.unwrap_or(if now > last.0 { (now, 0) } else { (last.0, last.1 + 1) });
    if id <= last {
        return Err(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item"
                .into(),
        );
    }
    if call.entry(1).is_none() {
        call.set(1, Value::Stream(Stream::new(), (0, 0)));
    }
    if let Some((all, last)) = stream(call)? {
        all.insert(id, fields);
        *last = id;
    }
    call.changed(1);
    Ok(Reply::Bulk(format!("{}-{}", id.0, id.1).into_bytes()))
}

fn xrange(call: &mut Call<'_>) -> Answer {
    let bound = |word: &[u8], missing: u64| match word {
        b"-" => Ok((0, 0)),
        b"+" => Ok((u64::MAX, u64::MAX)),
        word => id(word, missing),
    };
    let (from, to) = (bound(call.arg(2), 0)?, bound(call.arg(3), u64::MAX)?);
    let (mut many, mut at) = (i64::MAX, 4);
    while at < call.many() {
        if call.option(at) != "count" || at + 1 == call.many() {
            return Err(SYNTAX);
        }
        many = call.int(at + 1)?;
        at += 2;
    }
    let Some((all, _)) = stream(call)? else { return Ok(Reply::Array(Vec::new())) };
    if many == 0 {
        return Ok(Reply::NilArray);
    }
    let inside = all.iter().filter(|(id, _)| (from..=to).contains(*id));
    let shown = inside.take(usize::try_from(many).unwrap_or(0)).map(|(id, fields)| {
        let words = fields.iter().flat_map(|(k, v)| [Reply::bulk(k), Reply::bulk(v)]).collect();
        let id = format!("{}-{}", id.0, id.1).into_bytes();
        Reply::Array(vec![Reply::Bulk(id), Reply::Array(words)])
    });
    Ok(Reply::Array(shown.collect()))
}
