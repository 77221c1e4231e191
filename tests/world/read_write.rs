//! Read-write locks: who is inside together, who comes next, and what becomes of a client that dies.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use redlatch::{Lease, ReadGuard, ReadWriteLock, WriteGuard};

use crate::prelude::*;

mod crowds;
mod joint;
mod leases;
mod sides;
mod tokens;

/// Who is inside: readers above zero, a writer below.
#[derive(Clone, Default)]
struct Inside(Arc<AtomicI64>);

impl Inside {
    async fn comes(&self, lock: &ReadWriteLock, writes: bool, hold: Duration) {
        let guard = Side::of(lock, writes).await;
        let change = if writes { -1 } else { 1 };
        let before = self.0.fetch_add(change, Relaxed);
        let fits = if writes { before == 0 } else { before >= 0 };
        assert!(fits, "{before} inside, and one that writes: {writes}");
        sleep(hold).await;
        self.0.fetch_sub(change, Relaxed);
        guard.unlock().await;
    }
}

/// A call that waits to read.
fn reads(client: &LockClient) -> JoinHandle<ReadGuard> {
    let lock = client.read_write_lock("config");
    tokio::spawn(async move { lock.read().await.unwrap() })
}

/// A call that waits to write.
fn writes(client: &LockClient) -> JoinHandle<WriteGuard> {
    let lock = client.read_write_lock("config");
    tokio::spawn(async move { lock.write().await.unwrap() })
}

fn keys(redis: &Redis) -> Vec<String> {
    redis.query(redis::cmd("KEYS").arg("*")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn readers_are_inside_together_and_a_writer_is_alone() {
    for each_way in [0, 1, 50].map(ms) {
        let redis = redis_at(each_way);
        let inside = Inside::default();
        let most = Arc::new(AtomicI64::new(0));
        let mut all = Vec::new();
        for client in 0..3 {
            let client_of = redis.client();
            for task in 0..6_u64 {
                let (lock, inside) = (client_of.read_write_lock("config"), inside.clone());
                let most = most.clone();
                all.push(tokio::spawn(async move {
                    for round in 0..10_u64 {
                        sleep(ms((client * 7 + task * 3 + round * 5) % 11)).await;
                        let writes = (task + round) % 4 == 0;
                        inside.comes(&lock, writes, ms(if writes { 3 } else { 4 })).await;
                        most.fetch_max(inside.0.load(Relaxed), Relaxed);
                    }
                }));
            }
        }
        for one in all {
            timeout(ms(600_000), one).await.expect("no call waits for ever").unwrap();
        }
        assert!(most.load(Relaxed) > 0, "readers share it");
        sleep(ms(1_000)).await;
        assert_eq!(keys(&redis), [""; 0], "{each_way:?}");
    }
}

/// Those behind a writer, and those of other clients, come in the order in which they came; and those of one client do,
/// where a reader takes those along that stand directly behind it, and no others.
#[tokio::test(start_paused = true)]
async fn who_came_first_by_more_than_a_round_trip_comes_first() {
    for (each_way, of_one_client) in [(1, false), (50, false), (1, true), (50, true)] {
        let each_way = ms(each_way);
        let redis = redis_at(each_way);
        let clients: Vec<_> = (0..3).map(|_| redis.client()).collect();
        let holder = clients[0].read_write_lock("config").write().await.unwrap();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut all = Vec::new();
        // Two readers, a writer, two readers, two writers, a reader.
        for (number, writes) in
            [false, false, true, false, false, true, true, false].into_iter().enumerate()
        {
            let client = &clients[if of_one_client { 1 } else { number % 3 }];
            let (lock, order) = (client.read_write_lock("config"), order.clone());
            all.push(tokio::spawn(async move {
                let guard = Side::of(&lock, writes).await;
                order.lock().unwrap().push(number);
                sleep(ms(500)).await;
                guard.unlock().await;
            }));
            // The first request of a client comes when it is connected.
            sleep(each_way * 20 + ms(10)).await;
        }
        holder.unlock().await.unwrap();
        for one in all {
            timeout(ms(60_000), one).await.expect("no call waits for ever").unwrap();
        }
        let mut order = order.lock().unwrap().clone();
        for together in [0..2, 3..5] {
            order[together].sort_unstable();
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7], "{each_way:?}, of one: {of_one_client}");
        sleep(ms(1_000)).await;
        assert_eq!(keys(&redis), [""; 0]);
    }
}

/// Redis hears of it with the release of a nested hold, which lowers the count alone. A reader came before.
#[tokio::test(start_paused = true)]
async fn a_nested_release_says_when_the_first_waiter_came_that_wants_to_write() {
    let redis = Redis::new();
    let client = redis.client();
    let lock = client.read_write_lock("config");
    let (outer, inner) = (lock.write().await.unwrap(), lock.write().await.unwrap());
    sleep(ms(1_000)).await;
    let reader = reads(&client);
    sleep(ms(2_000)).await;
    let writer = writes(&client);
    sleep(ms(4_000)).await;
    let id = outer.owner().split(':').next().unwrap().to_owned();
    let (waiting, field) = ("redlatch_rw_waiting:{config}", format!("writer:{id}"));
    // An earlier request has said it, too.
    let forgotten: u64 = redis.query(redis::cmd("HDEL").arg(waiting).arg(&field)).unwrap();
    assert_eq!(forgotten, 1);
    inner.unlock().await.unwrap();
    let (seconds, micros): (u64, u64) = redis.query(&redis::cmd("TIME")).unwrap();
    let came: u64 = redis.query(redis::cmd("HGET").arg(waiting).arg(field)).unwrap();
    assert_eq!(seconds * 1_000_000 + micros - came, 4_000_000);
    outer.unlock().await.unwrap();
    reader.await.unwrap().unlock().await.unwrap();
    writer.await.unwrap().unlock().await.unwrap();
}

/// Every client reads without end, and one wants to write.
#[tokio::test(start_paused = true)]
async fn no_stream_of_readers_keeps_a_writer_out() {
    for each_way in [0, 1, 50].map(ms) {
        let redis = redis_at(each_way);
        let mut readers = Vec::new();
        let reads = Arc::new(AtomicI64::new(0));
        let clients: Vec<_> = (0..2).map(|_| redis.client()).collect();
        for number in 0..16_u64 {
            let lock = clients[number as usize % 2].read_write_lock("config");
            let reads = reads.clone();
            readers.push(tokio::spawn(async move {
                sleep(ms(number * 3)).await;
                loop {
                    let guard = lock.read().await.unwrap();
                    sleep(ms(20)).await;
                    drop(guard);
                    reads.fetch_add(1, Relaxed);
                }
            }));
        }
        sleep(ms(1_000)).await;
        assert!(reads.load(Relaxed) > 16, "they read");
        // In a client of its own, and beside readers.
        for client in [redis.client(), clients[0].clone()] {
            let lock = client.read_write_lock("config");
            for _ in 0..5 {
                let begun = Instant::now();
                let guard = timeout(ms(10_000), lock.write()).await.expect("its turn").unwrap();
                // A read, the share, and the way of each message: connecting is the longest.
                let most = ms(20) + ms(10) + each_way * 30 + ms(20);
                assert!(begun.elapsed() <= most, "{each_way:?}: {:?}", begun.elapsed());
                guard.unlock().await.unwrap();
            }
        }
        let before = reads.load(Relaxed);
        sleep(ms(1_000)).await;
        assert!(reads.load(Relaxed) > before + 16, "they go on");
        readers.iter().for_each(JoinHandle::abort);
        sleep(ms(1_000)).await;
        assert_eq!(keys(&redis), [""; 0]);
    }
}

/// It waits for the longest read that is under way, and for those that came in with it within the share. Up to a round
/// trip of 2 ms that is no more than a read, the share and a round trip.
#[tokio::test(start_paused = true)]
async fn a_remote_writer_waits_for_one_read_and_the_share_and_round_trips() {
    let (share, long) = (ms(10), ms(30));
    for each_way in [0, 500, 1_000, 10_000].map(Duration::from_micros) {
        let redis = redis_at(each_way);
        let (here, there) = (redis.client(), redis.client());
        let readers = (0..64_u64).map(|number| {
            let lock = here.read_write_lock("config");
            tokio::spawn(async move {
                sleep(ms(number % 30)).await;
                loop {
                    let guard = lock.read().await.unwrap();
                    sleep(long).await;
                    drop(guard);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        let lock = there.read_write_lock("config");
        // It makes the connections.
        lock.write().await.unwrap().unlock().await.unwrap();
        let mut longest = Duration::ZERO;
        for turn in 0..60 {
            sleep(ms(100) + Duration::from_micros(turn * 7_919 % 30_000)).await;
            let begun = Instant::now();
            let guard = timeout(ms(10_000), lock.write()).await.expect("its turn").unwrap();
            longest = longest.max(begun.elapsed());
            guard.unlock().await.unwrap();
        }
        // Its request, the message to those that read, their release and the message to it, upon which it asks again:
        // and one of them may have to wait for a request that is under way.
        let trips = if each_way <= ms(1) { 1 } else { 4 };
        assert!(longest <= long + share + trips * 2 * each_way, "{each_way:?}: {longest:?}");
        assert!(longest > long / 2, "they read all the time: that is the point");
        readers.iter().for_each(JoinHandle::abort);
    }
}

/// Joins cost no requests while no other client waits, but for one a share.
#[tokio::test(start_paused = true)]
async fn readers_join_without_requests() {
    let redis = redis_at(ms(50));
    let client = redis.client();
    let first = client.read_write_lock("config").read().await.unwrap();
    let mut guards = vec![first];
    let begun = Instant::now();
    for _ in 0..100 {
        guards.push(client.read_write_lock("config").read().await.unwrap());
    }
    assert_eq!(begun.elapsed(), ms(0));
    // Its time is over: the next one asks, and those behind it enter with it.
    sleep(ms(200)).await;
    let asks: Vec<_> = (0..50).map(|_| reads(&client)).collect();
    let begun = Instant::now();
    for one in asks {
        guards.push(one.await.unwrap());
    }
    assert_eq!(begun.elapsed(), ms(100), "one round trip for all");
    let begun = Instant::now();
    let last = guards.pop().unwrap();
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    assert_eq!(begun.elapsed(), ms(0), "none is the last one");
    last.unlock().await.unwrap();
    assert_eq!(begun.elapsed(), ms(100));
    assert_eq!(keys(&redis), [""; 0]);
}

/// A machine that dies with what it has, or while it waits, costs others its lease or less.
#[test]
fn a_client_that_dies_is_waited_for_no_longer_than_its_lease() {
    for (seed, writes, waits) in
        [(1, false, false), (2, true, false), (3, true, true), (4, false, true)]
    {
        play(seed, async |scene| {
            let options = || LockClient::builder().watchdog_timeout(ms(3_000));
            let (dying, other) =
                (scene.client(ms(2), options()).await, scene.client(ms(2), options()).await);
            let (machine, client) = dying;
            let (here, there) =
                (client.read_write_lock("config"), other.1.read_write_lock("config"));
            let holder = waits.then_some(there.clone());
            let holder = match &holder {
                Some(lock) => Some(other.0.run(async { lock.read().await.unwrap() }).await),
                None => None,
            };
            machine.spawn(async move {
                let _guard = Side::of(&here, writes).await;
                sleep(ms(600_000)).await;
            });
            sleep(ms(500)).await;
            machine.crash();
            let begun = Instant::now();
            let guard = other.0.run(async {
                if waits && writes {
                    // Behind a dead writer, before it is known that it is dead.
                    let read = timeout(ms(11_000), other.1.read_write_lock("config").read()).await;
                    drop(read.expect("the dead one is passed over").unwrap());
                }
                drop(holder);
                timeout(ms(11_000), there.write()).await.expect("its turn").unwrap()
            });
            let guard = guard.await;
            assert!(begun.elapsed() <= ms(14_000), "{:?}", begun.elapsed());
            if !waits {
                assert!(begun.elapsed() <= ms(3_100), "{:?}", begun.elapsed());
            }
            other.0.run(async { guard.unlock().await.unwrap() }).await;
        });
    }
}

/// A writer that gives up was all that kept those behind it out who read, of its own client or of two others.
#[tokio::test(start_paused = true)]
async fn readers_behind_a_writer_that_gives_up_enter_at_once() {
    for (each_way, of_others) in [(1, false), (50, false), (1, true), (50, true)] {
        let each_way = ms(each_way);
        let redis = redis_at(each_way);
        let [one, other, third, fourth] = [(); 4].map(|()| redis.client());
        let reading = one.read_write_lock("config").read().await.unwrap();
        let writer = other.read_write_lock("config");
        let writes =
            tokio::spawn(async move { writer.try_write(each_way * 60, Lease::Watchdog).await });
        sleep(each_way * 20).await;
        let behind = if of_others { vec![&third, &fourth] } else { vec![&other] };
        let behind: Vec<_> = behind.into_iter().map(reads).collect();
        assert!(writes.await.unwrap().unwrap().is_none());
        // Those of other clients are told by the one that reads.
        let most = if of_others { 12 * each_way } else { 4 * each_way + ms(2) };
        for one in behind {
            let guard = timeout(most, one).await.expect("at once").unwrap();
            guard.unlock().await.unwrap();
        }
        reading.unlock().await.unwrap();
    }
}

/// Also if another call of its client waits, and comes after them: that one asks, and has their turn come.
#[tokio::test(start_paused = true)]
async fn readers_behind_a_writer_that_gives_up_enter_before_the_next_call_of_its_client() {
    for (each_way, next_writes) in [(ms(1), true), (ms(1), false), (ms(50), true), (ms(50), false)]
    {
        let redis = redis_at(each_way);
        let [one, other, third, fourth] = [(); 4].map(|()| redis.client());
        let reading = one.read_write_lock("config").read().await.unwrap();
        let gives_up = other.read_write_lock("config");
        let gives_up =
            tokio::spawn(async move { gives_up.try_write(ms(2_000), Lease::Watchdog).await });
        sleep(ms(400)).await;
        let read = reads(&third);
        sleep(ms(400)).await;
        let comes = |client: &LockClient, writes| {
            let lock = client.read_write_lock("config");
            tokio::spawn(async move { drop(Side::of(&lock, writes).await) })
        };
        let write = comes(&fourth, true);
        sleep(ms(400)).await;
        let next = comes(&other, next_writes);
        assert!(gives_up.await.unwrap().unwrap().is_none());
        let round_trips = 5 * each_way + ms(2);
        let guard = timeout(round_trips, read).await.expect("at once").unwrap();
        guard.unlock().await.unwrap();
        reading.unlock().await.unwrap();
        for one in [write, next] {
            timeout(ms(1_000), one).await.expect("their turns come").unwrap();
        }
    }
}

/// Another writer has become a reader meanwhile: no lock is free, and the dead writer is told of that first.
#[test]
fn a_reader_behind_a_dead_writer_comes_when_that_one_counts_no_more_though_the_holder_reads_on() {
    play(0, async |scene| {
        let (_, holder) = scene.client(ms(2), LockClient::builder()).await;
        let (dies, writer) = scene.client(ms(2), LockClient::builder()).await;
        let (machine, reader) = scene.client(ms(2), LockClient::builder()).await;
        let (holder, writer) = (holder.read_write_lock("config"), writer.read_write_lock("config"));
        let writing = holder.write().await.expect("the lock");
        let _writes = dies.spawn(async move { writer.write().await });
        sleep(ms(100)).await;
        let reads = machine.spawn(async move { reader.read_write_lock("config").read().await });
        sleep(ms(100)).await;
        dies.crash();
        let reading = writing.downgrade().await.expect("a reader");
        let guard = timeout(ms(13_000), reads).await.expect("it counts for ten seconds");
        guard.expect("no panic").expect("the lock").unlock().await.expect("a release");
        reading.unlock().await.expect("a release");
    });
}
