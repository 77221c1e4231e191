//! The scripts of the read-write lock on a real server, beside a model of the lock and its queue.

use std::collections::BTreeMap;

use redis::{Connection, ConnectionLike, FromRedisValue};

use super::super::read_write::{Reader, readers};
use super::server::Server;
use super::*;

mod model;
use model::Model;

const LOCK: &str = "lock";
const QUEUE: &str = "queue";
const WAITING: &str = "waiting";
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
    format!("marker:{owner}")
}

/// The oldest waiter of a client.
#[derive(Clone, Copy, Debug)]
struct Came {
    /// In seconds: higher came later.
    at: u64,
    ticket: u64,
    writes: bool,
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
    /// Of the last waiter that has left, if none is there.
    ticket: u64,
}

struct Real {
    redis: Connection,
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
        Self { redis, counts: false, now: 100_000, server }
    }

    fn query<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        let (verb, args) = command.split_first().unwrap();
        redis::cmd(verb).arg(args).query(&mut self.redis).expect("an answer")
    }

    fn run(&mut self, script: &Script, says: &Says, keys: &[String], args: &[String]) -> Value {
        let all = [LOCK, QUEUE, WAITING].into_iter().chain(keys.iter().map(String::as_str));
        let mut cmd = evalsha(script, &all.collect::<Vec<_>>());
        let age = says
            .came
            .map_or_else(String::new, |came| ((self.now - came.at) * 1_000_000).to_string());
        let mode = says.came.map_or("arriving", |came| if came.writes { "write" } else { "read" });
        let ticket = says.came.map_or(says.ticket, |came| came.ticket);
        cmd.arg(format!("c{}", says.client)).arg(age).arg(ticket).arg(mode).arg(TERM).arg(GRACE);
        cmd.arg(CHANNEL).arg("PUBLISH").arg(if self.counts { "1" } else { "" }).arg(0).arg(args);
        self.redis.req_command(&cmd).expect("an answer")
    }

    fn ask_once(&mut self, ask: &Ask, looks_at: &[Reader]) -> Value {
        let mut keys = if ask.writes { vec![] } else { vec![marker(&ask.owner)] };
        let mode = if ask.writes { "write" } else { "read" };
        let flag = |flag| if flag { "1" } else { "" }.to_owned();
        let mut args = vec![ask.owner.clone(), LEASE.to_string(), ask.count.to_string()];
        args.extend([mode.to_owned(), String::new(), flag(ask.in_turn)]);
        for (reader, count) in looks_at {
            keys.push(marker(reader));
            args.extend([reader.clone(), count.to_string()]);
        }
        let says = Says { client: ask.client, came: ask.came, ticket: 0 };
        self.run(&SCRIPTS.rw_acquire, &says, &keys, &args)
    }

    fn ask(&mut self, ask: &Ask) -> Reply {
        let mut reply = self.ask_once(ask, &[]);
        let named = readers(&reply);
        if !named.is_empty() {
            reply = self.ask_once(ask, &named);
            assert!(readers(&reply).is_empty(), "it has looked");
        }
        match &reply {
            Value::Nil => Reply::Granted,
            Value::Array(parts) if parts[0] == Value::Nil => Reply::Granted,
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
        let keys: Vec<_> =
            (!owner.ends_with(":write")).then(|| marker(owner)).into_iter().collect();
        self.run(&SCRIPTS.rw_release, says, &keys, &[owner.to_owned()])
    }

    fn hash(&mut self) -> BTreeMap<String, String> {
        self.query(&["HGETALL", LOCK])
    }

    fn order(&mut self) -> Vec<String> {
        self.query(&["ZRANGE", QUEUE, "0", "-1"])
    }

    fn assert_nothing_eternal(&mut self) {
        for key in self.query::<Vec<String>>(&["KEYS", "*"]) {
            assert!(self.query::<i64>(&["PTTL", &key]) > 0, "{key}");
        }
    }
}

/// What the clients of a random life know.
#[derive(Default)]
struct Client {
    /// Its oldest waiter, with the owner that it asks for.
    waits: Option<(Came, String)>,
    holds: Vec<String>,
    ended: Vec<String>,
    last_ticket: u64,
}

const CLIENTS: usize = 4;

/// Random steps, one in five of them sent twice: each reply, the hash and the queue are as the model says.
fn live(real: &mut Real, steps: u32, random: &mut impl FnMut(u64) -> u64) -> [u32; 2] {
    let (mut model, mut clients, mut number, mut clock) =
        (Model::default(), [(); CLIENTS].map(|()| Client::default()), 0, 0);
    let mut granted = [0; 2];
    real.query::<()>(&["FLUSHALL"]);
    for step in 0..steps {
        let client = random(CLIENTS as u64) as usize;
        let me = &mut clients[client];
        let owner = |writes, number: &mut u64| {
            *number += 1;
            format!("c{client}:{number}{}", if writes { ":write" } else { "" })
        };
        let twice = random(5) == 0;
        clock += 1;
        match random(12) {
            0..5 => {
                let (came, owner) = me.waits.clone().unwrap_or_else(|| {
                    me.last_ticket += 1;
                    let writes = random(3) == 0;
                    let came = Came { at: clock, ticket: me.last_ticket, writes };
                    (came, owner(writes, &mut number))
                });
                let ask = Ask {
                    client,
                    owner: owner.clone(),
                    writes: came.writes,
                    came: Some(came),
                    count: 1,
                    in_turn: false,
                };
                let (said, expected) = (real.ask(&ask), model.ask(&ask));
                assert_eq!(said, expected, "step {step}: {ask:?}");
                if twice {
                    assert_eq!(real.ask(&ask), model.ask(&ask), "step {step} again: {ask:?}");
                }
                me.waits = (said == Reply::Refused).then(|| (came, owner.clone()));
                if said == Reply::Granted {
                    granted[usize::from(came.writes)] += 1;
                    me.holds.push(owner);
                }
            }
            5 => {
                let writes = random(2) == 0;
                let ask = Ask {
                    client,
                    owner: owner(writes, &mut number),
                    writes,
                    came: None,
                    count: 1,
                    in_turn: false,
                };
                let said = real.ask(&ask);
                assert_eq!(said, model.ask(&ask), "step {step}: {ask:?}");
                if said == Reply::Granted {
                    me.holds.push(ask.owner);
                }
            }
            // A nested hold, of an owner that may have ended.
            6 => {
                let all: Vec<_> = me.holds.iter().chain(&me.ended).cloned().collect();
                let Some(owner) = all.get(random(all.len().max(1) as u64) as usize) else {
                    continue;
                };
                let writes = owner.ends_with(":write");
                let in_turn = !writes && random(2) == 0;
                let came =
                    me.waits.as_ref().map(|(came, _)| *came).filter(|came| in_turn && !came.writes);
                let count = if writes { 2 + random(2) as u32 } else { 2 };
                let ask = Ask { client, owner: owner.clone(), writes, came, count, in_turn };
                let said = real.ask(&ask);
                assert_eq!(said, model.ask(&ask), "step {step}: {ask:?}");
                if said == Reply::Granted && came.is_some() {
                    me.waits = None;
                }
                if twice && said != Reply::Granted {
                    assert_eq!(real.ask(&ask), model.ask(&ask), "step {step} again: {ask:?}");
                }
            }
            7 => {
                let Some((came, _)) = me.waits.take() else { continue };
                let says = Says { client, came: None, ticket: came.ticket };
                let _ = real.run(&SCRIPTS.rw_leave, &says, &[], &[]);
                model.enter(client, None, came.ticket);
            }
            8..11 => {
                let all: Vec<_> = me.holds.iter().chain(me.ended.iter().take(1)).cloned().collect();
                let Some(owner) = all.get(random(all.len().max(1) as u64) as usize) else {
                    continue;
                };
                let came = me.waits.as_ref().map(|(came, _)| *came);
                let says = Says { client, came, ticket: me.last_ticket };
                for _ in 0..=u8::from(twice) {
                    assert_eq!(
                        real.release(owner, &says),
                        model.release(owner, &says),
                        "step {step}: {owner}"
                    );
                }
                me.holds.retain(|hold| hold != owner);
                me.ended.push(owner.clone());
            }
            _ if random(4) == 0 => {
                let says = Says { client, came: None, ticket: 0 };
                let freed = real.run(&SCRIPTS.rw_force_unlock, &says, &[], &[]);
                assert_eq!(matches!(freed, Value::Int(_)), model.mode().is_some(), "step {step}");
                model.owners.clear();
                model.dead.clear();
            }
            // A reader dies: its marker ends, and its field stays.
            _ => {
                let mut readers = model.owners.keys().filter(|owner| !owner.ends_with(":write"));
                let Some(dies) = readers.find(|owner| !model.dead.contains(owner)).cloned() else {
                    continue;
                };
                real.query::<()>(&["DEL", &marker(&dies)]);
                clients.iter_mut().for_each(|client| client.holds.retain(|hold| *hold != dies));
                model.dead.push(dies);
            }
        }
        assert_eq!(real.hash(), model.hash(), "step {step}");
        let order: Vec<_> = model.queue.iter().map(|(client, _)| format!("c{client}")).collect();
        assert_eq!(real.order(), order, "step {step}");
        for owner in model
            .owners
            .keys()
            .filter(|owner| !owner.ends_with(":write") && !model.dead.contains(owner))
        {
            assert!(real.query::<bool>(&["EXISTS", &marker(owner)]), "step {step}: {owner}");
        }
        if step % 50 == 0 {
            real.assert_nothing_eternal();
        }
    }
    granted
}

#[test]
fn the_scripts_of_the_read_write_lock_do_what_a_naive_lock_does() {
    let mut real = Real::new();
    let mut total = [0; 2];
    for seed in 1..=20_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let granted = live(&mut real, 400, &mut random);
        for (total, granted) in total.iter_mut().zip(granted) {
            *total += granted;
        }
    }
    assert!(total[0] > 200 && total[1] > 100, "{total:?}: few grants");
}

/// The server evicts what is known of the waiting clients, and leaves their queue.
#[test]
fn a_client_of_which_the_server_has_kept_a_part_is_notified_and_never_granted_the_lock() {
    let mut real = Real { counts: true, ..Real::new() };
    let ask = |client: usize, at| {
        let came = Some(Came { at, ticket: 1, writes: true });
        let owner = format!("c{client}:1:write");
        Ask { client, owner, writes: true, came, count: 1, in_turn: false }
    };
    let (holds, waits) = (ask(0, 1), ask(1, 2));
    assert_eq!((real.ask(&holds), real.ask(&waits)), (Reply::Granted, Reply::Refused));
    let mut listener = real.server.connect();
    let mut listener = listener.as_pubsub();
    listener.subscribe(format!("{CHANNEL}:c1")).unwrap();
    for alive in [false, true] {
        real.query::<()>(&["DEL", WAITING]);
        if alive {
            let until = "9000000000000000";
            real.query::<()>(&["HSET", WAITING, "alive:c1", until]);
        }
        let says = Says { client: 0, came: None, ticket: 1 };
        real.release(&holds.owner, &says);
        assert_eq!(real.hash(), BTreeMap::new(), "no grant: only one that asks may have it");
        assert_eq!(real.ask(&waits), Reply::Granted);
        real.release(&waits.owner, &Says { client: 1, came: None, ticket: 1 });
        assert_eq!((real.ask(&holds), real.ask(&waits)), (Reply::Granted, Reply::Refused));
    }
}
