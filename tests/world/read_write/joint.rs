//! Readers of one client that have one hold together, and each its own guard.

use redlatch::Loss;
use tokio_test::task;

use super::*;

/// So many that some have a hold with others, on whichever thread they are.
const MANY: usize = 16;

async fn readers(client: &LockClient) -> Vec<(ReadWriteLock, ReadGuard)> {
    let mut readers = Vec::new();
    for _ in 0..MANY {
        let lock = client.read_write_lock("config");
        let guard = lock.read().await.unwrap();
        readers.push((lock, guard));
    }
    readers
}

/// A little later Redis has nothing of the lock.
async fn is_free_soon(redis: &Redis) {
    sleep(ms(100)).await;
    assert_eq!(keys(redis), [""; 0]);
}

/// Another handle reads in between on either thread: only where readers take turns they have a hold together.
async fn others_read(other: &ReadWriteLock) {
    for _ in 0..4 {
        other.read().await.unwrap().unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_many_readers_is_renewed_until_it_has_gone() {
    for each_way in [0, 1, 50].map(ms) {
        let redis = redis_at(each_way);
        let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
        let other = redis.client().read_write_lock("config");
        let mut readers = readers(&client).await;
        while let Some((_, guard)) = readers.pop() {
            sleep(ms(10_000)).await;
            assert!(readers.iter().all(|(_, guard)| guard.remaining() > ms(1_500)));
            assert!(other.try_write_now().await.unwrap().is_none());
            guard.unlock().await.unwrap();
        }
        other.try_write_now().await.unwrap().expect("none is left").unlock().await.unwrap();
        assert_eq!(keys(&redis), [""; 0]);
    }
}

/// The watchdog finds no reader but those that are about to go. One that comes behind that is renewed.
#[tokio::test(start_paused = true)]
async fn a_reader_that_joins_those_that_the_watchdog_has_left_is_renewed() {
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
    for rest in 0..8 {
        // Its own lease keeps the lock, and is renewed by nobody.
        let lock = client.read_write_lock("config");
        let keeps = lock.read_with_lease(ms(60_000)).await.unwrap();
        let mut readers = readers(&client).await;
        let mut leave = Vec::new();
        for (_, guard) in readers.drain(rest..) {
            let mut leaves = task::spawn(guard.unlock());
            if leaves.poll().is_pending() {
                leave.push(leaves);
            }
        }
        readers.clear();
        sleep(ms(1_500)).await;
        let late = self::readers(&client).await;
        for leaves in leave {
            leaves.await.unwrap();
        }
        sleep(ms(20_000)).await;
        assert!(late.iter().all(|(_, guard)| !guard.is_lost()), "the rest is {rest}");
        for (_, guard) in late {
            guard.unlock().await.unwrap();
        }
        keeps.unlock().await.unwrap();
        is_free_soon(&redis).await;
    }
}

/// What one asks for is not what the others have.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_extended_takes_no_other_along() {
    let redis = Redis::new();
    let client = redis.client();
    let ttl = || redis.query::<i64>(redis::cmd("PTTL").arg("config")).unwrap();
    let mut readers = readers(&client).await;
    for at in [0, MANY / 2, MANY - 1] {
        let (lock, extended) = readers.swap_remove(at);
        extended.extend(ms(3_600_000)).await.unwrap();
        extended.extend(ms(3_700_000)).await.unwrap();
        assert!(extended.remaining() > ms(3_600_000));
        assert!(readers.iter().all(|(_, guard)| guard.remaining() <= ms(30_000)));
        assert!(lock.try_write_now().await.unwrap().is_none(), "others read");
        extended.unlock().await.unwrap();
        sleep(ms(100)).await;
        assert!(ttl() <= 30_000, "nobody needs more: {}", ttl());
        readers.push((lock.clone(), lock.read().await.unwrap()));
    }
    drop(readers);
    // It is known as its handle's own, and as gone when it has gone.
    let lock = client.read_write_lock("config");
    let other = client.read_write_lock("config");
    let one = lock.read().await.unwrap();
    others_read(&other).await;
    let extended = lock.read().await.unwrap();
    extended.extend(ms(3_600_000)).await.unwrap();
    lock.write().await.unwrap().unlock().await.unwrap();
    one.unlock().await.unwrap();
    lock.write().await.unwrap().unlock().await.unwrap();
    extended.unlock().await.unwrap();
    let reads = other.read().await.unwrap();
    assert!(lock.try_write_now().await.unwrap().is_none());
    assert!(timeout(ms(100), lock.write()).await.is_err(), "it does not read, and waits");
    reads.unlock().await.unwrap();
    is_free_soon(&redis).await;
}

/// A handle that reads more than once, beside another handle and without.
#[tokio::test(start_paused = true)]
async fn a_handle_writes_beside_all_its_own_readers_and_beside_no_other() {
    let redis = Redis::new();
    let client = redis.client();
    let (lock, other) = (client.read_write_lock("config"), client.read_write_lock("config"));
    let mut own = Vec::new();
    for _ in 0..MANY {
        own.push(lock.read().await.unwrap());
        others_read(&other).await;
    }
    // They know the hold that they had a part of.
    let mut others = Vec::new();
    for (lock, guard) in readers(&client).await {
        guard.unlock().await.unwrap();
        others.push(lock);
    }
    let reads = other.read().await.unwrap();
    let denied = lock.write().await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::WouldDeadlock);
    assert!(other.try_write_now().await.unwrap().is_none());
    reads.unlock().await.unwrap();
    for _ in 1..MANY {
        let writes = timeout(ms(1_000), lock.write()).await.expect("all are its own").unwrap();
        // What reads beside the writer is a reader of its handle only.
        for other in &others {
            assert!(other.try_read_now().await.unwrap().is_none());
        }
        own.push(lock.read().await.unwrap());
        own.swap_remove(0).unlock().await.unwrap();
        own.swap_remove(0).unlock().await.unwrap();
        writes.unlock().await.unwrap();
    }
    own.pop().unwrap().unlock().await.unwrap();
    assert!(own.is_empty());
    let begun = Instant::now();
    let writes = lock.write().await.unwrap();
    assert!(lock.try_read_now().await.unwrap().is_some(), "it reads beside itself");
    writes.unlock().await.unwrap();
    assert_eq!(begun.elapsed(), ms(0));
    is_free_soon(&redis).await;
}

#[tokio::test(start_paused = true)]
async fn all_of_many_readers_learn_of_a_loss() {
    let redis = Redis::new();
    let client = redis.builder().watchdog_timeout(ms(3_000)).connect().await.unwrap();
    let readers = readers(&client).await;
    assert_eq!((client.stats().held, client.stats().lost_guards), (1, 0));
    let lost = readers.iter().map(|(_, guard)| guard.lost()).collect::<Vec<_>>();
    redis.query::<()>(redis::cmd("DEL").arg("config")).unwrap();
    for one in lost {
        timeout(ms(2_000), one).await.expect("the next renewal finds it");
    }
    assert_eq!((client.stats().held, client.stats().lost_guards), (0, MANY));
    for (at, (lock, guard)) in readers.into_iter().enumerate() {
        assert_eq!(guard.loss(), Some(Loss::KeyGone));
        assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(client.stats().lost_guards, MANY - 1 - at);
        // Its next guard is in no hold with those that are lost.
        lock.read().await.unwrap().unlock().await.unwrap();
    }
    assert!(!keys(&redis).contains(&"config".into()));
}

/// A call that is dropped while its reader stays, and a guard that is dropped.
#[tokio::test(start_paused = true)]
async fn the_lock_is_free_after_the_last_of_many_in_whichever_way_it_goes() {
    let redis = Redis::new();
    let client = redis.client();
    for way in 0..3 {
        let mut readers = readers(&client).await;
        let begun = Instant::now();
        while let Some((_, guard)) = readers.pop() {
            match (way + readers.len()) % 3 {
                0 => drop(guard),
                1 => drop(task::spawn(guard.unlock()).poll()),
                _ => guard.unlock().await.unwrap(),
            }
        }
        timeout(ms(100), async {
            while !keys(&redis).is_empty() {
                sleep(ms(1)).await;
            }
        })
        .await
        .expect("it is free at once");
        assert!(begun.elapsed() <= ms(100));
        assert_eq!(client.stats().held, 0);
    }
}

/// Who awaits a loss awaits that of this guard, also if it has left the others since.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_extended_is_lost_when_its_own_hold_is() {
    let redis = Redis::new();
    let client = redis.client();
    let mut readers = readers(&client).await;
    for at in [0, MANY / 2, MANY - 4] {
        let (_, guard) = readers.swap_remove(at);
        let work = async {
            guard.extend(ms(3_600_000)).await.unwrap();
            sleep(ms(3_000_000)).await;
        };
        guard.run_until_lost(work).await.expect("it was extended for longer than that");
    }
    for (_, guard) in readers {
        guard.unlock().await.unwrap();
    }
    for at in 0..8 {
        let (_, guard) = self::readers(&client).await.swap_remove(2 * at);
        let mut lost = task::spawn(guard.lost());
        assert!(lost.poll().is_pending());
        guard.extend(ms(60_000)).await.unwrap();
        let begun = Instant::now();
        redis.query::<()>(redis::cmd("DEL").arg("config")).unwrap();
        lost.await;
        assert!(begun.elapsed() <= ms(10_000), "the next renewal finds it");
        assert_eq!(guard.loss(), Some(Loss::KeyGone));
    }
}

/// It read what that writer has left.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_extended_has_the_token_that_it_had() {
    let redis = Redis::new();
    let client = redis.client();
    let (lock, other) =
        (client.fenced_read_write_lock("config"), client.fenced_read_write_lock("config"));
    let mut readers = Vec::new();
    for _ in 0..MANY {
        readers.push(lock.read().await.unwrap());
        for _ in 0..4 {
            other.read().await.unwrap().unlock().await.unwrap();
        }
    }
    let tokens = readers.iter().map(|guard| guard.token()).collect::<Vec<_>>();
    let writes = lock.write().await.unwrap();
    for (guard, token) in readers.iter().zip(tokens) {
        guard.extend(ms(60_000)).await.unwrap();
        assert_eq!(guard.token(), token);
        assert!(token.is_none_or(|token| token < writes.token()));
    }
}

/// It has called `unlock`, and others read: so it waits for them, and not for itself.
#[tokio::test(start_paused = true)]
async fn a_handle_that_is_about_to_read_no_more_waits_to_write_until_others_have_gone() {
    let redis = Redis::new();
    let client = redis.client();
    let mut stayed = 0;
    for _ in 0..8 {
        let mut readers = readers(&client).await;
        let first = readers.remove(0);
        while let Some((lock, guard)) = readers.pop() {
            let mut leaves = task::spawn(guard.unlock());
            let stays = leaves.poll().is_pending();
            let mut writes = task::spawn(lock.write());
            if stays {
                stayed += 1;
                assert!(writes.poll().is_pending(), "the first one reads");
            }
            drop(leaves);
        }
        first.1.unlock().await.unwrap();
        is_free_soon(&redis).await;
    }
    assert!(stayed > 0);
}

/// Others of its client read, and a handle that has read before waits behind one that waits to write.
#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_again_passes_no_call_that_waits() {
    let redis = Redis::new();
    let client = redis.client();
    let mut readers = readers(&client).await;
    let gone = readers.split_off(MANY / 2);
    let mut locks = Vec::new();
    for (lock, guard) in gone {
        guard.unlock().await.unwrap();
        lock.read().await.unwrap().unlock().await.unwrap();
        locks.push(lock);
    }
    let writer = client.read_write_lock("config");
    let mut writes = task::spawn(writer.write());
    assert!(writes.poll().is_pending());
    for lock in locks {
        assert!(lock.try_read_now().await.unwrap().is_none());
    }
    drop(readers);
    timeout(ms(1_000), writes).await.expect("its turn").unwrap().unlock().await.unwrap();
}
