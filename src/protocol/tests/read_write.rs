//! The scripts of the read-write lock on a real server, beside a model of the lock and its queue.

use std::collections::BTreeMap;

use redis::{Connection, ConnectionLike, FromRedisValue};

use super::super::read_write::{Reader, readers};
use super::server::Server;
use super::*;

mod beside;
mod life;
mod model;
mod tokens;
use model::Model;

const LOCK: &str = "lock";
const QUEUE: &str = "queue";
const WAITING: &str = "waiting";
const TOKEN: &str = "token";
const CHANNEL: &str = "channel";
/// Leases, a term and a grace so long that the test ends before the smallest of them.
const LEASE: u64 = 1_000_000;
const TERM: u64 = 900_000;
const GRACE: u64 = 90_000;

#[test]
fn the_keys_of_a_read_write_lock_are_those_of_redisson() {
    const CLIENT: &str = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968";
    for (name, tagged) in
        [("config", "{config}"), ("{a}b", "{a}b"), ("{test}:abc:key", "{test}:abc:key")]
    {
        let names = Names::of_read_write("", name, CLIENT);
        assert_eq!((names.key(), names.is_in_order()), (name, true));
        assert_eq!(names.common_channel(), format!("redisson_rwlock:{tagged}"));
        assert_eq!(names.channel(), format!("redisson_rwlock:{tagged}:{CLIENT}"));
        assert_eq!(names.client(), CLIENT);
        let marker = names.marker_key("x:7", 2);
        assert_eq!(marker, format!("{tagged}:x:7:rwlock_timeout:2"));
        let plain = Names::new("", name).with_own_channel(CLIENT);
        assert!(names.queue_keys().iter().all(|key| !plain.queue_keys().contains(key)));
        for key in
            names.queue_keys().iter().chain([&marker]).map(String::as_str).chain([names.channel()])
        {
            assert_eq!(hashed(key), hashed(name), "{key}");
        }
        assert_ne!(names, plain);
    }
}

fn marker(owner: &str) -> String {
    format!("{LOCK}:{owner}:rwlock_timeout:1")
}

/// The oldest waiter of a client.
#[derive(Clone, Copy, Debug)]
struct Came {
    /// In seconds: higher came later.
    at: u64,
    ticket: u64,
    writes: bool,
    /// When the oldest waiter of its client came that wants to write: this one, or one behind it.
    writer: Option<u64>,
}

impl Came {
    fn new(at: u64, ticket: u64, writes: bool) -> Self {
        Self { at, ticket, writes, writer: writes.then_some(at) }
    }
}

/// One request for the lock.
#[derive(Clone, Debug)]
struct Ask {
    client: usize,
    owner: String,
    writes: bool,
    came: Option<Came>,
    count: u32,
    in_turn: bool,
    /// The other side of its handle.
    beside: Option<String>,
    /// How many fencing tokens it draws; one for a reader is the last one.
    tokens: u32,
    /// In milliseconds.
    lease: u64,
}

impl Ask {
    /// For a first hold, of a call that does not wait.
    fn once(client: usize, owner: &str) -> Self {
        let (owner, writes) = (owner.to_owned(), owner.ends_with(":write"));
        Self {
            client,
            owner,
            writes,
            came: None,
            count: 1,
            in_turn: false,
            beside: None,
            tokens: 0,
            lease: LEASE,
        }
    }

    fn beside(self, other: &str) -> Self {
        Self { beside: Some(other.to_owned()), ..self }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Granted,
    Refused,
    Gone,
    Taken,
}

/// What a request says of its client.
struct Says {
    client: usize,
    came: Option<Came>,
    /// If no waiter is there, no lower one than all before.
    ticket: u64,
}

impl Says {
    fn mode(&self) -> &'static str {
        self.came.map_or("arriving", |came| if came.writes { "write" } else { "read" })
    }
}

struct Real {
    redis: Connection,
    /// The token that came with the last grant.
    granted: Option<u64>,
    counts: bool,
    /// The time by which ages are computed, in seconds.
    now: u64,
    server: Server,
}

impl Real {
    fn new() -> Self {
        let server = Server::start();
        let mut redis = server.connect();
        for (_, script) in SCRIPTS.named() {
            script.load(&mut redis).expect("a script that loads");
        }
        Self { redis, granted: None, counts: false, now: 100_000, server }
    }

    fn query<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        let (verb, args) = command.split_first().unwrap();
        redis::cmd(verb).arg(args).query(&mut self.redis).expect("an answer")
    }

    fn run(&mut self, script: &Script, says: &Says, keys: &[String], args: &[String]) -> Value {
        self.run_as(says.mode(), 0, script, says, keys, args)
    }

    /// `tokens`: with so many, the last of the keys is that of the fencing token.
    fn run_as(
        &mut self,
        mode: &str,
        tokens: u32,
        script: &Script,
        says: &Says,
        keys: &[String],
        args: &[String],
    ) -> Value {
        let all = [LOCK, QUEUE, WAITING].into_iter().chain(keys.iter().map(String::as_str));
        let mut cmd = evalsha(script, &all.collect::<Vec<_>>());
        let age = self.age(says.came.map(|came| came.at));
        let ticket = says.came.map_or(says.ticket, |came| came.ticket);
        cmd.arg(format!("c{}", says.client)).arg(age).arg(ticket).arg(mode).arg(TERM).arg(GRACE);
        cmd.arg(CHANNEL).arg("PUBLISH").arg(if self.counts { "1" } else { "" });
        cmd.arg(tokens).arg(args);
        self.redis.req_command(&cmd).expect("an answer")
    }

    /// In microseconds, if there is one that came at that time.
    fn age(&self, came: Option<u64>) -> String {
        came.map_or_else(String::new, |came| ((self.now - came) * 1_000_000).to_string())
    }

    fn ask_once(&mut self, ask: &Ask, looks_at: &[Reader]) -> Value {
        let reader = if ask.writes { ask.beside.as_ref() } else { Some(&ask.owner) };
        let mut keys: Vec<_> = reader.map(|reader| marker(reader)).into_iter().collect();
        let mode = if ask.writes { "write" } else { "read" };
        let flag = |flag| if flag { "1" } else { "" }.to_owned();
        let mut args = vec![ask.owner.clone(), ask.lease.to_string(), ask.count.to_string()];
        args.extend([mode.to_owned(), String::new(), flag(ask.in_turn)]);
        args.push(ask.beside.clone().unwrap_or_default());
        args.push(self.age(ask.came.and_then(|came| came.writer)));
        for (reader, count) in looks_at {
            keys.push(marker(reader));
            args.extend([reader.clone(), count.to_string()]);
        }
        if ask.tokens > 0 {
            keys.push(TOKEN.to_owned());
        }
        let says = Says { client: ask.client, came: ask.came, ticket: 0 };
        self.run_as(says.mode(), ask.tokens, &SCRIPTS.rw_acquire, &says, &keys, &args)
    }

    fn ask(&mut self, ask: &Ask) -> Reply {
        self.granted = None;
        let mut reply = self.ask_once(ask, &[]);
        let mut named = readers(&reply);
        named.retain(|(reader, _)| ask.beside.as_ref() != Some(reader));
        if !named.is_empty() {
            reply = self.ask_once(ask, &named);
            assert!(readers(&reply).is_empty(), "it has looked");
        }
        match &reply {
            Value::Nil => Reply::Granted,
            Value::Array(parts) if !matches!(parts[0], Value::Array(_)) => {
                self.granted = redis::from_redis_value_ref(&parts[0]).expect("a token, or none");
                Reply::Granted
            }
            Value::Array(parts) => {
                let (left, _) = refusal(&parts[0]).expect("a refusal");
                assert!(left.is_some_and(|left| !left.is_zero()), "{reply:?}");
                Reply::Refused
            }
            other => match loss_of(other).unwrap_or_else(|| panic!("{other:?}")) {
                Loss::KeyGone => Reply::Gone,
                _ => Reply::Taken,
            },
        }
    }

    fn release(&mut self, owner: &str, says: &Says) -> Value {
        self.release_with(owner, says, None)
    }

    /// `ahead`: the last token that was drawn, and the one that was used last.
    fn release_with(&mut self, owner: &str, says: &Says, ahead: Option<(u64, u64)>) -> Value {
        let marker = (!owner.ends_with(":write")).then(|| marker(owner));
        let keys: Vec<_> = marker.into_iter().chain(ahead.map(|_| TOKEN.to_owned())).collect();
        let writer = self.age(says.came.and_then(|came| came.writer));
        let mut args = vec![owner.to_owned(), writer];
        args.extend(
            ahead.into_iter().flat_map(|(last, used)| [last.to_string(), used.to_string()]),
        );
        self.run(&SCRIPTS.rw_release, says, &keys, &args)
    }

    /// The last token, as the server has it.
    fn counter(&mut self) -> Option<u64> {
        self.query(&["GET", TOKEN])
    }

    fn hash(&mut self) -> BTreeMap<String, String> {
        self.query(&["HGETALL", LOCK])
    }

    fn order(&mut self) -> Vec<String> {
        self.query(&["ZRANGE", QUEUE, "0", "-1"])
    }

    fn assert_nothing_eternal(&mut self) {
        let keys = self.query::<Vec<String>>(&["KEYS", "*"]);
        for key in keys.into_iter().filter(|key| key != TOKEN) {
            assert!(self.query::<i64>(&["PTTL", &key]) > 0, "{key}");
        }
    }
}
