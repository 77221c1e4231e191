use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::{Connection, ConnectionLike, RedisResult};

use super::replies::refusal;
use super::*;

mod batch;
mod commands;
mod fair;
mod headers;
mod listening;
mod read_write;
mod server;
mod texts;
mod update;

use crate::tests::naive::{Held, Naive};
use listening::Listening;
use server::Server;

#[test]
fn a_channel_is_named_as_redisson_names_it() {
    for (prefix, name, key, channel) in [
        ("", "myLock", "myLock", "redisson_lock__channel:{myLock}"),
        ("", "{x}y", "{x}y", "redisson_lock__channel:{x}y"),
        ("", "a}b", "a}b", "redisson_lock__channel:{a}b}"),
        // One brace is enough, even if it makes no tag.
        ("", "a{b", "a{b", "redisson_lock__channel:a{b"),
        ("", "{}", "{}", "redisson_lock__channel:{}"),
        ("app:", "myLock", "app:myLock", "redisson_lock__channel:{app:myLock}"),
        ("{app}:", "myLock", "{app}:myLock", "redisson_lock__channel:{app}:myLock"),
        ("app:", "{x}y", "app:{x}y", "redisson_lock__channel:app:{x}y"),
        ("", "Köln 🔒\r\n", "Köln 🔒\r\n", "redisson_lock__channel:{Köln 🔒\r\n}"),
    ] {
        let names = Names::new(prefix, name);
        assert_eq!((names.key(), names.channel()), (key, channel), "{prefix:?} {name:?}");
        let token = channel.replacen("redisson_lock__channel:", "redisson_lock_token:", 1);
        assert_eq!(names.token_key(), token, "{prefix:?} {name:?}");
    }
}

/// The part of a key that decides on its cluster slot.
fn hashed(key: &str) -> &str {
    key.split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key)
}

proptest! {
    #[test]
    fn t7_the_keys_of_a_lock_share_a_cluster_slot(
        prefix in "[a-z:]{0,3}",
        plain in "[^{}]{1,8}",
        tag in "[^{}]{1,4}",
        rest in "[^{}]{0,4}",
    ) {
        for name in [plain.clone(), format!("{{{tag}}}{rest}"), format!("{plain}{{{tag}}}{rest}")] {
            let names = Names::new(&prefix, &name);
            prop_assert_eq!(hashed(names.channel()), hashed(names.key()));
            let token = names.token_key();
            prop_assert_eq!(hashed(&token), hashed(names.key()));
            prop_assert_eq!(names.key(), format!("{prefix}{name}"));
        }
    }
}

#[test]
fn a_lease_travels_as_whole_milliseconds_and_never_as_none() {
    for (lease, arg) in [
        (Duration::from_secs(30), 30_000),
        (Duration::from_millis(1), 1),
        (Duration::ZERO, 1),
        (Duration::MAX, u64::MAX),
    ] {
        assert_eq!(millis(lease), arg, "{lease:?}");
    }
}

#[test]
fn every_script_loads_under_the_digest_by_which_it_is_called() {
    let server = Server::start();
    let mut redis = server.connect();
    for (name, script) in SCRIPTS.named() {
        match script.load(&mut redis) {
            Ok(digest) => assert_eq!(digest, script.get_hash(), "{name}"),
            Err(error) => panic!("{name}.lua does not load: {error}"),
        }
    }
}

/// A lease so long that the test ends before the smallest of them.
const LONG: u64 = 1_000_000;
const KEY: &str = "lock";
const OWNERS: [&str; 3] = ["us:1", "them:1", "us:-2"];

#[derive(Debug, Clone)]
enum Op {
    Acquire { owner: usize, lease: u64, count: u32 },
    Release { owner: usize, lease: u64, count: u32 },
    Renew { owner: usize, lease: u64 },
    Update { owner: usize, lease: u64, count: u32 },
    ForceUnlock,
    Expire,
    Persist,
}

fn op() -> impl Strategy<Value = Op> {
    let (owner, lease) = (0..OWNERS.len(), (1..4u64).prop_map(|many| many * LONG));
    let args = (owner, lease, 0..4u32);
    let [acquire, release, renew, update] = [args.clone(), args.clone(), args.clone(), args];
    prop_oneof![
        6 => acquire.prop_map(|(owner, lease, c)| Op::Acquire { owner, lease, count: c.max(1) }),
        4 => release.prop_map(|(owner, lease, count)| Op::Release { owner, lease, count }),
        2 => renew.prop_map(|(owner, lease, _)| Op::Renew { owner, lease }),
        3 => update.prop_map(|(owner, lease, c)| Op::Update { owner, lease, count: c.max(1) }),
        1 => Just(Op::ForceUnlock),
        1 => Just(Op::Expire),
        1 => Just(Op::Persist),
    ]
}

/// A loss as the scripts say it.
fn said(loss: Loss) -> Value {
    Value::SimpleString(if loss == Loss::TakenOver { "TAKEN" } else { "GONE" }.into())
}

struct Both<'a> {
    redis: &'a mut Connection,
    naive: Naive,
}

impl Both<'_> {
    fn ask(&mut self, script: &Script, args: &[&dyn ToString]) -> Value {
        let mut cmd = evalsha(script, &[KEY]);
        for arg in args {
            cmd.arg(arg.to_string());
        }
        self.redis.req_command(&cmd).expect("an answer")
    }

    fn run(&mut self, op: &Op) {
        let scripts = &*SCRIPTS;
        match *op {
            Op::Acquire { owner, lease, count } => {
                let reply = self.ask(&scripts.acquire, &[&OWNERS[owner], &lease, &count]);
                let reply = match reply {
                    Value::Nil => Acquired::Granted(TokenBlock::default()),
                    Value::SimpleString(gone) if gone == "GONE" => Acquired::Gone(Loss::KeyGone),
                    Value::SimpleString(taken) if taken == "TAKEN" => {
                        Acquired::Gone(Loss::TakenOver)
                    }
                    other => {
                        let (remaining, holder) = refusal(&other).expect("a refusal");
                        // No time passes in the model.
                        let round = |lease: Duration| u64::try_from(lease.as_millis()).unwrap();
                        let round = |lease| round(lease).next_multiple_of(LONG);
                        let remaining = remaining.map(|lease| Duration::from_millis(round(lease)));
                        Acquired::Refused { remaining, holder, repeated: false }
                    }
                };
                assert_eq!(reply, self.naive.acquire(OWNERS[owner], lease, count, 0));
            }
            Op::Release { owner, lease, count } => {
                let released = self.naive.release(OWNERS[owner], count, lease, 0);
                let reply = match released {
                    Released::Nothing(loss) => said(loss),
                    Released::CountLowered => Value::Array(vec![Value::Int(0), Value::Int(0)]),
                    Released::Freed { receivers } => Value::Int(receivers.into()),
                };
                let asked = if count == 0 {
                    self.ask(&scripts.release, &[&OWNERS[owner], &"channel", &"PUBLISH"])
                } else {
                    self.update(OWNERS[owner], count, lease)
                };
                assert_eq!(asked, reply);
            }
            Op::Renew { owner, lease } => {
                let held = self.naive.renew(OWNERS[owner], lease, 0);
                let reply = Value::Array(vec![held.map_or_else(said, |()| Value::Okay)]);
                assert_eq!(self.ask(&scripts.renew, &[&lease, &OWNERS[owner]]), reply);
            }
            Op::Update { owner, lease, count } => {
                let reply = match self.naive.update(OWNERS[owner], count, lease, 0) {
                    Ok(()) => Value::Array(vec![Value::Int(0), Value::Int(0)]),
                    Err(loss) => said(loss),
                };
                assert_eq!(self.update(OWNERS[owner], count, lease), reply);
            }
            Op::ForceUnlock => {
                let held = self.naive.lock.take().is_some();
                let reply = self.ask(&scripts.force_unlock, &[&"channel", &"PUBLISH"]);
                assert_eq!(reply, if held { Value::Int(0) } else { said(Loss::KeyGone) });
            }
            Op::Expire => {
                self.naive.lock = None;
                redis::cmd("PEXPIRE").arg(KEY).arg(0).exec(self.redis).unwrap();
            }
            Op::Persist => {
                if let Some(held) = &mut self.naive.lock {
                    held.ends = None;
                }
                redis::cmd("PERSIST").arg(KEY).exec(self.redis).unwrap();
            }
        }
        assert_eq!(self.look().expect("a look at the key"), self.naive.lock);
        self.inspect();
    }

    fn update(&mut self, owner: &str, count: u32, lease: u64) -> Value {
        let args: [&dyn ToString; 8] =
            [&owner, &count, &lease, &0, &"channel", &"NUMSUB", &"PUBLISH", &0];
        self.ask(&SCRIPTS.update, &args)
    }

    /// The script by which the crate looks sees the same.
    fn inspect(&mut self) {
        for owner in OWNERS {
            let reply = match self.ask(&SCRIPTS.inspect, &[&owner]) {
                Value::Nil => None,
                reply => Some(inspect::inspected(&reply).expect("a lock")),
            };
            let held = self.naive.lock.as_ref().map(|held| Inspected {
                // Not to the millisecond: time passes on the server.
                remaining: held.ends.map(|_| reply.as_ref().unwrap().remaining.unwrap()),
                count: if *held.owner == *owner { held.count } else { 0 },
                holder: held.owner.clone(),
                mode: None,
            });
            assert_eq!(reply, held);
        }
    }

    fn look(&mut self) -> RedisResult<Option<Held>> {
        let fields: Vec<(String, u32)> = redis::cmd("HGETALL").arg(KEY).query(self.redis)?;
        let ttl: i64 = redis::cmd("PTTL").arg(KEY).query(self.redis)?;
        assert!(fields.len() <= 1, "two owners at once: {fields:?}");
        Ok(fields.first().map(|(owner, count)| Held {
            owner: owner.as_str().into(),
            count: *count,
            ends: u64::try_from(ttl).ok().map(|ttl| ttl.next_multiple_of(LONG)),
        }))
    }
}

#[test]
fn the_scripts_do_on_a_real_server_what_the_naive_model_does() {
    let server = Server::start();
    let mut redis = server.connect();
    for (_, script) in SCRIPTS.named() {
        script.load(&mut redis).expect("a script that loads");
    }
    let result = TestRunner::default().run(&prop::collection::vec(op(), 1..20), |ops| {
        redis::cmd("FLUSHALL").exec(&mut server.connect()).unwrap();
        let mut both = Both { redis: &mut server.connect(), naive: Naive::default() };
        for op in &ops {
            both.run(op);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn a_batch_of_renewals_judges_each_lock_on_its_own() {
    let server = Server::start();
    let mut redis = server.connect();
    SCRIPTS.renew.load(&mut redis).unwrap();
    let mut held = redis::pipe();
    held.hset("ours", "us", 1)
        .pexpire("ours", 5000)
        .hset("theirs", "them:1", 1)
        .pexpire("theirs", 5000);
    held.set("no lock", "text").hset("eternal", "us", 2).hset("longer", "us", 1);
    held.hset("data", "name", "bob").hset("two", "us", 1).hset("two", "them:1", 1);
    held.pexpire("longer", 9_000_000).exec(&mut redis).unwrap();

    let keys = ["ours", "theirs", "no lock", "data", "two", "absent", "eternal", "longer"];
    let mut cmd = evalsha(&SCRIPTS.renew, &keys);
    cmd.arg(1_000_000);
    for _ in keys {
        cmd.arg("us");
    }
    let reply: Vec<String> = cmd.query(&mut redis).unwrap();
    assert_eq!(reply, ["OK", "TAKEN", "GONE", "GONE", "GONE", "GONE", "OK", "OK"]);
    let ttl = |key: &str, redis: &mut Connection| -> i64 {
        redis::cmd("PTTL").arg(key).query(redis).unwrap()
    };
    assert!((900_000..=1_000_000).contains(&ttl("ours", &mut redis)));
    assert!(ttl("theirs", &mut redis) <= 5000, "another owner's lease was changed");
    assert_eq!(ttl("absent", &mut redis), -2, "a lock was created");
    assert!((900_000..=1_000_000).contains(&ttl("eternal", &mut redis)));
    assert!(ttl("longer", &mut redis) > 1_000_000, "a lease was shortened");
}
