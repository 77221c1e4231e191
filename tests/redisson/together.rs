//! Several locks together, of both sides: to the other side they are so many ordinary locks.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use redis::AsyncCommands;
use redlatch::{Lease, LockClient, MultiGuard};

use crate::parties::{Micros, PROMPT, Party, now};
use crate::setup::{Setup, Topology};
use crate::sides::Side;
use crate::support::{SOON, ms, soon, wait_until, within};

/// For how long somebody must not get in.
const A_WHILE: Duration = ms(150);

/// How long the crowd may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn names(what: &str) -> [String; 3] {
    ["a", "b", "c"].map(|name| format!("{what}-{name}"))
}

/// As the Java program wants them.
fn listed(names: &[String]) -> String {
    names.join(",")
}

async fn acquires(client: &LockClient, names: &[String]) -> MultiGuard {
    soon("all", client.multi_lock(names).lock()).await.expect("all")
}

async fn tries(client: &LockClient, names: &[String]) -> Option<MultiGuard> {
    soon("a try", client.multi_lock(names).try_lock_now()).await.expect("an answer")
}

/// Fails unless an owner of that client has each of these once, and nobody has anything else.
fn assert_holds(setup: &Setup, names: &[String], client: &str) {
    for name in names {
        let holds: Vec<_> = setup.holds(name).into_iter().collect();
        let [(owner, 1)] = &holds[..] else { panic!("{holds:?} of {name}") };
        assert!(owner.starts_with(client), "{owner} has {name}");
        let left = setup.pttl(name);
        assert!((20_000..=30_000).contains(&left), "{left} ms left of {name}");
    }
    let mut keys = setup.keys();
    keys.sort_unstable();
    assert_eq!(keys, names);
}

pub(crate) async fn keep_the_other_side_out(setup: &Setup) {
    let names = names("together");
    let [_, second, third] = &names;
    let all = listed(&names);
    let client = setup.client().await;
    let (thread, other) = (setup.java.thread("together"), setup.java.thread("another"));

    let guard = acquires(&client, &names).await;
    let ours = guard.owner().split(':').next().expect("a client");
    assert_holds(setup, &names, ours);
    for name in &names {
        assert!(!thread.get::<bool>("tryLock", &[name, &0, &-1]).await, "Java has {name}");
    }
    for wait in [0, 100] {
        assert!(!thread.get::<bool>("multi.tryLock", &[&all, &wait, &-1]).await);
    }
    assert_holds(setup, &names, ours);
    guard.unlock().await.expect("unlocking");

    thread.ask("multi.lock", &[&all]).await.value();
    let theirs = thread.owner().await;
    assert_holds(setup, &names, &theirs);
    for name in &names {
        let got = client.lock(name).try_lock_now().await.expect("an answer");
        assert!(got.is_none(), "we have {name}");
    }
    for wait in [Duration::ZERO, ms(100)] {
        let got = client.multi_lock(&names).try_lock(wait, Lease::Watchdog).await;
        assert!(got.expect("an answer").is_none());
    }
    assert_holds(setup, &names, &theirs);
    thread.ask("multi.unlock", &[&all]).await.value();
    assert_eq!(setup.keys(), [""; 0]);

    // One that is busy is enough, and nothing is left of the others. In a cluster both have had a lock of another slot by
    // then, which they give back in the background.
    let only = async |name: &str| {
        if setup.topology == Topology::Cluster {
            wait_until("nothing else", SOON, || setup.keys() == [name]).await;
        }
        assert_eq!(setup.keys(), [name]);
    };
    thread.ask("lock", &[second]).await.value();
    assert!(tries(&client, &names).await.is_none());
    only(second).await;
    assert!(!other.get::<bool>("multi.tryLock", &[&all, &0, &-1]).await);
    only(second).await;
    thread.ask("unlock", &[second]).await.value();
    let guard = client.lock(third).lock().await.expect("the lock");
    assert!(!other.get::<bool>("multi.tryLock", &[&all, &0, &-1]).await);
    only(third).await;
    guard.unlock().await.expect("unlocking");
}

pub(crate) async fn wait_for_the_other_side(setup: &Setup) {
    let names = names("wait-together");
    let all = listed(&names);
    let client = setup.client().await;
    let thread = setup.java.thread("together");
    let waits = || {
        let (lock, before) = (client.multi_lock(&names), setup.calls("evalsha"));
        let task = tokio::spawn(async move { (lock.lock().await.expect("all"), now()) });
        // Refused, it subscribes, and is refused once more.
        let parked = async move |task: &tokio::task::JoinHandle<_>| {
            let asked = || setup.calls("evalsha") >= before + 2;
            wait_until("we are parked", SOON, || task.is_finished() || asked()).await;
        };
        (task, parked)
    };

    // For all of them, which Java has together, and for one that it has alone.
    let [_, second, _] = &names;
    for (verb, what, held) in [("multi.", &all, 3), ("", second, 1)] {
        thread.ask(&format!("{verb}lock"), &[what]).await.value();
        let (task, parked) = waits();
        parked(&task).await;
        tokio::time::sleep(A_WHILE).await;
        assert!(!task.is_finished(), "it did not wait");
        if setup.topology == Topology::Cluster {
            // It may be giving back what it had at another node.
            wait_until("nothing else", SOON, || setup.keys().len() == held).await;
        } else {
            assert_eq!(setup.keys().len(), held, "it holds something while it waits");
        }
        let begun = thread.ask(&format!("{verb}unlock"), &[what]).await.begun;
        let (guard, got) = soon("our turn", task).await.expect("a task that succeeds");
        assert!(got.saturating_sub(begun) < PROMPT, "{} us", got - begun);
        guard.unlock().await.expect("unlocking");
    }

    // Java waits for what we have together: with each of its locks on its own.
    let guard = acquires(&client, &names).await;
    let mut waiters = Vec::new();
    for name in &names {
        let mut waiter = Party::java(setup, &setup.java, &format!("waits.{name}"), name);
        waiter.waits(Side::Plain).await;
        waiters.push(waiter);
    }
    tokio::time::sleep(A_WHILE).await;
    assert!(waiters.iter().all(Party::is_waiting), "Java got in");
    let begun = now();
    guard.unlock().await.expect("unlocking");
    for waiter in &mut waiters {
        assert!(waiter.gets().await.saturating_sub(begun) < PROMPT);
        waiter.gives_back(Side::Plain).await;
    }

    // And with all. Not beside those: it holds some while it waits for others, for seconds.
    let guard = acquires(&client, &names).await;
    let call = setup.java.thread("waits.all").begin("multi.lock", &[&all]);
    tokio::time::sleep(A_WHILE).await;
    assert!(!call.is_done(), "Java got in");
    guard.unlock().await.expect("unlocking");
    call.answer().await.value();
    setup.java.thread("waits.all").ask("multi.unlock", &[&all]).await.value();
    assert_eq!(setup.keys(), [""; 0]);
}

/// Pairs of three names: nobody waits in a circle, no addition is lost. Java has to keep to an order, or it would
/// wait in a circle by itself.
pub(crate) async fn crossing_sets_have_their_turns(setup: &Setup) {
    const TURNS: usize = 40;
    let names = names("cross");
    let [a, b, c] = &names;
    setup.server().ask::<()>(&["SET", "additions", "0"]);
    // Each pair has `b`, which guards the counter.
    let pairs = [[a, b], [b, a], [b, c], [c, b]].map(|pair| pair.map(String::clone));
    let java = [0, 0, 2, 2].map(|i| &pairs[i]).into_iter().enumerate().map(|(i, pair)| {
        let thread = setup.java.thread(&format!("cross.{i}"));
        let call = thread.begin("multi.work", &[&listed(pair), &"additions", &TURNS]);
        async move { call.answer_within(PATIENCE).await.value() }
    });
    let redis = redis::Client::open(setup.server().url()).expect("an address");
    let mut tasks = Vec::new();
    for pair in pairs.clone() {
        let lock = Arc::new(setup.client().await.multi_lock(&pair));
        let mut redis = redis.get_multiplexed_async_connection().await.expect("a connection");
        tasks.push(tokio::spawn(async move {
            let mut longest: Micros = 0;
            for _ in 0..TURNS {
                let asked = now();
                let guard = lock.lock().await.expect("all");
                longest = longest.max(now() - asked);
                let count: usize = redis.get("additions").await.expect("the counter");
                let () = redis.set("additions", count + 1).await.expect("writing");
                guard.unlock().await.expect("unlocking");
            }
            longest
        }));
    }
    let (java, rust) = tokio::join!(join_all(java), within(PATIENCE, "our turns", join_all(tasks)));
    let java = java.iter().map(|longest| longest.parse::<Micros>().expect("a time")).max();
    let rust = rust.into_iter().map(|task| task.expect("a task that succeeds")).max();
    println!(
        "redisson {}: longest wait for two locks: Java {java:?} us, we {rust:?} us",
        setup.version
    );
    assert_eq!(
        setup.server().ask::<usize>(&["GET", "additions"]),
        8 * TURNS,
        "an addition was lost"
    );
    setup.server().ask::<()>(&["DEL", "additions", "additions:turns"]);
}
