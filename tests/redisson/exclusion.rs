//! Two Java processes and two of ours read, add one, and write the same counter. No
//! addition may be lost, and each of the four gets turns while the others want them too.

use std::time::Duration;

use futures::future::join_all;
use redis::AsyncCommands;
use redlatch::LockClient;

use crate::parties::Micros;
use crate::setup::Setup;
use crate::support::child::{self, Child};
use crate::support::soon;

/// Of each process.
const TASKS: usize = 2;

/// How long it may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a turn may take to come.
const BEARABLE: Micros = 10_000_000;

pub(crate) async fn loses_no_addition(setup: &Setup) {
    // The newest Redisson gets the long run.
    let total = if setup.version == crate::VERSIONS[0] { 5_000 } else { 2_400 };
    let turns = total / 4 / TASKS;
    let name = "exclusion";
    setup.server().ask::<()>(&["SET", "counter", "0"]);

    let java = [setup.java.clone(), setup.another_java(Duration::from_secs(30))];
    let role = format!("work {} {name} counter {turns}", setup.server().url());
    let mut rust: Vec<Child> =
        (0..2).map(|i| Child::start("", &format!("{role} rust{i}"))).collect();
    for child in &mut rust {
        child.hear_that("ready");
    }

    let work = |counter: &'static str, turns: usize| {
        let threads = java.iter().enumerate().flat_map(|(i, java)| {
            (0..TASKS).map(move |task| java.thread(&format!("java{i}.{task}")))
        });
        let begun = threads.map(|thread| thread.begin("work", &[&name, &counter, &turns]));
        let done = begun.map(|call| call.answer_within(PATIENCE));
        done.collect::<Vec<_>>()
    };
    // A Java that has just started is slow.
    setup.server().ask::<()>(&["SET", "warm-up", "0"]);
    join_all(work("warm-up", 100)).await;
    let done = work("counter", turns);
    for child in &mut rust {
        child.say("go");
    }
    let waits = join_all(done).await.into_iter().map(|done| done.value());
    let longest = waits.map(|wait| wait.parse::<Micros>().expect("a time")).max().expect("four");
    assert!(longest < BEARABLE, "Java waited {longest} us for a turn");
    for child in &mut rust {
        child.hear_that("done");
    }

    assert_eq!(setup.server().ask::<usize>(&["GET", "counter"]), total, "an addition was lost");
    let together = turns_together(setup, total);
    println!(
        "redisson {}: Java, Java, Rust, Rust had {together:?} turns; Java waited {} ms at most",
        setup.version,
        longest / 1_000
    );
    let sum: usize = together.iter().sum();
    assert!(sum >= total / 20, "they were hardly at it together");
    assert!(together.iter().all(|turns| *turns > 0), "somebody had no turn: {together:?}");
    // Ours hand the lock over inside their process for a while, and take it sooner from others; a
    // busy machine gives Java a few percent.
    assert!(together[0] + together[1] > sum / 200, "hardly any turn for Java: {together:?}");
    let keys = ["counter", "warm-up"].map(|key| [key.to_owned(), format!("{key}:turns")]).concat();
    setup.server().ask::<()>(&["DEL", &keys[0], &keys[1], &keys[2], &keys[3]]);
}

/// How many turns each of the four had while all of them wanted the lock.
fn turns_together(setup: &Setup, total: usize) -> [usize; 4] {
    // Everybody has signed the list in each turn, under the lock: it is the history of the holds.
    let turns: Vec<String> = setup.server().ask(&["LRANGE", "counter:turns", "0", "-1"]);
    let of_each = ["java0", "java1", "rust0", "rust1"].map(|process| -> Vec<usize> {
        (0..turns.len()).filter(|i| turns[*i].starts_with(process)).collect()
    });
    assert!(of_each.iter().all(|turns| turns.len() == total / 4), "{of_each:?}");
    // From the first turn of whoever came last to the last of whoever was done first.
    let begun = of_each.iter().map(|turns| turns[0]).max().expect("four");
    let ended = of_each.iter().map(|turns| turns[turns.len() - 1]).min().expect("four");
    of_each.map(|turns| turns.into_iter().filter(|i| (begun..ended).contains(i)).count())
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
