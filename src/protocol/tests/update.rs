//! What the scripts of the holder draw and publish: on a real server, one call at a time.

use super::*;

const TOKEN: &str = "token";
const CHANNEL: &str = "channel";

/// The only string in a reply.
fn token_in(reply: &Value) -> Option<&[u8]> {
    match reply {
        Value::BulkString(token) => Some(token),
        Value::Array(parts) => parts.iter().find_map(token_in),
        _ => None,
    }
}

struct Tokens {
    redis: Connection,
    /// The last of the tokens that were drawn.
    last: u64,
    _server: Server,
}

impl Tokens {
    fn new() -> Self {
        let server = Server::start();
        let mut redis = server.connect();
        for (_, script) in SCRIPTS.named() {
            script.load(&mut redis).expect("a script that loads");
        }
        Self { redis, last: 0, _server: server }
    }

    /// Runs a script that draws `many` tokens, all of them above those that were drawn before.
    fn draws(&mut self, many: u64, cmd: &Cmd) {
        let reply = self.redis.req_command(cmd).expect("an answer");
        let last = token_in(&reply).unwrap_or_else(|| panic!("{reply:?}"));
        let last: u64 = String::from_utf8_lossy(last).parse().expect("a number");
        assert!(last - many >= self.last, "{many} up to {last}, which overlap with {}", self.last);
        let kept: u64 = redis::cmd("GET").arg(TOKEN).query(&mut self.redis).unwrap();
        assert_eq!(kept, last, "the next one goes on from there");
        self.last = last;
    }

    fn acquire(&mut self, owner: &str, many: u64) {
        let mut cmd = evalsha(&SCRIPTS.acquire, &[KEY, TOKEN]);
        self.draws(many, cmd.arg(owner).arg(LONG).arg(1).arg(many));
    }

    fn update(&mut self, owner: &str, many: u64) {
        let mut cmd = evalsha(&SCRIPTS.update, &[KEY, TOKEN]);
        cmd.arg(owner).arg(1).arg(LONG).arg(many).arg(CHANNEL).arg("").arg("PUBLISH").arg(0);
        self.draws(many, &cmd);
    }

    fn fair(&mut self, script: &Script, many: u64, args: &[&dyn ToString]) {
        let mut cmd = evalsha(script, &[KEY, "queue", "waiting", TOKEN]);
        cmd.arg("us").arg("").arg(0).arg("arriving").arg(LONG).arg(LONG);
        cmd.arg(CHANNEL).arg("PUBLISH").arg(1).arg(many);
        for arg in args {
            cmd.arg(arg.to_string());
        }
        self.draws(many, &cmd);
    }

    fn fair_acquire(&mut self, owner: &str, many: u64) {
        self.fair(&SCRIPTS.fair_acquire, many, &[&owner, &LONG, &1, &many, &""]);
    }

    fn fair_update(&mut self, owner: &str, many: u64) {
        self.fair(&SCRIPTS.fair_update, many, &[&owner, &1, &LONG, &many, &0]);
    }

    fn set_last(&mut self, last: u64) {
        redis::cmd("SET").arg(TOKEN).arg(last).exec(&mut self.redis).unwrap();
        self.last = last;
    }
}

#[test]
fn no_token_is_drawn_twice_whichever_request_draws_it_and_however_many() {
    let mut tokens = Tokens::new();
    // By the clock of the server, and where another client has drawn more than that.
    for ahead in [false, true] {
        if ahead {
            tokens.set_last(8_000_000_000_000_000);
        }
        for many in [1, 64, 1024, 1] {
            tokens.acquire("us:1", many);
            tokens.update("us:1", many);
            tokens.fair_update("us:1", many);
            tokens.fair_acquire("us:1", many);
        }
    }
    // The key of the tokens is lost: the next ones are above the server's clock all the same.
    tokens.set_last(0);
    let now: (u64, u64) = redis::cmd("TIME").query(&mut tokens.redis).unwrap();
    tokens.last = now.0 * 1_000_000 + now.1 - 1;
    tokens.update("us:1", 64);
}

/// The reply to an update that counts subscribers, and what one of them hears.
fn updated(lease: u64, subscribers: usize, ours: &str) -> (Value, Vec<String>) {
    let server = Server::start();
    let mut redis = server.connect();
    SCRIPTS.update.load(&mut redis).unwrap();
    redis::pipe().hset(KEY, "us:1", 1).pexpire(KEY, 2 * LONG as i64).exec(&mut redis).unwrap();
    let listening = (0..subscribers).map(|_| Listening::new(server.connect(), CHANNEL));
    let mut listening: Vec<_> = listening.collect();
    let mut cmd = evalsha(&SCRIPTS.update, &[KEY]);
    cmd.arg("us:1").arg(1).arg(lease).arg(0).arg(CHANNEL).arg("NUMSUB").arg("PUBLISH").arg(ours);
    let reply = redis.req_command(&cmd).expect("an answer");
    let heard =
        listening.first_mut().map(|first| std::iter::from_fn(|| first.hears(&mut redis)).collect());
    (reply, heard.unwrap_or_default())
}

#[test]
fn a_lease_that_ends_sooner_is_published_if_others_listen() {
    let reply = |listening| Value::Array(vec![Value::Int(listening), Value::Int(0)]);
    let said = |messages: &[&str]| messages.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(updated(LONG, 1, "0"), (reply(1), said(&["0"])));
    assert_eq!(updated(LONG, 2, "1"), (reply(2), said(&["0"])));
    assert_eq!(updated(LONG, 1, "1"), (reply(1), said(&[])), "this client knows");
    assert_eq!(updated(3 * LONG, 1, "0"), (reply(1), said(&[])), "it ends later");
    // No release follows. A Redisson that listens at a replica is not counted.
    assert_eq!(updated(LONG, 1, ""), (reply(1), said(&["1", "0"])));
    assert_eq!(updated(3 * LONG, 1, ""), (reply(1), said(&[])), "it ends later");
}

/// Up to Redis 7.0 the time of a `PEXPIRE` can be over once the server looks. One that was over before does the same on
/// every server: it deletes the key.
#[test]
fn an_update_whose_lease_is_over_at_once_leaves_no_key() {
    let server = Server::start();
    let mut redis = server.connect();
    SCRIPTS.update.load(&mut redis).unwrap();
    redis::pipe().hset(KEY, "us:1", 2).pexpire(KEY, LONG as i64).exec(&mut redis).unwrap();
    let mut cmd = evalsha(&SCRIPTS.update, &[KEY]);
    cmd.arg("us:1").arg(1).arg(-1).arg(0).arg(CHANNEL).arg("").arg("PUBLISH").arg(0);
    let reply = redis.req_command(&cmd).expect("an answer");
    assert_eq!(reply, Value::Array(vec![Value::Int(-1), Value::Int(0)]));
    assert!(!redis::cmd("EXISTS").arg(KEY).query::<bool>(&mut redis).unwrap());
}
