//! Many that read: those of a client come in together, and the first that is done is not the last one.

use tokio_test::task;

use super::*;

/// They have nothing to do inside, so the first that is done would be the last one of its client, if those that wait
/// had the lock only when they go on.
#[tokio::test(start_paused = true)]
async fn readers_that_have_nothing_to_do_are_let_in_together() {
    for each_way in [1, 50].map(ms) {
        let redis = redis_at(each_way);
        let client = redis.client();
        client.read_write_lock("config").read().await.unwrap().unlock().await.unwrap();
        let begun = Instant::now();
        let reads = (0..64).map(|_| {
            let lock = client.read_write_lock("config");
            tokio::spawn(async move {
                for _ in 0..100 {
                    lock.read().await.unwrap().unlock().await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        });
        for one in reads.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        // They come in with one round trip, and with one more the last of them leaves, unless it has stayed for others.
        assert!(begun.elapsed() <= 100 * 4 * each_way, "{:?}", begun.elapsed());
    }
}

/// A task that is ready to read joins the last reader of its client, which is about to leave.
#[tokio::test(start_paused = true)]
async fn the_last_reader_stays_for_a_task_that_is_ready_to_read() {
    for each_way in [1, 50].map(ms) {
        let redis = redis_at(each_way);
        let client = redis.client();
        let (one, other) = (client.read_write_lock("config"), client.read_write_lock("config"));
        for comes in [true, false] {
            let first = one.read().await.unwrap();
            let begun = Instant::now();
            let mut leaves = task::spawn(first.unlock());
            assert!(leaves.poll().is_pending());
            if comes {
                let second = other.read().await.unwrap();
                leaves.await.unwrap();
                assert_eq!(begun.elapsed(), ms(0), "Redis hears of neither");
                second.unlock().await.unwrap();
            } else {
                leaves.await.unwrap();
            }
            assert_eq!(begun.elapsed(), 2 * each_way, "the last one releases it");
            assert_eq!(keys(&redis), [""; 0]);
        }
        // Its caller leaves before it does.
        let mut leaves = task::spawn(one.read().await.unwrap().unlock());
        assert!(leaves.poll().is_pending());
        drop(leaves);
        sleep(each_way * 3).await;
        assert_eq!(keys(&redis), [""; 0]);
    }
}

/// A reader whose `unlock` stays is a guard like any other to its handle, until it has given its hold back.
#[tokio::test(start_paused = true)]
async fn a_handle_writes_beside_a_reader_of_its_own_that_stays() {
    let redis = Redis::new();
    let lock = redis.client().read_write_lock("config");
    let mut leaves = task::spawn(lock.read().await.unwrap().unlock());
    assert!(leaves.poll().is_pending());
    let reads = lock.read().await.unwrap();
    let writes = timeout(ms(1_000), lock.write()).await.expect("it need not wait").unwrap();
    leaves.await.unwrap();
    writes.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    assert_eq!(keys(&redis), [""; 0]);
}

/// The watchdog renews no reader that stays.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_never_polled_again_keeps_writers_out_for_its_lease_only() {
    for each_way in [1, 50].map(ms) {
        let redis = redis_at(each_way);
        let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
        let other = redis.client().read_write_lock("config");
        let reads = client.read_write_lock("config").read().await.unwrap();
        let mut leaves = task::spawn(reads.unlock());
        assert!(leaves.poll().is_pending());
        let begun = Instant::now();
        let writes = timeout(ms(10_000), other.write()).await.expect("its turn").unwrap();
        assert!(begun.elapsed() <= ms(3_000) + 6 * each_way, "{:?}", begun.elapsed());
        assert_eq!(leaves.await.unwrap_err().kind(), ErrorKind::Lost);
        writes.unlock().await.unwrap();
    }
}

/// Its deadline passes while its `unlock` stays, and Redis says that the hold was there to its end.
#[tokio::test(start_paused = true)]
async fn a_reader_that_stays_past_its_deadline_was_not_lost_when_it_left() {
    let redis = Redis::new();
    let client = redis.client();
    let lock = client.read_write_lock("config");
    let reads = lock.try_read(ms(0), ms(10_000)).await.unwrap().unwrap();
    sleep(reads.remaining() - ms(5)).await;
    // It asks Redis, which says that no other client waits.
    client.read_write_lock("config").read().await.unwrap().unlock().await.unwrap();
    let mut leaves = task::spawn(reads.unlock());
    assert!(leaves.poll().is_pending());
    sleep(ms(10)).await;
    leaves.await.unwrap();
    assert_eq!(keys(&redis), [""; 0]);
}

/// It awaits nothing that is not there.
#[tokio::test(start_paused = true)]
async fn a_task_that_joins_readers_again_and_again_lets_others_run() {
    let redis = Redis::new();
    let lock = redis.client().read_write_lock("config");
    let reading = lock.read().await.unwrap();
    let other = tokio::spawn(async {});
    for _ in 0..1_000 {
        lock.read().await.unwrap().unlock().await.unwrap();
    }
    assert!(other.is_finished());
    reading.unlock().await.unwrap();
}

/// A reader waits behind a writer of another client until that has gone. Returns the call, which is polled while it
/// waits, and never again.
async fn never_polled_again(lock: ReadWriteLock, waits: Duration) -> impl Send + 'static {
    let mut call = task::spawn(Box::pin(async move { lock.read().await.map(drop) }));
    let until = Instant::now() + waits;
    while Instant::now() < until {
        assert!(call.poll().is_pending());
        sleep(ms(1)).await;
    }
    call
}

/// A reader of a client with a short watchdog timeout waits behind a writer of another client.
struct Behind {
    client: LockClient,
    other: ReadWriteLock,
    holder: WriteGuard,
    first: JoinHandle<ReadGuard>,
}

impl Behind {
    async fn a_writer(each_way: Duration) -> Self {
        let redis = redis_at(each_way);
        let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
        let other = redis.client().read_write_lock("config");
        let holder = other.write().await.unwrap();
        let first = reads(&client);
        sleep(each_way * 20).await;
        Self { client, other, holder, first }
    }
}

/// The call that is never polled again was let in with another one. The watchdog renews that one alone.
#[tokio::test(start_paused = true)]
async fn a_reader_that_was_let_in_and_never_goes_on_keeps_writers_out_for_its_lease_only() {
    for (each_way, reads) in
        [(ms(1), ms(0)), (ms(1), ms(20_000)), (ms(50), ms(0)), (ms(50), ms(20_000))]
    {
        let Behind { client, other, holder, first } = Behind::a_writer(each_way).await;
        let parked = never_polled_again(client.read_write_lock("config"), each_way * 20).await;
        holder.unlock().await.unwrap();
        let first = first.await.unwrap();
        sleep(reads).await;
        assert!(!first.is_lost(), "the watchdog renews it");
        first.unlock().await.unwrap();
        let most = if reads.is_zero() { ms(3_000) + each_way * 4 } else { each_way * 10 };
        let begun = Instant::now();
        let guard = timeout(ms(60_000), other.write()).await.expect("a turn").unwrap();
        assert!(begun.elapsed() <= most, "{each_way:?}, {reads:?}: {:?}", begun.elapsed());
        guard.unlock().await.unwrap();
        drop(parked);
    }
}

/// One that goes on late is valid for as long as those with which it was let in.
#[tokio::test(start_paused = true)]
async fn a_reader_that_was_let_in_and_goes_on_late_is_renewed_from_then_on() {
    for each_way in [1, 50].map(ms) {
        let Behind { client, other, holder, first } = Behind::a_writer(each_way).await;
        let lock = client.read_write_lock("config");
        let mut late = task::spawn(Box::pin(async move { lock.read().await.unwrap() }));
        assert!(late.poll().is_pending());
        holder.unlock().await.unwrap();
        let first = first.await.unwrap();
        sleep(ms(2_800)).await;
        let late = late.await;
        assert!(late.remaining() > ms(1_500), "{:?}", late.remaining());
        first.unlock().await.unwrap();
        sleep(ms(10_000)).await;
        assert!(!late.is_lost());
        late.unlock().await.unwrap();
        drop(timeout(each_way * 10, other.write()).await.expect("it is free").unwrap());
    }
}

/// The writer behind readers of its client that come in together has its entry in Redis within a round
/// trip: no reader of another client that comes later passes it, although others read.
#[tokio::test(start_paused = true)]
async fn a_writer_behind_readers_that_were_let_in_keeps_its_entry() {
    for each_way in [1, 50].map(ms) {
        for (readers, late) in [(1, false), (2, false), (5, false), (2, true), (5, true)] {
            let redis = redis_at(each_way);
            let (client, other) = (redis.client(), redis.client());
            let holder = other.read_write_lock("config").write().await.unwrap();
            let mut all = Vec::new();
            for _ in 0..readers {
                let lock = client.read_write_lock("config");
                all.push(tokio::spawn(async move {
                    let guard = lock.read().await.unwrap();
                    sleep(ms(2_000)).await;
                    guard.unlock().await.unwrap();
                }));
                sleep(each_way * 20).await;
            }
            let writer = client.read_write_lock("config");
            // A late one comes while the first reader asks, whose request does not say that.
            let comes = each_way * if late { 23 } else { 0 };
            let writes = tokio::spawn(async move {
                sleep(comes).await;
                (writer.write().await.unwrap(), Instant::now())
            });
            sleep(each_way * 20).await;
            let released = Instant::now();
            holder.unlock().await.unwrap();
            // The message, the request of the reader, and that of the writer, who waits behind one for a hand-off first.
            sleep(each_way * 5 + if readers == 1 { ms(11) } else { ms(0) }).await;
            let later = reads(&other);
            let (guard, wrote) = timeout(ms(20_000), writes).await.expect("its turn").unwrap();
            assert!(!later.is_finished(), "{readers} readers, {each_way:?}");
            let most = ms(2_000) + each_way * 20;
            assert!(wrote - released <= most, "{:?}", wrote - released);
            guard.unlock().await.unwrap();
            let guard = timeout(ms(20_000), later).await.expect("its turn").unwrap();
            guard.unlock().await.unwrap();
            for one in all {
                one.await.unwrap();
            }
        }
    }
}

/// Whenever one of the calls is dropped, the others have their turns, and nothing is left.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_dropped_while_others_are_let_in_holds_nobody_up() {
    for each_way in [1, 50].map(ms) {
        for dropped in 0..4 {
            for moment in moments(each_way * 8, 24) {
                let redis = redis_at(each_way);
                let (client, other) = (redis.client(), redis.client());
                let holder = other.read_write_lock("config").write().await.unwrap();
                let inside = Inside::default();
                let mut all = Vec::new();
                for number in 0..4 {
                    let (lock, inside) = (client.read_write_lock("config"), inside.clone());
                    all.push(tokio::spawn(async move {
                        inside.comes(&lock, number == 3, ms(0)).await;
                    }));
                    sleep(each_way * 10).await;
                }
                holder.unlock().await.unwrap();
                sleep(moment).await;
                all[dropped].abort();
                for one in all {
                    let ended = timeout(each_way * 30 + ms(20), one).await;
                    ended.expect("it has its turn").ok();
                }
                let write = other.read_write_lock("config");
                let guard = timeout(each_way * 20 + ms(20), write.write()).await;
                guard.expect("nobody is inside").unwrap().unlock().await.unwrap();
                sleep(ms(1_000)).await;
                assert_eq!(keys(&redis), [""; 0], "{dropped} at {moment:?} of {each_way:?}");
            }
        }
    }
}

/// A client closes while its first reader asks: whatever comes of that request, those that wait are not let in.
#[tokio::test(start_paused = true)]
async fn nobody_is_let_in_by_a_client_that_has_closed() {
    let mut granted_after = 0;
    for each_way in [1, 50].map(ms) {
        for moment in moments(each_way * 6, 18) {
            let redis = redis_at(each_way);
            let client = redis.client();
            let other = redis.client().read_write_lock("config");
            let holder = other.write().await.unwrap();
            let lock = client.read_write_lock("config");
            let first = tokio::spawn(async move {
                let granted = lock.read().await;
                (granted.map(drop).is_ok(), Instant::now())
            });
            sleep(each_way * 10).await;
            let parked = never_polled_again(client.read_write_lock("config"), each_way * 20).await;
            tokio::spawn(async move { holder.unlock().await.unwrap() });
            sleep(moment).await;
            let closed = Instant::now();
            client.close().await;
            let (granted, ended) = timeout(ms(10_000), first).await.expect("it ends").unwrap();
            if granted && ended > closed {
                granted_after += 1;
                let guard = timeout(each_way * 12, other.write()).await;
                guard.expect("nobody is inside").unwrap().unlock().await.unwrap();
            }
            drop(parked);
        }
    }
    assert!(granted_after > 0, "an answer came later");
}

/// Nobody writes: the clients do not take turns.
#[tokio::test(start_paused = true)]
async fn readers_of_different_clients_do_not_wait_for_each_other() {
    for each_way in [1, 50].map(ms) {
        let redis = redis_at(each_way);
        let clients: Vec<_> = (0..4).map(|_| redis.client()).collect();
        let reads = (0..12).map(|number| {
            let lock = clients[number % 4].read_write_lock("config");
            tokio::spawn(async move {
                let (mut random, mut longest) = (Random::new(number as u64), ms(0));
                for turn in 0..100 {
                    let begun = Instant::now();
                    let guard = lock.read().await.unwrap();
                    // The first one connects.
                    if turn > 0 {
                        longest = longest.max(begun.elapsed());
                    }
                    sleep(Duration::from_micros(random.below(500))).await;
                    guard.unlock().await.unwrap();
                    sleep(Duration::from_micros(random.below(500))).await;
                }
                longest
            })
        });
        for one in reads.collect::<Vec<_>>() {
            // Behind the release of the last reader of its client.
            let longest = one.await.unwrap();
            assert!(longest <= 4 * each_way, "{longest:?} at {each_way:?}");
        }
    }
}

/// A client has a writer behind a reader. A reader of another client that came after both waits for that writer, although
/// the oldest waiter of its client reads. If one of them gives up at any time, the others have their turns.
#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_a_writer_that_stands_behind_a_reader_of_its_client() {
    for each_way in [1, 50].map(ms) {
        let drops =
            moments(each_way * 10, 30).flat_map(|moment| [0, 1, 2].map(|one| (one, moment)));
        for (dropped, moment) in drops.chain([(3, ms(0))]) {
            let redis = redis_at(each_way);
            let (holder, one, other) = (redis.client(), redis.client(), redis.client());
            let holder = holder.read_write_lock("config").write().await.unwrap();
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let mut all = Vec::new();
            for (number, client) in [&one, &one, &other].into_iter().enumerate() {
                let (lock, order) = (client.read_write_lock("config"), order.clone());
                all.push(tokio::spawn(async move {
                    let guard = Side::of(&lock, number == 1).await;
                    order.lock().unwrap().push(number);
                    sleep(ms(300)).await;
                    guard.unlock().await;
                }));
                sleep(each_way * 20).await;
            }
            let released = Instant::now();
            tokio::spawn(async move { holder.unlock().await.unwrap() });
            if dropped < 3 {
                sleep(moment).await;
                all[dropped].abort();
            }
            for one in all {
                timeout(ms(20_000), one).await.expect("no call waits for ever").ok();
            }
            let mut order = order.lock().unwrap().clone();
            order.retain(|one| *one != dropped);
            let expected: Vec<_> = (0..3).filter(|one| *one != dropped).collect();
            let case = format!("{dropped} at {moment:?} of {each_way:?}");
            assert!(dropped == 1 || order == expected, "{case}: {order:?}");
            let most = ms(900) + each_way * 30 + ms(20);
            assert!(released.elapsed() <= most, "{case}: {:?}", released.elapsed());
            sleep(ms(1_000)).await;
            assert_eq!(keys(&redis), [""; 0], "{case}");
        }
    }
}

/// A reader has died, and so has a writer that waited for it. Nobody is told when the lease ends that the reader left.
#[test]
fn a_reader_behind_a_dead_writer_comes_when_the_lease_of_a_dead_reader_ends() {
    let (lease, away) = (ms(1_200), ms(10));
    play(0, async |scene| {
        let options = LockClient::builder;
        let dead = [scene.client(away, options()).await, scene.client(away, options()).await];
        let (machine, client) = scene.client(away, LockClient::builder()).await;
        let begun = Instant::now();
        let reads = dead[0].1.read_write_lock("config");
        let _guard = dead[0].0.run(async { reads.read_with_lease(lease).await.unwrap() }).await;
        let writes = dead[1].1.read_write_lock("config");
        dead[1].0.spawn(async move { writes.write().await.map(drop) });
        sleep(8 * away).await;
        let waits = machine.spawn(async move { client.read_write_lock("config").read().await });
        sleep(8 * away).await;
        dead.iter().for_each(|(machine, _)| machine.crash());
        let guard = waits.await.unwrap().unwrap();
        assert!(begun.elapsed() <= lease + 6 * away, "{:?}", begun.elapsed());
        guard.unlock().await.unwrap();
    });
}

/// So many readers of machines that have died: their leases have ended, and the lock lasts.
fn died(scene: &Scene, many: u32) {
    for dead in 0..many {
        scene.ask::<()>(&["HSET", "config", "mode", "read", &format!("dead:{dead}"), "1"]);
    }
}

/// A reader on a machine of its own.
async fn reader(scene: &Scene) -> (Machine, LockClient, ReadGuard) {
    let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
    let reading = machine.run(client.read_write_lock("config").read()).await.expect("to read");
    (machine, client, reading)
}

/// Many machines died at once while they read.
#[test]
fn a_writer_waits_for_none_of_two_hundred_readers_that_have_died() {
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
        died(scene, 200);
        scene.ask::<()>(&["PEXPIRE", "config", "3600000"]);
        let (lock, begun) = (client.read_write_lock("config"), Instant::now());
        let guard = machine.run(lock.write()).await.expect("nobody reads");
        // A question about 63 of them at a time, and the first one of the call.
        let took = begun.elapsed();
        assert!(took <= 6 * ms(2), "{took:?}");
        guard.unlock().await.expect("a release");
    });
}

/// They were killed at each roll-out for days. A look at all of them takes longer than one request may.
#[test]
fn a_writer_far_away_waits_for_none_of_two_thousand_readers_that_have_died() {
    play(0, async |scene| {
        let (machine, client) = scene.client(ms(200), LockClient::builder()).await;
        died(scene, 2_000);
        scene.ask::<()>(&["PEXPIRE", "config", "3600000"]);
        let (lock, begun) = (client.read_write_lock("config"), Instant::now());
        let tried = machine.run(lock.try_write_now()).await.expect("Redis has answered");
        assert!(tried.is_none(), "it has yet to look at all");
        let guard = machine.run(lock.write()).await.expect("nobody reads");
        // A question about 63 of them at a time, and the first one of each request.
        let took = begun.elapsed();
        assert!(took <= 50 * ms(200), "{took:?}");
        guard.unlock().await.expect("a release");
    });
}

/// Who leaves others behind tells nobody: all of these others have died.
#[test]
fn a_writer_behind_a_reader_among_two_hundred_that_have_died_hears_it_leave() {
    for seed in 0..8 {
        play(seed, async |scene| {
            let (reader, _client, reading) = reader(scene).await;
            died(scene, 200);
            let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
            let writes = client.read_write_lock("config");
            let waits = machine.spawn(async move {
                let guard = writes.write().await.expect("to write");
                (guard, Instant::now())
            });
            sleep(20 * ms(2)).await;
            let left = Instant::now();
            reader.run(reading.unlock()).await.expect("a release");
            let (guard, came) = waits.await.expect("a writer");
            assert!(came - left <= 3 * ms(2), "{:?}", came - left);
            machine.run(guard.unlock()).await.expect("a release");
        });
    }
}

/// The first looks find none that has died. When all others have left, no message comes.
#[test]
fn a_writer_behind_a_thousand_readers_and_one_that_has_died_looks_again() {
    for seed in 0..8 {
        play(seed, async |scene| {
            let (last, _client, reading) = reader(scene).await;
            died(scene, 1);
            let (machine, client) = scene.client(ms(2), LockClient::builder()).await;
            let readers = Vec::from_iter((0..1_000).map(|reader| format!("reader:{reader}")));
            let marker = |reader: &String| format!("{{config}}:{reader}:rwlock_timeout:1");
            for reader in &readers {
                scene.ask::<()>(&["HSET", "config", reader, "1"]);
                scene.ask::<()>(&["SET", &marker(reader), "1", "PX", "30000"]);
            }
            let writes = client.read_write_lock("config");
            let waits = machine.spawn(async move { writes.write().await.expect("to write") });
            sleep(ms(100)).await;
            for reader in &readers {
                scene.ask::<()>(&["HDEL", "config", reader]);
                scene.ask::<()>(&["DEL", &marker(reader)]);
            }
            last.run(reading.unlock()).await.expect("a release");
            let left = Instant::now();
            let guard = waits.await.expect("no panic");
            // The grace.
            assert!(left.elapsed() <= ms(1_000) + 4 * ms(2), "{seed}: {:?}", left.elapsed());
            machine.run(guard.unlock()).await.expect("a release");
        });
    }
}
