//! The scripts of the fair lock on a real server, one call at a time.

use redis::{Connection, ConnectionLike, FromRedisValue};

use super::server::Server;
use super::*;

mod server_limits;
mod turns;
mod update;

const LOCK: &str = "lock";
const QUEUE: &str = "queue";
const WAITING: &str = "waiting";
const CHANNEL: &str = "channel";
const TOKEN: &str = "token";
/// A lease, a term and a grace so long that the test ends before the smallest of them.
const LEASE: u64 = 1_000_000;
const TERM: u64 = 900_000;
const GRACE: u64 = 90_000;
const SECOND: u64 = 1_000_000;

#[test]
fn the_keys_of_a_queue_and_the_channels_have_the_tag_of_the_name() {
    const CLIENT: &str = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968";
    for name in ["lock", "{a}b", "x{a}b"] {
        let plain = Names::new("p:", name);
        let names = plain.clone().with_own_channel(CLIENT);
        assert_eq!((names.key(), names.common_channel()), (plain.key(), plain.channel()));
        assert_eq!(plain.common_channel(), plain.channel());
        assert_eq!(names.channel(), format!("{}:{CLIENT}", plain.channel()));
        assert_eq!((names.client(), plain.client()), (CLIENT, ""));
        assert_eq!(names.token_key(), plain.token_key());
        for key in names.queue_keys() {
            assert_eq!(hashed(&key), hashed(names.key()), "{key}");
        }
        assert_eq!(hashed(names.channel()), hashed(names.key()));
    }
    let [one, other] = ["a", "{a}"].map(|name| Names::new("", name).queue_keys());
    assert!(one.iter().all(|key| !other.contains(key)), "each has its own");
    assert_eq!(
        Names::new("", "x").queue_keys(),
        ["redlatch_queue:{x}".to_owned(), "redlatch_waiting:{x}".to_owned()]
    );
}

#[test]
fn a_message_of_a_client_is_told_from_one_of_the_lock_whatever_the_key() {
    const CLIENT: &str = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968";
    let mut keys = vec![String::new()];
    for length in 0..4 {
        let longer = keys.iter().filter(|key| key.chars().count() == length);
        let longer = longer.flat_map(|key| "{}a: ö".chars().map(move |c| format!("{key}{c}")));
        keys.extend(longer.collect::<Vec<_>>());
    }
    for key in &keys {
        let common = Names::new("", key);
        let own = common.clone().with_own_channel(CLIENT);
        assert_eq!(Names::of_client(own.channel(), key), Some(own.clone()), "{key:?}");
        assert_eq!(Names::of_client(common.channel(), key), None, "{key:?}");
        let longer = format!("{}:{CLIENT}", own.channel());
        assert_eq!(Names::of_client(&longer, key), None, "{key:?}");
    }
    // The locks `a` and `{a}` share a channel. No other two do.
    let own = Names::new("", "{}").with_own_channel(CLIENT);
    for key in keys.iter().filter(|key| !["", "{}"].contains(&key.as_str())) {
        assert_eq!(Names::of_client(own.channel(), key), None, "{key:?}");
    }
}

/// What a request says of a client in the queue.
#[derive(Clone, Copy)]
struct Entry<'a> {
    client: &'a str,
    /// In seconds.
    age: Option<u64>,
    ticket: u64,
    mode: &'static str,
    /// How many fencing tokens it wants with a grant.
    tokens: u32,
}

const NO_ENTRY: Entry<'static> =
    Entry { client: "", age: None, ticket: 0, mode: "arriving", tokens: 0 };

/// Of a client that can be granted the lock, and whose first waiter came so many seconds ago.
fn since(client: &str, seconds: u64) -> Entry<'_> {
    Entry { client, age: Some(seconds), ticket: 1, mode: "grant", tokens: 0 }
}

struct Queue {
    redis: Connection,
    listening: Vec<Listening>,
    /// Whether the server counts subscribers.
    counts: bool,
    /// Whether requests have the key of the fencing token.
    fenced: bool,
    server: Server,
}

impl Queue {
    fn new() -> Self {
        let server = Server::start();
        let mut redis = server.connect();
        for (_, script) in SCRIPTS.named() {
            script.load(&mut redis).expect("a script that loads");
        }
        Self { redis, listening: Vec::new(), counts: true, fenced: false, server }
    }

    /// A connection that is subscribed to the channel of a client.
    fn listens(&mut self, client: &str) -> usize {
        let channel = format!("{CHANNEL}:{client}");
        self.listening.push(Listening::new(self.server.connect(), &channel));
        self.listening.len() - 1
    }

    /// The next message on that connection that was published by now.
    fn hears(&mut self, at: usize) -> Option<String> {
        self.listening[at].hears(&mut self.redis)
    }

    fn ask<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        let (verb, args) = command.split_first().unwrap();
        redis::cmd(verb).arg(args).query(&mut self.redis).expect("an answer")
    }

    /// The server's time, in milliseconds.
    fn now(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(&["TIME"]);
        1_000 * seconds + micros / 1_000
    }

    fn run(&mut self, script: &Script, entry: &Entry<'_>, args: &[&dyn ToString]) -> Value {
        let keys = [LOCK, QUEUE, WAITING, TOKEN];
        let mut cmd = evalsha(script, &keys[..if self.fenced { 4 } else { 3 }]);
        let age = entry.age.map_or_else(String::new, |age| (age * SECOND).to_string());
        cmd.arg(entry.client).arg(age).arg(entry.ticket).arg(entry.mode).arg(TERM).arg(GRACE);
        cmd.arg(CHANNEL).arg("PUBLISH").arg(if self.counts { "1" } else { "" });
        cmd.arg(entry.tokens);
        for arg in args {
            cmd.arg(arg.to_string());
        }
        self.redis.req_command(&cmd).expect("an answer")
    }

    fn acquire(&mut self, owner: &str, entry: &Entry<'_>) -> Value {
        self.acquire_as(owner, entry, "")
    }

    /// `of_another` is 1 if the entry is not that of the owner.
    fn acquire_as(&mut self, owner: &str, entry: &Entry<'_>, of_another: &str) -> Value {
        self.run(&SCRIPTS.fair_acquire, entry, &[&owner, &LEASE, &1, &0, &of_another])
    }

    fn is_granted(&mut self, owner: &str, entry: &Entry<'_>) -> bool {
        matches!(&self.acquire(owner, entry), Value::Array(parts) if parts[0] == Value::Nil)
    }

    /// Releases everything of `owner`, whose client has a waiter of that age, if any.
    fn release(&mut self, owner: &str, client: &str, age: Option<u64>) -> Value {
        self.run(&SCRIPTS.fair_release, &Entry { age, ..since(client, 0) }, &[&owner])
    }

    /// Another holder is inside under that owner. Its client has a waiter of that age, if any.
    fn update(&mut self, owner: &str, lease: u64, age: Option<u64>) -> Value {
        let (client, _) = owner.rsplit_once(':').expect("an owner");
        let entry = Entry { age, ..since(client, 0) };
        self.run(&SCRIPTS.fair_update, &entry, &[&owner, &1, &lease, &0, &0])
    }

    /// The client that listens there hears that it has the lock. Returns the owner, and how many
    /// seconds the oldest waiter elsewhere has waited.
    fn granted(&mut self, client: &str, at: usize) -> (String, Option<u64>) {
        let (owner, others, tokens) = self.granted_with_tokens(client, at);
        assert_eq!(tokens.left(), 0, "{client} has tokens");
        (owner, others)
    }

    fn granted_with_tokens(
        &mut self,
        client: &str,
        at: usize,
    ) -> (String, Option<u64>, TokenBlock) {
        let text = self.hears(at).unwrap_or_else(|| panic!("{client} hears nothing"));
        let TurnMessage::Granted { key, at, lease, others, tokens } =
            TurnMessage::of(text.as_bytes())
        else {
            panic!("{client} hears {text}")
        };
        assert_eq!((key, millis(lease)), (LOCK, GRACE));
        let owner = format!("{client}:-{at}");
        assert_eq!(self.ask::<u32>(&["HGET", LOCK, &owner]), 1, "{owner}");
        assert!((1..=GRACE).contains(&self.ask(&["PTTL", LOCK])));
        (owner, u64::try_from(others).ok().map(|age| age / SECOND), tokens)
    }

    /// A waiter of it takes the lock. Returns the owner.
    fn takes(&mut self, client: &str, at: usize) -> String {
        let (owner, _) = self.granted(client, at);
        let reply = self.update(&owner, LEASE, None);
        assert!(matches!(reply, Value::Array(_)), "{reply:?}");
        owner
    }

    fn leave(&mut self, client: &str) -> Value {
        self.leave_up_to(client, 9)
    }

    /// All waiters up to that number have left.
    fn leave_up_to(&mut self, client: &str, last: u64) -> Value {
        self.run(&SCRIPTS.fair_leave, &Entry { client, ticket: last, ..NO_ENTRY }, &[])
    }

    fn order(&mut self) -> Vec<String> {
        self.ask(&["ZRANGE", QUEUE, "0", "-1"])
    }

    fn notified(&mut self) -> Option<String> {
        self.ask(&["HGET", WAITING, "notified"])
    }

    fn assert_nothing_eternal(&mut self) {
        for key in [LOCK, QUEUE, WAITING] {
            assert_ne!(self.ask::<i64>(&["PTTL", key]), -1, "{key}");
        }
    }
}

fn refusal_of(reply: &Value) -> (u64, String) {
    let Value::Array(parts) = reply else { panic!("no refusal: {reply:?}") };
    let (left, holder) = refusal(&parts[0]).expect("a refusal");
    (left.map_or(0, millis), holder.into())
}

#[test]
fn an_entry_is_an_age_and_a_lower_one_moves_it_only_for_a_later_waiter() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    for (client, seconds) in [("x", 1), ("y", 3), ("z", 2)] {
        let (left, holder) =
            refusal_of(&queue.acquire(&format!("{client}:1"), &since(client, seconds)));
        assert!(left > LEASE - 60_000 && holder == "a:1");
    }
    assert_eq!(queue.order(), ["y", "z", "x"]);
    // A request that is sent again says an age that is too low.
    queue.acquire("y:1", &since("y", 0));
    assert_eq!(queue.order(), ["y", "z", "x"]);
    queue.acquire("y:2", &Entry { ticket: 2, ..since("y", 0) });
    assert_eq!(queue.order(), ["z", "x", "y"]);
    // It has overtaken one that was sent before, and one that says that no waiter is left.
    queue.acquire("y:1", &since("y", 3));
    assert_eq!(queue.leave_up_to("y", 1), said(Loss::KeyGone));
    assert_eq!(queue.order(), ["z", "x", "y"]);
    queue.assert_nothing_eternal();
    // Lost with all that the queue had.
    queue.ask::<()>(&["DEL", QUEUE, WAITING]);
    for (client, seconds) in [("x", 1), ("y", 0), ("z", 2)] {
        queue.acquire(&format!("{client}:1"), &since(client, seconds));
    }
    assert_eq!(queue.order(), ["z", "x", "y"]);
    queue.assert_nothing_eternal();
}

#[test]
fn a_refresh_says_what_became_of_each_entry() {
    let mut queue = Queue::new();
    queue.ask::<()>(&["HSET", "held", "a:1", "1"]);
    for name in ["held", "free", "notified", "evicted"] {
        queue.ask::<()>(&["ZADD", &format!("queue:{name}"), "1", "me"]);
    }
    for name in ["held", "free", "notified"] {
        queue.ask::<()>(&["HSET", &format!("waiting:{name}"), "ticket:me", "1"]);
    }
    queue.ask::<()>(&["HSET", "waiting:notified", "notified", "me", "alive:me", "1"]);
    queue.ask::<()>(&["SET", "queue:text", "text"]);
    queue.ask::<()>(&["HSET", "odd", "a:1", "1"]);
    queue.ask::<()>(&["ZADD", "queue:odd", "1", "me"]);
    queue.ask::<()>(&["SET", "waiting:odd", "text"]);
    let names = ["held", "free", "notified", "text", "gone", "odd", "evicted"];
    let keys: Vec<String> = names
        .iter()
        .flat_map(|name| [(*name).to_owned(), format!("queue:{name}"), format!("waiting:{name}")])
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut cmd = evalsha(&SCRIPTS.fair_refresh, &keys);
    cmd.arg("me").arg(TERM);
    let (reply, clock): (Vec<String>, u64) = cmd.query(&mut queue.redis).unwrap();
    assert_eq!(reply, ["OK", "FREE", "FREE", "GONE", "GONE", "GONE", "GONE"]);
    assert!(!queue.ask::<bool>(&["EXISTS", "waiting:evicted"]), "no part of an entry");
    let now = queue.ask::<Vec<u64>>(&["TIME"])[0];
    assert!(now - clock / SECOND <= 2, "the server's clock");
    assert!(queue.ask::<u64>(&["HGET", "waiting:held", "alive:me"]) > TERM);
    assert_eq!(queue.ask::<u64>(&["HGET", "waiting:notified", "alive:me"]), 1, "it must come");
    for key in ["queue:held", "waiting:held", "queue:notified"] {
        assert!(queue.ask::<i64>(&["PTTL", key]) > 0, "{key}");
    }
}

#[test]
fn a_call_drops_at_most_a_hundred_dead_clients() {
    let mut queue = Queue::new();
    for client in 0..250 {
        queue.ask::<()>(&["ZADD", QUEUE, &client.to_string(), &format!("dead:{client}")]);
    }
    for left in [150, 50] {
        let (again, holder) = refusal_of(&queue.acquire("a:1", &NO_ENTRY));
        assert_eq!((again, &*holder), (1, ""));
        assert_eq!(queue.ask::<u32>(&["ZCARD", QUEUE]), left);
    }
    assert!(queue.is_granted("a:1", &NO_ENTRY));
}

#[test]
fn x5_the_last_client_that_hears_it_is_asked_to_go_on_wherever_it_is() {
    for behind in [1, 99, 100, 102, 500] {
        let mut queue = Queue::new();
        assert!(queue.is_granted("a:1", &NO_ENTRY));
        queue.acquire("x:1", &since("x", 2));
        let x = queue.listens("x");
        // Long before, and long after it.
        let dead = (0..150)
            .map(|n| n.to_string())
            .chain((0..behind).map(|n| (9_000_000_000_000_000_u64 + n as u64).to_string()));
        for (n, score) in dead.enumerate() {
            queue.ask::<()>(&["ZADD", QUEUE, &score, &format!("dead:{n}")]);
        }
        assert_eq!(queue.release("a:1", "a", None), Value::Int(0));
        assert_eq!(queue.hears(x), Some("1".to_owned()), "{behind} dead behind it");
        assert_eq!(queue.order().len(), 50 + 1 + behind);
    }
}

#[test]
fn a_hash_that_is_no_lock_is_refused_and_stays() {
    let mut queue = Queue::new();
    queue.ask::<()>(&["HSET", LOCK, "field", "1", "other", "2"]);
    let force = queue.run(&SCRIPTS.fair_force_unlock, &NO_ENTRY, &[]);
    for refused in [queue.acquire("a:1", &since("a", 1)), force] {
        let Value::ServerError(error) = refused else { panic!("{refused:?}") };
        let says = (error.code(), error.details());
        assert_eq!(says, ("WRONGTYPE", Some("the hash is not a lock")));
    }
    assert_eq!(queue.release("a:1", "a", None), said(Loss::KeyGone));
    assert_eq!(queue.update("a:1", LEASE, None), said(Loss::KeyGone));
    assert_eq!(queue.ask::<u32>(&["DBSIZE"]), 1);
}

/// An operator has withdrawn the right while the lock was held: it is free all the same, and the script says so.
#[test]
fn a_release_is_published_though_the_user_may_not_look_at_the_queue() {
    let mut queue = Queue::new();
    for by_force in [false, true] {
        assert!(queue.is_granted("a:1", &NO_ENTRY));
        queue.ask::<()>(&["ACL", "SETUSER", "default", "-exists"]);
        let reply = match by_force {
            true => queue.run(&SCRIPTS.fair_force_unlock, &NO_ENTRY, &[]),
            false => queue.release("a:1", "a", None),
        };
        assert_eq!(reply, Value::Int(0), "nobody listens");
        queue.ask::<()>(&["ACL", "SETUSER", "default", "+exists"]);
        assert_eq!(queue.ask::<u32>(&["DBSIZE"]), 0);
    }
}

#[test]
fn a_nested_hold_needs_its_outer_one_and_passes_everybody() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.acquire("x:1", &since("x", 1));
    let nested: [&dyn ToString; 5] = [&"a:1", &LEASE, &2, &0, &""];
    assert_eq!(queue.run(&SCRIPTS.fair_acquire, &NO_ENTRY, &nested), Value::Nil);
    assert_eq!(queue.ask::<u32>(&["HGET", LOCK, "a:1"]), 2);
    let x = queue.listens("x");
    assert!(matches!(queue.update("a:1", 500_000, None), Value::Array(_)));
    assert_eq!(queue.ask::<u32>(&["HGET", LOCK, "a:1"]), 1);
    assert_eq!(queue.hears(x).as_deref(), Some("500001"), "the lease is shorter now");
    queue.ask::<()>(&["DEL", LOCK]);
    assert_eq!(queue.run(&SCRIPTS.fair_acquire, &NO_ENTRY, &nested), said(Loss::KeyGone));
}
