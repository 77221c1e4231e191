//! A mixed fleet: two Java processes and two of ours read, add one, and write the same counter. No
//! addition may be lost, and each of the four gets turns while the others want them too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use redis::AsyncCommands;
use redlatch::LockClient;

use crate::java::Java;
use crate::site::Site;
use crate::support::child::{self, Child};
use crate::support::{soon, within};

/// Of each process.
const TASKS: usize = 2;

/// How long a fleet may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn loses_no_addition(site: &Site) {
    // The newest Redisson gets the long run.
    let total = if site.version == crate::VERSIONS[0] { 5_000 } else { 1_000 };
    let turns = total / 4 / TASKS;
    let name = "fleet";
    site.server.ask::<()>(&["SET", "counter", "0"]);

    let java = [site.java.clone(), site.another_java(Duration::from_secs(30))];
    let role = format!("work {} {name} counter {turns}", site.server.url());
    let mut rust: Vec<Child> =
        (0..2).map(|i| Child::start("", &format!("{role} rust{i}"))).collect();
    for child in &mut rust {
        child.hear_that("ready");
    }

    for child in &mut rust {
        child.say("go");
    }
    let calls: Vec<_> = java
        .iter()
        .enumerate()
        .flat_map(|(i, java)| (0..TASKS).map(move |task| begin(java, i, task, name, turns)))
        .collect();
    let done = within(PATIENCE, "the work of Java", join_all(calls)).await;
    assert!(done.into_iter().all(|done| done == turns));
    for child in &mut rust {
        child.hear_that("done");
    }

    assert_eq!(site.server.ask::<usize>(&["GET", "counter"]), total, "an addition was lost");
    check_turns(site, total);
    site.server.ask::<()>(&["DEL", "counter", "counter:turns"]);
}

async fn begin(java: &Arc<Java>, i: usize, task: usize, name: &str, turns: usize) -> usize {
    let thread = java.thread(&format!("java{i}.{task}"));
    let answer = thread.begin("work", &[&name, &"counter", &turns]).answer_within(PATIENCE).await;
    answer.value().parse().expect("a number")
}

/// Everybody has signed the list in each turn, under the lock: it is the history of the holds.
fn check_turns(site: &Site, total: usize) {
    let turns: Vec<String> = site.server.ask(&["LRANGE", "counter:turns", "0", "-1"]);
    assert_eq!(turns.len(), total);
    let processes: Vec<&str> =
        turns.iter().map(|turn| turn.split_once('.').expect("process.task").0).collect();
    let mut of_each = BTreeMap::<&str, usize>::new();
    for (i, process) in processes.iter().enumerate() {
        let turns = of_each.entry(process).or_default();
        *turns += 1;
        if *turns == total / 4 {
            // The first that is done: until here all of them wanted turns.
            let so_far = i + 1;
            println!("redisson {}: turns of the first {so_far}: {of_each:?}", site.version);
            assert_eq!(of_each.len(), 4, "somebody got no turn: {of_each:?}");
            assert!(of_each.values().all(|turns| *turns >= so_far / 100), "{of_each:?}");
            return;
        }
    }
    panic!("nobody had all its turns: {of_each:?}");
}

/// A process of ours: `work URL NAME COUNTER TURNS PROCESS`.
pub(crate) async fn work(words: &[&str]) {
    let &[url, name, counter, turns, process] = words else { panic!("{words:?}") };
    let turns: usize = turns.parse().expect("a number");
    let client = soon("connecting", LockClient::connect(url)).await.expect("connecting");
    let redis = redis::Client::open(url).expect("an address");
    let connection = redis.get_multiplexed_async_connection().await.expect("a connection");
    child::say("ready");
    child::hear();
    let tasks = (0..TASKS).map(|task| {
        let (lock, mut redis) = (client.lock(name), connection.clone());
        let (counter, signature) = (counter.to_owned(), format!("{process}.{task}"));
        tokio::spawn(async move {
            for _ in 0..turns {
                let guard = lock.lock().await.expect("the lock");
                let count: u64 = redis.get(&counter).await.expect("the counter");
                let () = redis.set(&counter, count + 1).await.expect("writing");
                let list = format!("{counter}:turns");
                let _: u64 = redis.rpush(list, &signature).await.expect("signing");
                guard.unlock().await.expect("unlocking");
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("a task that succeeds");
    }
    client.close().await;
    child::say("done");
}
