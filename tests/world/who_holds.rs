//! Who holds a lock: the names of connections, `inspect` and `locks`, in a simulated Redis.

use std::collections::BTreeSet;

use redlatch::InspectedKind;
use tokio_stream::StreamExt;

use crate::prelude::*;

/// The names of all locks that a client finds, in its own task.
pub(crate) async fn found(machine: &Machine, client: &LockClient) -> BTreeSet<String> {
    let mut locks = client.locks("*");
    let all = machine.run(async move {
        let mut names = BTreeSet::new();
        while let Some(lock) = locks.next().await {
            names.insert(lock.expect("an answer").name);
        }
        names
    });
    all.await
}

#[test]
fn a_connection_has_its_name_with_the_first_questions_on_it() {
    let away = ms(40);
    play(0, async |scene| {
        let begun = Instant::now();
        let (_machine, client) = scene.client(away, LockClient::builder().label("far-away")).await;
        // Twice, for this runtime and then for the client's thread: TCP, HELLO, the questions, and for the first one
        // the scripts.
        assert_eq!(begun.elapsed(), 7 * away);
        let lock = client.lock("whose");
        let id = lock.owner().split(':').next().expect("an id").to_owned();
        let list: String = scene.ask(&["CLIENT", "LIST"]);
        let named = |line: &&str| line.contains(&format!(" name=redlatch:{id}:machine-"));
        let labelled = |line: &&str| line.contains(":1:far-away ");
        assert_eq!(list.lines().filter(named).filter(labelled).count(), 2, "{list}");
    });
}

/// Thousands may wait for one lock, and each would ask in the same second.
#[test]
fn a_long_wait_asks_for_no_list_of_a_thousand_clients() {
    for (others, lists) in [(900, 1), (1_000, 0)] {
        let (log, asked) = logged(|| {
            play(0, async |scene| {
                let (_, holder) = scene.client(ms(1), LockClient::builder()).await;
                let guard = hold(&holder.lock("theirs")).await;
                let (_, client) = scene.client(ms(1), LockClient::builder()).await;
                scene.network.at(scene.server, |server, now| {
                    for _ in 0..others {
                        server.accept(now, "elsewhere:1");
                    }
                });
                let busy = client.lock("theirs").try_lock(MINUTE, MINUTE).await.expect("an answer");
                assert!(busy.is_none());
                release(guard).await;
                scene.network.at(scene.server, |server, _| server.calls("client|list"))
            })
        });
        assert_eq!(asked, lists, "{others} others");
        assert_eq!(log.matches("waits long").count(), 1, "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_test_sees_what_an_operator_sees() {
    let redis = Redis::new();
    let (holder, watcher) = (redis.builder().label("orders"), redis.client());
    let holder = holder.connect_lazy().unwrap();
    assert_eq!(watcher.inspect("order").await.unwrap(), None);
    let guard = holder.fair_lock("order").lock_with_lease(Duration::from_secs(60)).await.unwrap();
    let waits = watcher.fair_lock("order");
    let waiter = tokio::spawn(async move { waits.lock().await.unwrap() });
    sleep(Duration::from_secs(20)).await;
    let seen = watcher.inspect("order").await.unwrap().expect("a lock");
    assert_eq!(seen.kind, InspectedKind::Fair);
    assert_eq!((&*seen.holders[0].owner, seen.holders[0].count), (guard.owner(), 1));
    assert_eq!(seen.holders[0].label.as_deref(), Some("orders"));
    assert_eq!(seen.lease_left, Duration::from_secs(40));
    let age = seen.waiting[0].age.expect("an age");
    assert!(age > ms(19_999) && age <= ms(20_000), "{age:?}");
    redis.give("order", "somebody:1");
    let seen = watcher.inspect("order").await.unwrap().expect("a lock");
    assert_eq!((&*seen.holders[0].owner, &seen.holders[0].host), ("somebody:1", &None));
    waiter.abort();
}

/// The simulated server has pages of its own.
#[tokio::test(start_paused = true)]
async fn all_locks_are_found_in_pages() {
    let redis = Redis::new();
    let client = redis.client();
    let names: BTreeSet<String> = (0..1_000).map(|number| format!("many:{number}")).collect();
    let locks: Vec<_> = names.iter().map(|name| client.lock(name)).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    let mut found = Vec::new();
    let mut locks = client.locks("many:*");
    while let Some(lock) = locks.next().await {
        found.push(lock.unwrap().name);
    }
    assert_eq!(found.len(), 1_000);
    assert_eq!(BTreeSet::from_iter(found), names);
    drop(guards);
}

#[test]
fn a_look_at_a_lock_takes_one_round_trip_or_two_and_all_locks_four_for_the_first_page() {
    let away = ms(40);
    play(0, async |scene| {
        let options = LockClient::builder;
        let (machine, holder) = scene.client(away, options()).await;
        let (other, watcher) = scene.client(away, options()).await;
        let guard = machine.run(holder.lock("held").lock()).await.expect("a lock");
        // Its token stays.
        let fenced = machine.run(holder.fenced_lock("was fenced").lock()).await.expect("a lock");
        machine.run(fenced.unlock()).await.expect("a release");
        for (name, round_trips) in [("free", 1), ("was fenced", 1), ("held", 2)] {
            let begun = Instant::now();
            other.run(watcher.inspect(name)).await.expect("an answer");
            assert_eq!(begun.elapsed(), round_trips * away, "{name}");
        }
        let begun = Instant::now();
        let mut locks = watcher.locks("*");
        let first = other.run(locks.next()).await.expect("a lock");
        assert_eq!((first.expect("a lock").name, begun.elapsed()), ("held".to_owned(), 4 * away));
        machine.run(guard.unlock()).await.expect("a release");
    });
}

/// The command timeout is that of one request: a page takes several.
#[test]
fn all_locks_are_found_from_as_far_as_one_answer_may_come() {
    let (away, options) = (ms(200), || LockClient::builder().command_timeout(ms(300)));
    play(0, async |scene| {
        let (holds, holder) = scene.client(away, options()).await;
        let (machine, watcher) = scene.client(away, options()).await;
        let guard = holds.run(holder.lock("held").lock()).await.expect("a lock");
        assert_eq!(found(&machine, &watcher).await, ["held".to_owned()].into());
        holds.run(guard.unlock()).await.expect("a release");
    });
}

/// An application has large hashes beside the locks, and some of them look like locks of many readers.
#[test]
fn hashes_of_others_are_no_locks_and_their_values_stay_where_they_are() {
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
        let guard = machine.run(client.lock("lock").lock()).await.expect("a lock");
        let config = client.read_write_lock("config");
        let reading = machine.run(config.read()).await.expect("to read");
        for site in 0..10 {
            let name = format!("visits:{site}");
            let pages: Vec<String> = (0..1_000).map(|page| format!("page:{page}")).collect();
            let pages = pages.iter().flat_map(|page| [page, "1"]);
            scene.ask::<u64>(&["HSET", &name].into_iter().chain(pages).collect::<Vec<_>>());
        }
        let text = "a".repeat(1_000);
        scene.ask::<u64>(&["HSET", "how the text is opened", "mode", "write", "text", &text]);
        let error = machine.run(client.inspect("visits:3")).await.expect_err("no lock");
        assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
        let before = scene.calls("hscan");
        let names = found(&machine, &client).await;
        assert_eq!(names, ["lock", "config"].map(str::to_owned).into());
        assert_eq!(scene.calls("hscan") - before, 2, "for each lock");
        machine.run(guard.unlock()).await.expect("a release");
        machine.run(reading.unlock()).await.expect("a release");
    });
}
