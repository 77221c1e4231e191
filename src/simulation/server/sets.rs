//! Commands about sets.

use std::collections::BTreeSet;

use super::call::{Call, Row, command, found};
use super::command::{ALL_KEYS, GROWS, KEY, READ, TWO_KEYS, WRITE};
use super::data::Bytes;
use super::reply::{Answer, Failure, Reply, SYNTAX};

type Set = BTreeSet<Bytes>;

const GETS: u32 = READ;

pub(super) const COMMANDS: [Row; 12] = [
    command("sadd", -3, WRITE | GROWS, KEY, sadd),
    command("srem", -3, WRITE, KEY, srem),
    command("scard", 2, GETS, KEY, |call| {
        Ok(Reply::count(call.get::<Set>(1)?.map_or(0, Set::len)))
    }),
    command("sismember", 3, GETS, KEY, |call| {
        let member = call.arg(2);
        found(call.get::<Set>(1)?.is_some_and(|set| set.contains(member)))
    }),
    command("smismember", -3, GETS, KEY, |call| {
        let members = &call.args[2..];
        let set = call.get::<Set>(1)?;
        let has = |member: &&[u8]| Reply::Int(set.is_some_and(|set| set.contains(*member)).into());
        Ok(Reply::Array(members.iter().map(has).collect()))
    }),
    command("smembers", 2, READ, KEY, |call| {
        Ok(Reply::Set(
            call.get::<Set>(1)?.into_iter().flatten().map(|one| Reply::bulk(one)).collect(),
        ))
    }),
    command("smove", 4, WRITE, TWO_KEYS, smove),
    command("spop", -2, WRITE, KEY, spop),
    command("srandmember", -2, READ, KEY, srandmember),
    command("sinter", -2, READ, ALL_KEYS, |call| combined(call, inter)),
    command("sunion", -2, READ, ALL_KEYS, |call| combined(call, union)),
    command("sdiff", -2, READ, ALL_KEYS, |call| combined(call, diff)),
];

fn sadd(call: &mut Call<'_>) -> Answer {
    let members = &call.args[2..];
    let set = call.make::<Set>(1)?;
    let new = members.iter().filter(|member| set.insert(member.to_vec())).count();
    if new > 0 {
        call.changed(1);
    }
    Ok(Reply::count(new))
}

fn srem(call: &mut Call<'_>) -> Answer {
    let members = &call.args[2..];
    let Some(set) = call.get_mut::<Set>(1)? else { return Ok(Reply::Int(0)) };
    let gone = members.iter().filter(|member| set.remove(**member)).count();
    if gone > 0 {
        call.changed(1);
    }
    Ok(Reply::count(gone))
}

fn smove(call: &mut Call<'_>) -> Answer {
    let member = call.arg(3);
    if call.get::<Set>(1)?.is_none() {
        return Ok(Reply::Int(0));
    }
    call.get::<Set>(2)?;
    let has = call.get::<Set>(1)?.is_some_and(|set| set.contains(member));
    if has && call.arg(1) != call.arg(2) {
        call.get_mut::<Set>(1)?.map(|set| set.remove(member));
        call.changed(1);
        call.make::<Set>(2)?.insert(member.to_vec());
        call.changed(2);
    }
    found(has)
}

/// That many members by chance, different ones.
fn pick(call: &mut Call<'_>, many: usize) -> Result<Vec<Bytes>, Failure> {
    let mut all: Vec<Bytes> = call.get::<Set>(1)?.into_iter().flatten().cloned().collect();
    call.core.choose(&mut all, many);
    Ok(all)
}

fn spop(call: &mut Call<'_>) -> Answer {
    let many = match call.many() {
        2 => None,
        3 => Some(call.count(2)?),
        _ => return Err(SYNTAX),
    };
    let picked = pick(call, many.unwrap_or(1))?;
    if let Some(set) = call.get_mut::<Set>(1)?
        && !picked.is_empty()
    {
        picked.iter().for_each(|member| {
            set.remove(member);
        });
        call.changed(1);
    }
    Ok(match many {
        None => Reply::maybe(picked.first().map(Vec::as_slice)),
        Some(_) => Reply::Set(picked.into_iter().map(Reply::Bulk).collect()),
    })
}

fn srandmember(call: &mut Call<'_>) -> Answer {
    if call.many() > 3 {
        return Err(SYNTAX);
    }
    if call.many() == 2 {
        return Ok(Reply::maybe(pick(call, 1)?.first().map(Vec::as_slice)));
    }
    let count = call.signed_count(2)?;
    if count >= 0 {
        let picked = pick(call, count as usize)?;
        return Ok(Reply::Array(picked.into_iter().map(Reply::Bulk).collect()));
    }
    let all = pick(call, usize::MAX)?;
    if all.is_empty() {
        return Ok(Reply::Array(Vec::new()));
    }
    let picked =
        (0..count.unsigned_abs()).map(|_| Reply::bulk(&all[call.core.random_below(all.len())]));
    Ok(Reply::Array(picked.collect()))
}

fn inter(a: Set, b: &Set) -> Set {
    a.intersection(b).cloned().collect()
}

fn union(a: Set, b: &Set) -> Set {
    a.union(b).cloned().collect()
}

fn diff(a: Set, b: &Set) -> Set {
    a.difference(b).cloned().collect()
}

/// What comes of all the sets.
fn combined(call: &mut Call<'_>, with: fn(Set, &Set) -> Set) -> Answer {
    let mut sets = Vec::new();
    for at in 1..call.many() {
        sets.push(call.get::<Set>(at)?.cloned().unwrap_or_default());
    }
    let first = sets.remove(0);
    let set = sets.iter().fold(first, with);
    Ok(Reply::Set(set.into_iter().map(Reply::Bulk).collect()))
}
