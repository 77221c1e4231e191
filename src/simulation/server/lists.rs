//! Commands about lists.

use std::collections::VecDeque;

use super::call::{Call, Row, command};
use super::command::{GROWS, KEY, READ, TWO_KEYS, WRITE};
use super::data::Bytes;
use super::number;
use super::reply::{Answer, NO_SUCH_KEY, OK, OUT_OF_RANGE, Reply, SYNTAX};
use super::settings::Version;

type List = VecDeque<Bytes>;

const SETS: u32 = WRITE | GROWS;

pub(super) const COMMANDS: [Row; 14] = [
    command("lpush", -3, SETS, KEY, |call| push(call, true, true)),
    command("rpush", -3, SETS, KEY, |call| push(call, false, true)),
    command("lpushx", -3, SETS, KEY, |call| push(call, true, false)),
    command("rpushx", -3, SETS, KEY, |call| push(call, false, false)),
    command("lpop", -2, WRITE, KEY, |call| pop(call, true)),
    command("rpop", -2, WRITE, KEY, |call| pop(call, false)),
    command("llen", 2, READ, KEY, |call| {
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
    command("lmove", 5, WRITE | GROWS, TWO_KEYS, lmove),
    command("rpoplpush", 3, WRITE | GROWS, TWO_KEYS, |call| move_one(call, false, true)),
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
