//! Requests that run scripts: those of `lua/`, with arguments that fit and with odd ones, and others
//! that look at what a script may find.

use std::sync::LazyLock;

use redis::Script;

use super::generate::Chooser;
use super::steps::{Like, Request};
use super::support::scripts::texts::text;

pub(crate) const KEYS: [&str; 4] =
    ["lock", "redlatch_queue:{lock}", "redlatch_waiting:{lock}", "redisson_lock_token:{lock}"];

/// The scripts by their names, put together as the client does.
static LUA: LazyLock<Vec<(&str, Script, String)>> = LazyLock::new(|| {
    let mut names: Vec<&str> = CALLS.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    let bodies = names.into_iter().map(|name| (name, text(name, str::to_owned)));
    bodies.map(|(name, body)| (name, Script::new(&body), body)).collect()
});

/// What each request about a queue says.
const FAIR: &str = "$client $age $ticket $mode $term $grace CHANNEL $publish $flag $many";

/// Their calls: keys and arguments, as templates. `TOKEN` is left out as often as not; `FAIR` stands for the
/// arguments above, and `CHANNEL` and the others for the keys.
const CALLS: &[(&str, &str, &str)] = &[
    ("acquire", "LOCK ?TOKEN", "$owner $lease $count 3"),
    ("acquire", "LOCK ?TOKEN", "$owner $lease $count 3"),
    ("acquire", "LOCK ?TOKEN", "$owner $lease $count 3"),
    ("acquire", "LOCK ?TOKEN", "$owner $lease $count 3"),
    ("release", "LOCK", "$owner CHANNEL $publish"),
    ("release", "LOCK", "$owner CHANNEL $publish"),
    ("renew", "LOCK k1 k2", "$lease $owner $other $other"),
    ("update", "LOCK ?TOKEN", "$owner $count $lease 3 CHANNEL $numsub $publish $ours"),
    ("force_unlock", "LOCK", "CHANNEL $publish"),
    ("inspect", "LOCK", "$owner"),
    ("rewrite", "LOCK", "$owner"),
    ("execute", "LOCK k1 k2 k3", "$owner 3 SET k1 v 2 INCR k2 2 HGETALL k3"),
    (
        "batch",
        "LOCK k1 TOKEN LOCK",
        "acquire $owner $lease $count fenced $other $lease 1 2 release $owner CHANNEL $publish",
    ),
    ("fair_acquire", "LOCK QUEUE WAITING ?TOKEN", "FAIR $owner $lease $count 2 $flag"),
    ("fair_acquire", "LOCK QUEUE WAITING ?TOKEN", "FAIR $owner $lease $count 2 $flag"),
    ("fair_release", "LOCK QUEUE WAITING ?TOKEN", "FAIR $owner"),
    ("fair_update", "LOCK QUEUE WAITING TOKEN", "FAIR $owner $count $lease 3 $ours"),
    ("fair_leave", "LOCK QUEUE WAITING", "FAIR"),
    ("fair_refresh", "LOCK QUEUE WAITING", "$client $term $age $ticket"),
    ("fair_force_unlock", "LOCK QUEUE WAITING", "FAIR"),
];

/// The digest of a script.
fn digest(name: &str) -> &'static str {
    LUA.iter().find(|(one, ..)| *one == name).expect("a script").1.get_hash()
}

/// The requests that make all scripts known.
pub(crate) fn loads() -> Vec<Request> {
    LUA.iter().map(|(.., body)| Request::new(Like::Same, ["SCRIPT", "LOAD", body])).collect()
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
    "return {redis.call('EXISTS', KEYS[1]), redis.call('TYPE', KEYS[1])}",
    "return redis.call('TYPE', KEYS[1])['ok']",
    "redis.replicate_commands() return 1",
    "return redis.call('zadd', KEYS[1], ARGV[1], 'a')",
    "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
];

/// A call of a script.
pub(crate) fn request(chooser: &mut Chooser<'_>) -> Request {
    match chooser.rng.u32(0..20) {
        0 => return admin(chooser),
        1..7 => {
            let body = chooser.one_of(OTHERS);
            let many = if chooser.rng.u32(0..20) == 0 { "$i" } else { "1" };
            let mut words = vec![b"EVAL".to_vec(), body.into()];
            words.extend(chooser.fill(&format!("{many} $k $v")));
            let is_any = body.contains("HGETALL") || body.contains("SMEMBERS");
            return Request { words, like: if is_any { Like::AnyOrder } else { Like::Same } };
        }
        _ => {}
    }
    let (name, keys, args) = chooser.one_of(CALLS);
    let [keys, args] = [keys, args].map(|template| {
        let [lock, queue, waiting, token] = KEYS;
        let template = template.replace("FAIR", FAIR);
        let template = template.replace("CHANNEL", "redisson_lock__channel:{lock}");
        let template = template.replace("LOCK", lock).replace("QUEUE", queue);
        let words = template.replace("WAITING", waiting).replace("TOKEN", token);
        chooser.fill(&words)
    });
    let mut words = vec![b"EVALSHA".to_vec(), digest(name).into()];
    words.push(keys.len().to_string().into_bytes());
    words.extend(keys);
    words.extend(args);
    // This one has an `HGETALL`.
    let like = if name == "execute" { Like::AnyOrder } else { Like::Same };
    Request { words, like }
}

fn admin(chooser: &mut Chooser<'_>) -> Request {
    let (name, ..) = LUA[chooser.rng.usize(0..LUA.len())];
    let words = match chooser.rng.u32(0..4) {
        0 => vec!["SCRIPT", "EXISTS", digest(name), "nonsense"],
        1 => vec!["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
        2 => vec!["SCRIPT", "NONSENSE"],
        _ => vec!["SCRIPT", "KILL"],
    };
    Request::new(Like::Same, words)
}
