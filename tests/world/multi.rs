//! Multi locks, where the moment counts, or the distance: time is virtual.

mod shards;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redlatch::{Lease, Loss, MultiGuard};
use tokio::sync::Notify;

use crate::prelude::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// In how many commands a client acquires.
fn scripts(scene: &Scene) -> u64 {
    scene.calls("evalsha")
}

async fn client(scene: &Scene, away: Duration) -> (Machine, LockClient) {
    scene.client(away, LockClient::builder()).await
}

#[test]
fn all_locks_cost_one_round_trip_to_acquire_and_one_to_give_back() {
    for (away, many) in [(ms(2), 3), (ms(100), 10), (ms(100), 64)] {
        play(1, async |scene| {
            let (_machine, client) = client(scene, away).await;
            let names: Vec<_> = (0..many).map(|number| format!("name:{number}")).collect();
            let all = client.multi_lock(&names);
            all.lock().await.unwrap().unlock().await.unwrap();
            let (begun, before) = (Instant::now(), scripts(scene));
            let guard = all.lock().await.unwrap();
            assert_eq!((begun.elapsed(), scripts(scene) - before), (away, 1), "{many} names");
            let begun = Instant::now();
            guard.unlock().await.unwrap();
            assert_eq!(begun.elapsed(), away, "{many} names");
            assert!(scene.keys().is_empty());
        });
    }
}

#[test]
fn a_call_that_waits_holds_nothing_and_has_all_within_three_round_trips_of_the_release() {
    for away in [ms(0), ms(2), ms(100)] {
        play(2, async |scene| {
            let (_one, ours) = client(scene, away).await;
            let (_other, theirs) = client(scene, ms(0)).await;
            // Each in turn is the one that keeps the call waiting.
            let mut guards = Vec::new();
            for name in NAMES {
                guards.push(theirs.lock(name).lock().await.unwrap());
            }
            let all = ours.multi_lock(NAMES);
            let waiting = tokio::spawn(async move { all.lock().await });
            for (guard, name) in guards.into_iter().zip(NAMES) {
                sleep(ms(1_000)).await;
                let owner = guard.owner().to_owned();
                assert_eq!(scene.holds(name).keys().collect::<Vec<_>>(), [&owner]);
                assert!(!waiting.is_finished());
                guard.unlock().await.unwrap();
            }
            // The message, and the request.
            let guard =
                timeout(3 * away + ms(3), waiting).await.expect("in time").unwrap().unwrap();
            assert_eq!(scene.keys(), NAMES);
            guard.unlock().await.unwrap();
        });
    }
}

#[test]
fn a_parked_call_costs_redis_nothing() {
    play(3, async |scene| {
        let (_one, ours) = client(scene, ms(2)).await;
        let (_other, theirs) = client(scene, ms(2)).await;
        let guard = theirs.lock("b").lock_with_lease(Duration::from_secs(3_600)).await.unwrap();
        let all = ours.multi_lock(NAMES);
        let waiting = tokio::spawn(async move { all.lock().await });
        sleep(ms(1_000)).await;
        let before = scripts(scene);
        sleep(Duration::from_secs(29)).await;
        assert_eq!(scripts(scene), before);
        drop(guard);
        waiting.await.unwrap().unwrap().unlock().await.unwrap();
    });
}

/// The call is dropped at each moment of its life, while Redis grants or refuses it.
#[test]
fn a_call_that_is_dropped_leaves_no_lock_behind() {
    for away in [ms(2), ms(100)] {
        for (busy, nests) in [(false, false), (false, true), (true, false)] {
            for moment in moments(3 * away, if nests { 16 } else { 48 }) {
                play(4, async |scene| {
                    let (_one, ours) = client(scene, away).await;
                    let (_other, theirs) = client(scene, ms(0)).await;
                    let single = theirs.lock("c");
                    let guard = if busy { Some(single.lock().await.unwrap()) } else { None };
                    let all = ours.multi_lock(NAMES);
                    let outer = if nests { Some(all.lock().await.unwrap()) } else { None };
                    let freed = tokio::spawn(async move {
                        sleep(away).await;
                        drop(guard);
                    });
                    drop(timeout(moment, all.lock()).await);
                    freed.await.unwrap();
                    if let Some(guard) = outer {
                        assert!(!guard.is_lost());
                        guard.unlock().await.unwrap();
                    }
                    sleep(6 * away + ms(10)).await;
                    assert_eq!(scene.keys(), [""; 0], "{away:?}, dropped after {moment:?}");
                    // And it can be had again at once.
                    let again = timeout(2 * away, all.try_lock_now()).await.unwrap().unwrap();
                    again.expect("all are free").unlock().await.unwrap();
                });
            }
        }
    }
}

#[test]
fn a_multi_guard_is_lost_as_soon_as_one_of_its_locks_is() {
    play(5, async |scene| {
        let options = LockClient::builder().watchdog_timeout(Duration::from_secs(3));
        let (_machine, ours) = scene.client(ms(2), options).await;
        let guard = ours.multi_lock(NAMES).lock().await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(!guard.is_lost(), "each of them is renewed");
        assert_eq!(scene.keys(), NAMES);
        scene.ask::<u64>(&["DEL", "c"]);
        let error = timeout(ms(1_100), guard.run_until_lost(std::future::pending::<()>())).await;
        let error = error.expect("by the next renewal").unwrap_err();
        assert_eq!((error.kind(), error.lock_name()), (ErrorKind::Lost, Some("c")));
        assert_eq!(guard.loss(), Some(Loss::KeyGone));
        assert_eq!(guard.remaining(), Duration::ZERO);
        drop(guard);
        sleep(ms(10)).await;
        assert!(scene.keys().is_empty());
    });
}

/// A single lock is not handed past a multi lock that came before it, nor to it.
#[test]
fn the_waiters_of_a_client_have_a_lock_in_the_order_of_their_age() {
    play(6, async |scene| {
        let (_machine, ours) = client(scene, ms(2)).await;
        let (_other, theirs) = client(scene, ms(2)).await;
        let (b, c) = (ours.lock("b").lock().await.unwrap(), theirs.lock("c").lock().await.unwrap());
        let (all, single) = (ours.multi_lock(["b", "c"]), ours.lock("c"));
        let multi = tokio::spawn(async move {
            let guard = all.lock().await.unwrap();
            let had = Instant::now();
            sleep(ms(20)).await;
            guard.unlock().await.unwrap();
            had
        });
        sleep(ms(100)).await;
        let younger = tokio::spawn(async move {
            let guard = single.lock().await.unwrap();
            let had = Instant::now();
            guard.unlock().await.unwrap();
            had
        });
        sleep(ms(100)).await;
        // It waits for `b`, and moves to `c`, before the one that waits there already.
        b.unlock().await.unwrap();
        sleep(ms(100)).await;
        assert!(!multi.is_finished() && !younger.is_finished());
        release(ours.lock("b").lock().await.unwrap()).await;
        c.unlock().await.unwrap();
        assert!(multi.await.unwrap() < younger.await.unwrap());
        assert!(scene.keys().is_empty());
    });
}

/// Two others have one of the two locks each, again and again, and never let both go at once.
#[test]
fn a_set_that_is_never_free_as_a_whole_is_taken_one_by_one() {
    for away in [ms(0), ms(2), ms(20)] {
        play(7, async |scene| {
            let (_machine, ours) = client(scene, away).await;
            let free = 2 * away + ms(4);
            let stop = Arc::new(AtomicU64::new(0));
            let others = [("a", 0), ("b", 3)].map(|(name, offset)| {
                let stop = stop.clone();
                async move {
                    sleep(free * offset).await;
                    while stop.load(Relaxed) == 0 {
                        // For five parts of six, if it is to be had.
                        let taken = scene.ask::<u64>(&["EXISTS", name]) == 0;
                        if taken {
                            scene.ask::<u64>(&["HSET", name, "other:1", "1"]);
                            scene.ask::<u64>(&["PEXPIRE", name, "60000"]);
                        }
                        sleep(free * 5).await;
                        if taken {
                            set_free(scene, name);
                        }
                        sleep(free).await;
                    }
                }
            });
            let all = ours.multi_lock(["b", "a"]);
            let waiting = async {
                sleep(ms(100)).await;
                let begun = Instant::now();
                let guard = timeout(Duration::from_secs(20), all.lock()).await;
                let guard = guard.expect("in the end").unwrap();
                assert!(begun.elapsed() >= ms(1_000), "it tried with empty hands first");
                assert_eq!(scene.keys(), ["a", "b"]);
                sleep(2 * away + ms(10)).await;
                // What it took one by one is given back: one hold of each is left.
                assert!(["a", "b"].iter().all(|name| scene.holds(name).values().eq([&1])));
                stop.store(1, Relaxed);
                guard.unlock().await.unwrap();
            };
            let [a, b] = others;
            tokio::join!(a, b, waiting);
            assert!(scene.keys().is_empty(), "{:?}", scene.keys());
        });
    }
}

/// A call that waits for `a` and `b` has `a`, because it takes them one by one by now, and another client has `b`.
struct Starved {
    ours: LockClient,
    theirs: LockClient,
    waiting: JoinHandle<Result<Option<MultiGuard>, Error>>,
    b: LockGuard,
}

impl Starved {
    async fn new(scene: &Scene) -> Self {
        Self::with(scene, None).await
    }

    /// The call waits for so long, or as long as it takes.
    async fn with(scene: &Scene, wait: Option<Duration>) -> Self {
        let (_machine, ours) = client(scene, ms(2)).await;
        let (_other, theirs) = client(scene, ms(2)).await;
        let all = ours.multi_lock(["a", "b"]);
        let waiting = tokio::spawn(async move {
            match wait {
                None => all.lock().await.map(Some),
                Some(wait) => all.try_lock(wait, Lease::Watchdog).await,
            }
        });
        let b = starve(scene, &theirs.lock("b"), &waiting).await;
        Self { ours, theirs, waiting, b }
    }
}

/// Has `b` for a moment, again and again, until that call has `a`. Returns the guard of `b`.
async fn starve<T>(scene: &Scene, b: &Lock, waiting: &JoinHandle<T>) -> LockGuard {
    loop {
        let guard = b.lock().await.unwrap();
        sleep(ms(60)).await;
        if scene.holds("a").len() == 1 {
            return guard;
        }
        assert!(!waiting.is_finished());
        drop(guard);
        // Before the request of the one that waits.
        scene.ask::<u64>(&["DEL", "b"]);
    }
}

/// Somebody holds one lock while it waits for the other, in the wrong order.
#[test]
fn what_was_taken_one_by_one_is_given_back_to_who_waits_for_it_in_another_order() {
    play(9, async |scene| {
        let Starved { theirs, waiting, b, .. } = Starved::new(scene).await;
        let a = timeout(ms(1_200), theirs.lock("a").lock()).await.expect("no deadlock").unwrap();
        b.unlock().await.unwrap();
        a.unlock().await.unwrap();
        let guard = timeout(Duration::from_secs(5), waiting).await.expect("all").unwrap().unwrap();
        guard.expect("all").unlock().await.unwrap();
    });
}

/// Each lock has a crowd in the client of the call, which comes again and again. The lock is handed off inside the client,
/// so that the two are never free at once, and who stands behind all of them has its turn later than a call waits for one.
#[test]
fn a_set_beside_crowds_of_its_own_client_has_its_turn_by_its_age() {
    const CROWD: usize = 30;
    let holds_it = ms(50);
    for away in [ms(0), ms(2), ms(20)] {
        play(11, async |scene| {
            let (_machine, ours) = client(scene, away).await;
            let mut crowds = tokio::task::JoinSet::new();
            for number in 0..2 * CROWD {
                let lock = ours.lock(["a", "b"][number % 2]);
                crowds.spawn(async move {
                    loop {
                        let _guard = lock.lock().await.unwrap();
                        sleep(holds_it).await;
                    }
                });
            }
            sleep(ms(500)).await;
            let begun = Instant::now();
            let both = ours.multi_lock(["a", "b"]);
            let guard = timeout(MINUTE, both.lock()).await.expect("in its turn").unwrap();
            // A round of each crowd, the time with empty hands, and one hold of each.
            let round = holds_it * u32::try_from(CROWD).expect("few") + away * 4;
            let took = begun.elapsed();
            assert!(took <= 2 * round + ms(1_000) + 4 * holds_it, "{away:?}: {took:?}");
            guard.unlock().await.unwrap();
            crowds.shutdown().await;
        });
    }
}

/// It has one lock of two when the server stands still for three times as long as an answer may take.
#[test]
fn a_call_that_takes_locks_one_by_one_waits_an_outage_out() {
    for wait in [None, Some(60 * MINUTE)] {
        play(12, async |scene| {
            let begun = Instant::now();
            let Starved { ours, waiting, b, .. } = Starved::with(scene, wait).await;
            scene.network.stop(scene.server);
            sleep(ms(9_000)).await;
            assert!(!waiting.is_finished(), "{:?}", waiting.await.unwrap().map(drop));
            scene.network.go_on(scene.server);
            b.unlock().await.unwrap();
            let guard = timeout(ms(5_000), waiting).await.expect("all").unwrap().unwrap();
            let stats = ours.stats();
            assert!(stats.waited == 1 && stats.wait_time <= begun.elapsed(), "{stats:?}");
            guard.expect("all").unlock().await.unwrap();
        });
    }
}

/// The server stands still when the call has one lock and asks for the other, and its wait ends before it has an answer.
#[test]
fn a_try_that_takes_locks_one_by_one_says_that_redis_is_silent_at_its_end() {
    for wait in [ms(2_500), ms(3_000), ms(4_000)] {
        play(12, async |scene| {
            let (_machine, ours) = client(scene, ms(2)).await;
            scene.ask::<u64>(&["HSET", "b", "other:1", "1"]);
            let all = ours.multi_lock(["a", "b"]);
            let waiting = tokio::spawn(async move { all.try_lock(wait, Lease::Watchdog).await });
            let mut asks = 0;
            while scene.holds("a").is_empty() {
                assert!(!waiting.is_finished());
                asks += 1;
                if asks % 60 == 0 {
                    toggle(scene, "b");
                }
                sleep(ms(1)).await;
            }
            scene.network.stop(scene.server);
            let result = waiting.await.unwrap();
            scene.network.go_on(scene.server);
            let error = result.map(|got| got.is_some()).expect_err("it could not tell");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{wait:?}: {error}");
        });
    }
}

/// The server stands still when the other lock has just become free.
#[test]
fn a_call_that_has_taken_all_one_by_one_waits_an_outage_out() {
    for (after, wait) in [(2, None), (4, None), (2, Some(60 * MINUTE)), (4, Some(60 * MINUTE))] {
        let after = ms(after);
        play(12, async |scene| {
            let Starved { waiting, b, .. } = Starved::with(scene, wait).await;
            drop(b);
            sleep(after).await;
            scene.network.stop(scene.server);
            sleep(ms(9_000)).await;
            scene.network.go_on(scene.server);
            let guard = timeout(ms(5_000), waiting).await.expect("all").unwrap();
            let guard = guard.unwrap_or_else(|error| panic!("{after:?}, {wait:?}: {error}"));
            guard.expect("all").unlock().await.unwrap();
        });
    }
}

/// Its client closes when it has that, or when it waits with empty hands again.
#[test]
fn who_had_a_part_when_it_failed_does_not_say_that_nothing_was_executed() {
    for gave_back in [false, true] {
        play(10, async |scene| {
            let Starved { ours, waiting, b, .. } = Starved::new(scene).await;
            let (_third, third) = client(scene, ms(2)).await;
            let a = third.lock("a");
            let a = if gave_back { Some(a.lock().await.unwrap()) } else { None };
            let closing = tokio::spawn(async move { ours.close().await });
            let error = waiting.await.unwrap().unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::Unknown));
            closing.await.unwrap();
            drop(a);
            sleep(ms(100)).await;
            assert_eq!(scene.keys(), ["b"], "and gives it back");
            b.unlock().await.unwrap();
        });
    }
}

/// Frees a lock and takes it back before a request can come.
fn toggle(scene: &Scene, name: &str) {
    set_free(scene, name);
    scene.ask::<u64>(&["HSET", name, "other:1", "1"]);
}

fn set_free(scene: &Scene, name: &str) {
    scene.ask::<u64>(&["DEL", name]);
    scene.ask::<u64>(&["PUBLISH", &channel(name), "0"]);
}

/// It has been refused often enough when its wait ends.
#[test]
fn a_call_whose_wait_is_over_takes_none_one_by_one() {
    play(11, async |scene| {
        let (_machine, ours) = client(scene, ms(10)).await;
        scene.ask::<u64>(&["HSET", "b", "other:1", "1"]);
        let all = ours.multi_lock(["a", "b"]);
        // Its connections are made.
        assert!(all.try_lock_now().await.unwrap().is_none());
        let begun = Instant::now();
        let wait = ms(4_000);
        let waiting =
            tokio::spawn(async move { all.try_lock(wait, Duration::from_secs(60)).await });
        for _ in 0..20 {
            sleep(ms(30)).await;
            toggle(scene, "b");
        }
        sleep(begun + wait - Instant::now() - ms(1)).await;
        assert!(!waiting.is_finished());
        for _ in 0..500 {
            sleep(ms(1)).await;
            assert_eq!(scene.keys(), ["b"], "{:?}", begun.elapsed());
        }
        assert!(waiting.await.unwrap().unwrap().is_none());
    });
}

/// Another call of its handle waits for the first of them meanwhile.
#[test]
fn who_takes_locks_one_by_one_has_other_calls_of_its_handle_nest() {
    play(12, async |scene| {
        let (_machine, ours) = client(scene, ms(2)).await;
        scene.ask::<u64>(&["HSET", "b", "other:1", "1"]);
        let all = Arc::new(ours.multi_lock(["a", "b"]));
        let lock = || {
            let all = all.clone();
            tokio::spawn(async move { all.lock().await.unwrap() })
        };
        let first = lock();
        for _ in 0..20 {
            sleep(ms(20)).await;
            toggle(scene, "b");
        }
        scene.ask::<u64>(&["HSET", "a", "other:1", "1"]);
        sleep(ms(800)).await;
        toggle(scene, "b");
        sleep(ms(50)).await;
        set_free(scene, "a");
        sleep(ms(20)).await;
        let holds = scene.holds("a");
        assert!(
            holds.len() == 1 && !holds.contains_key("other:1"),
            "it has the first one: that is the point"
        );
        let second = lock();
        sleep(ms(20)).await;
        set_free(scene, "b");
        let first = timeout(ms(100), first).await.expect("all").unwrap();
        let second = timeout(ms(100), second).await.expect("they nest").unwrap();
        first.unlock().await.unwrap();
        second.unlock().await.unwrap();
        assert!(scene.keys().is_empty());
    });
}

/// Somebody does something else in the same task.
#[test]
fn a_call_that_is_not_polled_keeps_what_it_has_for_no_longer_than_it_waits() {
    play(13, async |scene| {
        let (_machine, ours) = client(scene, ms(2)).await;
        let (_other, theirs) = client(scene, ms(2)).await;
        let all = ours.multi_lock(["a", "b"]);
        let busy = Arc::new(Notify::new());
        let is_busy = busy.clone();
        let waiting = tokio::spawn(async move {
            let mut call = std::pin::pin!(all.lock());
            tokio::select! {
                _ = &mut call => panic!("b is held"),
                () = is_busy.notified() => sleep(ms(60_000)).await,
            }
        });
        let guard = starve(scene, &theirs.lock("b"), &waiting).await;
        busy.notify_one();
        // Two thirds of the command timeout, and one command timeout.
        let a = timeout(ms(5_500), theirs.lock("a").lock()).await.expect("in time").unwrap();
        a.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        waiting.abort();
    });
}

/// Sets over eight names in any order, with single locks nested in the wrong order beside them: 100,000 in the long form.
#[test]
fn random_sets_beside_nested_single_locks_all_have_their_turns() {
    let taken = Arc::new(Taken::default());
    for seed in 0..in_short(4, 190) {
        play(seed, async |scene| {
            let (mut machines, mut tasks) = (Vec::new(), Vec::new());
            for number in 0..3 {
                let (machine, client) = client(scene, ms(number)).await;
                for task in 0..4 {
                    let (client, taken) = (client.clone(), taken.clone());
                    let random = Random::new(seed * 100 + number * 10 + task);
                    let takes = random_sets(client, random, taken, in_short(25, 60));
                    tasks.push(machine.spawn(takes));
                }
                machines.push(machine);
            }
            for task in tasks {
                timeout(Duration::from_secs(600), task).await.expect("no deadlock").unwrap();
            }
            sleep(ms(100)).await;
            assert!(scene.keys().is_empty(), "{:?}", scene.keys());
        });
    }
    let longest = Duration::from_millis(taken.longest.load(Relaxed));
    println!("{} sets, the longest wait: {longest:?}", taken.sets.load(Relaxed));
    assert!(longest < Duration::from_secs(30), "a call waited for {longest:?}");
}

/// How many sets were taken, and how long a call waited for one at most, in milliseconds.
#[derive(Default)]
struct Taken {
    sets: AtomicU64,
    longest: AtomicU64,
}

async fn random_sets(client: LockClient, mut random: Random, taken: Arc<Taken>, rounds: u64) {
    for _ in 0..rounds {
        let mut names: Vec<_> =
            (0..1 + random.below(4)).map(|_| format!("set:{}", random.below(8))).collect();
        let begun = Instant::now();
        if random.permille(250) {
            // Nested in any order: a holder that may have to give up.
            names.truncate(2);
            let mut guards = Vec::new();
            for name in &names {
                let guard = client.lock(name).try_lock(ms(200), Lease::Watchdog).await.unwrap();
                guards.extend(guard);
            }
            sleep(ms(random.below(5))).await;
            continue;
        }
        let guard = client.multi_lock(&names).lock().await.unwrap();
        taken.longest.fetch_max(begun.elapsed().as_millis() as u64, Relaxed);
        taken.sets.fetch_add(1, Relaxed);
        sleep(ms(random.below(5))).await;
        assert!(!guard.is_lost());
        if random.permille(500) { drop(guard) } else { guard.unlock().await.unwrap() }
    }
}

/// A client that dies, whatever it was about, leaves its locks no longer than its lease.
#[test]
fn a_client_that_dies_leaves_its_locks_for_no_longer_than_its_lease() {
    let lease = Duration::from_secs(4);
    for after in 0..40 {
        play(8, async |scene| {
            let (machine, ours) = client(scene, ms(4)).await;
            let all = ours.multi_lock(NAMES);
            machine.spawn(async move {
                loop {
                    let guard = all.lock_with_lease(lease).await.unwrap();
                    sleep(ms(5)).await;
                    let _ = guard.unlock().await;
                }
            });
            sleep(ms(after)).await;
            machine.crash();
            sleep(lease + ms(10)).await;
            assert!(scene.keys().is_empty(), "{after}: {:?}", scene.keys());
        });
    }
}

/// What comes in one order is processed in another, and each client stops for good at some time: of those that are left,
/// none sleeps beside free locks. 2,000 seeds in the long form.
#[test]
fn on_busy_machines_no_set_waits_beside_free_locks() {
    let (first, end) = in_short((440, 460), (0, 2_000));
    for seed in first..end {
        let taken = Arc::new(Taken::default());
        play(seed, async |scene| {
            let (mut machines, mut tasks, mut random) = (Vec::new(), Vec::new(), Random::new(seed));
            for _ in 0..3 {
                let each_way = Duration::from_micros(random.below(2_000));
                let jitter = ms(random.below(2));
                let machine = scene.machine(Distance { each_way, jitter, bandwidth: None });
                machine.set_lateness(ms([3, 10, 30][random.below(3) as usize]));
                let client = scene.connect(&machine, LockClient::builder()).await;
                for _ in 0..4 {
                    tasks.push(machine.spawn(sets(client.clone(), random.fork(), taken.clone())));
                }
                machines.push(machine);
            }
            for task in tasks {
                timeout(Duration::from_secs(600), task).await.expect("no deadlock").unwrap();
            }
        });
        let longest = Duration::from_millis(taken.longest.load(Relaxed));
        assert!(longest < Duration::from_secs(5), "seed {seed}: a call waited for {longest:?}");
    }
}

async fn sets(client: LockClient, mut random: Random, taken: Arc<Taken>) {
    for _ in 0..8 {
        let many = 1 + random.below(3);
        let names: Vec<_> = (0..many).map(|_| format!("set:{}", random.below(6))).collect();
        let begun = Instant::now();
        let guard = client.multi_lock(&names).lock().await.unwrap();
        taken.longest.fetch_max(begun.elapsed().as_millis() as u64, Relaxed);
        guard.unlock().await.unwrap();
    }
}
