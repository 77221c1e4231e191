//! The least that a user has to be allowed: with it all goes well and nothing is denied; without
//! one of it, the server denies just that, and what then goes wrong is written here.

use std::collections::BTreeSet;

use futures::StreamExt;
use redlatch::FencedReadWriteLock;

use crate::prelude::*;

/// What is allowed, as the server calls it when it denies it, and deeds that go wrong without it.
/// Where none does, what is worse then stands above it.
const RIGHTS: &[(&str, &str, &[&str])] = &[
    // The names, of locks, of the counters of fenced ones, and of what waiters listen to.
    ("~lock:*", "lock:", &["locks", "is_locked", "is forced"]),
    ("~redisson_lock_token:*", "redisson_lock_token:{lock:", &["counts tokens", "shares a token"]),
    ("&redisson_lock__channel:*", "redisson_lock__channel:{lock:", &["is woken"]),
    // What the client sends.
    ("+evalsha", "evalsha", &["locks", "locks several", "executes", "is forced"]),
    ("+script|load", "script|load", &["learns scripts"]),
    // Each new connection loads all scripts.
    ("+script|exists", "script|exists", &[]),
    ("+subscribe", "subscribe", &["is woken"]),
    ("+unsubscribe", "unsubscribe", &["unsubscribes"]),
    // A late request of a connection that was given up may be executed yet: without the first
    // the client cannot name that connection, without the second it cannot have it closed.
    ("+client|info", "client|info", &[]),
    ("+client|kill", "client|kill", &[]),
    // Who looks for the holder of a lock finds the id of a client, and not where it is.
    ("+client|setname", "client|setname", &[]),
    // No warning of a server that may evict locks.
    ("+info", "info", &[]),
    // What the scripts call.
    (
        "+hlen",
        "hlen",
        &[
            "locks",
            "locks several",
            "is_locked",
            "hold_count",
            "is renewed",
            "remaining_lease",
            "is forced",
        ],
    ),
    (
        "+hrandfield",
        "hrandfield",
        &["nests", "is refused", "is_locked", "hold_count", "remaining_lease", "is forced"],
    ),
    (
        "+hget",
        "hget",
        &["locks", "nests", "is_locked", "hold_count", "is renewed", "remaining_lease"],
    ),
    ("+pttl", "pttl", &["is refused", "is_locked", "hold_count", "is renewed", "remaining_lease"]),
    ("+hset", "hset", &["locks", "locks several"]),
    ("+pexpire", "pexpire", &["locks", "locks several"]),
    ("+del", "del", &["locks", "locks several", "is forced"]),
    ("+publish", "publish", &["is woken"]),
    // A client that hands a lock on cannot see whether others wait, and goes by the limits of
    // `max_handoffs` and `max_handoff_time` even when nobody does.
    ("+pubsub|numsub", "pubsub|numsub", &[]),
    // For fenced locks alone.
    ("+time", "time", &["counts tokens", "shares a token"]),
    ("+incrby", "incrby", &["counts tokens", "shares a token"]),
    ("+set", "set", &["counts tokens", "shares a token"]),
    ("+get", "get", &["counts tokens", "shares a token"]),
    // For fair locks alone.
    ("~redlatch_*", "redlatch_", &["is served in order"]),
    ("+exists", "exists", &["is served in order"]),
    ("+hdel", "hdel", &["is served in order"]),
    ("+zadd", "zadd", &["is served in order"]),
    ("+zrange", "zrange", &["is served in order"]),
    ("+zrem", "zrem", &["is served in order"]),
    ("+zscore", "zscore", &["passes the dead"]),
    // For read-write locks alone: the leases of readers, and what waiters listen to.
    ("~{lock:*", "{lock:", &["is shared"]),
    ("&redisson_rwlock:*", "redisson_rwlock:{lock:", &["is shared"]),
    ("+hexists", "hexists", &["is shared"]),
];

/// Deeds that went wrong, and how.
type Wrong = BTreeMap<&'static str, String>;

fn allow(server: &Server, without: Option<&str>) {
    let rights = RIGHTS.iter().map(|(right, ..)| *right).filter(|right| Some(*right) != without);
    let rights: Vec<&str> = rights.collect();
    let user = ["ACL", "SETUSER", "app", "reset", "on", ">pw", "resetchannels"];
    server.ask::<()>(&[&user[..], &rights].concat());
    // Only for the operator to look at, and not known to every version.
    let _ = server.try_ask::<()>(&["ACL", "SETUSER", "app", "+client|setinfo"]);
}

async fn client(server: &Server) -> Result<LockClient, Error> {
    let url = format!("redis://app:pw@127.0.0.1:{}/", server.port());
    let builder = LockClient::builder().url(url).name_prefix("lock:");
    let builder = builder.watchdog_timeout(ms(6_000)).command_timeout(ms(6_000));
    soon("connecting", builder.connect()).await
}

/// Whether it went well.
type Deed = Result<bool, Error>;

async fn locks(client: &LockClient) -> Deed {
    client.lock("plain").lock().await?.unlock().await.map(|()| true)
}

async fn nests(client: &LockClient) -> Deed {
    let lock = client.lock("nested");
    let outer = lock.lock().await?;
    lock.lock().await?.unlock().await?;
    outer.unlock().await.map(|()| true)
}

async fn locks_several(client: &LockClient) -> Deed {
    client.multi_lock(["one", "two"]).lock().await?.unlock().await.map(|()| true)
}

async fn is_refused(client: &LockClient, server: &Server) -> Deed {
    server.hold_by_hand("lock:busy", "somebody:1", Duration::from_secs(60));
    Ok(client.lock("busy").try_lock_now().await?.is_none())
}

/// Waits until a waiter is parked, which came after so many requests: subscribed and refused once more behind that, or
/// denied that after a request of its own, and at rest since. One that may not wait at all has ended.
async fn until_parked<T>(server: &Server, name: &str, before: u64, waiter: &JoinHandle<T>) {
    // The runtime runs between two looks, whatever else keeps this thread.
    const QUIET: u32 = 60;
    let may_not_subscribe = || {
        // A lock's channel, or that of a read-write lock.
        let channels = ["redisson_lock__channel:", "redisson_rwlock:"];
        let is_it = |said: &String| {
            said == "subscribe" || channels.iter().any(|channel| said.starts_with(channel))
        };
        denied(server).iter().any(is_it)
    };
    let (mut asked, mut quiet) = (before, 0);
    wait_until("a waiter that is parked", SOON, || {
        let channels: Vec<String> = server.ask(&["PUBSUB", "CHANNELS", &format!("*{{{name}}}*")]);
        let last = std::mem::replace(&mut asked, server.calls("evalsha"));
        quiet += 1;
        let is_behind = match channels.is_empty() {
            false => asked >= before + 2,
            true => asked > before && may_not_subscribe(),
        };
        if last != asked || !is_behind {
            quiet = 0;
        }
        waiter.is_finished() || quiet >= QUIET
    })
    .await;
}

/// From one handle to the next, which is of the same client or of another.
async fn goes_on(lock: Lock, next: Lock, server: &Server) -> Deed {
    let guard = lock.lock_with_lease(SOON).await?;
    let before = server.calls("evalsha");
    let waiting = tokio::spawn(async move { next.try_lock(ms(3_000), SOON).await });
    until_parked(server, &format!("lock:{}", lock.name()), before, &waiting).await;
    guard.unlock().await?;
    let Some(guard) = waiting.await.expect("a waiter")? else { return Ok(false) };
    guard.unlock().await.map(|()| true)
}

/// From one client to another, which gives up once, and waits for so long then that it has to refresh
/// its place. It has the lock, its entry in the queue has gone, and an operator frees the lock.
async fn is_served_in_order(client: &LockClient, other: &LockClient, server: &Server) -> Deed {
    let guard = client.fair_lock("fair").lock_with_lease(SOON).await?;
    let next = other.fair_lock("fair");
    if next.try_lock(ms(50), SOON).await?.is_some() {
        return Ok(false);
    }
    let waiting = tokio::spawn(async move { next.try_lock(ms(6_000), SOON).await });
    tokio::time::sleep(ms(4_000)).await;
    guard.unlock().await?;
    let Some(guard) = waiting.await.expect("a waiter")? else { return Ok(false) };
    let queued: u64 = server.ask(&["ZCARD", "redlatch_queue:{lock:fair}"]);
    let forced = client.fair_lock("fair").force_unlock().await?;
    drop(guard);
    Ok(queued == 0 && forced)
}

/// Two clients read, and then one writes that waited.
async fn is_shared(client: &LockClient, other: &LockClient, server: &Server) -> Deed {
    let (here, there) = (client.read_write_lock("shared"), other.read_write_lock("shared"));
    let (one, two) = (here.read_with_lease(SOON).await?, there.read_with_lease(SOON).await?);
    one.unlock().await?;
    let next = client.read_write_lock("shared");
    let before = server.calls("evalsha");
    let waiting = tokio::spawn(async move { next.try_write(ms(3_000), SOON).await });
    until_parked(server, "lock:shared", before, &waiting).await;
    two.unlock().await?;
    let Some(guard) = waiting.await.expect("a waiter")? else { return Ok(false) };
    guard.unlock().await.map(|()| true)
}

/// The lock is free, and the queue has the entry of a client that died.
async fn passes_the_dead(client: &LockClient, server: &Server) -> Deed {
    server.ask::<u64>(&["ZADD", "redlatch_queue:{lock:queued}", "1", "dead"]);
    match client.fair_lock("queued").try_lock_now().await? {
        Some(guard) => guard.unlock().await.map(|()| true),
        None => Ok(false),
    }
}

async fn unsubscribes(server: &Server) -> Deed {
    let names = ["lock:handed", "lock:woken"];
    let mut left = true;
    for _ in 0..1_000 {
        left = names.iter().any(|name| server.subscribers(name) > 0);
        if !left {
            break;
        }
        tokio::time::sleep(ms(2)).await;
    }
    Ok(!left)
}

async fn is_renewed(client: &LockClient) -> Deed {
    let guard = client.lock("renewed").lock().await?;
    let mut last = guard.remaining();
    loop {
        tokio::time::sleep(ms(2)).await;
        if guard.is_lost() {
            return Ok(false);
        }
        let before = std::mem::replace(&mut last, guard.remaining());
        if before < last {
            return guard.unlock().await.map(|()| true);
        }
    }
}

async fn executes(client: &LockClient) -> Deed {
    let guard = client.lock("executes").lock().await?;
    let none: Option<String> = guard.execute(redis::pipe().hget("lock:state", "field")).await?;
    guard.unlock().await.map(|()| none.is_none())
}

async fn counts_tokens(client: &LockClient) -> Deed {
    let lock = client.fenced_lock("fenced");
    let guard = lock.lock().await?;
    let first = guard.token();
    guard.unlock().await?;
    let guard = lock.lock().await?;
    let grows = guard.token() > first;
    guard.unlock().await.map(|()| grows)
}

/// A writer draws some for those that wait in its client, and readers have that of the last one.
async fn shares_a_token(client: &LockClient, server: &Server) -> Deed {
    let lock = client.fenced_read_write_lock("written");
    let guard = lock.write_with_lease(SOON).await?;
    let waits = |lock: FencedReadWriteLock| {
        tokio::spawn(async move { lock.try_write(ms(3_000), SOON).await })
    };
    let before = server.calls("evalsha");
    let line = [waits(lock.clone()), waits(lock.clone())];
    until_parked(server, "lock:written", before, &line[1]).await;
    guard.unlock().await?;
    let mut last = None;
    for next in line {
        let Some(guard) = next.await.expect("a waiter")? else { return Ok(false) };
        last = Some(guard.token());
        guard.unlock().await?;
    }
    let reading = lock.read().await?;
    let is_last = reading.token() == last;
    reading.unlock().await.map(|()| is_last)
}

async fn is_forced(client: &LockClient, server: &Server) -> Deed {
    server.hold_by_hand("lock:forced", "somebody:1", Duration::from_secs(60));
    client.lock("forced").force_unlock().await
}

async fn relearns_scripts(client: &LockClient, server: &Server) -> Deed {
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    locks(client).await
}

/// After the connections of the user were cut.
async fn reconnects(client: &LockClient, server: &Server) -> Deed {
    assert!(server.ask::<u64>(&["CLIENT", "KILL", "USER", "app"]) > 0);
    locks(client).await
}

/// Does all that there is to do, and says what went wrong.
async fn deeds(server: &Server) -> Wrong {
    let (Ok(mine), Ok(other)) = (client(server).await, client(server).await) else {
        return [("connects", "refused".to_owned())].into();
    };
    server.hold_by_hand("lock:seen", "somebody:1", Duration::from_secs(60));
    let status = mine.lock("seen");
    let mut done: BTreeMap<&'static str, Deed> = BTreeMap::new();
    done.insert("learns scripts", relearns_scripts(&mine, server).await);
    done.insert("locks", locks(&mine).await);
    done.insert("locks several", locks_several(&mine).await);
    done.insert("nests", nests(&mine).await);
    done.insert("is refused", is_refused(&mine, server).await);
    done.insert("hands off", goes_on(mine.lock("handed"), mine.lock("handed"), server).await);
    done.insert("is woken", goes_on(mine.lock("woken"), other.lock("woken"), server).await);
    done.insert("is served in order", is_served_in_order(&mine, &other, server).await);
    done.insert("is shared", is_shared(&mine, &other, server).await);
    done.insert("passes the dead", passes_the_dead(&mine, server).await);
    done.insert("unsubscribes", unsubscribes(server).await);
    done.insert("is renewed", is_renewed(&mine).await);
    done.insert("executes", executes(&mine).await);
    done.insert("counts tokens", counts_tokens(&mine).await);
    done.insert("shares a token", shares_a_token(&mine, server).await);
    done.insert("is forced", is_forced(&mine, server).await);
    done.insert("is_locked", status.is_locked().await);
    done.insert("hold_count", status.hold_count().await.map(|count| count == 0));
    done.insert("remaining_lease", status.remaining_lease().await.map(|left| left.is_some()));
    done.insert("reconnects", reconnects(&mine, server).await);
    done.retain(|_, deed| !matches!(deed, Ok(true)));
    done.into_iter().map(|(name, deed)| (name, format!("{deed:?}"))).collect()
}

/// What the user was denied, as the server calls it.
fn denied(server: &Server) -> BTreeSet<String> {
    let log: Vec<redis::Value> = server.ask(&["ACL", "LOG", "128"]);
    let object = |entry| {
        let fields: BTreeMap<String, redis::Value> =
            redis::from_redis_value(entry).expect("an entry");
        redis::from_redis_value::<String>(fields["object"].clone()).expect("an object")
    };
    log.into_iter().map(object).collect()
}

/// A server, what was denied there to a user without one of the rights, and what went wrong.
async fn tried(without: Option<&str>) -> (BTreeSet<String>, Wrong) {
    let server = Server::start();
    allow(&server, without);
    let wrong = deeds(&server).await;
    let denied = denied(&server);
    // What could not be given back.
    server.ask::<()>(&["FLUSHALL"]);
    (denied, wrong)
}

#[tokio::test]
async fn with_these_rights_all_goes_well_and_nothing_is_denied() {
    let (denied, wrong) = tried(None).await;
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(denied.is_empty(), "{denied:?}");
}

#[tokio::test]
async fn without_any_one_of_them_it_is_denied_and_something_is_worse() {
    let check = |&(right, object, expected): &(&'static str, &str, &[&'static str])| {
        let (object, expected) = (object.to_owned(), expected.to_vec());
        async move {
            let (denied, wrong) = tried(Some(right)).await;
            // 6.2 names no subcommands.
            let command = object.split('|').next().expect("a word");
            let is_it = |said: &String| said.starts_with(&object) || said == command;
            assert!(!denied.is_empty(), "nobody needs {right}");
            assert!(denied.iter().all(is_it), "without {right}: {denied:?}");
            let as_said = expected.iter().all(|deed| wrong.contains_key(deed));
            assert!(as_said && wrong.is_empty() == expected.is_empty(), "no {right}: {wrong:?}");
        }
    };
    // Mostly they wait for what does not come.
    futures::stream::iter(RIGHTS).map(check).buffer_unordered(12).collect::<()>().await;
}

#[test]
fn the_guide_names_these_rights_and_no_others() {
    let guide = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/deployment.md"));
    let needed: BTreeSet<&str> = RIGHTS.iter().map(|(right, ..)| *right).collect();
    let mut lists = guide.split("ACL SETUSER app on >secret ").skip(1);
    // With comments, and to paste.
    for (list, many) in [(lists.next(), 5..10), (lists.next(), 1..2)] {
        let list = list.expect("a list").split("```").next().expect("its end");
        let lines: Vec<_> = list.lines().collect();
        assert!(many.contains(&lines.len()), "{lines:?}");
        let words = lines
            .iter()
            .flat_map(|line| line.split('#').next().expect("a line").split_whitespace());
        let named: BTreeSet<&str> = words.filter(|word| *word != "resetchannels").collect();
        assert_eq!(named, needed);
    }
}

#[tokio::test]
async fn a_database_of_its_own_takes_one_more_right() {
    let server = Server::start();
    allow(&server, None);
    let url = format!("redis://app:pw@127.0.0.1:{}/1", server.port());
    let connect = || LockClient::builder().url(&url).name_prefix("lock:").connect();
    let error = soon("connecting", connect()).await.unwrap_err();
    assert!(format!("{error:#}").contains("select"), "{error:#}");
    server.ask::<()>(&["ACL", "SETUSER", "app", "+select"]);
    let client = soon("connecting", connect()).await.unwrap();
    assert!(locks(&client).await.unwrap());
}
