//! Who holds a lock: the names of connections, `inspect` and `locks`.

mod all;
mod one;
mod rights;

use redlatch::{HoldMode, Holder, InspectedKind, Inspection};
use tokio_stream::StreamExt;

use crate::prelude::*;

/// The names of the connections to a server, without those that have none.
fn names(server: &Server) -> Vec<String> {
    let list: String = server.ask(&["CLIENT", "LIST"]);
    let named = |line: &str| {
        let name = line.split(' ').find_map(|field| field.strip_prefix("name="));
        name.filter(|name| !name.is_empty()).map(str::to_owned)
    };
    list.lines().filter_map(named).collect()
}

/// The id of a client, which the owners of its locks begin with.
fn id(client: &LockClient) -> String {
    let lock = client.lock("of which client");
    lock.owner().split(':').next().expect("an id").to_owned()
}

fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    host.trim().to_owned()
}

/// The name of the connections of a client without a label.
fn name(client: &LockClient) -> String {
    format!("redlatch:{}:{}:{}", id(client), host(), std::process::id())
}

async fn labelled(server: &Server, label: &str) -> LockClient {
    let builder = LockClient::builder().url(server.url()).label(label);
    soon("connecting", builder.connect()).await.expect("a client")
}

pub(crate) async fn everybody_sees_who_holds_a_lock(setup: Setup) {
    let (client, watcher) = (setup.connect().await, setup.connect().await);
    assert_eq!(watcher.inspect("seen").await.unwrap(), None);
    let lock = client.lock("seen");
    let (guard, nested) = (hold(&lock).await, hold(&lock).await);
    let reads = client.read_write_lock("shared").read().await.unwrap();
    let one = seen(&watcher, "seen").await;
    let [holder] = &*one.holders else { panic!("{one:?}") };
    assert_eq!((&*holder.owner, holder.count), (guard.owner(), 2));
    assert!(holder.host.is_some() && holder.pid.is_some(), "{holder:?}");
    let found = all(&watcher, "s*").await;
    let found: Vec<_> =
        found.values().map(|lock| (&*lock.name, lock.kind, &*lock.holders[0].owner)).collect();
    let expected = [
        ("seen", InspectedKind::Lock, guard.owner()),
        ("shared", InspectedKind::ReadWrite, reads.owner()),
    ];
    assert_eq!(found, expected);
    release(nested).await;
    release(guard).await;
    reads.unlock().await.unwrap();
    assert_eq!(watcher.inspect("seen").await.unwrap(), None);
}

#[tokio::test]
async fn every_connection_says_which_client_has_it() {
    let server = Server::start();
    let client = labelled(&server, "orders-7b9c:a").await;
    let plain = connect(&server).await;
    let named = || {
        let count = |name: String| names(&server).iter().filter(|one| **one == name).count();
        (count(name(&client) + ":orders-7b9c:a"), count(name(&plain)), names(&server).len())
    };
    // Each has one for its thread, and one for this runtime.
    assert_eq!(named(), (2, 2, 4), "{:?}", names(&server));
    // A connection that is made again has the name, too.
    server.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    release(hold(&client.lock("free")).await).await;
    release(hold(&plain.lock("free")).await).await;
    wait_until("four names again", SOON, || named() == (2, 2, 4)).await;
}

#[tokio::test]
async fn a_server_that_refuses_the_name_takes_the_client_without_it() {
    let server = Server::start();
    let user = |denied: &str| {
        let rule = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", denied];
        server.try_ask::<()>(&rule)
    };
    // Redis 6.2 takes no subcommand away.
    user("-client|setname").or_else(|_| user("-client")).expect("a user");
    let url = format!("redis://app:pw@127.0.0.1:{}/", server.port());
    let refused = LockClient::builder().url(url).label("refused").connect();
    let refused = soon("connecting", refused).await.expect("a client without a name");
    release(hold(&refused.lock("free")).await).await;
    assert_eq!(names(&server), Vec::<String>::new());
    let denied: Vec<redis::Value> = server.ask(&["ACL", "LOG"]);
    assert!(!denied.is_empty(), "nothing was denied");
    refused.close().await;
    // A server, or a proxy, that knows no such command.
    let server = Server::start_with(&["--rename-command", "CLIENT", ""]);
    let client = labelled(&server, "unknown").await;
    release(hold(&client.lock("free")).await).await;
    assert!(server.errors("ERR") > 0, "it knows the command");
}

#[tokio::test]
async fn sentinels_and_the_primary_know_the_names() {
    let sentinels = Sentinels::start();
    let builder =
        LockClient::builder().sentinel(sentinel::MASTER, sentinels.urls()).label("behind");
    let client = soon("connecting", builder.connect()).await.expect("a client");
    let expected = name(&client) + ":behind";
    let knows = |server: &Server| names(server).contains(&expected);
    assert!(knows(sentinels.master()), "{:?}", names(sentinels.master()));
    let listens = || sentinels.sentinels().iter().all(knows);
    wait_until("all sentinels to know it", SOON, listens).await;
}

#[tokio::test]
async fn a_label_that_no_connection_can_have_is_refused_before_any_request() {
    for label in ["", "two words", "line\n", "caf\u{e9}", &"x".repeat(65)] {
        // Nothing answers there.
        let builder = LockClient::builder().url("redis://127.0.0.1:1/").label(label);
        let lazy = builder.clone().connect_lazy().err();
        for error in [builder.connect().await.err(), lazy] {
            let error = error.unwrap_or_else(|| panic!("{label:?} was accepted"));
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{label:?}: {error}");
            assert!(error.to_string().contains("label"), "{label:?}: {error}");
        }
    }
}

/// What a client says of a lock that is held, or waited for.
async fn seen(client: &LockClient, name: &str) -> Inspection {
    let seen = soon("an inspection", client.inspect(name)).await.expect("an inspection");
    seen.unwrap_or_else(|| panic!("{name} is free"))
}

/// The label, machine and process of a holder, which are known together or not at all.
fn place(holder: &Holder) -> Option<(&str, &str, u32)> {
    let (host, pid) = (holder.host.as_deref()?, holder.pid?);
    Some((holder.label.as_deref()?, host, pid))
}

/// Whether that is a client of this process.
fn is_here(holder: &Holder, label: &str) -> bool {
    place(holder) == Some((label, &*host(), std::process::id()))
}

/// Waits until so many clients stand in a queue.
async fn queued(server: &Server, queue: &str, clients: usize) {
    let are_there = || server.ask::<usize>(&["ZCARD", queue]) == clients;
    wait_until("an entry in the queue", SOON, are_there).await;
}

/// All that a pattern finds, by name. What fails is in the second place.
async fn found(client: &LockClient, pattern: &str) -> (BTreeMap<String, Inspection>, Vec<Error>) {
    let mut locks = client.locks(pattern);
    let (mut found, mut failed) = (BTreeMap::new(), Vec::new());
    while let Some(lock) = within(MINUTE, "a lock", locks.next()).await {
        match lock {
            Ok(lock) => drop(found.insert(lock.name.clone(), lock)),
            Err(error) => failed.push(error),
        }
    }
    (found, failed)
}

async fn all(client: &LockClient, pattern: &str) -> BTreeMap<String, Inspection> {
    let (found, failed) = found(client, pattern).await;
    assert!(failed.is_empty(), "{failed:?}");
    found
}
