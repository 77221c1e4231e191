//! Requests that run scripts: those of `lua/`, with arguments that fit and with odd ones, and others
//! that look at what a script may find.

use std::sync::LazyLock;

use redis::Script;

use super::generate::Chooser;
use super::pair::OBSERVER;
use super::steps::{Like, Request, Step};

pub(crate) const KEYS: [&str; 4] =
    ["lock", "redlatch_queue:{lock}", "redlatch_waiting:{lock}", "redisson_lock_token:{lock}"];

const CHANNEL: &str = "redisson_lock__channel:{lock}";

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("../../lua/", $name, ".lua"))
    };
}

/// The scripts by their names, put together as the client does.
static LUA: LazyLock<Vec<(&str, String, Script)>> = LazyLock::new(|| {
    let function =
        |name: &str, body: &str| format!("local function {name}(KEYS, ARGV)\n{body}end\n");
    let turn = function("turn", lua!("fair_turn"));
    let place = function("place", lua!("fair_place"));
    let elsewhere = function("elsewhere", lua!("fair_elsewhere"));
    let batch = [
        function("acquire", lua!("acquire")),
        function("release", lua!("release")),
        lua!("batch").to_owned(),
    ];
    let hand_off = function("hand_off", lua!("hand_off"));
    let scripts: [(&str, String); 15] = [
        ("acquire", lua!("acquire").into()),
        ("release", lua!("release").into()),
        ("renew", lua!("renew").into()),
        ("hand_off", lua!("hand_off").into()),
        ("force_unlock", lua!("force_unlock").into()),
        ("inspect", lua!("inspect").into()),
        ("rewrite", lua!("rewrite").into()),
        ("execute", lua!("execute").into()),
        ("batch", batch.concat()),
        ("fair_acquire", [&turn, &place, &elsewhere, lua!("fair_acquire")].concat()),
        ("fair_release", [&turn, &place, lua!("fair_release")].concat()),
        ("fair_hand_off", [&place, &elsewhere, &hand_off, lua!("fair_hand_off")].concat()),
        ("fair_leave", [&turn, lua!("fair_leave")].concat()),
        ("fair_refresh", lua!("fair_refresh").into()),
        ("fair_force_unlock", [&turn, lua!("fair_force_unlock")].concat()),
    ];
    let made = scripts.into_iter().map(|(name, body)| {
        let script = Script::new(&body);
        (name, body, script)
    });
    made.collect()
});

/// The digest of a script.
fn digest(name: &str) -> &'static str {
    let (.., script) = LUA.iter().find(|(one, ..)| *one == name).expect("a script");
    script.get_hash()
}

/// The steps that make all scripts known.
pub(crate) fn loads() -> Vec<Step> {
    let load = |body: &str| Request::new(Like::Same, ["SCRIPT", "LOAD", body]);
    let requests = LUA.iter().map(|(_, body, _)| load(body)).collect();
    vec![Step::Ask { connection: OBSERVER, requests, cut: None }]
}

/// What a script finds, and what comes of it, on one line each.
const OTHERS: &[&str] = &[
    "return KEYS",
    "return {KEYS[1], ARGV[1], 3, 3.9, -1.5, true, false, nil, 4}",
    "return {1, {2, {3, 'a'}}, redis.call('GET', KEYS[1])}",
    "return redis.call('GET', KEYS[1])",
    "local a = redis.call('GET', KEYS[1])\nreturn a",
    "return redis.pcall('INCR', KEYS[1])",
    "redis.call('INCR', KEYS[1]) return redis.call('PTTL', KEYS[1])",
    "return redis.call('HGETALL', KEYS[1])",
    "redis.setresp(3) return redis.call('HGETALL', KEYS[1])",
    "redis.setresp(3) return redis.call('ZSCORE', KEYS[1], 'a')",
    "redis.setresp(3) return {redis.call('GET', 'nothing'), true, false}",
    "redis.setresp(3) return redis.call('SMEMBERS', KEYS[1])",
    "return {double = 3.25}",
    "return {map = {a = 1}}",
    "return {set = {x = true}}",
    "return {big_number = '12345678901234567890'}",
    "return {verbatim_string = {string = 'text', format = 'txt'}}",
    "return redis.error_reply('MY own error')",
    "return redis.error_reply('oneword')",
    "return redis.error_reply('-WITH dash')",
    "return redis.error_reply(1)",
    "return redis.status_reply('FINE')",
    "return redis.status_reply()",
    "return {err = 'table'}",
    "return {ok = 'table'}",
    "return {err = 'MY\\nlines'}",
    "error('raised')",
    "error({err = 'MY raised'})",
    "error('raised', 0)",
    "local function deep() error('deep') end\ndeep()",
    "return pcall(error, 'caught')",
    "return {pcall(redis.call, 'INCR', KEYS[1])}",
    "local ok, e = pcall(redis.call, 'NONSENSE')\nreturn {ok, e}",
    "local ok, e = pcall(function() return nil + 1 end)\nreturn {ok, e}",
    "return redis.call('NONSENSE', 'a')",
    "return redis.call('GET')",
    "return redis.pcall('GET')",
    "return redis.call()",
    "return redis.pcall()",
    "return redis.call('SET', KEYS[1], {})",
    "return redis.call('SET', KEYS[1], true)",
    "return redis.call('SUBSCRIBE', 'c1')",
    "return redis.call('MULTI')",
    "return redis.call('PUBLISH', 'c1', ARGV[1])",
    "return redis.call('SPUBLISH', 'c1', ARGV[1])",
    "return redis.call('TIME')",
    "return redis.call('PING')",
    "return redis.call('ECHO', ARGV[1])",
    "return redis.call('SELECT', 1)",
    "redis.call('SELECT', 1) return redis.call('GET', KEYS[1])",
    "return redis.call('SET', KEYS[1], 12345678901234567)",
    "return redis.call('SET', KEYS[1], 0.1)",
    "return redis.call('SET', KEYS[1], 1e20)",
    "redis.call('SET', KEYS[1], 1764000000123456) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 3.0) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', 50) return redis.call('PTTL', KEYS[1])",
    "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], ARGV[1])",
    "redis.call('HSET', KEYS[1], 'f', ARGV[1])\nreturn redis.call('HLEN', KEYS[1])",
    "return tostring(redis.call('GET', KEYS[1]))",
    "return type(redis.call('GET', 'nothing'))",
    "return nonsense",
    "nonsense = 1",
    "function nonsense() end return 1",
    "local x = nil; return x.y",
    "return nil .. 'a'",
    "return #KEYS + #ARGV",
    "return string.format('%.14g %d %s', 1/3, 42, ARGV[1])",
    "return tostring(1e15) .. tostring(2^53) .. tostring(0.1)",
    "return redis.sha1hex('abc')",
    "return redis.sha1hex()",
    "redis.log(redis.LOG_DEBUG, 'quiet') return 1",
    "math.randomseed(7) return {math.random(1000), math.random(5, 9), tostring(math.random())}",
    "return {unpack(ARGV)}",
    "return table.concat(ARGV, ',')",
    "return select('#', unpack(KEYS))",
    "local t = {} for i = 1, 5 do t[i] = i * i end return t",
    "return 9007199254740993",
    "return 1/0",
    "return -7.9",
    "return ''",
    "return",
    "",
    "syntax error here",
    "return 'a\nreturn 'b'",
    "if true then return 1",
    "end return 1",
    "return redis.call('GET', KEYS[1]), redis.call('GET', KEYS[1])",
    "return {[1] = 'a', [3] = 'c'}",
    "return {a = 1}",
    "return function() end",
    "return loadstring('return 5')()",
    "return redis.call('EVAL', 'return 1', 0)",
    "local t = setmetatable({}, {__index = function() return 'x' end}) return t.y",
    "return tonumber(ARGV[1])",
    "return redis.call('CLIENT', 'ID')",
    "return redis.call('WAIT', 0, 0)",
    "redis.call('SET', KEYS[1], 'v') redis.call('INCR', KEYS[1])",
    "redis.setresp(4)",
    "redis.setresp()",
    "return {redis.call('EXISTS', KEYS[1]), redis.call('TYPE', KEYS[1])}",
    "return redis.call('TYPE', KEYS[1])['ok']",
    "redis.replicate_commands() return 1",
    "return redis.call('zadd', KEYS[1], ARGV[1], 'a')",
    "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "#!lua\nreturn 1",
    "#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 1)",
    "#!nonsense\nreturn 1",
    "#!lua flags=nonsense\nreturn 1",
];

/// A call of a script.
pub(crate) fn request(chooser: &mut Chooser<'_>) -> Request {
    match chooser.rng.u32(0..20) {
        0 => return admin(chooser),
        1..7 => {
            let body = OTHERS[chooser.rng.usize(0..OTHERS.len())];
            let name = if chooser.rng.u32(0..10) == 0 { "EVAL_RO" } else { "EVAL" };
            let mut words = vec![name.as_bytes().to_vec(), body.as_bytes().to_vec(), b"1".to_vec()];
            words.extend([chooser.word("$k"), chooser.word("$v")]);
            if chooser.rng.u32(0..20) == 0 {
                words[2] = chooser.word("$i");
            }
            let like = if body.contains("HGETALL") || body.contains("SMEMBERS") {
                Like::AnyOrder
            } else {
                Like::Same
            };
            return Request { words, like };
        }
        _ => {}
    }
    let (name, keys, args) = lua(chooser);
    let mut words = vec![b"EVALSHA".to_vec(), digest(name).as_bytes().to_vec()];
    words.push(keys.len().to_string().into_bytes());
    words.extend(keys);
    words.extend(args);
    // This one has an `HGETALL`.
    let like = if name == "execute" { Like::AnyOrder } else { Like::Same };
    Request { words, like }
}

fn admin(chooser: &mut Chooser<'_>) -> Request {
    let name = LUA[chooser.rng.usize(0..LUA.len())].0;
    Request::new(
        Like::Same,
        match chooser.rng.u32(0..5) {
            0 => vec!["SCRIPT", "EXISTS", digest(name), "nonsense"],
            1 => vec!["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
            2 => vec!["SCRIPT", "NONSENSE"],
            3 => vec!["SCRIPT", "KILL"],
            _ => vec!["EVALSHA_RO", digest(name), "1", "lock"],
        },
    )
}

type Words = Vec<Vec<u8>>;

/// A script of the client, its keys and its arguments.
fn lua(chooser: &mut Chooser<'_>) -> (&'static str, Words, Words) {
    let [lock, queue, waiting, token] = KEYS.map(|key| key.as_bytes().to_vec());
    let rng = &mut *chooser.rng;
    let mut one = |all: &[&str]| all[rng.usize(0..all.len())].as_bytes().to_vec();
    let owner = one(&["us:1", "us:1", "us:2", "them:1", "them:-5", "nobody"]);
    let other = one(&["us:1", "us:2", "them:1"]);
    let count = one(&["1", "1", "1", "2", "3", "0", "x"]);
    let lease = one(&["30000", "1000", "200", "20", "1", "60000", "0", "x"]);
    let publish = one(&["PUBLISH", "PUBLISH", "SPUBLISH", "NONSENSE"]);
    let numsub = one(&["NUMSUB", "SHARDNUMSUB", ""]);
    let client = one(&["us", "them", "others", ""]);
    let age = one(&["0", "1500", "250000", "90000000", ""]);
    let term = one(&["4000", "1000", "50"]);
    let number = one(&["0:7", "1:8", "2:9", "0:1", "1:1"]);
    let grace = one(&["500", "20"]);
    let flag = one(&["", "1"]);
    let fenced = rng.bool();
    let channel = CHANNEL.as_bytes().to_vec();
    let text = |text: &str| text.as_bytes().to_vec();
    let with_token = |mut keys: Words| {
        keys.extend(fenced.then(|| token.clone()));
        keys
    };
    match rng.u32(0..19) {
        0..4 => ("acquire", with_token(vec![lock]), vec![owner, lease, count]),
        4 | 5 => ("release", vec![lock], vec![owner, count, lease, channel, publish]),
        6 => {
            ("renew", vec![lock, text("k1"), text("k2")], vec![lease, owner, other.clone(), other])
        }
        7 => {
            let args =
                vec![channel, lease, numsub, publish, text("0"), owner, other.clone(), other];
            ("hand_off", with_token(vec![lock]), args)
        }
        8 => ("force_unlock", vec![lock], vec![channel, publish]),
        9 => ("inspect", vec![lock], vec![owner]),
        10 => ("rewrite", vec![lock], vec![owner]),
        11 => {
            let words = ["3", "SET", "k1", "v", "2", "INCR", "k2", "2", "HGETALL", "k3"];
            let args = [vec![owner], words.map(text).to_vec()].concat();
            ("execute", vec![lock, text("k1"), text("k2"), text("k3")], args)
        }
        12 => {
            let mut args = vec![text("acquire"), owner.clone(), lease.clone(), count.clone()];
            args.extend([text("fenced"), other, lease.clone(), text("1")]);
            args.extend([text("release"), owner, count, lease, channel, publish]);
            ("batch", vec![lock.clone(), text("k1"), token, lock], args)
        }
        13 | 14 => {
            let args = vec![
                owner, lease, count, client, age, term, flag, channel, publish, numsub, grace,
                number,
            ];
            ("fair_acquire", with_token(vec![lock, queue, waiting]), args)
        }
        15 => {
            let args = vec![
                owner, count, lease, channel, publish, numsub, client, age, term, grace, number,
            ];
            ("fair_release", vec![lock, queue, waiting], args)
        }
        16 if fenced => {
            let args = vec![client, channel, publish, numsub, grace, number];
            ("fair_leave", vec![lock, queue, waiting], args)
        }
        16 => {
            let mut args = vec![client, age, term, grace, number, channel, lease, numsub, publish];
            args.extend([text("0"), owner, other.clone(), other]);
            ("fair_hand_off", vec![lock, queue, waiting, token], args)
        }
        17 => {
            let args = vec![client, term, age, number];
            ("fair_refresh", vec![lock, queue, waiting], args)
        }
        _ => {
            let args = vec![channel, publish, numsub, grace];
            ("fair_force_unlock", vec![lock, queue, waiting], args)
        }
    }
}
