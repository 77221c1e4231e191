//! `LockGuard::execute`: commands that Redis executes only while the lock is held.

use std::collections::HashMap;

use redis::{Pipeline, Value, cmd, pipe};

use crate::prelude::*;
use crate::support::cluster::shards_channels;

mod answers;
mod pauses;
mod slots;

fn set(key: &str, value: &str) -> Pipeline {
    let mut set = pipe();
    set.set(key, value);
    set
}

async fn executed<T: redis::FromRedisValue>(guard: &LockGuard, commands: &Pipeline) -> T {
    soon("an answer", guard.execute(commands)).await.expect("still held")
}

#[track_caller]
fn failed<T>(result: Result<T, Error>, kind: ErrorKind, outcome: Outcome) -> String {
    let Err(error) = result else { panic!("executed") };
    assert_eq!((error.kind(), error.outcome()), (kind, outcome), "{error}");
    error.to_string()
}

#[track_caller]
fn lost<T>(result: Result<T, Error>) {
    failed(result, ErrorKind::Lost, Outcome::NotExecuted);
}

pub(crate) async fn commands_are_executed_for_whoever_holds_the_lock_and_no_one_else(setup: Setup) {
    let (client, other) = (setup.connect().await, setup.connect().await);
    let [name, left, sold] = ["{sale}", "{sale}:left", "{sale}:sold"];
    let mut sale = pipe();
    sale.decr(setup.key(left), 2).rpush(setup.key(sold), "alice").ignore();
    let guard = hold(&client.lock(name)).await;
    assert_eq!(executed::<i64>(&guard, &sale).await, -2);
    assert_eq!(executed::<i64>(&guard, &sale).await, -4);
    assert_eq!(setup.ask::<Vec<String>>("LRANGE", sold, &["0", "-1"]), ["alice", "alice"]);

    // Nested, and behind a hand-off that Redis may not have confirmed yet.
    let lock = client.lock(name);
    let waiting = tokio::spawn(async move { (hold(&lock).await, hold(&lock).await) });
    wait_until("a waiter", SOON, || setup.subscribers(name) == 1).await;
    release(guard).await;
    let (outer, inner) = soon("the lock", waiting).await.expect("no panic");
    assert_eq!(executed::<i64>(&inner, &sale).await, -6);
    release(inner).await;
    assert_eq!(executed::<i64>(&outer, &sale).await, -8);

    assert!(soon("forcing", other.lock(name).force_unlock()).await.expect("an answer"));
    let guard = hold(&other.lock(name)).await;
    lost(outer.execute::<i64>(&sale).await);
    assert!(outer.is_lost());
    assert_eq!(setup.ask::<i64>("GET", left, &[]), -8);
    assert_eq!(executed::<i64>(&guard, &sale).await, -10);
    release(guard).await;
}

#[tokio::test]
async fn a_fenced_guard_executes_commands_too() {
    let server = Server::start();
    let guard = soon("locking", connect(&server).await.fenced_lock("fenced").lock()).await.unwrap();
    let mut read = pipe();
    read.get("redisson_lock_token:{fenced}");
    let token: u64 = soon("an answer", guard.execute(&read)).await.expect("still held");
    assert_eq!(token, guard.token().get());
    server.ask::<()>(&["DEL", "fenced"]);
    lost(guard.execute::<u64>(&read).await);
}

#[tokio::test]
async fn all_of_them_take_one_round_trip_and_one_request() {
    let Far { server: _server, proxy, client } = Far::new().await;
    let guard = client.lock("once").lock_with_lease(MINUTE).await.expect("the lock");
    let (commands, mut many) = (proxy.commands(), pipe());
    for number in 0..100 {
        many.set(format!("key:{number}"), number);
    }
    executed::<()>(&guard, &many).await;
    let mut expected = commands;
    *expected.entry("EVALSHA".to_owned()).or_default() += 1;
    assert_eq!(proxy.commands(), expected);
    release(guard).await;
}

#[tokio::test]
async fn replies_are_converted_as_the_driver_does_it() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("replies")).await;
    let mut both = pipe();
    both.set("a", 1).incr("a", 1).set("b", "text").ignore();
    assert_eq!(executed::<(String, i64)>(&guard, &both).await, ("OK".to_owned(), 2));
    assert_eq!(executed::<(String, i64)>(&guard, both.atomic()).await, ("OK".to_owned(), 2));
    executed::<()>(&guard, &both).await;
    both.clear();

    // Less those that are ignored, one alone needs no tuple, and may have one.
    let mut get = pipe();
    get.set("a", 7).ignore().get("a");
    assert_eq!(executed::<i64>(&guard, &get).await, 7);
    assert_eq!(executed::<(i64,)>(&guard, &get).await, (7,));
    assert_eq!(executed::<Vec<i64>>(&guard, &get).await, [7]);
    // The byte of the digit, and not the number.
    assert_eq!(executed::<Vec<u8>>(&guard, &get).await, b"7");
    assert_eq!(executed::<(Vec<u8>,)>(&guard, &get).await, (b"7".to_vec(),));
    let mut none = pipe();
    none.get("none");
    assert_eq!(executed::<Option<i64>>(&guard, &none).await, None);
    assert_eq!(executed::<(Option<i64>,)>(&guard, &none).await, (None,));
    executed::<()>(&guard, set("a", "1").ignore()).await;

    for many in 0..4_u64 {
        let (hash, list) = (format!("hash:{many}"), format!("list:{many}"));
        let (mut both, expected) = (pipe(), (0..many).map(|n| (format!("f{n}"), n)));
        let expected: HashMap<String, u64> = expected.collect();
        for (field, value) in &expected {
            both.hset(&hash, field, value).ignore();
        }
        assert_eq!(executed::<HashMap<String, u64>>(&guard, both.hgetall(&hash)).await, expected);
        both.clear();
        let expected: Vec<String> = (0..many).map(|number| format!("m{number}")).collect();
        for member in &expected {
            both.rpush(&list, member).ignore();
        }
        assert_eq!(executed::<Vec<String>>(&guard, both.lrange(&list, 0, -1)).await, expected);
        both.clear();
        both.lrange(&list, 0, -1);
        assert_eq!(executed::<(Vec<String>,)>(&guard, &both).await.0, expected);
    }
    let (mut scores, with_scores) = (pipe(), ["0", "-1", "WITHSCORES"]);
    scores.zadd("scores", "m", 1.5).ignore().cmd("ZRANGE").arg("scores").arg(&with_scores);
    let scores: BTreeMap<String, f64> = executed(&guard, &scores).await;
    assert_eq!(scores, BTreeMap::from([("m".to_owned(), 1.5)]));
    server.ask::<()>(&["DEL", "hash:1", "hash:2", "hash:3"]);
    release(guard).await;
}

#[tokio::test]
async fn one_reply_is_what_the_driver_makes_of_it_for_every_type_that_the_driver_takes() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("types")).await;
    let mut driver = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut replies = pipe();
    replies.set("text", "text").set("digits", 1234).rpush("list", &["a", "b"]).rpush("digit", 7);
    replies.zadd("set", "m", 1.5);
    executed::<()>(&guard, &replies).await;
    for read in [
        pipe().get("text").clone(),
        pipe().get("digits").clone(),
        pipe().get("none").clone(),
        pipe().strlen("text").clone(),
        pipe().lrange("list", 0, -1).clone(),
        pipe().lrange("digit", 0, -1).clone(),
        pipe().lrange("none", 0, -1).clone(),
        pipe().get("text").get("digits").clone(),
        pipe().set("text", "text").get("none").incr("digits", 0).clone(),
        pipe().zscore("set", "m").hgetall("none").cmd("TYPE").arg("set").clone(),
    ] {
        macro_rules! same {
            ($($T:ty),*) => {$(
                if let Ok(expected) = read.query::<$T>(&mut driver) {
                    assert_eq!(executed::<$T>(&guard, &read).await, expected, "{:?}", read);
                }
            )*};
        }
        same!(Value, Option<Value>, Vec<Value>, (Value,), Vec<Option<String>>, Vec<String>);
        same!(Vec<Vec<String>>, Vec<Vec<Vec<u8>>>, (Vec<String>,), (Vec<Vec<u8>>,), Vec<i64>);
        same!((Vec<u8>, Vec<u8>), (Vec<String>, Vec<i64>), (String, i64), (Option<Vec<u8>>,));
    }
    release(guard).await;
}

#[tokio::test]
async fn replies_of_another_type_are_an_error_of_commands_that_were_executed() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("types")).await;
    let answer = guard.execute::<i64>(&set("a", "1")).await;
    failed(answer, ErrorKind::Server, Outcome::Executed);
    assert!(server.exists("a"));
    assert!(!guard.is_lost());
    release(guard).await;
}

#[tokio::test]
async fn arguments_may_be_any_bytes_and_replies_may_be_large() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("bytes")).await;
    let key = [0, 0xff, b'\r', b'\n', b'{', b'}', 0xc3];
    let value: Vec<u8> = (0..5_000_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
    let mut echo = pipe();
    echo.set(&key, &value).ignore().get(&key).get(&key).del(&key).ignore();
    let (one, two): (Vec<u8>, Vec<u8>) = executed(&guard, &echo).await;
    assert!(one == value && two == value);
    // As many words as a command may have, and as many commands.
    let members: Vec<u32> = (0..6_998).collect();
    let mut many = pipe();
    many.rpush("list", &members).lrange("list", 0, -1);
    let (pushed, listed): (usize, Vec<u32>) = executed(&guard, &many).await;
    assert!(pushed == members.len() && listed == members);
    let mut many = pipe();
    for number in 0..10_000 {
        many.set("last", number).ignore();
    }
    executed::<()>(&guard, many.get("last").ignore()).await;
    assert_eq!(server.ask::<u32>(&["GET", "last"]), 9_999);
    release(guard).await;
}

/// So many words and keys, with those that the request has of its own.
fn words(many: usize) -> Pipeline {
    let (mut pipeline, mut left) = (pipe(), many - 1);
    while left > 0 {
        // Its name, its key twice, and what says of how many words it is.
        let members = left.min(6_000) - 4;
        pipeline.rpush("many", vec![0; members]);
        left -= members + 4;
    }
    pipeline
}

#[tokio::test]
async fn as_many_words_as_a_pipeline_may_have_are_executed() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("largest")).await;
    executed::<()>(&guard, &words(1_000_000)).await;
    assert_eq!(server.ask::<usize>(&["LLEN", "many"]), 1_000_000 - 1 - 4 * 167);
    release(guard).await;
}

#[tokio::test]
async fn a_word_that_this_server_does_not_take_is_an_error_and_executes_nothing() {
    let server = Server::start();
    server.ask::<()>(&["CONFIG", "SET", "proto-max-bulk-len", "1048576"]);
    let guard = hold(&connect(&server).await.lock("smaller")).await;
    let large = "x".repeat((1 << 20) + 1);
    let answer = guard.execute::<()>(&set("large", &large)).await;
    // It closes the connection behind the error, which may be lost then.
    let error = answer.expect_err("too large");
    let is_known = (error.kind(), error.outcome()) == (ErrorKind::Server, Outcome::NotExecuted);
    assert!(is_known || error.outcome() == Outcome::Unknown, "{error:?}");
    assert!(!server.exists("large"));
    // A request that meets the connection while the server closes it gets no answer.
    let again = async {
        while let Err(error) = guard.execute::<()>(&set("large", &large[1..])).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        }
    };
    soon("a word that it takes", again).await;
    release(guard).await;
}

#[tokio::test]
async fn what_may_not_be_executed_is_refused_before_any_request() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("refused")).await;
    let command =
        |words: &[&str]| pipe().add_command(cmd(words[0]).arg(&words[1..]).clone()).clone();
    let calls = server.calls("evalsha");
    for (commands, says) in [
        (pipe(), "no commands"),
        (command(&["BLPOP", "list", "0"]), "BLPOP"),
        (command(&["MULTI"]), "MULTI"),
        (command(&["EVAL", "return 1", "0"]), "EVAL"),
        (command(&["SUBSCRIBE", "channel"]), "SUBSCRIBE"),
        (command(&["FT.SEARCH", "index", "words"]), "FT.SEARCH"),
        (command(&["GET"]), "GET"),
        (command(&["DEL", "other", "refused"]), "the lock itself"),
        (command(&[&["RPUSH", "list"], &["word"; 7_000][..]].concat()), "split it"),
        (words(1_000_001), "the pipeline has more than 1000000 words and keys: split it"),
        (set("a", "1").cmd("WATCH").arg("a").clone(), "WATCH"),
    ] {
        let answer = guard.execute::<()>(&commands).await;
        let message = failed(answer, ErrorKind::InvalidArgument, Outcome::NotExecuted);
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(server.calls("evalsha"), calls, "Redis was asked");
    assert!(!guard.is_lost() && !server.exists("a"));
    release(guard).await;
}

#[tokio::test]
async fn without_the_lock_nothing_is_executed() {
    let server = Server::start();
    let client = connect(&server).await;
    type Take = fn(&Server);
    let takes: [(&str, Take); 5] = [
        ("gone", |server| server.ask(&["DEL", "gone"])),
        ("taken", |server| {
            server.ask::<()>(&["DEL", "taken"]);
            server.hold_by_hand("taken", "somebody:1", MINUTE);
        }),
        ("typed", |server| server.ask(&["SET", "typed", "words"])),
        ("shared", |server| server.ask(&["HSET", "shared", "field", "1"])),
        ("renamed", |server| server.ask(&["RENAME", "renamed", "elsewhere"])),
    ];
    for (name, take) in takes {
        let guard = hold(&client.lock(name)).await;
        take(&server);
        lost(soon("an answer", guard.execute::<()>(&set("written", "1"))).await);
        assert!(guard.is_lost(), "{name}");
        assert!(!server.exists("written"), "{name}");
    }
    server.ask::<()>(&["DEL", "taken", "shared", "elsewhere"]);
    // What the client knows by itself it does not ask.
    let guard = client.lock("ended").lock_with_lease(ms(500)).await.expect("the lock");
    soon("the loss", guard.lost()).await;
    let calls = server.calls("evalsha");
    lost(guard.execute::<()>(&set("written", "1")).await);
    assert_eq!(server.calls("evalsha"), calls, "Redis was asked");
    // Nor does a guard of an earlier hold rely on a later one.
    let lock = client.lock("again");
    let earlier = lock.lock_with_lease(ms(500)).await.expect("the lock");
    soon("the loss", earlier.lost()).await;
    let later = hold(&lock).await;
    lost(earlier.execute::<()>(&set("written", "1")).await);
    assert!(!server.exists("written"));
    release(later).await;
}

#[tokio::test]
async fn a_command_that_fails_is_the_last_one() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("fails")).await;
    server.ask::<()>(&["SET", "text", "words"]);
    for ignore_errors in [false, true] {
        server.ask::<()>(&["DEL", "before", "after"]);
        let mut commands = pipe();
        commands.set("before", 1).ignore().incr("text", 1).set("after", 1);
        if ignore_errors {
            commands.ignore_errors();
        }
        let answer = guard.execute::<()>(&commands).await;
        let message = failed(answer, ErrorKind::Server, Outcome::Executed);
        assert!(message.contains("command 2 of 3, `INCRBY`"), "{message}");
        assert!(server.exists("before") && !server.exists("after"));
    }
    let mut first = pipe();
    first.lpush("text", 1).set("after", 1);
    let answer = guard.execute::<()>(&first).await;
    let message = failed(answer, ErrorKind::Server, Outcome::NotExecuted);
    assert!(message.contains("command 1 of 2, `LPUSH`"), "{message}");
    assert!(message.contains("WRONGTYPE"), "{message}");
    assert!(!guard.is_lost() && !server.exists("after"));
    release(guard).await;
}

#[tokio::test]
async fn a_server_that_may_not_write_now_executes_nothing() {
    let server = Server::start();
    let guard = hold(&impatient(server.url(), ms(1_000)).await.lock("full")).await;
    let mut commands = pipe();
    commands.get("a").del("a").set("b", 1);
    server.ask::<()>(&["SET", "a", "1"]);
    server.fill();
    failed(guard.execute::<()>(&commands).await, ErrorKind::Server, Outcome::NotExecuted);
    server.make_room();
    // As a primary that another one has replaced.
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    failed(guard.execute::<()>(&commands).await, ErrorKind::Unavailable, Outcome::NotExecuted);
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    assert!(server.exists("a") && !server.exists("b"));
    assert!(!guard.is_lost());
    // Its connections are made anew.
    let again = async { while guard.execute::<()>(&commands).await.is_err() {} };
    soon("a server that may write again", again).await;
    assert!(!server.exists("a") && server.exists("b"));
    release(guard).await;
}

#[tokio::test]
async fn a_cursor_is_an_argument_like_any_other() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("cursor")).await;
    let mut pages = pipe();
    pages.add_command(cmd("APPEND").arg("text").cursor_arg(42).to_owned()).ignore().get("text");
    assert_eq!(executed::<String>(&guard, &pages).await, "42");
    release(guard).await;
}

#[tokio::test]
async fn a_user_needs_the_commands_and_to_write_all_keys() {
    let server = Server::start();
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "+@all", "-decr", "&*", "~lock:*", "~mine"];
    server.ask::<()>(&user);
    server.ask::<()>(&["SET", "theirs", "1"]);
    let client = LockClient::connect(format!("redis://app:pw@127.0.0.1:{}/", server.port())).await;
    let guard = hold(&client.expect("connecting").lock("lock:rights")).await;
    let refused = async |commands: &Pipeline| {
        let answer = guard.execute::<()>(commands).await;
        failed(answer, ErrorKind::Server, Outcome::NotExecuted);
    };
    refused(pipe().cmd("DECR").arg("mine")).await;
    refused(pipe().get("theirs")).await;
    refused(pipe().set("mine", 1).get("theirs")).await;
    assert!(!server.exists("mine"));
    // From Redis 7.0 on.
    if server.try_ask::<()>(&["ACL", "SETUSER", "app", "%R~theirs"]).is_ok() {
        refused(pipe().get("theirs")).await;
    }
    executed::<()>(&guard, &set("mine", "1")).await;
    assert!(!guard.is_lost());
    release(guard).await;
}

#[tokio::test]
async fn a_prefix_is_for_the_locks_alone() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).name_prefix("locks:");
    let guard = hold(&builder.connect().await.expect("connecting").lock("a")).await;
    executed::<()>(&guard, &set("a", "1")).await;
    assert!(server.exists("a"));
    let answer = guard.execute::<()>(&set("locks:a", "1")).await;
    failed(answer, ErrorKind::InvalidArgument, Outcome::NotExecuted);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_all_keys_are_in_the_slot_of_the_lock() {
    let cluster = Cluster::start();
    let builder = LockClient::builder().cluster(cluster.urls()).command_timeout(SOON);
    let client = builder.connect().await.expect("connecting");
    let guard = hold(&client.lock("{stock}:lock")).await;
    let calls = cluster.calls("evalsha");
    for commands in [
        set("stock:left", "1"),
        set("{stock}:left", "1").set("left", 1).clone(),
        pipe().rename("{stock}:left", "{other}:left").clone(),
    ] {
        let answer = guard.execute::<()>(&commands).await;
        let message = failed(answer, ErrorKind::InvalidArgument, Outcome::NotExecuted);
        assert!(message.contains("hash tag, as in `{stock}:stock`"), "{message}");
    }
    assert_eq!(cluster.calls("evalsha"), calls, "a node was asked");
    release(guard).await;
}

/// A channel is no key, though a cluster has it in a slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sharded_message_is_sent_in_the_slot_of_the_lock_and_needs_no_right_to_a_key() {
    let cluster = Cluster::start();
    if !shards_channels(&cluster.nodes()[0]) {
        return;
    }
    let user = "ACL SETUSER app on >pw +@all &* ~{shop}:lock ~{shop}:left";
    let user: Vec<_> = user.split(' ').collect();
    cluster.nodes().iter().for_each(|node| node.ask(&user));
    let urls = cluster.urls().into_iter().map(|url| url.replace("redis://", "redis://app:pw@"));
    let client = connected(LockClient::builder().cluster(urls).command_timeout(SOON)).await;
    let guard = hold(&client.lock("{shop}:lock")).await;
    let calls = cluster.calls("evalsha");
    let mut elsewhere = pipe();
    elsewhere.incr("{shop}:left", 1).cmd("spublish").arg("news").arg("text");
    let answer = guard.execute::<()>(&elsewhere).await;
    let message = failed(answer, ErrorKind::InvalidArgument, Outcome::NotExecuted);
    assert!(message.contains("the channel `news` has to be in the slot"), "{message}");
    assert_eq!(cluster.calls("evalsha"), calls, "a node was asked");

    let node = &cluster.nodes()[cluster.node_of("{shop}")];
    let mut listener = redis::Client::open(node.url()).unwrap().get_connection().unwrap();
    cmd("SSUBSCRIBE").arg("{shop}:news").exec(&mut listener).expect("subscribed");
    let mut here = pipe();
    here.incr("{shop}:left", 1).cmd("SPUBLISH").arg("{shop}:news").arg("text");
    assert_eq!(executed::<(i64, i64)>(&guard, &here).await, (1, 1));

    // While the slot moves: the lock and the key are where they were, and the channel is no key that is
    // missing there.
    let to = (cluster.node_of("{shop}") + 1) % 3;
    let move_ = cluster.begin_move(cluster.slot_of("{shop}"), to);
    assert_eq!(executed::<(i64, i64)>(&guard, &here).await, (2, 1));
    move_.migrate_keys();
    move_.finish();
    assert_eq!(executed::<(i64, i64)>(&guard, &here).await, (3, 0));
    release(guard).await;
}
