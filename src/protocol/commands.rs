//! Which keys a command of a caller has: pure.
//!
//! A script has to declare the keys that it uses: a cluster looks there whether they are in one slot,
//! and permissions are checked there, too. So a command that is not in this table is refused.

/// Where the keys are among the words of a command, the first of which is its name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keys {
    None,
    /// The keys are the words from the first of these to the last.
    At(usize, usize),
    /// The keys are the first of these words, and each one that follows at that distance, to the end.
    From(usize, usize),
    /// That word says how many keys follow it. One more key is at the other word.
    Counted(usize, Option<usize>),
    /// There is no key. The first word behind the name is a channel, which belongs to a slot as a key does.
    Channel,
}

pub(super) const COMMANDS: [(Keys, &str); 10] = [
    (Keys::None, "ECHO PING PUBLISH TIME"),
    (Keys::Channel, "SPUBLISH"),
    (
        Keys::At(1, 1),
        "APPEND BITCOUNT BITFIELD BITFIELD_RO BITPOS DECR DECRBY DUMP EXPIRE EXPIREAT EXPIRETIME \
         GEOADD GEODIST GEOHASH GEOPOS GEOSEARCH GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HEXISTS \
         HEXPIRE HEXPIREAT HEXPIRETIME HGET HGETALL HGETDEL HGETEX HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET \
         HMSET HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HRANDFIELD HSCAN HSET HSETEX HSETNX \
         HSTRLEN HTTL HVALS INCR INCRBY INCRBYFLOAT LINDEX LINSERT LLEN LPOP LPOS LPUSH LPUSHX LRANGE \
         LREM LSET LTRIM PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PSETEX PTTL RESTORE RPOP RPUSH \
         RPUSHX SADD SCARD SET SETBIT SETEX SETNX SETRANGE SISMEMBER SMEMBERS SMISMEMBER SPOP \
         SRANDMEMBER SREM SSCAN STRLEN SUBSTR TTL TYPE XACK XACKDEL XADD XAUTOCLAIM XCLAIM XDEL XDELEX \
         XLEN XPENDING XRANGE XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZINCRBY ZLEXCOUNT ZMSCORE ZPOPMAX \
         ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK \
         ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE",
    ),
    (Keys::At(1, 2), "COPY GEOSEARCHSTORE LCS LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE"),
    (Keys::At(2, 2), "OBJECT XGROUP XINFO"),
    (
        Keys::From(1, 1),
        "DEL EXISTS MGET PFCOUNT PFMERGE SDIFF SDIFFSTORE SINTER SINTERSTORE SUNION SUNIONSTORE TOUCH \
         UNLINK",
    ),
    (Keys::From(1, 2), "MSET MSETNX"),
    (Keys::From(2, 1), "BITOP"),
    (Keys::Counted(1, None), "LMPOP SINTERCARD ZDIFF ZINTER ZINTERCARD ZMPOP ZUNION"),
    (Keys::Counted(2, Some(1)), "ZDIFFSTORE ZINTERSTORE ZUNIONSTORE"),
];

/// The channel of a command that belongs to a slot.
pub(super) fn sharded_channel_of<'a>(words: &[&'a [u8]]) -> Option<&'a [u8]> {
    match words {
        [name, channel, ..] if name.eq_ignore_ascii_case(b"SPUBLISH") => Some(channel),
        _ => None,
    }
}

/// The keys among the words of a command. `None` if they are not known, or if the command is one that
/// no script may run, or that would be another one in a script: one that blocks, say.
pub(super) fn keys_of<'a>(words: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let name = str::from_utf8(words.first()?).ok()?.to_ascii_uppercase();
    let is_there = |(_, names): &&(Keys, &str)| names.split_whitespace().any(|one| one == name);
    let (keys, _) = COMMANDS.iter().find(is_there)?;
    Some(match *keys {
        Keys::None => Vec::new(),
        Keys::Channel => words.get(1).map(|_| Vec::new())?,
        Keys::At(first, last) => words.get(first..=last)?.to_vec(),
        Keys::From(first, step) => words
            .get(first..)
            .filter(|keys| !keys.is_empty())?
            .iter()
            .copied()
            .step_by(step)
            .collect(),
        Keys::Counted(at, target) => {
            let many: usize = str::from_utf8(words.get(at)?).ok()?.parse().ok()?;
            let mut keys = words.get(at + 1..)?.get(..many)?.to_vec();
            keys.extend(target.map(|target| words[target]));
            keys
        }
    })
}
