//! Readers of one client whose leases differ.

use futures::FutureExt;
use redlatch::{Lease, Loss, ReadWriteLock};
use tokio_test::task;

use super::*;

const WATCHDOG: Duration = ms(3_000);

async fn client(scene: &Scene, away: Duration) -> (Machine, LockClient) {
    scene.client(away, LockClient::builder().watchdog_timeout(WATCHDOG)).await
}

/// Each release of a longer lease has Redis set a shorter one: what a renewal sets that is under way then may be of before.
#[test]
fn a_default_lease_is_renewed_beside_longer_ones_that_come_and_go() {
    for away in [20, 50, 80].map(ms) {
        play(1, async |scene| {
            let (_machine, client) = client(scene, away).await;
            let stays = client.read_write_lock("config").read().await.unwrap();
            let others = client.read_write_lock("config");
            let begun = Instant::now();
            while begun.elapsed() < ms(60_000) {
                let guard = others.read_with_lease(2 * WATCHDOG).await.unwrap();
                guard.unlock().await.unwrap();
                let left = stays.remaining();
                assert!(left > WATCHDOG / 2, "{away:?}: {left:?} left after {:?}", begun.elapsed());
            }
            stays.unlock().await.unwrap();
        });
    }
}

/// The request that sets the shorter lease comes to Redis behind a renewal that was sent after it.
#[test]
fn no_reader_believes_a_renewal_that_a_shorter_lease_may_follow() {
    play(2, async |scene| {
        let (machine, client) = client(scene, ms(2)).await;
        let (_other, other) = scene.client(ms(2), LockClient::builder()).await;
        let lock = client.read_write_lock("config");
        let first = lock.read().await.unwrap();
        let long = lock.read_with_lease(2 * WATCHDOG).await.unwrap();
        let short = lock.read_with_lease(ms(2_100)).await.unwrap();
        drop(first);
        sleep(ms(50)).await;
        let begun = Instant::now();
        scene.trap(&machine, Fate::HeldFor(ms(1_200)));
        let unlocks = machine.spawn(async move { long.unlock().await });
        sleep(ms(10)).await;
        let joins = lock.read().await.unwrap();
        assert_eq!(begun.elapsed(), ms(10), "it joins without a request: that is the point");
        sleep(ms(1_240)).await;
        assert_eq!(scene.network.fates().slow, 1, "it came late: that is the point");
        // From now on the client hears nothing, and nothing of it arrives.
        scene.flow(&machine, Flow::Held);
        let write = other.read_write_lock("config");
        let guard = timeout(ms(5_000), write.write()).await.expect("no lease is longer").unwrap();
        assert_eq!((joins.loss(), short.loss()), (Some(Loss::LeaseEnded), Some(Loss::LeaseEnded)));
        guard.unlock().await.unwrap();
        drop(unlocks);
    });
}

/// Another reader joined before the answer, which nobody heard: no lease is to be made shorter any more.
#[test]
fn a_release_that_was_dropped_keeps_no_later_reader_from_being_renewed() {
    for in_background in [false, true] {
        play(5, async |scene| {
            let (machine, client) = client(scene, ms(2)).await;
            let lock = client.read_write_lock("config");
            let first = lock.read().await.unwrap();
            let short = lock.read_with_lease(ms(2_500)).await.unwrap();
            sleep(ms(50)).await;
            let lost = if in_background { Fate::AnswerLost } else { Fate::HeldFor(ms(100)) };
            scene.trap(&machine, lost);
            let unlocks = machine.spawn(async move {
                match in_background {
                    true => drop(first),
                    false => first.unlock().await.unwrap(),
                }
            });
            sleep(ms(10)).await;
            let begun = Instant::now();
            let joins = lock.read().await.unwrap();
            assert_eq!(begun.elapsed(), ms(0), "it joins without a request: that is the point");
            unlocks.abort();
            assert!(timeout(3 * WATCHDOG, joins.lost()).await.is_err(), "{:?}", joins.loss());
            joins.unlock().await.unwrap();
            drop(short);
        });
    }
}

#[test]
fn one_watchdog_renews_both_sides_of_a_handle() {
    play(6, async |scene| {
        let (_machine, client) = client(scene, ms(2)).await;
        let lock = client.read_write_lock("config");
        let (writing, reading) = (lock.write().await.unwrap(), lock.read().await.unwrap());
        sleep(3 * WATCHDOG).await;
        assert!(!reading.is_lost() && !writing.is_lost());
        let other = writing.downgrade().await.unwrap();
        sleep(3 * WATCHDOG).await;
        assert!(!reading.is_lost() && !other.is_lost());
        assert_eq!(scene.ask::<u64>(&["HLEN", "config"]), 2, "the mode, and one reader");
        scene.ask::<u64>(&["DEL", "config"]);
        timeout(WATCHDOG / 2, other.lost()).await.expect("told by a renewal");
        assert!(reading.is_lost());
    });
}

/// Its release asks Redis, because the lease of the other one is shorter.
#[test]
fn who_gives_a_longer_lease_back_hears_that_the_lock_was_gone() {
    play(3, async |scene| {
        let (_machine, client) = client(scene, ms(2)).await;
        let lock = client.read_write_lock("config");
        let long = lock.read_with_lease(ms(60_000)).await.unwrap();
        let short = lock.read_with_lease(ms(5_000)).await.unwrap();
        scene.ask::<u64>(&["DEL", "config"]);
        assert_eq!(long.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(short.is_lost());
    });
}

/// Another client reads, too, until then.
#[test]
fn a_writer_hears_of_a_lease_that_became_shorter_and_ends_by_itself() {
    play(4, async |scene| {
        let (machine, dies) = client(scene, ms(2)).await;
        let (_reads, reads) = scene.client(ms(2), LockClient::builder()).await;
        let (_writes, writes) = scene.client(ms(2), LockClient::builder()).await;
        let lock = dies.read_write_lock("config");
        let long = lock.read_with_lease(ms(60_000)).await.unwrap();
        let short = lock.read_with_lease(ms(2_000)).await.unwrap();
        let stays = reads.read_write_lock("config").read_with_lease(ms(60_000)).await.unwrap();
        let begun = Instant::now();
        let writer = self::writes(&writes);
        sleep(ms(100)).await;
        long.unlock().await.unwrap();
        machine.crash();
        drop(short);
        sleep(ms(3_000) - begun.elapsed()).await;
        stays.unlock().await.unwrap();
        let guard = timeout(ms(500), writer).await.expect("nobody reads").unwrap();
        guard.unlock().await.unwrap();
    });
}

/// Redis has executed it, and its caller never heard that.
#[test]
fn a_request_of_a_reader_that_is_dropped_leaves_no_longer_lease_to_the_others() {
    const HOUR: Duration = Duration::from_secs(3_600);
    const AWAY: Duration = ms(20);
    let short = ms(4_000);
    for (extends, kept) in [(false, true), (false, false), (true, true), (true, false)] {
        play(0, async |scene| {
            let (machine, client) = scene.client(AWAY, LockClient::builder()).await;
            let lock = || client.read_write_lock("config");
            let (one, other) = (lock(), lock());
            let lease = if kept { Lease::Fixed(short) } else { Lease::Watchdog };
            let reads = async |lock: &ReadWriteLock| {
                lock.try_read(ms(1_000), lease).await.expect("an answer").expect("to read")
            };
            let (stays, leaves) = (reads(&one).await, reads(&other).await);
            // The next one asks Redis.
            sleep(ms(1_100)).await;
            let next = lock();
            let asks = async {
                match extends {
                    true => leaves.extend(HOUR).await,
                    false => next.read_with_lease(HOUR).await.map(drop),
                }
            };
            let mut asks = task::spawn(machine.run(asks).boxed());
            assert!(asks.poll().is_pending());
            sleep(AWAY * 3 / 4).await;
            assert!(scene.pttl("config") > 3_000_000, "Redis has executed it");
            drop(asks);
            leaves.unlock().await.expect("a release");
            sleep(4 * AWAY).await;
            let longest = if kept { short } else { Duration::from_secs(30) };
            for key in scene.keys() {
                let left = scene.pttl(&key);
                assert!(left <= longest.as_millis() as i64, "{extends}, {kept}: {key}: {left}");
            }
            stays.unlock().await.expect("a release");
            sleep(4 * AWAY).await;
            assert_eq!(scene.keys(), [""; 0]);
        });
    }
}

/// Redis has executed it, and refuses it when it is sent again: by then Redis knows of a writer that came before it.
#[test]
fn a_request_of_a_reader_that_is_refused_in_the_end_leaves_no_longer_lease_to_the_others() {
    const HOUR: Duration = Duration::from_secs(3_600);
    const AWAY: Duration = ms(20);
    play(0, async |scene| {
        let (machine, client) = scene.client(AWAY, LockClient::builder()).await;
        let (far, writes) = scene.client(AWAY, LockClient::builder()).await;
        let lock = || client.read_write_lock("config");
        let (stays, leaves) = (lock().read().await.unwrap(), lock().read().await.unwrap());
        // The next one asks Redis.
        sleep(ms(1_100)).await;
        let asks = scripts::texts::text("rw_acquire", str::to_owned);
        scene.trap_script(&far, &asks, Fate::Lost);
        scene.trap_script(&machine, &asks, Fate::AnswerLost);
        let lock = writes.read_write_lock("config");
        let writer = far.spawn(async move { lock.write().await });
        sleep(AWAY).await;
        let next = client.read_write_lock("config");
        let reads = machine.spawn(async move { next.try_read(ms(400), HOUR).await });
        wait_until("Redis has executed it", MINUTE, || scene.pttl("config") > 3_000_000).await;
        let refused = reads.await.expect("no panic").expect("an answer");
        assert!(refused.is_none(), "a writer was before it when it asked again");
        leaves.unlock().await.expect("a release");
        for key in scene.keys() {
            assert!(scene.pttl(&key) <= 30_000, "{key}: {}", scene.pttl(&key));
        }
        stays.unlock().await.expect("a release");
        writer.await.expect("no panic").expect("to write").unlock().await.expect("a release");
    });
}

/// Redis has a writer for as long as the reader of its handle keeps the lock.
#[test]
fn a_writer_that_is_dropped_in_an_outage_is_released_behind_it_though_its_lease_has_ended() {
    play(0, async |scene| {
        let options = LockClient::builder().command_timeout(SECOND);
        let (machine, client) = scene.client(ms(2), options).await;
        let (far, other) = scene.client(ms(2), LockClient::builder()).await;
        let lock = client.read_write_lock("config");
        let reading = machine.run(lock.read()).await.expect("to read");
        let writing = machine.run(lock.write_with_lease(SECOND)).await.expect("to write");
        scene.network.set_refusing(&machine, scene.server, true);
        scene.network.cut(&machine, scene.server, false);
        drop(writing);
        sleep(ms(15_000)).await;
        scene.network.set_refusing(&machine, scene.server, false);
        let reads = other.read_write_lock("config");
        let too = far.run(async move { reads.try_read(MINUTE, SECOND).await });
        too.await.expect("an answer").expect("nobody writes").unlock().await.expect("a release");
        assert!(!reading.is_lost());
        machine.run(reading.unlock()).await.expect("a release");
        assert!(scene.keys().is_empty());
    });
}

/// Others read by the same handle, again and again.
#[test]
fn a_reader_that_hangs_is_renewed_up_to_max_hold() {
    for often in [SECOND, ms(50)] {
        hangs_beside_readers(often);
    }
}

fn hangs_beside_readers(often: Duration) {
    play(0, async |scene| {
        let most = ms(4_000);
        let options = LockClient::builder().watchdog_timeout(WATCHDOG).max_hold(most);
        let (machine, client) = scene.client(ms(2), options).await;
        let (other_machine, other) = scene.client(ms(2), LockClient::builder()).await;
        let (lock, begun) = (client.read_write_lock("config"), Instant::now());
        let hangs = machine.run(lock.read()).await.expect("to read");
        let reads = machine.spawn(async move {
            loop {
                sleep(often).await;
                drop(lock.read().await);
            }
        });
        let writes = other.read_write_lock("config");
        let writes = other_machine.spawn(async move { writes.write().await });
        let guard = timeout(MINUTE, writes).await.expect("max_hold ends it").expect("no panic");
        let waited = begun.elapsed();
        assert!(waited > most && waited <= most + WATCHDOG + ms(50), "{waited:?}");
        guard.expect("to write").unlock().await.expect("a release");
        reads.abort();
        drop(hangs);
    });
}
