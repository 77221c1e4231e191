//! Commands about sorted sets.

use super::call::{Call, Row, command};
use super::command::{GROWS, KEY, READ, WRITE};
use super::data::{Bytes, Sorted};
use super::number;
use super::reply::{Answer, Failure, Reply, SYNTAX};
use super::settings::Version;

const SETS: u32 = WRITE | GROWS;
const GETS: u32 = READ;

pub(super) const COMMANDS: [Row; 16] = [
    command("zadd", -4, SETS, KEY, zadd),
    command("zincrby", 4, SETS, KEY, zincrby),
    command("zrem", -3, WRITE, KEY, zrem),
    command("zcard", 2, GETS, KEY, |call| {
        Ok(Reply::count(call.get::<Sorted>(1)?.map_or(0, Sorted::len)))
    }),
    command("zscore", 3, GETS, KEY, |call| {
        let member = call.arg(2);
        let score = call.get::<Sorted>(1)?.and_then(|set| set.score(member));
        Ok(score.map_or(Reply::Nil, |score| call.core.double(score)))
    }),
    command("zrank", -3, GETS, KEY, |call| rank(call, false)),
    command("zrevrank", -3, GETS, KEY, |call| rank(call, true)),
    command("zcount", 4, GETS, KEY, |call| {
        let range = ScoreRange::of(call, 2, 3)?;
        let set = call.get::<Sorted>(1)?;
        Ok(Reply::count(set.map_or(0, |set| range.members(set).count())))
    }),
    command("zrange", -4, READ, KEY, zrange),
    command("zrevrange", -4, READ, KEY, |call| old_range(call, By::Rank, true)),
    command("zrangebyscore", -4, READ, KEY, |call| old_range(call, By::Score, false)),
    command("zrevrangebyscore", -4, READ, KEY, |call| old_range(call, By::Score, true)),
    command("zremrangebyscore", 4, WRITE, KEY, |call| remove_range(call, By::Score)),
    command("zremrangebyrank", 4, WRITE, KEY, |call| remove_range(call, By::Rank)),
    command("zpopmin", -2, WRITE, KEY, |call| pop(call, false)),
    command("zpopmax", -2, WRITE, KEY, |call| pop(call, true)),
];

/// Members with their scores.
type Members = Vec<(Bytes, f64)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
}

/// The options of `ZADD`.
const OPTIONS: [&str; 6] = ["nx", "xx", "gt", "lt", "ch", "incr"];

fn zadd(call: &mut Call<'_>) -> Answer {
    let options = (2..call.many()).map(|at| call.option(at));
    let flags: Vec<String> = options.take_while(|one| OPTIONS.contains(&&**one)).collect();
    let at = 2 + flags.len();
    let has = |flag: &str| flags.iter().any(|one| one == flag);
    let (nx, xx, gt, lt, incr) = (has("nx"), has("xx"), has("gt"), has("lt"), has("incr"));
    let rest = &call.args[at..];
    if rest.is_empty() || !rest.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    if nx && xx {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if gt && lt || nx && (gt || lt) {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if incr && rest.len() > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let scores: Vec<f64> =
        (at..call.many()).step_by(2).map(|at| call.float(at)).collect::<Result<_, _>>()?;
    let is_new_key = call.get::<Sorted>(1)?.is_none();
    if is_new_key && xx {
        return Ok(if incr { Reply::Nil } else { Reply::Int(0) });
    }
    let (mut added, mut updated, mut result) = (0, 0, None);
    let set = call.make::<Sorted>(1)?;
    for (pair, score) in rest.chunks_exact(2).zip(scores) {
        let member = pair[1];
        let old = set.score(member);
        let score = if incr { score + old.unwrap_or(0.0) } else { score };
        if score.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".into());
        }
        let stays = match old {
            None => xx,
            Some(old) => nx || gt && score <= old || lt && score >= old,
        };
        if stays {
            continue;
        }
        result = Some(score);
        match old {
            None => added += 1,
            Some(old) if old != score => updated += 1,
            Some(_) => continue,
        }
        set.insert(member, score);
    }
    if added + updated > 0 || is_new_key {
        call.changed(1);
    }
    if incr {
        return Ok(result.map_or(Reply::Nil, |score| call.core.double(score)));
    }
    Ok(Reply::Int(if has("ch") { added + updated } else { added }))
}

fn zincrby(call: &mut Call<'_>) -> Answer {
    if OPTIONS.contains(&&*call.option(2)) {
        return Err(SYNTAX);
    }
    let by = call.float(2)?;
    let member = call.arg(3);
    let score = by + call.get::<Sorted>(1)?.and_then(|set| set.score(member)).unwrap_or(0.0);
    if score.is_nan() {
        return Err("ERR resulting score is not a number (NaN)".into());
    }
    call.make::<Sorted>(1)?.insert(member, score);
    call.changed(1);
    Ok(call.core.double(score))
}

fn zrem(call: &mut Call<'_>) -> Answer {
    let members = &call.args[2..];
    let Some(set) = call.get_mut::<Sorted>(1)? else { return Ok(Reply::Int(0)) };
    let gone = members.iter().filter(|member| set.remove(member)).count();
    if gone > 0 {
        call.changed(1);
    }
    Ok(Reply::count(gone))
}

fn rank(call: &mut Call<'_>, from_highest: bool) -> Answer {
    let with_score = match call.many() {
        3 => false,
        4 if call.version() > Version::Redis70 && call.option(3) == "withscore" => true,
        4 if call.version() > Version::Redis70 => return Err(SYNTAX),
        _ => return Err(call.wrong_arity()),
    };
    let member = call.arg(2);
    let set = call.get::<Sorted>(1)?;
    let found = set.and_then(|set| Some((set.rank(member)?, set.len(), set.score(member)?)));
    let Some((rank, many, score)) = found else {
        return Ok(if with_score { Reply::NilArray } else { Reply::Nil });
    };
    let rank = Reply::count(if from_highest { many - 1 - rank } else { rank });
    let score = call.core.double(score);
    Ok(if with_score { Reply::Array(vec![rank, score]) } else { rank })
}

/// Scores from one to another, each included or not.
struct ScoreRange {
    min: (f64, bool),
    max: (f64, bool),
}

impl ScoreRange {
    fn of(call: &Call<'_>, min: usize, max: usize) -> Result<Self, Failure> {
        let bound = |at: usize| {
            let word = number::c_text(call.arg(at));
            let (word, included) = match word.strip_prefix(b"(") {
                Some(rest) => (rest, false),
                None => (word, true),
            };
            // Nothing is zero here, and up to Redis 7.0 spaces may stand in front.
            let is_old = call.version() <= Version::Redis70;
            let word = if is_old { word.trim_ascii_start() } else { word };
            let score = if word.is_empty() { Some(0.0) } else { number::float(word) };
            score.map(|score| (score, included))
        };
        match (bound(min), bound(max)) {
            (Some(min), Some(max)) => Ok(Self { min, max }),
            _ => Err("ERR min or max is not a float".into()),
        }
    }

    fn members<'a>(&'a self, set: &'a Sorted) -> impl DoubleEndedIterator<Item = (&'a Bytes, f64)> {
        let fits = |score: f64| {
            let above = score > self.min.0 || self.min.1 && score == self.min.0;
            above && (score < self.max.0 || self.max.1 && score == self.max.0)
        };
        set.from(self.min.0).filter(move |(_, score)| fits(*score))
    }
}

/// The members between the bounds in the words 2 and 3.
fn select(call: &mut Call<'_>, by: By, from_highest: bool) -> Result<Members, Failure> {
    let owned = |(member, score): (&Bytes, f64)| (member.clone(), score);
    let (min, max) = if from_highest { (3, 2) } else { (2, 3) };
    let mut members: Members = match by {
        By::Rank => {
            let (start, end) = (call.int(2)?, call.int(3)?);
            let Some(set) = call.get::<Sorted>(1)? else { return Ok(Vec::new()) };
            let Some((start, end)) = number::range(start, end, set.len()) else {
                return Ok(Vec::new());
            };
            let many = end - start + 1;
            return Ok(if from_highest {
                set.iter().rev().skip(start).take(many).map(owned).collect()
            } else {
                set.iter().skip(start).take(many).map(owned).collect()
            });
        }
        By::Score => {
            let range = ScoreRange::of(call, min, max)?;
            let set = call.get::<Sorted>(1)?;
            set.map(|set| range.members(set).map(owned).collect()).unwrap_or_default()
        }
    };
    if from_highest {
        members.reverse();
    }
    Ok(members)
}

/// The answer: members, and their scores if wanted.
fn shown(call: &Call<'_>, members: Members, with_scores: bool, nested: bool) -> Reply {
    let mut all = Vec::with_capacity(members.len() * 2);
    for (member, score) in members {
        let score = call.core.double(score);
        match (with_scores, nested) {
            (false, _) => all.push(Reply::Bulk(member)),
            (true, true) => all.push(Reply::Array(vec![Reply::Bulk(member), score])),
            (true, false) => all.extend([Reply::Bulk(member), score]),
        }
    }
    Reply::Array(all)
}

fn zrange(call: &mut Call<'_>) -> Answer {
    ranged(call, By::Rank, false, true)
}

fn old_range(call: &mut Call<'_>, by: By, from_highest: bool) -> Answer {
    ranged(call, by, from_highest, false)
}

/// A range with the options behind its bounds. `is_open` says that they may choose its kind.
fn ranged(call: &mut Call<'_>, mut by: By, mut from_highest: bool, is_open: bool) -> Answer {
    let (mut with_scores, mut limit) = (false, None);
    let mut at = 4;
    while at < call.many() {
        match &*call.option(at) {
            "withscores" => with_scores = true,
            "limit" if at + 2 < call.many() => {
                limit = Some((call.int(at + 1)?, call.int(at + 2)?));
                at += 2;
            }
            "rev" if is_open && !from_highest => from_highest = true,
            "byscore" if is_open && by == By::Rank => by = By::Score,
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    // A count of -1 is as if there were no limit.
    limit = limit.filter(|(_, count)| by != By::Rank || *count != -1);
    if limit.is_some() && by == By::Rank {
        return Err(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
                .into(),
        );
    }
    let mut members = select(call, by, from_highest)?;
    if let Some((offset, count)) = limit {
        let many = if count < 0 { members.len() } else { count as usize };
        let offset = usize::try_from(offset).unwrap_or(members.len());
        members = members.into_iter().skip(offset).take(many).collect();
    }
    Ok(shown(call, members, with_scores, call.resp3))
}

fn remove_range(call: &mut Call<'_>, by: By) -> Answer {
    let members = select(call, by, false)?;
    if let Some(set) = call.get_mut::<Sorted>(1)? {
        set.remove_all(&members);
        if !members.is_empty() {
            call.changed(1);
        }
    }
    Ok(Reply::count(members.len()))
}

fn pop(call: &mut Call<'_>, highest: bool) -> Answer {
    let count = match call.many() {
        2 => None,
        3 if call.version() == Version::Redis62 => Some(usize::try_from(call.int(2)?).unwrap_or(0)),
        3 => Some(call.count(2)?),
        _ => return Err(SYNTAX),
    };
    let many = count.unwrap_or(1);
    if many == 0 && call.version() == Version::Redis62 {
        return Ok(Reply::Array(Vec::new()));
    }
    let owned = |(member, score): (&Bytes, f64)| (member.clone(), score);
    let Some(set) = call.get_mut::<Sorted>(1)? else { return Ok(Reply::Array(Vec::new())) };
    let members: Members = if highest {
        set.iter().rev().take(many).map(owned).collect()
    } else {
        set.iter().take(many).map(owned).collect()
    };
    set.remove_all(&members);
    if !members.is_empty() {
        call.changed(1);
    }
    Ok(shown(call, members, true, call.resp3 && count.is_some()))
}
