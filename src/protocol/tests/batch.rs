//! Compares batched requests with the same requests one by one.

use super::*;

/// One request, as its own script and the batch script want it.
#[derive(Debug, Clone)]
struct Part {
    verb: &'static str,
    keys: Vec<String>,
    args: Vec<String>,
}

/// About few locks, so that requests meet at the same one.
fn part() -> impl Strategy<Value = Part> {
    let args = (0..5usize, 0..OWNERS.len(), 1..4u64, 0..4u32, 0..3u8);
    args.prop_map(|(name, owner, lease, count, verb)| {
        let (owner, lease) = (OWNERS[owner].to_owned(), (lease * LONG).to_string());
        let (lock, token) = (format!("lock:{name}"), format!("token:{name}"));
        let (verb, keys, args) = match verb {
            0 => ("acquire", vec![lock], vec![owner, lease, count.max(1).to_string()]),
            // Only a first hold asks for a token.
            1 => (
                "fenced",
                vec![lock, token],
                vec![owner, lease, "1".into(), (1 + 31 * count).to_string()],
            ),
            _ => ("release", vec![lock], vec![owner, "channel".into(), "PUBLISH".into()]),
        };
        Part { verb, keys, args }
    })
}

fn call<'a>(script: &Script, parts: &'a [Part]) -> Cmd {
    let keys: Vec<&'a str> = parts.iter().flat_map(|part| &part.keys).map(|key| &**key).collect();
    evalsha(script, &keys)
}

fn alone(part: &Part, redis: &mut Connection) -> Value {
    let script = if part.verb == "release" { &SCRIPTS.release } else { &SCRIPTS.acquire };
    let mut cmd = call(script, std::slice::from_ref(part));
    redis.req_command(cmd.arg(&part.args)).expect("an answer")
}

fn shared(parts: &[Part], redis: &mut Connection) -> Vec<Value> {
    let mut cmd = call(&SCRIPTS.batch, parts);
    for part in parts {
        cmd.arg(part.verb).arg(&part.args);
    }
    match redis.req_command(&cmd).expect("an answer") {
        Value::Array(answers) => answers,
        other => panic!("{other:?}"),
    }
}

/// The part of an answer that does not depend on time; of an error, the code.
fn timeless(answer: Value) -> Value {
    match answer {
        Value::Int(ttl) => Value::Int(rounded(ttl)),
        Value::Array(parts) => match <[Value; 2]>::try_from(parts).expect("a refusal") {
            [ttl, holder] => Value::Array(vec![timeless(ttl), holder]),
        },
        Value::BulkString(_) => Value::BulkString(b"a token".to_vec()),
        Value::ServerError(error) => Value::SimpleString(error.code().to_owned()),
        other => other,
    }
}

/// A remaining time as it was when it was promised; everything smaller as it is.
fn rounded(ttl: i64) -> i64 {
    let promised = u64::try_from(ttl).ok().filter(|ttl| *ttl > 2);
    promised.map_or(ttl, |ttl| ttl.next_multiple_of(LONG).try_into().unwrap())
}

type Held = (Vec<String>, i64, bool);

fn state(redis: &mut Connection) -> Vec<Held> {
    let mut look = |name| -> RedisResult<Held> {
        let (lock, token) = (format!("lock:{name}"), format!("token:{name}"));
        let ttl = redis::cmd("PTTL").arg(&lock).query(redis)?;
        Ok((
            redis::cmd("HGETALL").arg(&lock).query(redis)?,
            rounded(ttl),
            redis::cmd("EXISTS").arg(token).query(redis)?,
        ))
    };
    // The fourth is not even a hash.
    [0, 1, 2, 4].map(|name| look(name).expect("a look at the key")).into()
}

#[test]
fn batched_requests_are_answered_as_each_would_be_unbatched() {
    let server = Server::start();
    for (_, script) in SCRIPTS.named() {
        script.load(&mut server.connect()).expect("a script that loads");
    }
    let result = TestRunner::default().run(&prop::collection::vec(part(), 1..33), |parts| {
        let mut redis = server.connect();
        let mut fresh = || {
            redis::cmd("FLUSHALL").exec(&mut redis).unwrap();
            redis::cmd("SET").arg("lock:3").arg("no lock").exec(&mut redis).unwrap();
            redis::cmd("HSET").arg("lock:4").arg("no owner").arg(1).exec(&mut redis).unwrap();
        };
        fresh();
        let other = &mut server.connect();
        let one_by_one: Vec<_> = parts.iter().map(|part| timeless(alone(part, other))).collect();
        let after = state(other);
        fresh();
        let batch: Vec<_> = shared(&parts, other).into_iter().map(timeless).collect();
        prop_assert_eq!(one_by_one, batch);
        prop_assert_eq!(after, state(other));
        Ok(())
    });
    result.unwrap();
}
